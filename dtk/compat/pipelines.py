"""What makes a dataset's examples differ from worker to worker: random maps, Python code, sharding by files.

TensorFlow 2.15 to 2.22. Touched, in worker processes only: `Dataset.map`, `Dataset.from_generator` and
`StrategyBase.experimental_distribute_dataset`. tf.data has no public way to ask a dataset how it was made, so nothing
has to go; `tests/test_updates.py` and `tests/proof_programs/inputs.py` tell when one of the names is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from dtk.compat.replacing import replaces
from dtk.compat.steps import targets

__all__ = ["watch_datasets", "watch_distribution"]

_READERS = ("TextLineDataset", "TFRecordDataset", "FixedLengthRecordDataset")
_CALLS = ("PyFunc", "PyFuncStateless", "EagerPyFunc")

Report = Callable[..., None]  # takes the lists of `dtk.records.events.Augments`


def watch_datasets(dataset: Any, report: Report) -> None:
    """dataset: tf.data.Dataset. report: gets what a map's function, or a generator, has that may differ."""

    @replaces(dataset, "map")
    def mapped(original: Any, self: Any, map_func: Any, *args: Any, **kwargs: Any) -> Any:
        found = original(self, map_func, *args, **kwargs)
        wrapper = getattr(found, "_map_func", None)
        graph = getattr(getattr(wrapper, "function", None), "graph", None)
        if graph is not None:
            calls = [operation.type for operation in graph.get_operations() if operation.type in _CALLS]
            draws, python = targets.drawn(graph), ["numpy_function or py_function"] * bool(calls)
            if draws or python:
                report(draws=draws, python=python)
        return found

    @replaces(dataset, "from_generator")
    def from_generator(original: Any, generator: Any, *args: Any, **kwargs: Any) -> Any:
        if not str(getattr(generator, "__module__", "")).startswith("dtk."):
            report(python=["from_generator"])
        return original(generator, *args, **kwargs)

    dataset.from_generator = staticmethod(from_generator)


def watch_distribution(module: Any, report: Report) -> None:
    """module: tensorflow.python.distribute.distribute_lib. report: gets the readers of data that is sharded by file."""

    @replaces(module.StrategyBase, "experimental_distribute_dataset")
    def distribute(original: Any, self: Any, dataset: Any, options: Any = None) -> Any:
        policy = dataset.options().experimental_distribute.auto_shard_policy.name
        kinds = {type(each).__name__.strip("_") for each in _all(dataset)}
        readers = sorted(kind for kind in kinds if kind.startswith(_READERS))
        if readers and policy in ("AUTO", "FILE") and getattr(self.extended, "_num_workers", 1) > 1:
            report(files=[f"{policy}: {', '.join(readers)}"])
        return original(self, dataset, options)


def _all(dataset: Any) -> Iterator[Any]:
    """A dataset and those that it is made of."""
    yield dataset
    for each in dataset._inputs():
        yield from _all(each)
