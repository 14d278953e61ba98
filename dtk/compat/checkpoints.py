"""Two workers that save `tf.train.Checkpoint`s to one place: an error at the first save instead of at one in twelve.

Checkpoints of Keras are redirected (`dtk.compat.keras.callbacks`); where a function saves by `tf.train.Checkpoint`
itself, the place is its own choice and stays it. Were two workers to save to one, they would now and then find each
other's half-written files (measured: worker 1 raised in 1 of 12 saves). So each save is written down in its worker's
folder, and a worker compares its own with those of the workers before it. That the later worker looks, and waits a
moment for the earlier one's save, makes the error the same each time.

Touched are public methods: `tf.train.Checkpoint.save` and `write`, `tf.train.CheckpointManager.save`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dtk.compat.replacing import replaces
from dtk.environment import Here, here
from dtk.errors import ClusterConfigError

__all__ = ["apply"]

WAIT_SECONDS = 10.0  # for the save of a worker that comes to it at about the same time, or never
_silent: set[int] = set()  # workers that did not save when this one did, and are not waited for again


def apply() -> None:
    """Watches saves in this process where it is one of several workers."""
    place = here()
    if place is None or place.mode != "cluster" or place.workers < 2 or place.role == "evaluator":
        return
    from tensorflow import train

    # `save` and the manager keep a file named `checkpoint` in the directory; `write` writes its own files only.
    _watch(train.Checkpoint, "save", lambda checkpoint, prefix: os.path.dirname(os.path.abspath(prefix)))
    _watch(train.Checkpoint, "write", lambda checkpoint, prefix: os.path.abspath(prefix))
    _watch(train.CheckpointManager, "save", lambda manager, *_: os.path.abspath(manager.directory))


def _watch(owner: Any, name: str, place_of: Callable[..., str]) -> None:
    @replaces(owner, name)
    def wrapped(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        given = [kwargs["file_prefix"]] if "file_prefix" in kwargs else args[:1]
        _claim(place_of(self, *given), here())
        return original(self, *args, **kwargs)


def _claim(where: str, place: Here | None) -> None:
    """Writes down that this worker saves to `where`; ClusterConfigError where a worker before it saves there too."""
    assert place is not None, "applied in workers only"
    own = place.folder.path / "saves.txt"
    with own.open("a", encoding="utf-8") as file:
        file.write(where + "\n")
    count = len(_saves(own))
    for other in range(place.worker):
        theirs = place.run.worker(other).path / "saves.txt"
        if where in _seen(theirs, where, count, other):
            raise ClusterConfigError(
                f"workers {other} and {place.worker} both save checkpoints to {_called(where, place)}, where their "
                "files collide; let the chief save there and the others to places of their own (tempfile.mkdtemp())"
            )


def _seen(file: Path, where: str, count: int, worker: int) -> list[str]:
    """Where that worker has saved, as soon as `where` is among it or it has saved as often as this one."""
    deadline = time.monotonic() + (0.0 if worker in _silent else WAIT_SECONDS)
    while True:
        saves = _saves(file)
        if where in saves or len(saves) >= count:
            return saves
        if time.monotonic() > deadline:
            _silent.add(worker)
            return saves
        time.sleep(0.01)  # another process's file: nothing to wait on that works on every system


def _saves(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8").splitlines() if file.exists() else []


def _called(where: str, place: Here) -> str:
    """The place as the learner knows it, without directories of this machine."""
    for base in (Path.cwd(), place.run.path.absolute()):
        if Path(where).is_relative_to(base):
            return str(Path(where).relative_to(base))
    return os.path.basename(where)
