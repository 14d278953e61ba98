"""What a training by Estimator is refused for: two workers on the same data, another model's checkpoint, no place."""

from __future__ import annotations

import math
import os
import tempfile
from pathlib import Path
from typing import Any

from dtk.environment import Here
from dtk.errors import ClusterConfigError
from dtk.language import N_, _

__all__ = ["SAME_STEPS", "check_checkpoint", "check_sharding", "check_writable"]

SAME_STEPS = 3  # steps in which two workers saw the same examples, until that is no chance
FRESH = N_("give every run a directory of its own: model_dir=str(dtk.run_dir() / 'model')")


def check_sharding(place: Here) -> None:
    """Raises where this worker's first steps saw just what worker 0's did. A step ends on all workers together."""
    pairs = [
        (mine, other)
        for other in place.run.worker(0).records
        for mine in place.folder.records
        if mine.step == other.step <= SAME_STEPS
    ]
    same = [abs(mine.data - other.data) < 1e-6 * max(1.0, abs(other.data)) for mine, other in pairs]
    if len(same) < SAME_STEPS or not all(same) or any(math.isnan(mine.data) for mine, _other in pairs):
        return
    words = N_(
        "worker {worker} is given the same examples as worker 0 (in steps 1 to {last}): input_fn "
        "does not divide the data"
    )
    shard = "dataset.shard(input_context.num_input_pipelines, input_context.input_pipeline_id)"
    remedy = _(
        "write input_fn(input_context=None) with {shard} before batch, or give each worker's shuffle a seed of its own",
        shard=shard,
    )
    raise ClusterConfigError(_(words, worker=place.worker, last=SAME_STEPS), remedy=remedy)


def check_checkpoint(model_dir: str, copies: dict[str, list[Any]], place: Here) -> None:
    """Raises where the checkpoint that training would go on from is another model's; says where it goes on."""
    import tensorflow as tf

    latest = tf.train.latest_checkpoint(model_dir)
    if latest is None:
        return
    there = dict(tf.train.list_variables(latest))
    wanted = {name: list(each[0].shape) for name, each in copies.items()}
    wrong = next((name for name, shape in wanted.items() if there.get(name) != shape), None)
    if wrong is not None:
        words = N_("model_dir {place} holds a checkpoint of another model ({name}: shape {here} here, not there)")
        if wrong in there:
            words = N_(
                "model_dir {place} holds a checkpoint of another model ({name}: shape {here} here, the "
                "shape {there} there)"
            )
        what = _(words, place=model_dir, name=wrong, here=wanted[wrong], there=there.get(wrong))
        raise ClusterConfigError(what, remedy=_(FRESH))
    words = N_("training goes on from {latest}, which model_dir held before this run; {fresh}, to begin anew")
    print("dtk: " + _(words, latest=latest, fresh=_(FRESH)))


def check_writable(model_dir: str) -> None:
    if "://" in model_dir:
        return  # an object store; TensorFlow's own file systems know
    try:
        Path(model_dir).mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=model_dir)
        os.close(descriptor)
        os.unlink(name)
    except OSError as error:
        raise ClusterConfigError(
            _(
                "model_dir {model_dir} can't be written to ({strerror}); {fresh}",
                model_dir=model_dir,
                strerror=error.strerror,
                fresh=_(FRESH),
            )
        ) from None
