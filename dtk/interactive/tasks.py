"""What a worker does between two cells for the kernel: collectives made usable again, values given and taken."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dtk.compat import collectives
from dtk.compat.per_replica import Copies
from dtk.errors import DtkError
from dtk.interactive import catch_up as again
from dtk.interactive.barrier import Stopped
from dtk.interactive.inspection import digest_of, look, numbers, variables_of
from dtk.interactive.snapshot import snapshot
from dtk.language import N_, _

__all__ = ["do"]

Message = dict[str, Any]


def do(life: Any, message: Message) -> Message:
    """The answer to one of the tasks below; life: of `serve`."""
    return {"status": "ok", **_TASKS[message["do"]](life, message)}


def _settle(life: Any, message: Message) -> Message:
    """Every counter goes on from a number that no collective has had; enable: after an abort, or with a new peer."""
    life.gate.open()
    enabled = collectives.enable() if message["enable"] else False
    if message["number"]:
        collectives.set_keys(message["number"])
    return {"enabled": enabled, "keys": collectives.keys()}


def _look(life: Any, message: Message) -> Message:
    return {"rows": look(life.shell.user_ns)}


def _digests(life: Any, message: Message) -> Message:
    """Of all variables that are to be equal on all workers."""
    return {"digests": {name: digest_of(variable) for name, variable in _mirrored(life, [])}}


def _mirrored(life: Any, names: list[str]) -> Iterator[tuple[str, Copies]]:
    space = life.shell.user_ns
    for name in names or [name for name in space if not name.startswith("_")]:
        if name not in space:
            raise DtkError(_("worker {worker} has no {name}", worker=life.place.worker, name=name))
        for label, variable in variables_of(space[name]):
            if names or variable.kept == "mirrored":
                yield f"{name}{label}", variable


def _give(life: Any, message: Message) -> Message:
    """Writes the variables of these names (none: all mirrored ones) to a file, which is whole when it has its name."""
    import numpy as np

    found = dict(_mirrored(life, message["names"]))
    path = life.place.run.path / message["file"]
    part = path.with_suffix(".part")
    with part.open("wb") as file:
        np.savez(file, **{f"a{k}": variable.arrays()[0] for k, variable in enumerate(found.values())})
    part.replace(path)
    return {"names": list(found)}


def _take(life: Any, message: Message) -> Message:
    """Takes over what `_give` has written, variable by variable."""
    import numpy as np

    found = dict(_mirrored(life, message["names"]))
    lacking = [name for name in message["given"] if name not in found]
    if lacking and message["names"]:
        raise DtkError(
            _(
                "worker {worker} has no {lacking}: run the cell that makes it there first",
                worker=life.place.worker,
                lacking=lacking[0],
            )
        )
    with np.load(life.place.run.path / message["file"]) as arrays:
        given = {name: arrays[f"a{k}"] for k, name in enumerate(message["given"])}
    gives = life.place.worker == message["giver"]
    for name, array in given.items():
        if name not in found or (gives and found[name].kept != "mirrored"):  # each of its replicas has its own part
            continue
        own = found[name].arrays()[0]
        if own.shape != array.shape:
            raise DtkError(
                _(
                    "{name} has the shape {shape} on worker {worker}, and {shape2} there",
                    name=name,
                    shape=own.shape,
                    worker=life.place.worker,
                    shape2=array.shape,
                )
            )
        found[name].assign([array])
    return {"taken": len(given)}


def _pull(life: Any, message: Message) -> Message:
    """The value of an expression: of a variable this worker's copy, of a model all of them by name."""
    life.gate.hold({}, raises=True)  # what would take a collective is refused: the other workers are in no cell
    try:
        value = eval(compile(message["code"], "<pull>", "eval"), life.shell.user_ns)
        return dict(life.kept(numbers(value), message["id"]))
    except (KeyboardInterrupt, Stopped):
        words = N_(
            "{code}: its value is made by all workers together (a metric's result, a reduction): run "
            "it in a cell on all"
        )
        raise DtkError(_(words, code=message["code"])) from None
    finally:
        life.gate.open()


_TASKS = {
    "settle": _settle,
    "look": _look,
    "digests": _digests,
    "give": _give,
    "take": _take,
    "pull": _pull,
    "lend": again.lend,
    "borrow": again.borrow,
    "replay": again.replay,
    "snapshot": snapshot,
}
