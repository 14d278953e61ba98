"""What this user's dtk started and what of it still runs: known by a mark in its environment, never by name.

Everything that a parent process starts, the learner's own child processes included, has a mark in its environment
that says which kernel it belongs to. A pid alone is no identity, since the system gives it out again; with the moment
at which the process began it is one. That moment is counted in ticks since the machine started, so that a change of
the wall clock makes no stranger of an old process.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import psutil

from dtk import environment

__all__ = ["Owned", "end", "machine", "new_mark", "own_folder", "processes", "start_of", "sweep", "tidy"]

MARK = "DTK_OWNED"  # TOKEN:kernel's pid:kernel's start:machine
END_SECONDS = 3.0
BOOT = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from dtk.launch import guard; guard.main()"
_LOG = re.compile(r"/(?P<run>[^/]+)/(worker-(?P<worker>\d+)|evaluator)/log\.txt$")


@dataclass(frozen=True)
class Owned:
    """A process that dtk started, or that one of these started.

    what: "worker 0", "parent (warm)", ...; run: its run's directory, where known. kernel: the pid of the kernel it
    belongs to; left: whether that kernel is gone. token: of the mark that it shares with all of one parent.
    """

    process: psutil.Process
    what: str
    run: str
    kernel: int
    left: bool
    token: str

    @property
    def pid(self) -> int:
        return int(self.process.pid)

    @property
    def seconds(self) -> float:
        """Since it began; NaN where it has ended, or the system doesn't say."""
        start = start_of(self.pid)
        if start is None or not hasattr(time, "CLOCK_BOOTTIME"):
            return float("nan")
        return time.clock_gettime(time.CLOCK_BOOTTIME) - float(start) / os.sysconf("SC_CLK_TCK")

    @property
    def megabytes(self) -> float:
        """Memory in use, what it shares with others included; 0 where it has ended."""
        with contextlib.suppress(psutil.Error):
            return float(self.process.memory_info().rss) / 1e6
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


def processes(token: str | None = None) -> list[Owned]:
    """All that dtk started for this user and that runs, or what belongs to one parent; in the order of pids."""
    marks = {process: mark for process in psutil.process_iter() if (mark := _mark_of(process))}
    # A child that cleared its environment is known by its ancestors as long as it has them.
    for process, mark in list(marks.items()):
        with contextlib.suppress(psutil.Error):
            for child in process.children(recursive=True):
                if start_of(child.pid) is not None:
                    marks.setdefault(child, mark)
    found = []
    for process, mark in marks.items():
        own, kernel, start, _machine = mark.split(":")
        if token in (None, own) and process.pid != os.getpid():
            what, run = _name_of(process)
            found.append(Owned(process, what, run, int(kernel), start_of(int(kernel)) != start, own))
    return sorted(found, key=lambda owned: owned.pid)


def _mark_of(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error, OSError):
        if process.uids().real == os.getuid():
            mark = str(process.environ().get(MARK, ""))
            return mark if mark.count(":") == 3 and mark.split(":")[3] == machine() else ""
    return ""


def _name_of(process: psutil.Process) -> tuple[str, str]:
    """What a process is, by what it runs, and its run, by where its output goes; also of one that inherits these."""
    above = [process]
    with contextlib.suppress(psutil.Error):
        above = [process, *process.parents()]
    boots = [each for each in above if BOOT in _command(each)]  # guard and parent, and workers that are forked there
    log = _LOG.search(_output(process))
    run = log["run"] if log else ""
    if boots and process == boots[-1]:
        return "guard", run
    if len(boots) > 1 and process == boots[-2]:
        return f"parent ({'warm' if json.loads(_command(process)[-1])['fork'] else 'cold'})", run
    if log is None:
        tracker = any("resource_tracker" in word for word in _command(process))
        return "multiprocessing's resource tracker" if tracker else "started by dtk", run
    worker = f"worker {log['worker']}" if log["worker"] else "evaluator"
    own = len(boots) > 1 and len(above) > 1 and above[1] == boots[-2]
    return worker if own else f"started by {worker}", run


def _command(process: psutil.Process) -> list[str]:
    with contextlib.suppress(psutil.Error, OSError):
        return list(process.cmdline())
    return []


def _output(process: psutil.Process) -> str:
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/{process.pid}/fd/1")
    return ""  # it has ended; or not Linux, where only the names are missing


def end(found: Iterable[Owned]) -> list[Owned]:
    """Kills these and what they start meanwhile; returns those that still run 3 s later."""
    left = list(found)
    tokens = {owned.token for owned in left}
    deadline = time.monotonic() + END_SECONDS
    while left:
        # Those that start others go first.
        for owned in sorted(left, key=lambda owned: not owned.what.startswith(("guard", "parent"))):
            with contextlib.suppress(psutil.Error):  # psutil kills this process, and none that has its pid by now
                owned.process.kill()
        left = [owned for owned in left if owned.process.is_running() and start_of(owned.pid) is not None]
        left = left or [owned for owned in processes() if owned.token in tokens]
        if time.monotonic() > deadline:
            break
        if left:
            time.sleep(0.02)
    return left


def sweep(mark: str) -> None:
    """Ends whatever is left of one parent's, after that parent's own death."""
    end(processes(mark.split(":")[0]))


def tidy() -> None:
    """Removes what is left of kernels and agents that were killed: their parents' logs, and directories."""
    for log in environment.scratch().glob("parent-*.log"):
        if start_of(int(log.name.split("-")[1])) is None:
            log.unlink(missing_ok=True)
    prefix = f"{machine()}-"
    for path in environment.scratch("away").glob(f"{prefix}*"):
        pid, _, start = path.name.removeprefix(prefix).partition("-")
        if pid.isdecimal() and start_of(int(pid)) != start:
            shutil.rmtree(path, ignore_errors=True)


def own_folder() -> Path:
    """A directory that goes with this process, by its name: agents keep other machines' runs there."""
    return environment.scratch("away", f"{machine()}-{os.getpid()}-{start_of(os.getpid())}")
