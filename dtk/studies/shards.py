"""`dtk.shards`: real workers go through a learner's dataset and tell which examples each of them was given.

`Sharding` says which example went to which replica at which step, what went to several, and what to none.
"""

from __future__ import annotations

import inspect
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas

from dtk import environment
from dtk.compat.fingerprint import first_leaf
from dtk.errors import ClusterConfigError, one_of
from dtk.language import N_, _
from dtk.launch import request
from dtk.runs import Run, carry_out
from dtk.studies.study import measured_job


def shards(
    make_dataset: Callable[..., Any],
    workers: int = 2,
    policy: str | None = None,
    replicas: int = 1,
    seed: int | None = 0,
) -> Sharding:
    """Who sees which example: goes once through a dataset on several processes, and once on one device.

    Nothing is trained, so that it takes no GPU, and on Colab starts as many workers as anywhere.

    Args:
        make_dataset: a function that returns a dataset, batched by the global batch, whose first component numbers the
            examples: `tf.data.Dataset.range(16).batch(4)`, or `Dataset.zip(Dataset.range(n), data)` before shuffle and
            batch. Lines of text files and records of TFRecord files that hold a number will do. With a parameter
            `input_context` it divides the data itself, by `num_input_pipelines` and `input_pipeline_id`, and batches
            by the replica's batch; TensorFlow then applies no policy.
        workers: number of processes.
        policy: "AUTO", "DATA", "FILE" or "OFF"; None leaves the dataset's own, which is AUTO unless it was set.
        replicas: as for `dtk.run`.
        seed: as for `dtk.run`; with None each worker shuffles in an order of its own.

    Returns:
        A `Sharding`: `table` (worker, replica, step, example), `repeated`, `gaps`; `dtk.plot.sharding` draws it.

    Raises:
        ClusterConfigError: an argument that can't be used.
        WorkerFailed: FILE with fewer files than workers, for one; further what `dtk.run` raises.
    """
    if not callable(make_dataset):
        kind = type(make_dataset).__name__
        words = N_("make_dataset is a {kind}, not a function; datasets are made inside the workers")
        raise ClusterConfigError(_(words, kind=kind))
    by_context = "input_context" in inspect.signature(make_dataset).parameters
    if policy is not None and by_context:
        words = N_(
            "policy={policy!r}: where the function takes input_context it divides the data itself, and TensorFlow "
            "applies no policy; leave policy out"
        )
        raise ClusterConfigError(_(words, policy=policy))
    if policy is not None:
        one_of("policy", policy, ("AUTO", "DATA", "FILE", "OFF"))
    request.check_sizes(workers, replicas)
    payload = request.pack(see_examples, (make_dataset, policy, by_context), {})
    mode = "mirrored" if workers == 1 < replicas else "cluster"
    with environment.quiet():
        cluster = _seen(payload, seed, workers=workers, replicas=replicas, mode=mode)
        alone = _seen(payload, seed, workers=1, replicas=1, mode="single")
    parts = [[step[k] for step in steps] for __, steps in cluster.results for k in range(replicas)]
    return from_lists(parts, [step[0] for step in alone.results[0][1]], cluster.results[0][0], replicas)


def _seen(payload: bytes, seed: Any, workers: int, **layout: Any) -> Run:
    env = {"CUDA_VISIBLE_DEVICES": "-1"}  # two workers can't share a GPU, and there is no need to
    job = measured_job(payload, workers, 0, env, seed=request.checked_seed(seed), **layout)
    request.check_memory(workers, job.fork)
    return carry_out(job, time.monotonic())


# ---- what they saw


@dataclass(frozen=True, eq=False)
class Sharding:
    """What the replicas of a cluster saw in one pass over a dataset, and what one device sees in it.

    table: one row for each example that a replica was given, columns worker, replica, step (from 1) and example, its
    number, in the order in which they came. alone: the columns step and example of one device's pass.
    replicas counts over all workers, those without any example too. policy: the autoshard policy that was in force,
    "input_context" where the function divided the data itself, "" if unknown.
    """

    table: pandas.DataFrame
    alone: pandas.DataFrame
    workers: int
    replicas: int
    policy: str = ""

    @property
    def examples(self) -> int:
        """How many different examples one device sees."""
        return int(self.alone.example.nunique())

    @property
    def repeated(self) -> list[int]:
        """Examples that the replicas together saw more often than one device does, and more than once, in order.

        A dataset that repeats its examples does so on one device too, and that is no mistake.
        """
        expected = Counter(self.alone.example)
        return sorted(int(k) for k, times in Counter(self.table.example).items() if times > max(1, expected[k]))

    @property
    def gaps(self) -> list[int]:
        """Examples that one device sees and the replicas together do not, or not as often, in order."""
        return sorted(map(int, Counter(self.alone.example) - Counter(self.table.example)))

    @property
    def each_sees_all(self) -> bool:
        """Every replica saw every example of one device's, and there are several replicas."""
        whole = set(self.alone.example)
        seen = [set(group) for _, group in self.table.groupby("replica").example]
        return self.replicas > 1 and len(seen) == self.replicas and all(whole <= part for part in seen)

    @property
    def parts_at(self) -> int | None:
        """The first step at which the replicas together did not see what one device sees then; None if none is."""
        together, alone = (Counter(zip(each.step, each.example, strict=True)) for each in (self.table, self.alone))
        return min((int(step) for step, __ in (together - alone) + (alone - together)), default=None)

    def __repr__(self) -> str:
        policy = f" policy={self.policy}" if self.policy else ""
        counts = f"examples={self.examples} repeated={len(self.repeated)} gaps={len(self.gaps)}"
        return f"<Sharding{policy} workers={self.workers} replicas={self.replicas} {counts}>"


