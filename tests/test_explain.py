"""Errors of TensorFlow and Keras in a learner's words."""

from __future__ import annotations

import pytest

from dtk.cluster.explain import in_one_sentence


@pytest.mark.parametrize(
    ("attribute", "said"),
    [
        ("reset_states", "raised AttributeError: Mean has no reset_states: Keras 3 calls it reset_state"),
        ("lr", "raised AttributeError: Mean has no lr: Keras 3 calls it learning_rate"),
        ("lrate", "raised AttributeError: 'Mean' object has no attribute 'lrate'"),
    ],
)
def test_names_that_keras_3_changed(attribute, said):
    assert in_one_sentence("AttributeError", f"'Mean' object has no attribute '{attribute}'") == said


def test_what_dtk_raises_in_a_tf_function_is_said_without_autographs_wrapping():
    message = (
        "in user code:\n\n    File f.py, line 2\n\n    ClusterConfigError: dtk.record_step: step 1 was recorded twice\n"
    )
    said = "raised ClusterConfigError: dtk.record_step: step 1 was recorded twice"
    assert in_one_sentence("StagingError", message) == said
