"""What is to be said of each error that `provoked.py` and `losing.py` cause, and the texts that are kept of them."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import provoked as p
from losing import ENDS, UNLIKE

import dtk
from dtk.errors import command

TEXTS = Path(__file__).parent / "texts"
TWO: dict[str, Any] = {"workers": 2}
REPLICAS: dict[str, Any] = {"workers": 1, "replicas": 2}
ONE: dict[str, Any] = {"workers": 1}
KERAS_3 = ("main", "canary", "colab", "lowest")

DATA = "set options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA"
LOADS = f"{DATA} (dtk.datasets.load does)"
STEP = "call the step by strategy.run(step, args=(batch,))"
PART = f"a value with one part for each replica (PerReplica) was used as one tensor; {STEP}, or take "
REDUCTION = (
    "Please use `tf.keras.losses.Reduction.SUM` or `tf.keras.losses.Reduction.NONE` for loss reduction when losses are "
    "used with `tf.distribute.Strategy`, except for specifying losses in `Model.compile()` for use by the built-in "
    "training looop `Model.fit()`."
)
MEETS = (
    "the workers met in different collectives: {}; all workers must make the same collectives in the same order, of "
    "the same shapes, and the same number of steps (evaluate and predict, too)"
)


@dataclass(frozen=True)
class Case:
    """One error.

    raises: the function that causes it. says: dtk's sentence; "" where TensorFlow's own words are passed on. own: what
    those begin with. start: of `dtk.run`. given: whether the function gets the run's strategy. lanes: where it comes.
    is_: what else it is taken for: "lost" (a peer), "different" (collectives), "port" (taken), "heartbeat" (missed).
    """

    raises: Callable[[Any], Any] | None = None
    says: str = ""
    own: str = ""
    start: dict[str, Any] = field(default_factory=lambda: REPLICAS)
    given: bool = True
    lanes: tuple[str, ...] = (*KERAS_3, "tf215")
    is_: tuple[str, ...] = ()


CASES = {
    "one file for two workers": Case(
        lambda strategy: p.lines(strategy, 1),
        f"the dataset reads fewer than 2 files, which autoshard policy FILE can't divide among 2 workers; {LOADS}",
        start=TWO,
    ),
    "two files for three workers": Case(
        lambda strategy: p.lines(strategy, 2),
        f"the dataset reads fewer than 3 files, which autoshard policy FILE can't divide among 3 workers; {LOADS}",
        start={"workers": 3},
    ),
    "no files": Case(
        p.no_files,
        f"the dataset is not made from files, and autoshard policy FILE divides nothing else; {DATA}",
        start=TWO,
    ),
    "strategy made late": Case(
        p.strategy_made_late,
        "the strategy was made after TensorFlow had run its first operation; make it in a function's first line, or a "
        "script's after its imports, or take a parameter `strategy`",
        start=TWO,
        given=False,
    ),
    "no TensorBoard": Case(
        lambda strategy: summary_without_tensorboard(),
        f"TensorFlow writes no summaries without TensorBoard, which is not installed here; {command('tensorboard')}",
        start=ONE,
        lanes=KERAS_3,  # 2.15 asks for it itself
    ),
    "stepping directly": Case(
        p.stepping_directly, f"a variable of the strategy was used where no replica runs; {STEP}", start=TWO
    ),
    "optimizer built outside": Case(
        p.optimizer_built_outside,
        "what was called needs the strategy; call a training step by strategy.run(step, args=(batch,)), and make "
        "models and optimizers inside strategy.scope()",
        start=TWO,
    ),
    "model made outside": Case(
        p.model_made_outside,
        "the model or its optimizer was made outside of the strategy's scope; make both inside "
        "`with strategy.scope():`, or keep the scope: scope = strategy.scope(); scope.__enter__()",
    ),
    **{
        f"PerReplica {name}": Case(p.per_replica(use), f"{PART}strategy.experimental_local_results(value)")
        for name, use in {
            "given to a model": lambda x, model: model(x),
            "reduced": p.reduced,
            "multiplied": p.multiplied,
            "sliced": lambda x, _: x[0],
            "as an array": lambda x, _: x.numpy(),
            "plus one": lambda x, _: x + 1.0,
            "as a number": lambda x, _: float(x),
        }.items()
    },
    "updating in a condition": Case(
        p.updating_in_a_condition,
        "an all-reduce (such as that of optimizer.apply_gradients) is inside a condition, a loop or a tf.function of "
        "its own in the step, which TensorFlow can't merge over replicas; take it out of there (Keras 3's optimizers "
        "with gradient_accumulation_steps or ema_overwrite_frequency put it there)",
    ),
    "variables made in the step": Case(
        p.variables_made_in_the_step,
        "variables are made in the first call of a tf.function with an all-reduce, which fails in TensorFlow where a "
        "worker has several replicas; make them before, in strategy.scope(): an Input for the model (or "
        "model.build(shape)), and optimizer.build(model.trainable_variables)",
        lanes=KERAS_3,
    ),
    "compiling the step": Case(
        p.compiling_the_step, "XLA can't compile an all-reduce on CPUs; leave jit_compile=True out", start=TWO
    ),
    "no call()": Case(
        p.without_a_call,
        "Keras 3 has to call Wrong, under a strategy before the first step, and it has no call(); write one (its "
        "forward pass), or self.built = True in __init__ if its models have Inputs and compile has no loss or metrics",
        lanes=KERAS_3,
    ),
    "lr given": Case(p.with_lr, "the optimizer has no argument lr; Keras calls it learning_rate", lanes=KERAS_3),
    "lr asked": Case(
        p.asked_for_lr, "SGD has no lr: Keras 3 calls it learning_rate; or run it by dtk run --keras 2", lanes=KERAS_3
    ),
    "reset_states": Case(
        p.reset, "Mean has no reset_states: Keras 3 calls it reset_state; or run it by dtk run --keras 2", lanes=KERAS_3
    ),
    "saved as by Keras 2": Case(
        p.saved_as_by_keras_2,
        "written for Keras 2 (Invalid filepath extension for saving): run it by dtk run --keras 2, or dtk.run(..., "
        "keras=2)",
        lanes=KERAS_3,
    ),
    "no tf.estimator": Case(
        p.asked_tensorflow_for_estimator,
        "TensorFlow has no tf.estimator since 2.16; write dtk.estimator in its place",
        lanes=KERAS_3,
    ),
    "RunConfig without a strategy": Case(
        p.config_without_a_strategy,
        "this RunConfig has no strategy, and so waits for a task of type chief; make "
        "tf.distribute.MultiWorkerMirroredStrategy() and pass it: RunConfig(train_distribute=strategy)",
        start=TWO,
        given=False,
    ),
    "Estimator by itself": Case(
        p.estimator_trained_by_itself,
        "in a cluster estimator.train does not run by itself; call dtk.estimator.train_and_evaluate(estimator, "
        "train_spec, eval_spec), which gives every task its part",
        start=TWO,
        given=False,
        lanes=("tf215",),
    ),
    "while Keras builds": Case(
        p.choosing, own="Using a symbolic `tf.Tensor` as a Python `bool` is not allowed. ", lanes=KERAS_3
    ),
    "sizes in a layer": Case(p.sizes_that_differ, own="", start=ONE),
    "a loss's default reduction": Case(p.default_reduction, own=REDUCTION, lanes=("tf215",)),
    "strings compiled": Case(p.strings_compiled, own="Detected unsupported operations when trying to compile graph"),
    "dtk's own, traced": Case(p.refused_while_traced, "a step was recorded twice", start=ONE),
    "dtk's own, executed": Case(p.refused_while_running, "a step was recorded twice", start=ONE),
    "port taken": Case(p.port_taken, start=TWO, given=False, is_=("port",)),
    **{
        f"{kind} in a collective": Case(says=MEETS.format(ends), is_=("lost", "different"))
        for kind, ends in [
            ("another shape", "[2] and [3]"),
            ("another type", "float32 and int64"),
            ("another collective", "gather and reduction"),
        ]
    },
    **{name: Case(own="Collective ops is aborted by: ", is_=("lost",)) for name in ENDS},
}
# Lines of a log that are not passed over: what they belong to may be the function's own.
NOT_CHATTER = ("  output, from_logits = _get_logits(", "\t [[{{node MultiDeviceIteratorGetNextFromShard}}]]")
assert {name.removesuffix(" in a collective") for name in CASES} >= set(UNLIKE)


def cause(strategy: Any, name: str) -> None:
    """In a worker: what the case does."""
    raises = CASES[name].raises
    assert raises is not None
    raises(strategy)


def cause_alone(name: str) -> None:
    """The same, with a function that makes its own strategy, or none."""
    cause(None, name)


def summary_without_tensorboard() -> None:
    import tensorflow as tf

    sys.modules["tensorboard"] = None  # type: ignore[assignment]  # as where it is not installed: an import raises
    with tf.summary.create_file_writer(tempfile.mkdtemp()).as_default(step=0):
        tf.summary.scalar("loss", 1.0)


def softmax_under_logits(strategy: Any) -> None:
    """Keras warns of it, and of shuffling a dataset."""
    from tensorflow import keras

    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(2, "softmax")])
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(p.rows().map(lambda x, y: (x, y[:, 0] * 0)), verbose=0)


def provoke(name: str) -> list[tuple[str, str, bool]]:
    """(type, message, by_a_peer) of the worker that failed first; for a case that `provoked.py` has."""
    case = CASES[name]
    older = {"keras": 2} if case.raises in (p.config_without_a_strategy, p.estimator_trained_by_itself) else {}
    try:
        dtk.run(cause if case.given else cause_alone, args=(name,), timeout=120, **case.start, **older)
    except dtk.WorkerFailed as failure:
        error = failure.folder.worker(failure.worker).error
        return [(error["type"], error["message"], error["by_a_peer"])] if error else []
    return []


def kept() -> dict[str, dict[str, Any]]:
    """What tests/texts has, by the file's name: versions, and the texts by case."""
    return {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in sorted(TEXTS.glob("*.json"))}
