"""What this user's dtk started and what of it still runs: known by a mark and by pid and start time, never by name.

Everything that a parent process starts, the learner's own child processes included, has a mark in its environment
that says which kernel it belongs to. Beside it each parent keeps a list in the scratch directory, `owned/TOKEN.json`,
which has the names: "worker 0", of which run. A pid alone is no identity, since the system gives it out again; with
the moment at which the process began it is one. That moment is counted in ticks since the machine started, so that a
change of the wall clock makes no stranger of an old process.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from dtk import environment

__all__ = [
    "Identity",
    "Owned",
    "end",
    "forget",
    "kill",
    "machine",
    "new_mark",
    "own_folder",
    "processes",
    "start_of",
    "sweep",
    "tidy",
    "write",
]

MARK = "DTK_OWNED"  # TOKEN:kernel's pid:kernel's start:machine
END_SECONDS = 3.0


class Identity(NamedTuple):
    """A process and no other one, also after its pid is used again."""

    pid: int
    start: str


@dataclass(frozen=True)
class Owned:
    """A process that dtk started, or that one of these started.

    what: "worker 0", "parent (warm)", ...; run: its run's directory, where known. seconds: since it began (NaN where
    the system doesn't say). kernel: the pid of the kernel it belongs to; left: whether that kernel is gone.
    """

    identity: Identity
    what: str
    run: str
    kernel: int
    left: bool
    token: str

    @property
    def pid(self) -> int:
        return self.identity.pid

    @property
    def seconds(self) -> float:
        if not hasattr(time, "CLOCK_BOOTTIME"):
            return float("nan")
        began = float(self.identity.start) / os.sysconf("SC_CLK_TCK")
        return time.clock_gettime(time.CLOCK_BOOTTIME) - began

    @property
    def megabytes(self) -> float:
        """Memory in use, what it shares with others included; 0 where it has ended."""
        try:
            return float(psutil.Process(self.pid).memory_info().rss) / 1e6
        except psutil.Error:
            return 0.0


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


@cache
def machine() -> str:
    """This boot and this container: pids of another mean nothing here."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().split("-")[0]
        return f"{boot}-{os.readlink('/proc/self/ns/pid').strip('pid:[]')}"
    except OSError:
        return "this"  # not Linux


def new_mark() -> str:
    """A mark for what this process is going to start."""
    return f"{secrets.token_hex(6)}:{os.getpid()}:{start_of(os.getpid())}:{machine()}"


def _folder() -> Path:
    return environment.scratch("owned")


def write(mark: str, members: dict[int, tuple[str, str]]) -> None:
    """Puts the list of one parent on disk, whole. members: pid -> (what it is, its run's directory)."""
    token = mark.split(":")[0]
    rows = [[pid, start_of(pid), *words] for pid, words in members.items()]
    try:
        part = _folder() / f"{token}.part"
        part.write_text(json.dumps({"mark": mark, "members": rows}))
        os.replace(part, _folder() / f"{token}.json")
    except OSError:
        pass  # a full disk: the marks remain, and only the names are missing


def forget(mark: str) -> None:
    """Removes a parent's list."""
    for name in ("json", "part"):
        try:
            (_folder() / f"{mark.split(':')[0]}.{name}").unlink()
        except OSError:
            pass  # it never was, or another program of this user was quicker


def _lists() -> dict[str, dict[str, Any]]:
    """The lists of this machine by token."""
    found = {}
    for path in sorted(_folder().glob("*.json")):
        try:
            content = json.loads(path.read_text())
            if content["mark"].split(":")[3] == machine():
                found[path.stem] = content
        except (OSError, ValueError, KeyError, IndexError):
            pass  # removed meanwhile, or cut short by a full disk
    return found


