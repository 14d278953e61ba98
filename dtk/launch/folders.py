"""The directories of runs: a fresh one for each, in this user's scratch directory; old ones make room.

A directory says which process it belongs to. A pid alone is no identity, since the system gives it out again; with the
moment at which the process began it is one. That moment is counted in ticks since the machine started, so that a change
of the wall clock makes no stranger of an old process.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import psutil

from dtk import environment
from dtk.errors import WorkerFailed
from dtk.records import RunFolder, WorkerFolder
from dtk.records.events import EstimatorTrained, Evaluation, of_kind
from dtk.watch.explain import PORT_TAKEN

T = TypeVar("T")
PORT_ATTEMPTS = 3

KEPT_RUNS = 100  # directories of earlier runs that stay; older ones make room
_OWNER = "kernel"  # in a run's directory: pid and start of the kernel that made it

# Those that something in this kernel still refers to: a Run, or the error of a run that failed.
_held: weakref.WeakSet[RunFolder] = weakref.WeakSet()


def new_path() -> Path:
    """A new and empty directory (mode 0700) of this process: of a run here, or of an agent for other machines' runs.

    Its number counts on from the newest: the oldest make room, and a clock put back must not make the newest old.
    """
    runs = environment.scratch("runs")
    _make_room(runs)
    newest = max((path.name for path in runs.iterdir()), default="").partition("-")[0]
    count = int(newest) + 1 if newest.isdecimal() else 1
    path = Path(tempfile.mkdtemp(prefix=f"{count:08d}-{datetime.now():%Y%m%d-%H%M%S}-", dir=runs))
    (path / _OWNER).write_text(f"{os.getpid()} {start_of(os.getpid())}")
    return path


def fresh(workers: int, has_evaluator: bool) -> RunFolder:
    """The directory of a new run, which stays as long as something holds what is returned."""
    folder = RunFolder(new_path(), workers, has_evaluator)
    _held.add(folder)
    return folder


@contextlib.contextmanager
def locked(path: Path, how: int = fcntl.LOCK_SH) -> Iterator[None]:
    """Locks a run's directory while the run lasts, so that no other kernel makes room there; ends with this process."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, how)
        yield
    finally:
        os.close(descriptor)


def _make_room(runs: Path) -> None:
    ours = {folder.path for folder in list(_held)}
    for path in sorted(runs.iterdir())[:-KEPT_RUNS]:
        if path in ours or not _is_free(path):
            continue
        # OSError: a run that is going on, or another kernel was quicker.
        with contextlib.suppress(OSError), locked(path, fcntl.LOCK_EX | fcntl.LOCK_NB):
            shutil.rmtree(path, ignore_errors=True)


def _is_free(path: Path) -> bool:
    """Whether dtk made it, in a kernel that is gone or is this one; what another still refers to is not known here.

    Only a directory with dtk's mark is dtk's to remove: whatever else somebody has put beside it stays.
    """
    try:
        if path.is_symlink() or (path / _OWNER).is_symlink():
            return False
        pid, _, start = (path / _OWNER).read_text().partition(" ")
        return bool(start) and (int(pid) == os.getpid() or start_of(int(pid)) != start)
    except (OSError, ValueError):
        return False


# ---- whose a directory is, by the process that made it


def start_of(pid: int) -> str | None:
    """When the process began; None where there is none, or where only its exit code is left of it (a zombie)."""
    try:
        if Path("/proc/self/stat").exists():
            # The name, in brackets, may hold anything; fields 3 (state) and 22 (start) are counted behind it.
            fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
            return None if fields[0] in (b"Z", b"X") else fields[19].decode()
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else repr(process.create_time())
    except (OSError, psutil.Error, IndexError):
        return None


def machine() -> str:
    """This boot and this container: pids of another mean nothing here."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().split("-")[0]
        return f"{boot}-{os.readlink('/proc/self/ns/pid').strip('pid:[]')}"
    except OSError:
        return "this"  # not Linux


# ---- between two starts of one cluster: what the first left is put aside, so that the next finds its place empty


def set_aside(folder: RunFolder, name: str) -> None:
    """Moves logs, records, events and results of all members, and how they ended, to the subdirectory `name`.

    What the function itself wrote into the run's directory, backups and checkpoints, stays where it is.
    """
    aside = folder.path / name
    aside.mkdir(mode=0o700)
    how = (folder.path / "attempt.json", folder.path / "states.json")  # the second: `dtk.watch.waiting`
    for path in (*(member.path for member in folder.members), *how):
        if path.exists():
            path.rename(aside / path.name)


def on_free_ports(folder: RunFolder, start: Callable[[], T]) -> T:
    """Calls `start`, and again where it found that a port had been taken; what such a start left is set aside."""
    for number in range(1, PORT_ATTEMPTS):
        try:
            return start()
        except WorkerFailed:
            errors = [member.error for member in folder.members]
            if not any(error is not None and PORT_TAKEN in error["message"] for error in errors):
                raise
            set_aside(folder, f"port-taken-{number}-{folder.attempt}")
    return start()


# ---- after the end


def result(worker: WorkerFolder, folder: RunFolder) -> Any:
    """What the worker's function returned; where that is None, what the Estimator that it trained came to."""
    trained = of_kind(worker.events, EstimatorTrained)
    if not trained or worker.result is not None:
        return worker.result
    # In one process train_and_evaluate evaluates itself; in a cluster the evaluator does.
    evaluated = of_kind((folder.evaluator if folder.has_evaluator else worker).events, Evaluation)
    metrics = evaluated[-1].metrics if evaluated else None
    return {"loss": trained[-1].loss, "global_step": trained[-1].step, "metrics": metrics}
