"""What a training step's gradient is taken of, and what else the step's graph tells: draws, and clipped gradients.

The number whose gradient `tf.GradientTape.gradient` takes with respect to variables is what is trained for, whatever
the step returns or shows. TensorFlow 2.15 to 2.21; the method is public, the graph's list of operations as well.
"""

from __future__ import annotations

import contextlib
import re
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from dtk.compat.libraries import replaces, tf

__all__ = [
    "Taken",
    "clips",
    "drawn",
    "draws",
    "precision",
    "stateful_draws",
    "taking",
    "watch",
    "watch_datasets",
    "watch_scaling",
]

Taken = Callable[[str, Any], None]  # the target's name in the code that asked for the gradient, and its value
_within = threading.local()
_gradients: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()  # graph -> operations then
_CLIP = re.compile(r"(^|/)(clip_by_(?:global_norm|norm|value))(_\d+)?(/|$)")
_CALLS = {"PartitionedCall", "StatefulPartitionedCall"}
_CALLS |= {f"{less}{kind}" for less in ("", "Stateless") for kind in ("If", "While", "Case")}
# Kinds of operations whose result is drawn, also TensorFlow 1's and the samplers; what only prepares a draw is none.
_DRAWS = re.compile(
    r"(Random(?!Get|Dataset|IndexShuffle|GetKey)|Multinomial|TruncatedNormal|Stateful(Uniform|StandardNormal)"
    r"|StatelessShuffle|CandidateSampler)"
)
# What Keras and TensorFlow put behind a layer's name, where an operation draws for it.
_BEHIND = re.compile(r"(/((stateless|random)_\w+|[A-Z]\w*))+$")
_MOST = 5  # of a graph's draws that are named
_FRAMES = 12  # callers that are asked for the target's name


@contextlib.contextmanager
def taking(taken: Taken) -> Iterator[None]:
    """Within this block each gradient with respect to variables is reported to `taken`; reentrant, a thread each."""
    before = getattr(_within, "taken", None), getattr(_within, "scaled", None)
    _within.taken, _within.scaled = taken, {}
    try:
        yield
    finally:
        _within.taken, _within.scaled = before


def watch() -> None:
    """From now on; TensorFlow may be imported or not."""

    @replaces("tensorflow:GradientTape", "gradient")
    def gradient(original: Any, self: Any, target: Any, sources: Any, *args: Any, **kwargs: Any) -> Any:
        found = original(self, target, sources, *args, **kwargs)
        if _variables(sources):
            _look_at_graph()
            _remember(target)
        return found


def watch_scaling(cls: Any, name: str) -> None:
    """cls: an optimizer that scales losses, for float16; what is reported is the loss without its scale."""

    @replaces(cls, name)
    def scale(original: Any, self: Any, loss: Any) -> Any:
        scaled = original(self, loss)
        if getattr(_within, "scaled", None) is not None:
            _within.scaled[id(scaled)] = scaled, loss
        return scaled


_precision: set[str] = set()  # half types that a graph computes in that took a gradient
_stateful: set[str] = set()  # kinds of draws of such a graph whose state can't be read or set
_STATEFUL = re.compile(
    r"^(Random(Uniform|UniformInt|StandardNormal|Gamma|GammaGrad|Poisson|PoissonV2|Shuffle)"
    r"|TruncatedNormal|ParameterizedTruncatedNormal|Multinomial|\w*CandidateSampler)$"
)


def precision() -> float:
    """The unit in the last place, relative, of the coarsest type that training steps compute in; 0: of float32."""
    return max((2.0**-9 if name == "bfloat16" else 2.0**-12 for name in _precision), default=0.0)


def stateful_draws() -> list[str]:
    """Kinds of operations in training steps that draw from a state which nothing can read or set."""
    return sorted(_stateful)


def _look_at_graph() -> None:
    if tf.executing_eagerly():
        return
    for operation in tf.compat.v1.get_default_graph().get_operations():
        if _STATEFUL.match(operation.type):
            _stateful.add(operation.type)
        for output in operation.outputs[:1]:
            if output.dtype.base_dtype in (tf.bfloat16, tf.float16):
                _precision.add(output.dtype.base_dtype.name)


def draws() -> list[str] | None:
    """The operations that draw in the graph that is being made, with where they stand; None without a graph."""
    graphs = _graphs()
    return None if graphs is None else [each for graph in graphs for each in drawn(graph)]


def _graphs() -> list[Any] | None:
    """The graph that is being made, and those around it; None in eager execution."""
    if tf.executing_eagerly():
        return None
    found = [tf.compat.v1.get_default_graph()]
    while (outer := getattr(found[-1], "outer_graph", None)) is not None:
        found.append(outer)
    return found


