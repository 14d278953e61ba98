"""What a run's workers wrote down about their training beside its numbers; None where it was not.

The events (`events`) are `Loop` (who trains, in which scope, with which batch norm), `Traced` (what the graph of an
update holds, and whether the function makes no strategy) and `Augments` (a map of a dataset that draws at random). A
missing event means unknown, and nothing is concluded from it.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from dtk.language import _
from dtk.records.events import RING, Augments, Called, Kind, Loop, Scope, Traced, content, of_kind
from dtk.records.tables import RunLike

# float64 sums of cosines of the same float32 examples: seen to agree to 1e-9. One other example moves a sum by 0.5
# or so, and two unlike batches of 64 come within 1e-3 of each other once in some thousand steps.
SAME_DATA = 1e-3
RATES = ("learning_rate", "current_learning_rate")
# Of a tf.random.Generator, which goes on by as many numbers as it draws: on one device by those of the whole batch.
GENERATOR = "StateVar"
DRAWN = ("seed_generator_state", GENERATOR)  # where a layer's, or a generator's, numbers go on
# Of batch normalization, in the names of its weights: each replica has its own, and no gradient changes them. For
# TensorFlow they are like all others (Keras 3 gives them no aggregation), so that only the name tells.
MOVING = ("moving_mean", "moving_variance")


def events(run: RunLike, kind: type[Kind]) -> list[Kind]:
    """The events of this kind, of all workers."""
    return [event for corner in run.folder.each for event in of_kind(corner.events, kind)]


class Operations(NamedTuple):
    """What steps and pipelines are made of, which a mistake may need; None where it is not known.

    draws: operations that draw at random in the updates' graphs. clips: how gradients are clipped before replicas add
    them up. sparse: the variables whose gradients come as rows, and whose optimizer takes rows of one number one by
    one. augments, python, files: of the data, as in `events.Augments`.
    """

    draws: list[str] | None
    clips: list[str] | None
    sparse: list[str]
    augments: list[str]
    python: list[str]
    files: list[str]


def operations(*runs: RunLike) -> Operations:
    """What any of the runs has; [] for draws and clips only where each run is known to have none."""
    # Of a run that says nothing, nothing is known. What one function has drawn may be given to the next.
    traced = [event for run in runs for event in events(run, Traced) or [Traced(0.0, optimizer="", clips=None)]]
    called = [event for run in runs for event in events(run, Called) or [Called(0.0, draws=None)]]
    data = [event for run in runs for event in events(run, Augments)]
    return Operations(
        draws=_unique(event.draws for event in called),
        clips=_unique(event.clips for event in traced),
        sparse=_unique(event.sparse for event in traced) or [],
        augments=_unique(event.draws for event in data) or [],
        python=_unique(event.python for event in data) or [],
        files=_unique(event.files for event in data) or [],
    )


def _unique(lists: Iterable[list[str] | None]) -> list[str] | None:
    """All that stands in any of them, once; None where that is nothing, and one of them is not known."""
    said = list(lists)
    return list(dict.fromkeys(one for each in said for one in each or [])) or (None if None in said else [])


def other_rate(run: RunLike, other: RunLike) -> bool:
    """Whether a learning rate differs at an optimizer's first update; after a restart that is not known."""
    mine, its = ([each.rate for each in of_kind(side.folder.worker(0).events, Traced)] for side in (run, other))
    known = [(a, b) for a, b in zip(mine, its, strict=False) if isinstance(a, float) and isinstance(b, float)]
    return not run.folder.earlier and any(abs(a - b) > 1e-6 * max(abs(a), abs(b)) for a, b in known)


def rates_known(run: RunLike) -> bool:
    """Whether each optimizer's learning rate was read, so that one that differs has shown; TensorFlow 1's have none."""
    traced = events(run, Traced)
    return bool(traced) and all(event.rate is not None for event in traced)


def other_versions(run: RunLike, baseline: RunLike) -> str:
    """ "tensorflow 2.21.0 and 2.15.1", where run and baseline were made with other ones; "" elsewhere, or not known."""
    mine, other = versions_of(run), versions_of(baseline)
    apart = [name for name in mine if mine[name] and other.get(name) and mine[name] != other[name]]
    return _(", ").join(_("{name} {mine} and {other}", name=name, mine=mine[name], other=other[name]) for name in apart)


def versions_of(run: RunLike) -> dict[str, str | None]:
    """The versions of Python, TensorFlow and Keras that the run was made with; {} where nothing tells."""
    with contextlib.suppress(ValueError):  # damaged, or not there: an older dtk wrote none
        return json.loads(content(run.folder.path / "versions.json"))
    return {}


def scope_of(run: RunLike) -> Scope | None:
    """The scope that the model was made in, as worker 0 saw it."""
    known = [event.scope for event in events(run, Loop) if event.scope is not None]
    # Where the function makes no strategy at all, there is no such event.
    alone = any(event.alone for event in events(run, Traced))
    return known[0] if known else Scope(None, 1) if alone else None


def outside(run: RunLike) -> bool | None:
    """Whether the model was made outside of the strategy's scope, so that each worker trains alone; None: unknown."""
    scope, replicas = scope_of(run), run.folder.workers * run.replicas
    return None if scope is None or replicas < 2 else scope.replicas < replicas


def by_ring(run: RunLike) -> bool:
    """Whether the function itself adds up the workers' gradients, by `dtk.ring`."""
    scope = scope_of(run)
    return scope is not None and scope.strategy == RING


def same_examples(mine: np.ndarray, other: np.ndarray, counts: np.ndarray, base: np.ndarray) -> np.ndarray | None:
    """At which steps the replicas saw the baseline's examples, `(steps,)`; None where no fingerprint tells.

    mine, counts: the run's fingerprints and examples, `(steps, replicas)`; other, base: the baseline's.
    """
    if not (np.isfinite(mine).all() and np.isfinite(other).all()):
        return None
    prints, examples = np.concatenate([mine, other], axis=1), np.concatenate([counts, base], axis=1)
    # Where all examples have one fingerprint, others would have it too; of a single batch in each of the two, though,
    # equal fingerprints do prove that it is the same one.
    if mine.size > 1 and (examples > 0).all() and np.ptp(prints / examples) < 1e-6:
        return None
    return np.abs(mine.sum(axis=1) - other.sum(axis=1)) <= SAME_DATA