def from_lists(parts: Sequence[Any], alone: Sequence[Any], policy: str = "", together: int = 1) -> Sharding:
    """Make a `Sharding` of the numbers of the examples that each replica saw, by replica, then by step.

    alone: of one device, by step. together: replicas in a worker.

    Policy DATA deals each global batch of 4 out; with OFF each worker reads all by itself:

    >>> alone = [[0, 1, 2, 3], [4, 5, 6, 7]]
    >>> from_lists([[[0, 1], [4, 5]], [[2, 3], [6, 7]]], alone, policy="DATA")
    <Sharding policy=DATA workers=2 replicas=2 examples=8 repeated=0 gaps=0>
    >>> from_lists([[[0, 1], [2, 3]], [[0, 1], [2, 3]]], alone)
    <Sharding workers=2 replicas=2 examples=8 repeated=4 gaps=4>
    """
    rows = [
        (replica // together, replica, step, number)
        for replica, steps in enumerate(parts)
        for step, numbers in enumerate(steps, 1)
        for number in numbers
    ]
    table = pandas.DataFrame(rows, columns=["worker", "replica", "step", "example"]).astype("int64")
    table = table.sort_values(["step", "replica"], kind="stable", ignore_index=True)
    whole = [(step, number) for step, numbers in enumerate(alone, 1) for number in numbers]
    reference = pandas.DataFrame(whole, columns=["step", "example"]).astype("int64")
    return Sharding(table, reference, len(parts) // together, len(parts), policy)


# ---- in a worker: goes through the dataset, and reports which examples each of its replicas is given

_ENDLESS = N_(
    "dtk.shards: the dataset has more than {most:,} examples, or no end; end it with .take(number of batches)"
)
MOST = 200_000  # examples on one worker: real MNIST three times over; beyond it a dataset is taken for endless


def see_examples(
    make_dataset: Callable[..., Any], policy: str | None, by_context: bool, strategy: Any
) -> tuple[str, list[list[list[int]]]]:
    """Distributes what `make_dataset` makes, goes through it once, and returns the examples' numbers by step and by
    this worker's replicas, behind the policy in force; raises ClusterConfigError where examples have no numbers.

    by_context: `make_dataset` takes the worker's `tf.distribute.InputContext` and divides the data itself.
    """
    import tensorflow as tf

    if by_context:
        used = "input_context"
        shared = strategy.distribute_datasets_from_function(lambda context: _checked(make_dataset(context)))
    else:
        data = _checked(make_dataset())
        if policy is not None:
            options = tf.data.Options()
            options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy[policy]
            data = data.with_options(options)
        used = data.options().experimental_distribute.auto_shard_policy.name
        shared = strategy.experimental_distribute_dataset(data)
    steps, count = [], 0
    for batch in shared:
        steps.append([_numbers(part) for part in strategy.experimental_local_results(first_leaf(batch))])
        count += sum(map(len, steps[-1]))
        if count > MOST:
            raise ClusterConfigError(_(_ENDLESS, most=MOST))
    return used, steps


def _checked(data: Any) -> Any:
    """The dataset, if its first component is a batch of numbers that name the examples."""
    import tensorflow as tf

    if not isinstance(data, tf.data.Dataset):
        words = N_("dtk.shards: the function returned a {kind}, not a tf.data.Dataset; return the batched dataset")
        raise ClusterConfigError(_(words, kind=type(data).__name__))
    if data.cardinality() == tf.data.INFINITE_CARDINALITY:
        raise ClusterConfigError(_(_ENDLESS, most=MOST))
    spec = first_leaf(data.element_spec)
    if spec.shape.rank == 0:
        raise ClusterConfigError(_("dtk.shards: the dataset is not batched; end it with .batch(global batch)"))
    if spec.shape.rank not in (1, None) or not (spec.dtype.is_integer or spec.dtype == tf.string):
        words = N_(
            "dtk.shards: the dataset's first component is {dtype} of shape {shape}; it has to be the example's "
            "number, a whole one: Dataset.zip(Dataset.range(n), examples) before shuffle and batch"
        )
        raise ClusterConfigError(_(words, dtype=spec.dtype.name, shape=spec.shape))
    return data


def _numbers(part: Any) -> list[int]:
    """A replica's part of a batch, shape `(examples,)`, as whole numbers; lines of text are read as such."""
    values = part.numpy().tolist()
    try:
        return [int(value) for value in values]
    except ValueError as error:
        words = N_("dtk.shards: an example is no whole number ({why}); map the lines to numbers first")
        raise ClusterConfigError(_(words, why=error)) from None