def drawn(graph: Any) -> list[str]:
    """The operations of a graph, and of the functions that it calls, whose result is drawn at random, each once.

    Named by kind and layer: "StatelessRandomUniformV2 at sequential/dropout". What draws initial values, as in an
    Estimator's graph, is left out.
    """
    own = [(each.name, each.type) for each in graph.get_operations() if "nitializer" not in each.name]
    found = [f"{kind} at {_BEHIND.sub('', name)}" for name, kind in own + _inner(graph) if _DRAWS.search(kind)]
    return list(dict.fromkeys(found))[:_MOST]


def clips() -> list[str] | None:
    """The kinds of clipping (tf.clip_by_*) since the last gradient, in the graph that is being made.

    A branch, or a function, that only applies gradients is part of the graph around it that took them. None: not known,
    without a graph, or where none of these took a gradient.
    """
    names: list[str] = []
    for graph in _graphs() or []:
        names += [operation.name for operation in graph.get_operations()[_gradients.get(graph, 0) :]]
        if graph in _gradients:
            return sorted({match[2] for match in map(_CLIP.search, names) if match})
    return None


def _inner(graph: Any) -> list[tuple[str, str]]:
    """Operations of the functions that a graph calls."""
    if not any(operation.type in _CALLS for operation in graph.get_operations()):
        return []
    library = graph.as_graph_def().library.function
    return [(f"{f.signature.name}/{node.name}", node.op) for f in library for node in f.node_def]


def _variables(sources: Any) -> list[Any]:
    return [leaf for leaf in tf.nest.flatten(sources) if isinstance(leaf, tf.Variable) or hasattr(leaf, "trainable")]


def _remember(target: Any) -> None:
    if not tf.executing_eagerly():
        graph = tf.compat.v1.get_default_graph()
        _gradients[graph] = len(graph.get_operations())
    taken = getattr(_within, "taken", None)
    if taken is None:
        return
    _, plain = _within.scaled.get(id(target), (None, target))
    values = [tf.reduce_sum(tf.cast(leaf, tf.float64)) for leaf in tf.nest.flatten(plain) if leaf is not None]
    if values:
        taken(_name(target), tf.add_n(values))


def _name(target: Any) -> str:
    """What the code that asked for the gradient calls its target; "loss" where it has no name there."""
    frame: Any = sys._getframe(3)
    for _ in range(_FRAMES):
        if frame is None:
            break
        # AutoGraph's own frames hold the target among arguments; the learner's converted code has its own names.
        if "/autograph/" not in frame.f_code.co_filename:
            names = [name for name, value in frame.f_locals.items() if value is target]
            if names and names[0] not in ("target", "ys"):
                return names[0]
        frame = frame.f_back
    return "loss"


# ---- what makes a dataset's examples differ from worker to worker: random maps, Python code, sharding by files
#
# TensorFlow 2.15 to 2.22. Touched, in worker processes only: `Dataset.map`, `Dataset.from_generator` and
# `StrategyBase.experimental_distribute_dataset`. tf.data has no public way to ask a dataset how it was made, so nothing
# has to go; `tests/test_updates.py` and `tests/proof_programs/inputs.py` tell when one of the names is gone.

_READERS = ("TextLineDataset", "TFRecordDataset", "FixedLengthRecordDataset")
_PYTHON = ("PyFunc", "PyFuncStateless", "EagerPyFunc")

Report = Callable[..., None]  # takes the lists of `dtk.records.events.Augments`


def watch_datasets(report: Report) -> None:
    """report: gets what a map's function, or a generator, has that may differ, and the readers of data sharded by file.

    From now on; TensorFlow may be imported or not.
    """

    @replaces("tensorflow:data.Dataset", "map")
    def mapped(original: Any, self: Any, map_func: Any, *args: Any, **kwargs: Any) -> Any:
        found = original(self, map_func, *args, **kwargs)
        wrapper = getattr(found, "_map_func", None)
        graph = getattr(getattr(wrapper, "function", None), "graph", None)
        if graph is not None:
            calls = [operation.type for operation in graph.get_operations() if operation.type in _PYTHON]
            draws, python = drawn(graph), ["numpy_function or py_function"] * bool(calls)
            if draws or python:
                report(draws=draws, python=python)
        return found

    @replaces("tensorflow:data.Dataset", "from_generator")
    def from_generator(original: Any, generator: Any, *args: Any, **kwargs: Any) -> Any:
        if not str(getattr(generator, "__module__", "")).startswith("dtk."):
            report(python=["from_generator"])
        return original(generator, *args, **kwargs)

    @replaces("tensorflow.python.distribute.distribute_lib:StrategyBase", "experimental_distribute_dataset")
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
