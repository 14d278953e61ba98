"""Errors of TensorFlow and Keras in a learner's words."""

from __future__ import annotations

import pytest
from error_cases import kept

from dtk.watch.explain import exit_in_words, in_one_sentence, mismatch

COND = """Exception encountered when calling Cond.call().

\x1b[1mCould not automatically infer the output shape / dtype of 'cond' (of type Cond). Either the `Cond.call()` \
method is incorrect, or you need to implement the `Cond.compute_output_spec() / compute_output_shape()` method. Error \
encountered:

Using a symbolic `tf.Tensor` as a Python `bool` is not allowed. You can attempt the following resolutions to the \
problem: If you are running in Graph mode, use Eager execution mode or decorate this function with @tf.function. If \
that does not work, see https://github.com/tensorflow/tensorflow/blob/master/limitations.md for more information.\x1b[0m

Arguments received by Cond.call():
  • args=('<KerasTensor shape=(None, 4), dtype=float32, sparse=False, ragged=False, name=keras_tensor>',)
  • kwargs=<class 'inspect._empty'>"""

LAYER = """Exception encountered when calling Dense.call().

\x1b[1mMatrix size-incompatible: In[0]: [8,4], In[1]: [5,3]\x1b[0m

Arguments received by Dense.call():
  • inputs=tf.Tensor(shape=(8, 4), dtype=float32)"""

ONE_LINE = (
    "Labels have rank 2. Please see https://www.tensorflow.org/tutorials/distribute/custom_training for more details."
)

GRAPH = """Graph execution error:

Detected at node sgd/Timestamp defined at (most recent call last):
<stack traces unavailable>
Detected at node sgd/Timestamp defined at (most recent call last):
<stack traces unavailable>
Detected unsupported operations when trying to compile graph __inference_on_data_546[] on XLA_CPU_JIT: Bucketize
\t [[StatefulPartitionedCall]] [Op:__inference_on_iterator_568]"""


@pytest.mark.parametrize(
    ("kind", "message", "said"),
    [
        (
            "OperatorNotAllowedInGraphError",
            COND,
            "raised OperatorNotAllowedInGraphError: Using a symbolic `tf.Tensor` as a Python `bool` is not allowed. "
            "You can attempt the following resolutions to the problem: If you are running in Graph mode, use Eager "
            "execution mode or decorate this function with @tf.function.",
        ),
        ("ValueError", LAYER, "raised ValueError: Matrix size-incompatible: In[0]: [8,4], In[1]: [5,3]"),
        ("ValueError", ONE_LINE, f"raised ValueError: {ONE_LINE}"),
        (
            "InvalidArgumentError",
            GRAPH,
            "raised InvalidArgumentError: Detected unsupported operations when trying to compile graph "
            "__inference_on_data_546[] on XLA_CPU_JIT: Bucketize",
        ),
        ("OSError", "no such directory: /srv/data/of/mine/x", "raised OSError: no such directory: .../x"),
    ],
)
def test_the_sentence_has_the_cause(kind, message, said):
    assert in_one_sentence(kind, message) == said


def test_workers_that_meet_with_different_kinds_of_values_are_in_different_collectives_whoever_says_it():
    """Which worker says which of the two is chance, so the sentence must not depend on it."""
    ((_, message, _),) = kept()["tf-2.21"]["texts"]["another type in a collective"]
    other = message.replace("data_type 1 but got type 0 and data_type 9", "data_type 9 but got type 0 and data_type 1")
    assert other != message
    assert mismatch(other) == mismatch(message) != ""


def test_a_long_message_ends_with_a_sentence_where_one_fits():
    whole = "The first sentence is long enough to stand alone, and says what has gone wrong with what. "
    said = in_one_sentence("ValueError", whole + "The second " + "goes on and on " * 30)
    assert said == f"raised ValueError: {whole.strip()}"
    assert in_one_sentence("ValueError", "x" * 400) == f"raised ValueError: {'x' * 277}..."


def test_how_a_program_ended_is_not_said_of_a_function():
    assert in_one_sentence("SystemExit", "3", program=True) == "called sys.exit(3) before the program's end"
    assert exit_in_words(4, program=True) == "ended itself with exit code 4 before the program's end (os._exit?)"
    assert exit_in_words(None) == "ended before its function returned"
