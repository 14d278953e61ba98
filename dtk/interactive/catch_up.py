"""A worker in another's place: the session's cells are run again there, up to their first collective.

The others have those collectives behind them and will not take part in them again. Variables begin with this worker's
own initial values, and are synced afterwards; iterators begin anew.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any

from dtk.compat.keras import building
from dtk.compat.per_replica import copies
from dtk.compat.steps import updates
from dtk.interactive.inspection import is_plain
from dtk.records import weights
from dtk.worker import ship
from dtk.worker.progress import progress

__all__ = ["borrow", "lend", "replay", "settle_counts"]

Message = dict[str, Any]


def replay(life: Any, message: Message) -> Message:
    """Runs the cells: which of them ended there is said as {"cut": [...], "failed": [...]}, by number."""
    life.local["on"] = True
    life.gate.hold({}, raises=True)
    cut: list[int] = []
    failed: list[int] = []
    try:
        for number, code in message["cells"]:
            life.gate.files.add(life.shells.name_of_cell(number))
            end = life.shells.run(life.shell, number, code, life.gate.files)
            if end["status"] == "error":
                (cut if end["stopped"] else failed).append(number)
        _build(life, message["optimizers"])
    finally:
        life.gate.open()
        life.local["on"] = False
    return {"cut": cut, "failed": failed}


def _build(life: Any, optimizers: Mapping[str, list[str]]) -> None:
    """Gives optimizers the variables that theirs have which have trained."""
    space = life.shell.user_ns
    known = _trainable(space)
    for name, paths in optimizers.items():
        optimizer = building.optimizer_of(space.get(name))
        if optimizer is not None and not building.trains(optimizer, known) and all(path in known for path in paths):
            with life.strategy.scope():
                building.build(optimizer, [known[path] for path in paths])


def _trainable(space: Mapping[str, Any]) -> dict[str, Any]:
    """Each variable of a namespace and its models that can be trained, by its name."""
    known = {}
    for value in list(space.values()):
        held = getattr(value, "trainable_variables", None)  # of a class it is a property
        for each in held if isinstance(held, (list, tuple)) and held else [value]:
            if (found := copies(each)) is not None:
                known[found.name] = each
    return known


def lend(life: Any, message: Message) -> Message:
    """Plain values and arrays of a namespace, in a file; which names it has; what optimizers train; how far it is."""
    import numpy as np

    space = {name: value for name, value in life.shell.user_ns.items() if not name.startswith("_")}
    plain = {name: value for name, value in space.items() if isinstance(value, np.ndarray) or is_plain(value)}
    weights.replace(life.place.run.path / message["file"], ship.pack_result(plain))
    optimizers = {name: building.optimizer_of(value) for name, value in space.items()}
    known = _trainable(space)
    trained = {name: building.trains(each, known) for name, each in optimizers.items() if each is not None}
    state = progress(life.place)
    far = {name: getattr(state, name) for name in ("steps", "epoch", "trainings", "looping")}
    counts = [[each.name, each.state()] for each in updates.counted()]
    optimizers = {name: paths for name, paths in trained.items() if paths}
    return {"names": list(space), "optimizers": optimizers, "far": far, "counts": counts}


def settle_counts(life: Any) -> None:
    """Adds what was counted before this worker came, to each optimizer by its name; some come only with later cells."""
    for own in updates.counted():
        if own.name in life.owed:
            own.go_on(life.owed.pop(own.name))


def borrow(life: Any, message: Message) -> Message:
    """Takes over plain values whose names are lacking here; says which names are lacking even so."""
    space = life.shell.user_ns
    given = pickle.loads((life.place.run.path / message["file"]).read_bytes())  # written by this user's own worker
    taken = [name for name in given if name not in space]
    space.update({name: given[name] for name in taken})
    state = progress(life.place)
    for name, value in message["far"].items():
        setattr(state, name, value)
    life.owed = dict(message["counts"])
    settle_counts(life)
    lacking = [name for name in message["names"] if name not in space]
    return {"taken": taken, "lacking": lacking}
