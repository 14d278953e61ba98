"""The data of a call once more: what it reads, and what stands for that, so that a follower can make the call again.

TensorFlow 2.15 to 2.21. Neither the classes of iterators nor what gives each replica a dataset of its own have public
names; `tests/test_states.py` tells when one of them is gone.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import random
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from dtk.compat.fingerprint import fingerprint, first_leaf, of_each
from dtk.compat.libraries import Lazy, contexts, replaces, tf
from dtk.compat.per_replica import local_values
from dtk.compat.states import drawn_from
from dtk.compat.updates import drawn

_input: Any = Lazy("tensorflow.python.distribute.input_lib")
_iterators: Any = Lazy("tensorflow.python.data.ops.iterator_ops")
_STRATEGY = "tensorflow.python.distribute.distribute_lib:StrategyBase"
Element = tuple[Any, ...]  # of each replica its part
Parts = tuple[Iterator[Element], ...]  # of each replica what it goes through
MOST_CALLED = 50  # functions that are asked for what they read


def is_data(value: Any) -> bool:
    """Whether it hands out data, so that a call that reads it can't be made again with the same."""
    kinds = (_iterators.IteratorBase, tf.data.Dataset, tf.distribute.DistributedDataset)
    return isinstance(value, kinds) or (hasattr(value, "get_next") and not isinstance(value, type))


def read_beside(function: Any) -> list[tuple[Any, Callable[[Any], None]]]:
    """The data that a function, or one that it calls, reads beside its arguments, as far as names tell.

    Each with what puts something else in its place: in a closure, among a module's names, or in an object.
    """
    found: list[tuple[Any, Callable[[Any], None]]] = []
    seen: set[int] = set()
    left = [function]
    while left and len(seen) < MOST_CALLED:
        each = left.pop()
        plain = inspect.unwrap(getattr(each, "python_function", each))
        if id(plain) in seen:
            continue
        seen.add(id(plain))
        named: list[tuple[Any, Callable[[Any], None]]] = []
        if inspect.ismethod(plain):
            its = getattr(plain.__self__, "__dict__", {})
            named += [(value, functools.partial(its.__setitem__, name)) for name, value in its.items()]
            plain = plain.__func__
        if not inspect.isfunction(plain) or str(plain.__module__).startswith(("tensorflow.", "keras.", "tf_keras.")):
            continue
        for cell in plain.__closure__ or ():
            with contextlib.suppress(ValueError):  # nothing is in it yet
                named.append((cell.cell_contents, functools.partial(setattr, cell, "cell_contents")))
        its = plain.__globals__
        named += [(its[n], functools.partial(its.__setitem__, n)) for n in plain.__code__.co_names if n in its]
        found += [each for each in named if is_data(each[0])]
        left += [value for value, _ in named if callable(value)]
    return found


def can_be_fed(value: Any) -> bool:
    """Whether a `Feed` can stand for it."""
    return isinstance(value, (_iterators.OwnedIterator, tf.data.Dataset)) or _is_distributed(value)


def _is_distributed(value: Any) -> bool:
    return isinstance(value, (tf.distribute.DistributedIterator, tf.distribute.DistributedDataset))


