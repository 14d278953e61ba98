"""In a worker: what was trained, as against what was recorded: every optimizer's updates, counted and written down.

Of the events, `Traced`, `Augments` and `Alone` say what the graph of a first step has, and `Updates`, at the function's
end, says what was made and recorded.
"""

from __future__ import annotations

import functools
import gc
import os
from typing import Any

import wrapt

from dtk.compat.per_replica import key_of
from dtk.compat.steps import tap, targets, updates
from dtk.compat.strategies import has_a_cluster
from dtk.environment import Here
from dtk.errors import ALONE, ClusterConfigError
from dtk.language import _
from dtk.records.events import Alone, Augments, Optimizer, Traced, Updates
from dtk.worker.progress import progress

__all__ = ["check_any_strategy", "keep_beside", "listen", "write"]

NAMED = 3  # of an optimizer's variables that its event names


def listen(place: Here) -> None:
    """From now on; TensorFlow and Keras may be imported or not. `DTK_UPDATES=0` does without; verify then refuses."""
    if os.environ.get("DTK_UPDATES") == "0" or place.role == "evaluator":
        return
    listener = _Listener(place)
    targets.watch()
    targets.watch_datasets(listener.augments)
    for name in ("keras", "tf_keras"):
        wrapt.register_post_import_hook(lambda keras: updates.watch(keras, listener), name)


def keep_beside(place: Here) -> None:
    """At the end of a fit and of the function: what recorded steps train beside their model is compared, too."""
    state = progress(place)
    known = {key_of(weight) for model in state.models for weight in model.weights()}
    found = [each for each in updates.counted() if not known.issuperset(each.variables) and each.so_far()[0]]
    if found:
        gc.collect()  # what is not referred to any more must be gone on every worker alike
    for each in found:
        held = each.beside(known)
        if held:
            state.known(each, functools.partial(list, held), f"what {each.name} trains")


def write(place: Here) -> None:
    """At the function's end: what each optimizer made, and what of it was recorded."""
    if os.environ.get("DTK_UPDATES") == "0" or place.role == "evaluator":
        return
    state = progress(place)
    counted = list(state.estimated)
    keys_of = {m.part: {key_of(weight) for weight in m.weights()} for m in state.models}
    lost_of = {m.part: m.lost + tap.unread(m.key) for m in state.models}
    for each in updates.counted():
        inside, outside = each.so_far()
        names = [name for name, _ in each.variables.values()]
        lost = min(inside, sum(lost_of[k] for k, keys in keys_of.items() if keys & {*each.variables}))
        counted.append(
            Optimizer(
                name=each.name,
                variables=[*names[:NAMED], *["…"] * (len(names) > NAMED)],
                made=inside + outside,
                recorded=inside - lost + min(outside, each.recorded),
                pace=[each.fewest, each.most] if each.most > 1 else None,
            )
        )
    models = [each.label for each in state.models] + [each.name for each in state.estimated]
    place.journal.event(Updates(place.now(), optimizers=counted, models=models))


def check_any_strategy(who: str, place: Here) -> None:
    """Raises where the function of a cluster has made no strategy that knows of the other workers."""
    if _may_train_alone(place) or has_a_cluster():
        return
    raise ClusterConfigError(f"{who}: {_(ALONE, workers=place.workers)}")


def _may_train_alone(place: Here) -> bool:
    return place.workers == 1 or place.mode != "cluster" or place.role != "worker"


class _Listener:
    def __init__(self, place: Here):
        self.place, self.replicas = place, place.replicas

    def begins(self, optimizer: updates.Counted) -> None:
        if not _may_train_alone(self.place) and not has_a_cluster():
            self.place.journal.event(Alone(self.place.now()))

    def traced(self, optimizer: updates.Counted, **facts: Any) -> None:
        self.place.journal.event(Traced(self.place.now(), optimizer=optimizer.name, **facts))

    def augments(self, **found: list[str]) -> None:
        self.place.journal.event(Augments(self.place.now(), **found))
