"""`dtk.shards`: real workers go through a learner's dataset and tell which examples each of them was given."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypedDict

from dtk import environment
from dtk.compat.fingerprint import first_leaf
from dtk.errors import ClusterConfigError
from dtk.language import N_, _
from dtk.runs import Run, baseline, run
from dtk.scaling.sharding import Sharding, from_lists

__all__ = ["Seen", "see_each_pipeline", "see_examples", "shards"]

POLICIES = ("AUTO", "DATA", "FILE", "OFF")


def shards(
    make_dataset: Callable[..., Any],
    workers: int = 2,
    policy: str | None = None,
    replicas: int = 1,
    seed: int | None = 0,
    force: bool = False,
) -> Sharding:
    """Who sees which example: goes once through a dataset on several processes, and once on one device.

    Args:
        make_dataset: a function that returns a dataset, batched by the global batch, whose first component numbers the
            examples: `tf.data.Dataset.range(16).batch(4)`, or `Dataset.zip(Dataset.range(n), data)` before shuffle and
            batch. Lines of text files and records of TFRecord files that hold a number will do. With a parameter
            `input_context` it divides the data itself, by `num_input_pipelines` and `input_pipeline_id`, and batches
            by the replica's batch; TensorFlow then applies no policy.
        workers: number of processes. On Colab one process deals the batches out to as many replicas, without a policy;
            a function with `input_context` is called for each worker in turn.
        policy: "AUTO", "DATA", "FILE" or "OFF"; None leaves the dataset's own, which is AUTO unless it was set.
        replicas: as for `dtk.run`.
        seed: as for `dtk.run`; with None each worker shuffles in an order of its own.
        force: several workers also on Colab.

    Returns:
        A `Sharding`: `table` (worker, replica, step, example), `repeated`, `gaps`; `dtk.plot.sharding` draws it.

    Raises:
        ClusterConfigError: an argument that can't be used, or one worker that can't show what a policy does.
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
    single = workers != 1 and not force and environment.on_colab()
    if single and by_context and replicas == 1:
        return _in_turn(make_dataset, workers, seed)
    arguments = (make_dataset, policy, by_context)
    if single:
        _refuse(policy, workers)
    with environment.quiet():
        cluster = run(see_examples, workers=workers, args=arguments, replicas=replicas, seed=seed, force=force)
        alone = baseline(see_examples, args=arguments, seed=seed, workers=workers)
    policy_used = cluster.results[0]["policy"]
    if single:
        _refuse(policy_used, workers)
        policy_used = ""
        words = N_(
            "on Colab, 1 worker deals each batch out to {replicas} replicas; what a policy does needs two workers: "
            "dtk.shards(..., force=True) tries them"
        )
        environment.say(_(words, replicas=cluster.replicas))
    return from_lists(
        [seen["steps"] for seen in cluster.results], _one_device(alone), policy_used, replicas=cluster.replicas
    )


def _one_device(alone: Run) -> list[list[int]]:
    return [parts[0] for parts in alone.results[0]["steps"]]


def _in_turn(make_dataset: Callable[..., Any], workers: int, seed: int | None) -> Sharding:
    """What each worker's function makes of its own `input_context`, asked for in one process."""
    with environment.quiet():
        asked = run(see_each_pipeline, workers=1, args=(make_dataset, workers, seed), seed=seed)
        alone = baseline(see_examples, args=(make_dataset, None, True), seed=seed, workers=workers)
    environment.say(
        _("on Colab, one process calls the function for each of {workers} workers in turn", workers=workers)
    )
    return from_lists([seen["steps"] for seen in asked.results[0]], _one_device(alone), "input_context")


def _refuse(policy: str | None, workers: int) -> None:
    """FILE and OFF give workers other examples than MirroredStrategy gives replicas."""
    if policy in ("FILE", "OFF"):
        words = N_(
            "policy {policy} needs two workers, and on Colab 1 stands in for {workers}; dtk.shards(..., force=True) "
            "tries them"
        )
        raise ClusterConfigError(_(words, policy=policy, workers=workers))


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


def see_each_pipeline(make_dataset: Callable[..., Any], pipelines: int, seed: int | None) -> list[Seen]:
    """Goes through what `make_dataset` makes for each of a cluster's `pipelines`, one after the other; by worker.

    An InputContext is all that such a function learns of the cluster, so one process can ask for every worker's part.
    Each begins from the seed, as each worker of a cluster does.
    """
    import tensorflow as tf

    found = []
    for worker in range(pipelines):
        if seed is not None:
            tf.keras.utils.set_random_seed(seed)  # Python's, NumPy's and TensorFlow's
        data = _checked(make_dataset(tf.distribute.InputContext(pipelines, worker, pipelines)))
        steps = _steps([first_leaf(batch)] for batch in data)
        found.append(Seen(policy="input_context", steps=steps))
    return found


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