class Feed:
    """What stands for an iterator, or a dataset: it hands out what that gives, and can hand it out again.

    A strategy's as well, where all replicas are in this process. Each then has an iterator of its own, as the usual one
    for all of them reads ahead.

    handed: what a function gets in its place. given: what it has read in this call, of each element what each replica
    got. lost: whether that is too much to be kept, or was read several times.
    """

    MOST = 2**28  # bytes that are kept of a call's data

    def __init__(self, source: Any):
        self.source = source
        self.given: list[Element] = []
        self.lost = False
        self._size = 0
        self._again: Sequence[Element] | None = None
        self._strategy: Any = source._strategy if _is_distributed(source) else None
        self._replicas = 1 if self._strategy is None else self._strategy.num_replicas_in_sync
        self._lock = threading.Lock()
        self._whole = isinstance(source, (tf.data.Dataset, tf.distribute.DistributedDataset))
        self._source = source if self._whole else _Source(source)
        self._own: Parts = () if self._whole else self._parts()
        self.replay(None)
        handed = self._distributed(iter(range(self._replicas))) if self._strategy else self._dataset(0)
        self.handed = handed if self._whole else iter(handed)

    def _distributed(self, replicas: Iterator[int]) -> Any:
        """Gives each replica a dataset of its own; by TensorFlow's way, all that is distributed later had one, too."""
        from tensorflow.python.distribute import device_util, input_util

        mode = tf.distribute.InputReplicationMode.PER_REPLICA
        options = tf.distribute.InputOptions(experimental_fetch_to_device=False, experimental_replication_mode=mode)
        places = [(device_util.canonicalize("/device:CPU:0", d), (d,)) for d in self._strategy.extended.worker_devices]
        workers = _input.InputWorkers(places)
        contexts = [tf.distribute.InputContext(self._replicas, k, self._replicas) for k in range(workers.num_workers)]
        return input_util.get_distributed_datasets_from_function(
            lambda _: self._dataset(next(replicas)), workers, contexts, self._strategy, options
        )

    def _dataset(self, replica: int) -> Any:
        """What one replica reads."""
        spec = self.source.element_spec
        if self._replicas > 1:
            spec = tf.nest.map_structure(lambda leaf: leaf._value_specs[replica], spec)
        dataset = tf.data.Dataset.from_generator(lambda: self._elements(replica), output_signature=spec)
        if isinstance(self.source, tf.data.Dataset) and int(self.source.cardinality()) >= 0:
            dataset = dataset.apply(tf.data.experimental.assert_cardinality(int(self.source.cardinality())))
        options = tf.data.Options()
        options.autotune.enabled = False
        options.threading.private_threadpool_size = 1
        return dataset.with_options(options)

    def begins(self) -> None:
        """Before a call: of an iterator as many elements as the call before has read are taken ahead."""
        if not self._whole:
            self._source.fetch(max(1, len(self.given)))
        self.given, self._size, self.lost = [], 0, False
        self.replay(None)

    def replay(self, elements: Sequence[Element] | None) -> None:
        """From now on it hands out these; None: what the source gives."""
        self._again = elements
        self._now = self._own if elements is None else self._parts()
        self._passes, self._begun = [0] * self._replicas, list[Parts]()

    def _parts(self) -> Parts:
        return itertools.tee(self._given() if self._again is None else self._again, self._replicas)

    def _given(self) -> Iterator[Element]:
        """What the source gives, each element kept as the first replica begins to take it."""
        for element in self._source:
            parts: Element = (element,)
            if self._strategy is not None:
                leaves = map(self._strategy.experimental_local_results, tf.nest.flatten(element))
                parts = tuple(tf.nest.pack_sequence_as(element, its) for its in zip(*leaves, strict=True))
            tensors = [leaf for leaf in tf.nest.flatten(parts) if isinstance(leaf, tf.Tensor)]
            self._size += sum(each.shape.num_elements() * (each.dtype.size or 8) for each in tensors)  # strings: 0
            self.lost = self.lost or self._size > self.MOST
            if not self.lost:
                self.given.append(parts)
            yield parts

    def _elements(self, replica: int) -> Iterator[Any]:
        """What one replica reads: of a dataset in one pass, of an iterator in all calls."""
        parts = self._pass(replica) if self._whole else None
        while True:
            with self._lock:
                found = next((parts or self._now)[replica], None)
            if found is None:
                return
            yield found[replica]

    def _pass(self, replica: int) -> Parts:
        """What is gone through in the pass over a dataset that the replica begins."""
        with self._lock:
            number = self._passes[replica]
            self._passes[replica] += 1
            if number == len(self._begun):
                self._begun.append(self._parts())
            self.lost = self.lost or (number > 0 and self._again is None)
            return self._begun[number]


def rows(feeds: Iterable[Feed], *arguments: Any) -> list[list[float]]:
    """By replica, how many examples a call has read, or was given, and their fingerprint; [] where nothing tells."""
    read = [feed for feed in feeds if feed.given]
    if len(read) > 1 or any(feed.lost for feed in read):
        return []
    elements = read[0].given if read else _batch(arguments)
    parts = zip(*elements, strict=True)
    each = [[(int(tf.shape(first_leaf(one))[0]), float(fingerprint(one))) for one in its] for its in parts]
    return [[sum(column) for column in zip(*its, strict=True)] for its in each]


