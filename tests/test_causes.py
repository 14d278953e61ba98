"""What a worker says of a failure where Keras raises: a real run, and the cause in a sentence.

What is said of each other error is in `error_cases.py`, with the real texts of `tests/texts`.
"""

from __future__ import annotations

import lanes
import provoked
import pytest

import dtk

SAID = (
    "raised OperatorNotAllowedInGraphError: Using a symbolic `tf.Tensor` as a Python `bool` is not allowed. You can "
    "attempt the following resolutions to the problem: If you are running in Graph mode, use Eager execution mode or "
    "decorate this function with @tf.function."
)


@pytest.mark.trains
@pytest.mark.skipif(not lanes.KERAS_3, reason="Keras 2 says these things otherwise")
def test_the_cause_is_in_the_sentence():
    with pytest.raises(dtk.WorkerFailed) as failure:
        dtk.run(provoked.choosing, workers=2)
    assert str(failure.value) in (f"worker 0 {SAID}", f"worker 1 {SAID}")
    assert failure.value.traceback.startswith("Traceback"), "what Keras said is there in full"
