"""What a worker does between two cells for the kernel: collectives made usable again, variables given and taken,
cells run once more in a new process, a copy of what was recorded.

Each task takes the worker's loop and the kernel's message, and returns its answer.
"""

from __future__ import annotations

import os
import pickle
import zipfile
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from dtk.compat import collectives
from dtk.compat.per_replica import Copies, copies
from dtk.compat.steps import updates as update_counts
from dtk.errors import DtkError
from dtk.interactive import shell
from dtk.interactive.inspection import digest_of, is_plain, variables_of
from dtk.language import N_, _
from dtk.records import events, weights
from dtk.worker import ship, states
from dtk.worker.progress import keep_beside, progress, write_updates
from dtk.worker.wire import Message

if TYPE_CHECKING:
    from dtk.interactive.worker_loop import WorkerLoop

__all__ = ["TASKS"]

_PROGRESS = ("steps", "epoch", "trainings", "looping")
_NOT_OF_A_RUN = ("shown.jsonl", "result.pkl", "value-", "given-", "so-far-")  # how files of a session alone begin


def _settle(loop: WorkerLoop, message: Message) -> Message:
    """Every counter goes on from a number that no collective has had; enable: after an abort, or with a new peer."""
    loop.gate.open()
    if message["enable"]:
        collectives.enable()
    collectives.set_keys(message["number"])
    return {}


# ---- variables


def _digests(loop: WorkerLoop, message: Message) -> Message:
    """Of all variables that are to be equal on all workers."""
    return {"digests": {name: digest_of(variable) for name, variable in _variables(loop, [])}}


def _variables(loop: WorkerLoop, names: list[str]) -> Iterator[tuple[str, Copies]]:
    """Those of these names in the namespace; without names all that are to be equal on all workers."""
    space = loop.shell.user_ns
    for name in names or [name for name in space if not name.startswith("_")]:
        if name not in space:
            raise DtkError(_("worker {worker} has no {name}", worker=loop.place.worker, name=name))
        for label, variable in variables_of(space[name]):
            if names or variable.kept == "mirrored":
                yield f"{name}{label}", variable


def _give(loop: WorkerLoop, message: Message) -> Message:
    """Writes the variables of these names to a file; without names all that are mirrored, and what else there is."""
    found = dict(_variables(loop, message["names"]))
    arrays = {name: variable.arrays()[0] for name, variable in found.items()}
    rest = {} if message["names"] else _rest(loop)
    weights.replace(loop.place.run.path / message["file"], ship.pack_result((arrays, rest)))
    return {"count": len(arrays)}


def _given(loop: WorkerLoop, message: Message) -> tuple[dict[str, Any], dict[str, Any]]:
    """(variables, `_rest`) of the file that another worker of this user has written."""
    arrays, rest = pickle.loads((loop.place.run.path / message["file"]).read_bytes())
    return arrays, rest


def _take(loop: WorkerLoop, message: Message) -> Message:
    """Takes over the variables that `_give` has written."""
    found = dict(_variables(loop, message["names"]))
    gives = loop.place.worker == message["giver"]
    for name, array in _given(loop, message)[0].items():
        if name not in found:
            if not message["names"]:
                continue
            words = N_("worker {worker} has no {lacking}: run the cell that makes it there first")
            raise DtkError(_(words, worker=loop.place.worker, lacking=name))
        if gives and found[name].kept != "mirrored":  # each of its replicas has its own part
            continue
        own = found[name].arrays()[0]
        if own.shape != array.shape:
            words = N_("{name} has the shape {shape} on worker {worker}, and {shape2} there")
            raise DtkError(
                _(words, name=name, shape=own.shape, worker=loop.place.worker, shape2=array.shape),
            )
        found[name].assign([array])
    return {}


# ---- a new process in the place of another
#
# The session's cells run again there, each up to its first collective: the other workers have those behind them and
# will not take part in them again. Variables begin with this worker's own initial values, and are synced afterwards;
# iterators begin anew.


