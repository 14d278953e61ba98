"""What Keras 3 takes and then can't do under a strategy, refused in a sentence before it fails.

Wraps `fit`, `evaluate` and `predict` of `keras.Model` (public), where the corrections are. What is refused was measured
with Keras 3.15.1 and TensorFlow 2.21.0; `tests/test_refused.py` runs each without its refusal, so that it tells when
one can go. Nothing here is refused on one device but data without an end, for which Keras 2 has an error of its own.
"""

from __future__ import annotations

import inspect
import linecache
import traceback
from typing import Any

from dtk.compat.lazy import tf
from dtk.compat.replacing import replaces
from dtk.errors import ClusterConfigError

__all__ = ["NAME", "apply", "is_mirrored", "unknown_batch"]

NAME = "refusals"


# What data each takes, what it is called, and the argument that says how many steps of it there are.
_DATA = {
    "fit": (("x", "the dataset", "steps_per_epoch"), ("validation_data", "validation_data", "validation_steps")),
    "evaluate": (("x", "the dataset", "steps"),),
    "predict": (("x", "the dataset", "steps"),),
}


def apply(keras: Any) -> None:
    """Wraps these methods of `keras.Model`, of the Keras 3 that is imported."""
    for name in _DATA:
        _check(keras.Model, name)


def _check(model: Any, name: str) -> None:
    signature = inspect.signature(getattr(model, name))

    @replaces(model, name)
    def method(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            given = signature.bind(self, *args, **kwargs).arguments
        except TypeError:
            return original(self, *args, **kwargs)  # which says what is wrong with them
        if name == "fit":
            _check_optimizer(self)
        if name != "predict":
            _check_jit(self)
        for data, called, steps in _DATA[name]:
            if given.get(steps) is None and _is_endless(given.get(data)):
                raise ClusterConfigError(f"{name}: {called} has no end (.repeat()); pass {steps}")
        return original(self, *args, **kwargs)


def is_mirrored(strategy: Any) -> bool:
    """Whether it is MirroredStrategy or MultiWorkerMirroredStrategy."""
    return isinstance(strategy, (tf.distribute.MirroredStrategy, tf.distribute.MultiWorkerMirroredStrategy))


def _check_optimizer(model: Any) -> None:
    """Both put the all-reduce of the gradients into a `cond`, where TensorFlow can't merge replicas (`merge_call`)."""
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None or not is_mirrored(model.distribute_strategy):
        return
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)  # inside of a LossScaleOptimizer
    kind = type(optimizer).__name__
    steps = getattr(optimizer, "gradient_accumulation_steps", None)
    if steps:
        raise ClusterConfigError(
            f"{kind}(gradient_accumulation_steps={steps}): Keras 3 can't accumulate gradients under a strategy; leave "
            f"it out, and batch {steps} times as many examples"
        )
    every = getattr(optimizer, "ema_overwrite_frequency", None) if getattr(optimizer, "use_ema", False) else None
    if every:
        raise ClusterConfigError(
            f"{kind}(ema_overwrite_frequency={every}): under a strategy Keras 3 can't overwrite the weights by their "
            "averages during training; leave it out: with use_ema=True alone, fit does it once, at its end"
        )


def _check_jit(model: Any) -> None:
    strategy = model.distribute_strategy
    if not (is_mirrored(strategy) and model.jit_compile) or strategy.num_replicas_in_sync < 2:
        return
    if all("CPU" in device for device in strategy.extended.worker_devices):
        raise ClusterConfigError(
            "compile(jit_compile=True): XLA can't compile an all-reduce on CPUs, which a strategy with several "
            "replicas needs; leave jit_compile out"
        )


def _is_endless(data: Any) -> bool:
    if not isinstance(data, (tf.data.Dataset, tf.distribute.DistributedDataset)):
        return False
    cardinality = getattr(data, "cardinality", None)  # a method of a dataset, a value of a distributed one
    count = cardinality() if callable(cardinality) else cardinality
    return count is not None and int(count) == tf.data.INFINITE_CARDINALITY


def unknown_batch(error: Exception, data: Any) -> str:
    """What to say of a TypeError or ValueError in a step that asks for `x.shape[0]`, where that is None; "" elsewhere.

    data: what the step got, as it is in the graph. Under a strategy each replica's part of a batch has a size that is
    known only when the step runs, with `drop_remainder=True`, too.
    """
    # TensorFlow 2.15 to 2.21 raise a plain TypeError or ValueError here, whose text is all that has the None.
    leaves = [leaf for leaf in tf.nest.flatten(data) if isinstance(leaf, tf.Tensor)]
    if "None" not in str(error) or not any(leaf.shape.rank and leaf.shape[0] is None for leaf in leaves):
        return ""
    for frame, number in reversed(list(traceback.walk_tb(error.__traceback__))):
        code = frame.f_code
        if "site-packages" in code.co_filename or code.co_filename.startswith("<"):
            continue
        lines = linecache.getlines(code.co_filename)[code.co_firstlineno - 1 : number]
        if any(".shape[0]" in line for line in lines):
            return (
                f"{code.co_name}, line {number}: under a strategy `shape[0]` of a batch is None while the graph is "
                "made, because each replica gets a part of it; use tf.shape(x)[0]"
            )
        return ""
    return ""
