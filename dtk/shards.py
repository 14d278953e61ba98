"""`dtk.shards`: real workers go through a learner's dataset and tell which examples each of them was given."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from dtk import environment
from dtk.analysis.sharding import Sharding, from_lists
from dtk.errors import ClusterConfigError
from dtk.recording.shards import see_examples
from dtk.runs import baseline, run

__all__ = ["shards"]

POLICIES = ("AUTO", "DATA", "FILE", "OFF")


def shards(
    make_dataset: Callable[..., Any],
    workers: int = 2,
    policy: str | None = None,
    replicas: int = 1,
    seed: int | None = 0,
) -> Sharding:
    """Who sees which example: goes once through a dataset on `workers` processes, and once on one device.

    make_dataset: a function that returns a dataset, batched by the global batch, whose first component numbers the
    examples: `tf.data.Dataset.range(16).batch(4)`, or `Dataset.zip(Dataset.range(n), data)` before shuffle and
    batch. Lines of text files and records of TFRecord files that hold a number will do. policy: "AUTO",
    "DATA", "FILE" or "OFF"; None leaves the dataset's own, which is AUTO unless it was set.
    If it has a parameter `input_context`, it divides the data itself by `input_context.num_input_pipelines` and
    `input_pipeline_id` and batches by the replica's batch; TensorFlow then applies no policy.
    replicas and seed: as in `dtk.run`; with `seed=None` each worker shuffles in an order of its own.

    Raises what `dtk.run` raises: WorkerFailed, say, where FILE has fewer files than workers.
    """
    if not callable(make_dataset):
        kind = type(make_dataset).__name__
        raise ClusterConfigError(f"make_dataset is a {kind}, not a function; datasets are made inside the workers")
    by_context = "input_context" in inspect.signature(make_dataset).parameters
    if policy is not None and by_context:
        words = f"policy={policy!r}: where the function takes input_context it divides the data itself"
        raise ClusterConfigError(f"{words}, and TensorFlow applies no policy; leave policy out")
    if policy is not None and policy not in POLICIES:
        raise ClusterConfigError(f"policy={policy!r}: it takes one of {', '.join(POLICIES)}, or None")
    arguments = (make_dataset, policy, by_context)
    with environment.quiet():
        cluster = run(see_examples, workers=workers, args=arguments, replicas=replicas, seed=seed)
        alone = baseline(see_examples, args=arguments, seed=seed, workers=workers)
    one_device = [parts[0] for parts in alone.results[0]["steps"]]
    policy_used = cluster.results[0]["policy"]
    return from_lists([seen["steps"] for seen in cluster.results], one_device, policy_used, replicas)