def _rest(loop: WorkerLoop) -> dict[str, Any]:
    """What a new process has to have besides variables.

    names: of all there is. plain: values by name. optimizers: by name, the variables that each trains. progress, and
    counts of updates.
    """
    import numpy as np

    space, state = {k: value for k, value in loop.shell.user_ns.items() if not k.startswith("_")}, progress(loop.place)
    known = _trainable(loop)
    optimizers = {name: update_counts.optimizer_of(value) for name, value in space.items()}
    trained = {name: update_counts.trains(each, known) for name, each in optimizers.items() if each is not None}
    return {
        "names": list(space),
        "plain": {name: each for name, each in space.items() if isinstance(each, np.ndarray) or is_plain(each)},
        "optimizers": {name: paths for name, paths in trained.items() if paths},
        "progress": {name: getattr(state, name) for name in _PROGRESS},
        "counts": {each.name: each.state() for each in update_counts.counted()},
    }


def _replay(loop: WorkerLoop, message: Message) -> Message:
    """Runs the cells, and takes over what another worker has given and is lacking here.

    Answers which cells ended early, by number, {"cut": [...], "failed": [...]}, and names, {"taken": [...], "lacking":
    [...]}.
    """
    given = _given(loop, message)[1] if message["file"] else {}
    space = loop.shell.user_ns
    loop.local["on"] = True
    loop.gate.hold({}, raises=True)
    answer: dict[str, list[int]] = {"cut": [], "failed": []}
    try:
        for number, code in message["cells"]:
            end = shell.run(loop.shell, number, code, loop.gate.files)
            if end["status"] == "error":
                answer["cut" if end["stopped"] else "failed"].append(number)
        _build(loop, given.get("optimizers", {}))
    finally:
        loop.gate.open()
        loop.local["on"] = False
    taken = {name: value for name, value in given.get("plain", {}).items() if name not in space}
    space.update(taken)
    for name, value in given.get("progress", {}).items():
        setattr(progress(loop.place), name, value)
    loop.owed = given.get("counts", {})
    _settle_counts(loop)
    return {**answer, "taken": list(taken), "lacking": [name for name in given.get("names", ()) if name not in space]}


def _build(loop: WorkerLoop, optimizers: Mapping[str, list[str]]) -> None:
    """Gives optimizers the variables that theirs have which have trained."""
    known = _trainable(loop)
    for name, paths in optimizers.items():
        optimizer = update_counts.optimizer_of(loop.shell.user_ns.get(name))
        built = optimizer is None or update_counts.trains(optimizer, known)
        if not built and all(path in known for path in paths):
            with loop.strategy.scope():
                optimizer.build([known[path] for path in paths])


def _trainable(loop: WorkerLoop) -> dict[str, Any]:
    """Each variable of the namespace and its models that can be trained, by its name."""
    known = {}
    for value in list(loop.shell.user_ns.values()):
        held = getattr(value, "trainable_variables", None)  # of a class it is a property
        for each in held if isinstance(held, (list, tuple)) and held else [value]:
            if (found := copies(each)) is not None:
                known[found.name] = each
    return known


def _settle_counts(loop: WorkerLoop) -> None:
    """Adds what was counted before this worker came, to each optimizer by its name; some come only with later cells."""
    for own in update_counts.counted():
        if own.name in loop.owed:
            own.go_on(loop.owed.pop(own.name))


# ---- the session as a run


def _snapshot(loop: WorkerLoop, message: Message) -> Message:
    """Writes this worker's corner of the session's directory into one file, as if its function had returned now.

    On all workers at once: weights that are put together when they are read need all of them.
    """
    place, corner = loop.place, loop.place.folder.path
    grown = [corner / name for name in ("states.bin", "units.jsonl", "events.jsonl")]
    before = {path: path.stat().st_size for path in grown if path.exists()}
    states.finish(goes_on=True)
    _settle_counts(loop)
    keep_beside(place)
    progress(place).finish()
    write_updates(place)
    place.journal.event(events.Finished(place.now()))
    part = corner / "so-far.part"
    with zipfile.ZipFile(part, "w") as archive:
        for each in sorted(corner.iterdir()):
            if each.is_file() and each.suffix != ".part" and not each.name.startswith(_NOT_OF_A_RUN):
                archive.write(each, each.name)
        archive.writestr("result.pkl", ship.pack_result(None))
    part.replace(corner / message["file"])
    for path, size in before.items():
        os.truncate(path, size)  # here the session goes on
    return {}


TASKS = {
    "settle": _settle,
    "digests": _digests,
    "give": _give,
    "take": _take,
    "replay": _replay,
    "snapshot": _snapshot,
}