def _batch(arguments: Any) -> list[Element]:
    """What arguments have for each replica, as one element: those whose first axis is as long as most have it."""
    leaves = [local_values(leaf) for leaf in tf.nest.flatten(arguments)]
    leaves = [parts for parts in leaves if all(isinstance(part, tf.Tensor) and part.shape.rank for part in parts)]
    leaves = [parts for parts in leaves if parts[0].shape.num_elements() < Feed.MOST // 8]
    kinds = [(len(parts), parts[0].shape[0]) for parts in leaves]
    most = max(kinds, key=lambda kind: (kind[0], kinds.count(kind), kind[1]), default=None)
    leaves = [parts for parts, kind in zip(leaves, kinds, strict=True) if kind == most]
    return [tuple(zip(*leaves, strict=True))] if leaves else []


class _Source:
    """An iterator of which elements can be taken before they are asked for, in the thread of the program."""

    def __init__(self, source: Iterable[Any]):
        self._source, self._ahead = iter(source), list[Any]()

    def __iter__(self) -> Iterator[Any]:
        while True:
            self.fetch(1)
            if not self._ahead:
                return
            yield self._ahead.pop(0)

    def fetch(self, count: int) -> None:
        self._ahead += itertools.islice(self._source, max(0, count - len(self._ahead)))


# ---- a follower in the place of workers that each make their own data

_DIGITS = 9  # of an example's fingerprint; further ones depend on the batch that it lies in
_FEW = 0.05  # of all examples, which may be alike
_MORE = 0.01  # of all examples, by which one worker's may be more than another's
_MOST_READ = 5000  # batches of a pass over a dataset
_MOST_READS = 20  # passes over a dataset before it is distributed
# What datasets keep between passes over them, and what stands for "make that anew" in its place.
_ANEW = {"CacheDatasetV2": "DummyMemoryCache", "ShuffleDatasetV3": "DummySeedGenerator"}
_made: list[list[Any]] = []  # by each function: the workers' datasets, and the one of one device by itself
_reading, _trained = set[int](), set[int]()  # places in `_made`: what was read since the last call, and by training


def read_by_worker(workers: int, each: int, joined: bool) -> None:
    """From now on a function of `distribute_datasets_from_function` makes the data of every worker.

    each: replicas of a worker, which take its batches in turn. joined: this is one device, which reads all of a step's
    batches as one; each 0: by itself.
    """

    def data(make: Callable[[Any], Any], context: Any) -> Any:
        if context.num_input_pipelines > 1 or not each:
            _made.append([])
            return make(context)
        asked = [tf.distribute.InputContext(workers, k, workers * each) for k in range(workers)]
        if not joined:
            _made.append([])
            own = _as_in_processes(make, asked)
            lengths.append(_input._cardinality(own[0]))
            turns = tf.data.Dataset.from_tensor_slices(np.repeat(np.arange(workers), each)).repeat()
            return tf.data.Dataset.choose_from_datasets(own, turns)
        made = functools.partial(_as_in_processes, make, [*asked, context])
        with contexts.eager_mode():  # what an Estimator has in its graph can't be read
            _made.append(made())
        parts = tuple((_made[-1] if tf.executing_eagerly() else made())[:workers])
        if each > 1:
            parts = tuple(part.window(each).flat_map(_as_one) for part in parts)
        place = len(_made) - 1

        def joint(*its: Any) -> Any:
            with tf.control_dependencies([tf.numpy_function(lambda: _reading.add(place), [], [])]):
                return tf.nest.map_structure(_end_to_end, *its)

        return tf.data.Dataset.zip(parts).map(joint)

    made_by_function: list[Any] = []  # which one device's `fit` distributes once more
    lengths: list[Any] = []  # of a worker's own dataset, which `fit` is to see: it then starts each next pass early

    def datasets(original: Any, self: Any, dataset_fn: Any, *options: Any, **named: Any) -> Any:
        found = original(self, functools.partial(data, dataset_fn), *options, **named)
        if lengths:
            found._cardinality = lengths.pop()
        made_by_function.append(found)
        return found

    def distribute(original: Any, self: Any, dataset: Any, options: Any = None) -> Any:
        if any(dataset is each for each in made_by_function) or not _sharded_by_file(dataset):
            return original(self, dataset, options)
        return self.distribute_datasets_from_function(functools.partial(_of_its_files, dataset), options)

    for name in ("distribute_datasets_from_function", "make_input_fn_iterator"):  # the second is Estimator's
        replaces(_STRATEGY, name)(datasets)
    replaces(_STRATEGY, "experimental_distribute_dataset")(distribute)


def _as_in_processes(make: Callable[[Any], Any], asked: list[Any]) -> list[Any]:
    """A worker's data for each of these contexts, each from the same random state, as in processes of their own.

    So each has copies of the datasets that it takes from outside.
    """
    # Of operations without a seed of their own, run eagerly; tests/test_programs.py tells when this name is gone.
    ours = getattr(contexts.context(), "_rng", None)
    states = np.random.get_state(), random.getstate(), ours and ours.getstate()
    outside = read_beside(make) if tf.executing_eagerly() else []
    beside = [(data, put) for data, put in outside if isinstance(data, tf.data.Dataset)]
    found = []
    for number, context in enumerate(asked):
        for data, put in beside:
            put(_by_itself(data, number))
        np.random.set_state(states[0])
        random.setstate(states[1])
        if ours is not None:
            ours.setstate(states[2])
        found.append(make(context))
    for data, put in beside:
        put(data)
    return found


def _of_its_files(dataset: Any, context: Any) -> Any:
    """What a worker reads of a dataset that its strategy shards by file."""
    pipelines, pipeline = context.num_input_pipelines, context.input_pipeline_id
    if pipelines < 2:
        return dataset
    from tensorflow.python.distribute import input_ops

    replicas, own = context.num_replicas_in_sync, _by_itself(dataset, pipeline)
    rebatched = _input.DistributedDataset._make_rebatch_fn(None, own, pipelines, replicas)(own, pipeline)
    return input_ops.auto_shard_dataset(rebatched, pipelines, pipeline, replicas)


@functools.cache
def _by_itself(dataset: Any, pipeline: int) -> Any:
    """A worker's copy of a dataset, read as often as the dataset was before, as by a layer's `adapt`."""
    own = _copy(dataset)
    for _pass in range(_reads(dataset)):
        _first(own)
    return own


@functools.cache
def _reads(dataset: Any) -> int:
    """How often a dataset was read before, as its shuffles tell."""
    first, copy = _first(dataset), _copy(dataset)
    return next((count for count in range(_MOST_READS) if _first(copy) == first), 0)


def _first(dataset: Any) -> float:
    return next((float(fingerprint(element)) for element in dataset), 0.0)


def _copy(dataset: Any) -> Any:
    """A copy that has the state of its shuffles for itself, and its caches, as in a process of its own."""
    graph = tf.compat.v1.GraphDef()
    graph.ParseFromString(tf.raw_ops.DatasetToGraphV2(input_dataset=tf.data.experimental.to_variant(dataset)).numpy())
    anew = {name: _ANEW[each.op] for each in graph.node if each.op in _ANEW for name in each.input}
    for node in graph.node:
        if node.op == "Const" and node.name in anew and node.attr["dtype"].type == tf.resource.as_datatype_enum:
            node.op = anew[node.name]
            node.attr.clear()
    copy = tf.raw_ops.DatasetFromGraph(graph_def=graph.SerializeToString())
    return tf.data.experimental.from_variant(copy, dataset.element_spec).with_options(dataset.options())


def _as_one(*batches: Any) -> Any:
    """The batches of a window as one."""
    return tf.data.Dataset.zip(batches if len(batches) > 1 else batches[0]).unbatch().batch(_MOST_READ**2)


def _end_to_end(*parts: Any) -> Any:
    return tf.sparse.concat(0, parts) if isinstance(parts[0], tf.SparseTensor) else tf.concat(parts, 0)


def called(trains: bool) -> bool:
    """After each call, in the thread of the program: whether it trains, which this returns."""
    _trained.update(_reading if trains else ())
    _reading.clear()
    return trains


def sharded() -> bool | None:
    """Whether workers' pipelines read what one device reads by itself, each as much, and nothing twice.

    Of what is read for training, where that is known. None where they have none.
    """
    made = [_made[place] for place in sorted(_trained)] or _made
    for *parts, whole in filter(None, made):
        each, own = [_examples(part) for part in parts], _examples(whole)
        read, sizes = set[float]().union(*each), [len(part) for part in each]
        alike = max(sizes) - min(sizes) <= max(1, _MORE * len(read))
        if not (read and alike) or max(sum(sizes) - len(read), len(read ^ own)) > _FEW * len(read):
            return False
    return all(made) if made else None


def _examples(data: Any) -> set[float]:
    """The fingerprints of all examples that a dataset has, of one that goes on forever in two passes or so."""
    found, count = set[float](), 0
    for batch in data.take(_MOST_READ):
        examples = of_each(batch)
        if examples is None:
            return set()
        found.update(np.round(examples, _DIGITS).tolist())
        count += len(examples)
        if count > 2 * len(found):
            break
    return found


# ---- what makes a dataset's examples differ from worker to worker: random maps, Python code, sharding by files
#
# In worker processes only. tf.data (TensorFlow 2.15 to 2.22) has no public way to ask a dataset how it was made, so
# nothing has to go; `tests/test_updates.py` and `tests/proof_programs/inputs.py` tell when one of the names is gone.

_READERS = ("TextLineDataset", "TFRecordDataset", "FixedLengthRecordDataset")
_PYTHON = ("PyFunc", "PyFuncStateless", "EagerPyFunc")


def watch_datasets(report: Callable[..., None]) -> None:
    """From now on; TensorFlow may be imported or not.

    report: gets the lists of `dtk.records.events.Augments`: what a map's function, or a generator, has that may differ,
    and the readers of data sharded by file.
    """

    @replaces("tensorflow:data.Dataset", "map")
    def mapped(original: Any, self: Any, map_func: Any, *args: Any, **kwargs: Any) -> Any:
        found = original(self, map_func, *args, **kwargs)
        function = getattr(getattr(found, "_map_func", None), "function", None)
        if function is not None and hasattr(function, "graph"):
            calls = [each for each in function.graph.get_operations() if each.type in _PYTHON]
            draws, python = drawn(function.graph), ["numpy_function or py_function"] * bool(calls)
            if draws:
                drawn_from(function.captured_inputs)
            if draws or python:
                report(draws=draws, python=python)
        return found

    @replaces("tensorflow:data.Dataset", "from_generator")
    def from_generator(original: Any, generator: Any, *args: Any, **kwargs: Any) -> Any:
        if not str(getattr(generator, "__module__", "")).startswith("dtk."):
            report(python=["from_generator"])
        return original(generator, *args, **kwargs)

    @replaces(_STRATEGY, "experimental_distribute_dataset")
    def distribute(original: Any, self: Any, dataset: Any, options: Any = None) -> Any:
        by_file = _sharded_by_file(dataset)
        if by_file and getattr(self.extended, "_num_workers", 1) > 1:
            report(files=[by_file])
        return original(self, dataset, options)


def _sharded_by_file(dataset: Any) -> str:
    """By which policy several workers each get whole files of a dataset, and what reads them; "" where they don't."""
    policy = dataset.options().experimental_distribute.auto_shard_policy.name
    readers = sorted({kind for kind in _kinds(dataset) if kind.startswith(_READERS)})
    return f"{policy}: {', '.join(readers)}" if readers and policy in ("AUTO", "FILE") else ""


def _kinds(dataset: Any) -> Iterator[str]:
    """What a dataset is made of, also in functions, as those of interleave."""
    yield type(dataset).__name__.strip("_")
    for function in dataset._functions():
        graph = function.function.graph
        kinds = [operation.type for operation in graph.get_operations()]
        yield from kinds
        if any("Dataset" in kind for kind in kinds):  # whose own functions are in the graph's library
            yield from (node.op for each in graph.as_graph_def().library.function for node in each.node_def)
    for each in dataset._inputs():
        yield from _kinds(each)
