"""Errors of TensorFlow and Keras in a learner's words."""

from __future__ import annotations

import pytest

from dtk.watch.explain import exit_in_words, in_one_sentence, mismatch


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

BUILDING = """Unable to automatically build the model. Please build it yourself before calling fit/evaluate/predict. A \
model is 'built' when its variables have been created and its `self.built` attribute is True.

Exception encountered:
'Exception encountered when calling Wrong.call().

\x1b[1mModel Wrong does not have a `call()` method implemented.\x1b[0m

Arguments received by Wrong.call():
  • args=('tf.Tensor(shape=(None, 4), dtype=float32)',)'"""

REDUCTION = """in user code:

    File "/tmp/train.py", line 144, in f  *
        def f(b): return strategy.run(step, args=b)
    File "/usr/lib/python3/site-packages/tf_keras/src/losses.py", line 210, in _get_reduction  **
        raise ValueError(

    ValueError: Please use `tf.keras.losses.Reduction.SUM` or `tf.keras.losses.Reduction.NONE` for loss reduction when \
losses are used with `tf.distribute.Strategy`, except for specifying losses in `Model.compile()` for use by the \
built-in training looop `Model.fit()`.
    Please see https://www.tensorflow.org/tutorials/distribute/custom_training for more details.
"""

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

XLA = """Graph execution error:

Detected at node StatefulPartitionedCall defined at (most recent call last):
  File "<string>", line 1, in <module>

Collectives are not yet implemented for CPU devices when compiling with XLA. Attempted to compile a collective running \
on/job:worker/replica:0/task:0/device:CPU:0. Please comment on b/194942685 or file a new bug if you don't have access.
\t [[{{node StatefulPartitionedCall}}]] [Op:__inference_on_iterator_545]"""

PEER = """{{function_node __wrapped__CollectiveReduceV2_Nordering_token_1_device_/job:worker/replica:0/task:1}} \
Collective ops is aborted by: Collective ops is aborted by: Collective instance 124 expected type 0 and data_type 1 \
but got type 0 and data_type 9
The error could be from a previous operation. Restart your program to reset."""

DIFFERENT = (
    "the workers met in different collectives{}; all must make the same ones in the same order, of the same shapes, "
)
STEP = "call the step by strategy.run(step, args=(batch,))"


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
        (
            "RuntimeError",
            BUILDING,
            "raised RuntimeError: Keras 3 has to call Wrong to build it, under a strategy even before the first step, "
            "and Wrong has no call(); write one: its forward pass",
        ),
        (
            "ValueError",
            REDUCTION,
            "raised ValueError: Please use `tf.keras.losses.Reduction.SUM` or `tf.keras.losses.Reduction.NONE` for "
            "loss reduction when losses are used with `tf.distribute.Strategy`, except for specifying losses in "
            "`Model.compile()` for use by the built-in training looop `Model.fit()`.",
        ),
        ("ValueError", ONE_LINE, f"raised ValueError: {ONE_LINE}"),
        (
            "InvalidArgumentError",
            GRAPH,
            "raised InvalidArgumentError: Detected unsupported operations when trying to compile graph "
            "__inference_on_data_546[] on XLA_CPU_JIT: Bucketize",
        ),
        (
            "UnimplementedError",
            XLA,
            "raised UnimplementedError: XLA can't compile an all-reduce on CPUs; leave jit_compile=True out",
        ),
        (
            "InternalError",
            PEER,
            "raised InternalError: "
            + DIFFERENT.format(", with values of float32 and int64")
            + "and equally many steps (evaluate and predict, too, on every worker)",
        ),
        (
            "ValueError",
            "DistributedVariable.handle is not available outside the replica context or a "
            "`tf.distribute.Strategy.update()` call.",
            f"raised ValueError: a variable of the strategy was used where no replica runs; {STEP}",
        ),
        (
            "ValueError",
            "Only input tensors may be passed as positional arguments. The following argument value should be passed "
            "as a keyword argument: PerReplica:{\n  0: tf.Tensor([[1.5]])\n} (of type <class 'PerReplica'>)",
            "raised ValueError: a value with one part for each replica (PerReplica) was used as one tensor; "
            f"{STEP}, or take strategy.experimental_local_results(value)",
        ),
        (
            "ValueError",
            "Argument(s) not recognized: {'lr': 0.1}",
            "raised ValueError: the optimizer has no argument lr; Keras calls it learning_rate",
        ),
        ("OSError", "no such directory: /srv/data/of/mine/x", "raised OSError: no such directory: .../x"),
    ],
)
def test_the_sentence_has_the_cause(kind, message, said):
    assert in_one_sentence(kind, message) == said


def test_workers_that_meet_with_different_kinds_of_values_are_in_different_collectives_whoever_says_it():
    """Which worker says which of the two is chance, so the sentence must not depend on it."""
    other = PEER.replace("data_type 1 but got type 0 and data_type 9", "data_type 9 but got type 0 and data_type 1")
    assert mismatch(other.replace("\\\n", "")) == mismatch(PEER) != ""
    assert mismatch("Collective ops is aborted by: Socket closed") == ""


def test_a_long_message_ends_with_a_sentence_where_one_fits():
    whole = "The first sentence is long enough to stand alone, and says what has gone wrong with what. "
    said = in_one_sentence("ValueError", whole + "The second " + "goes on and on " * 30)
    assert said == f"raised ValueError: {whole.strip()}"
    assert in_one_sentence("ValueError", "x" * 400) == f"raised ValueError: {'x' * 277}..."


def test_a_batch_without_examples_is_said():
    message = (
        "Shape must be rank 1 but is rank 2 for '{{node BiasAdd}}' with input shapes: [0,512], [0,512].\n\nArguments "
    )
    said = in_one_sentence("ValueError", f"{message}received:\n  inputs=tf.Tensor(shape=(0, 12), dtype=float32)")
    assert said.startswith("raised ValueError: a replica had no example, which this layer can't take: predict or")


def test_variables_outside_of_the_scope_are_said_without_their_numbers():
    message = (
        "`colocate_vars_with` must only be passed a variable created in this tf.distribute.Strategy.scope(), not: <tf"
    )
    said = in_one_sentence(
        "ValueError", f"{message}.Variable 'dense/kernel:0' shape=(30, 256) numpy=\narray([[ 0.0]])>"
    )
    assert said.startswith("raised ValueError: the model's variables were made outside of the strategy's scope; make")


def test_how_a_program_ended_is_not_said_of_a_function():
    assert in_one_sentence("SystemExit", "3", program=True) == "called sys.exit(3) before the program's end"
    assert exit_in_words(4, program=True) == "ended itself with exit code 4 before the program's end (os._exit?)"
    assert exit_in_words(None) == "ended before its function returned"
