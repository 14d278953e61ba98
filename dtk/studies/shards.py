"""`dtk.shards`: real workers go through a learner's dataset and tell which examples each of them was given."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypedDict

from dtk import environment
from dtk.compat.fingerprint import first_leaf
from dtk.errors import ClusterConfigError
from dtk.language import N_, _
from dtk.launch import request
from dtk.runs import Run, carry_out
from dtk.scaling.sharding import Sharding, from_lists
from dtk.studies.study import measured_job

__all__ = ["Seen", "see_examples", "shards"]

POLICIES = ("AUTO", "DATA", "FILE", "OFF")


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
    if policy is not None and policy not in POLICIES:
        words = N_("policy={policy!r}: it takes one of {names}, or None")
        raise ClusterConfigError(_(words, policy=policy, names=", ".join(POLICIES)))
    request.check_sizes(workers, replicas)
    payload = request.pack(see_examples, (make_dataset, policy, by_context), {})
    mode = "mirrored" if workers == 1 < replicas else "cluster"
    with environment.quiet():
        cluster = _seen(payload, seed, workers=workers, replicas=replicas, mode=mode)
        alone = _seen(payload, seed, workers=1, replicas=1, mode="single")
    parts = [seen["steps"] for seen in cluster.results]
    if replicas == 1:
        parts = [[step[0] for step in steps] for steps in parts]
    whole = [step[0] for step in alone.results[0]["steps"]]
    return from_lists(parts, whole, cluster.results[0]["policy"], replicas)


def _seen(payload: bytes, seed: Any, workers: int, **layout: Any) -> Run:
    job = measured_job(payload, workers, threads=0)
    env = {**job.env, "CUDA_VISIBLE_DEVICES": "-1"}  # two workers can't share a GPU, and there is no need to
    job = replace(job, seed=request.checked_seed(seed), env=env, **layout)
    request.check_memory(workers, job.fork)
    return carry_out(job, time.monotonic())


# ---- in a worker: goes through the dataset, and reports which examples each of its replicas is given

MOST = 200_000  # examples on one worker: real MNIST three times over; beyond it a dataset is taken for endless


class Seen(TypedDict):
    """What one worker saw. steps: by step and by this worker's replicas, the numbers of the examples.

    policy: the autoshard policy in force, "input_context" where the function was given one, "" on one device.
    """

    policy: str
    steps: list[list[list[int]]]


def see_examples(make_dataset: Callable[..., Any], policy: str | None, by_context: bool, strategy: Any) -> Seen:
    """Distributes what `make_dataset` makes and goes through it once; nothing is trained.

    by_context: `make_dataset` takes the worker's `tf.distribute.InputContext` and divides the data itself.
    Raises ClusterConfigError where examples can't be distinguished, with what to change.
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
    parts = (strategy.experimental_local_results(first_leaf(batch)) for batch in shared)
    return Seen(policy=used, steps=_steps(parts))


def _steps(batches: Iterable[Sequence[Any]]) -> list[list[list[int]]]:
    """The examples' numbers by step and replica, from each step's parts. Ends a dataset that has no end."""
    steps, count = [], 0
    for parts in batches:
        steps.append([_numbers(part) for part in parts])
        count += sum(map(len, steps[-1]))
        if count > MOST:
            words = N_(
                "dtk.shards: the dataset has more than {most:,} examples, or no end; end it with .take(number of "
                "batches)"
            )
            raise ClusterConfigError(_(words, most=MOST))
    return steps


def _checked(data: Any) -> Any:
    """The dataset, if its first component is a batch of numbers that name the examples."""
    import tensorflow as tf

    if not isinstance(data, tf.data.Dataset):
        words = N_("dtk.shards: the function returned a {kind}, not a tf.data.Dataset; return the batched dataset")
        raise ClusterConfigError(_(words, kind=type(data).__name__))
    if data.cardinality() == tf.data.INFINITE_CARDINALITY:
        raise ClusterConfigError(_("dtk.shards: the dataset never ends; end it with .take(number of batches)"))
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