def processes(token: str | None = None) -> list[Owned]:
    """All that dtk started for this user and that runs, or what belongs to one parent; in the order of pids."""
    marks: dict[str, str] = {}
    names: dict[Identity, tuple[str, str, str]] = {}  # what, run, token
    lists = _lists()
    for each, content in lists.items():
        marks[each] = content["mark"]
        for pid, start, what, run in content["members"]:
            if start is not None and start_of(pid) == start:
                names[Identity(pid, start)] = (what, run, each)
    for process in psutil.process_iter():
        mark, start = _mark_of(process), start_of(process.pid)
        if mark and start:
            own = mark.split(":")[0]
            marks[own] = mark
            what = "started by a worker" if own in lists else "listed under another TMPDIR"
            names.setdefault(Identity(process.pid, start), (what, "", own))
    # A child that cleared its environment is known by its ancestors as long as it has them.
    for identity, (what, run, own) in list(names.items()):
        for child in _descendants(identity.pid):
            names.setdefault(child, (f"started by {what}" if run else "started by a worker", run, own))
    gone = {each: start_of(int(mark.split(":")[1])) != mark.split(":")[2] for each, mark in marks.items()}
    found = [
        Owned(identity, what, run, int(marks[own].split(":")[1]), gone[own], own)
        for identity, (what, run, own) in names.items()
        if token in (None, own) and identity.pid != os.getpid()
    ]
    return sorted(found, key=lambda owned: owned.pid)


def _mark_of(process: psutil.Process) -> str | None:
    try:
        if process.uids().real != os.getuid():
            return None
        mark = process.environ().get(MARK, "")
    except (psutil.Error, OSError):
        return None
    return mark if mark.count(":") == 3 and mark.split(":")[3] == machine() else None


def _descendants(pid: int) -> Iterable[Identity]:
    try:
        children = psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return []
    return [Identity(child.pid, start) for child in children if (start := start_of(child.pid)) is not None]


def kill(identity: Identity) -> bool:
    """SIGKILL to this process and no other; whether there was one to be killed."""
    try:
        handle = os.pidfd_open(identity.pid) if hasattr(os, "pidfd_open") else None
    except OSError:
        handle = None  # gone, or a kernel without pidfds: the check below tells
    try:
        if start_of(identity.pid) != identity.start:
            return False
        if handle is None:
            os.kill(identity.pid, signal.SIGKILL)
        else:  # a handle stays with its process, even if the pid is given to another in this very moment
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        return True
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        if handle is not None:
            os.close(handle)


def end(found: Iterable[Owned]) -> list[Owned]:
    """Kills these and what they start meanwhile; returns those that still run 3 s later."""
    wanted = list(found)
    tokens = {owned.token for owned in wanted}
    deadline = time.monotonic() + END_SECONDS
    left = wanted
    while left:
        # Those that start others go first.
        for owned in sorted(left, key=lambda owned: not owned.what.startswith(("guard", "parent"))):
            kill(owned.identity)
        left = [owned for owned in left if start_of(owned.pid) == owned.identity.start]
        if not left:
            left = [owned for owned in processes() if owned.token in tokens]
        if time.monotonic() > deadline:
            break
        if left:
            time.sleep(0.02)
    return left


def sweep(mark: str) -> None:
    """Ends whatever is left of one parent's, after that parent's own death, and forgets it."""
    end(processes(mark.split(":")[0]))
    forget(mark)


def tidy() -> None:
    """Removes what is left of kernels and agents that were killed: lists of which nothing runs, logs, directories."""
    marks = {token: content["mark"] for token, content in _lists().items()}
    gone = {token: mark for token, mark in marks.items() if start_of(int(mark.split(":")[1])) != mark.split(":")[2]}
    living = {owned.token for owned in processes()} if gone else set()
    for token, mark in gone.items():
        if token not in living:
            forget(mark)
    for log in environment.scratch().glob("parent-*.log"):
        if start_of(int(log.name.split("-")[1])) is None:
            log.unlink(missing_ok=True)
    _tidy_folders()


# ---- directories that belong to one process, by their names: agents keep other machines' runs there


def own_folder() -> Path:
    """A directory that goes with this process."""
    return environment.scratch("away", f"{machine()}-{os.getpid()}-{start_of(os.getpid())}")


def _tidy_folders() -> None:
    prefix = f"{machine()}-"
    for path in environment.scratch("away").glob(f"{prefix}*"):
        pid, _, start = path.name.removeprefix(prefix).partition("-")
        if pid.isdecimal() and start_of(int(pid)) != start:
            shutil.rmtree(path, ignore_errors=True)
