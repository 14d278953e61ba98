"""A box for one submission: what runs inside sees an empty disk, no network and no process but its own.

    python -m dtk.classroom.box PLAN CONTROL -- COMMAND ...

Where the system allows it, by namespaces of its own (`dtk.process.isolation`): the machine's files are read-only, some
directories look empty, and all that is written goes to a disk in memory of limited size, which ends with the box. The
first process in there, this one, can't be killed from inside; when it ends, or whoever made the box does, everything in
it ends. Elsewhere what is left
is limits, and an end to whatever it started.

PLAN is a `Plan` as JSON. CONTROL is the number of an inherited socket: it takes the numbers of signals for the command
and says how that ended, its exit code or what there was too much of; its end is the end of the box.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import re
import resource
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from dtk.process import isolation

__all__ = ["Plan", "main"]

_PRIVATE, _RECURSIVE, _BIND = 0x40000, 0x4000, 0x1000  # <linux/mount.h>
_NO_SUID, _NO_DEVICES, _NO_PROGRAMS, _READ_ONLY = 2, 4, 8, 1
_SET_ATTRIBUTES, _HERE, _ALL_BELOW = 442, -100, 0x8000  # mount_setattr(2): Linux 5.12
_DEATH_SIGNAL, _DUMPABLE, _DROP_BOUND, _SUBREAPER, _NO_MORE_RIGHTS = 1, 4, 24, 36, 38  # <linux/prctl.h>
_CAPABILITIES = 64
_OWN_PROCESSES = (5, 14)  # the first Linux that counts a user's processes apart in each user namespace
_OWN_NUMBERS = (6, 14)  # and the first with a pid_max for each namespace
_THREADS = 800 + 100 * (os.cpu_count() or 1)  # processes counted: three workers on two cores have 160, Ray 320
_NICE = 5
_LOOK = 0.25
_LARGEST = 100 << 20  # bytes of the files that come along with a notebook, all together


@dataclass(frozen=True)
class Plan:
    """What a box is to be.

    place: an empty directory, on which the disk of `disk` bytes is mounted. hidden: directories that look empty inside.
    files: a directory whose files are copied into the command's; "" where there are none. memory: bytes, of each
    process and of all. processes: how many at most. apart: whether it has namespaces of its own; OSErrors end it where
    the system refuses them. shown: the place is handed to whoever made the box, as an open directory, which is the
    first thing that comes from CONTROL; notebooks are copied, too.
    """

    place: str
    hidden: tuple[str, ...]
    files: str
    disk: int
    memory: int
    processes: int
    apart: bool = True
    shown: bool = False

    def __str__(self) -> str:
        return json.dumps(asdict(self))


def main() -> None:
    """The first process outside of the box, and by a fork the first inside of it."""
    plan, control = Plan(**json.loads(sys.argv[1])), socket.socket(fileno=int(sys.argv[2]))
    command = sys.argv[4:]
    control.set_inheritable(False)  # the command has no part in it
    libc = ctypes.CDLL(None, use_errno=True)
    source = os.open(plan.files, os.O_DIRECTORY) if plan.files else None  # it may lie where nothing will be seen
    if plan.apart:
        isolation.enter(isolation.NEW_MOUNTS | isolation.NEW_PROCESSES)
        if first := os.fork():
            control.close()
            os.waitpid(first, 0)
            return
        libc.prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
        _mount(libc, plan)
        home = _furnish(plan, source)
        _hide(libc, plan)
    else:
        libc.prctl(_SUBREAPER, 1, 0, 0, 0)
        home = _furnish(plan, source)
    if plan.shown:
        place = os.open(plan.place, os.O_DIRECTORY)
        socket.send_fds(control, [b"\n"], [place])
        os.close(place)
    _limit(libc, plan)
    environment = {**os.environ, "HOME": str(home), "TMPDIR": str(home.parent / "tmp")}
    child = subprocess.Popen(
        command, cwd="/", env=environment, stdin=subprocess.DEVNULL, close_fds=False, start_new_session=True
    )
    os.setpriority(os.PRIO_PROCESS, child.pid, _NICE)  # so that this process gets its turn whatever goes on in there
    libc.prctl(_DUMPABLE, 0, 0, 0, 0)  # nobody inside may look into this process or change it
    _attend(control, child, plan)
    if not plan.apart:
        _end_all()


def _mount(libc: ctypes.CDLL, plan: Plan) -> None:
    _call(libc.mount, None, b"/", None, _RECURSIVE | _PRIVATE, None)
    # Linux before 5.12 knows no such call: there the files are as safe as their permissions make them.
    libc.syscall(_SET_ATTRIBUTES, _HERE, b"/", _ALL_BELOW, struct.pack("QQQQ", _READ_ONLY, 0, 0, 0), 32)
    options = f"size={plan.disk},mode=700".encode()
    _call(libc.mount, b"tmpfs", os.fsencode(plan.place), b"tmpfs", _NO_SUID | _NO_DEVICES, options)


def _furnish(plan: Plan, source: int | None) -> Path:
    """Makes the directories of the box, with the files that belong to the notebook, from `source`; returns HOME."""
    place, files = Path(plan.place), f"/proc/self/fd/{source}"
    for name in ("home", "tmp", "work", "shared"):
        (place / name).mkdir(exist_ok=True)
    size = 0
    for folder, _, names in os.walk(files) if source is not None else ():
        for name in names:
            file, target = Path(folder, name), place / "work" / Path(folder, name).relative_to(files)
            size += file.lstat().st_size
            if file.is_symlink() or not file.is_file() or size > _LARGEST:
                continue  # a link leads to somebody else's
            if plan.shown or file.suffix != ".ipynb":
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, target)
    if source is not None:
        os.close(source)
    return place / "home"


def _hide(libc: ctypes.CDLL, plan: Plan) -> None:
    for each in plan.hidden:
        _call(libc.mount, b"tmpfs", os.fsencode(each), b"tmpfs", _READ_ONLY, b"size=4k")
    _devices(libc, Path(plan.place))
    _names(libc, Path(plan.place))
    if Path("/var/tmp").is_dir():
        _bind(libc, Path(plan.place) / "shared", Path("/var/tmp"))
    _call(libc.mount, b"proc", b"/proc", b"proc", _NO_SUID | _NO_DEVICES | _NO_PROGRAMS, None)
    if _linux() >= _OWN_NUMBERS:
        Path("/proc/sys/kernel/pid_max").write_text(str(_THREADS))


def _devices(libc: ctypes.CDLL, place: Path) -> None:
    """A /dev with what every program needs: to root, without this, the machine's disks would be files as others are."""
    devices = place / "devices"
    (devices / "pts").mkdir(parents=True)
    (devices / "shm").mkdir()
    for name in ("null", "zero", "full", "random", "urandom"):
        (devices / name).touch()
        _bind(libc, Path("/dev", name), devices / name)
    terminals = os.fsencode(devices / "pts")
    _call(libc.mount, b"devpts", terminals, b"devpts", _NO_SUID | _NO_PROGRAMS, b"newinstance,ptmxmode=0666")
    for name, target in (("ptmx", "pts/ptmx"), ("fd", "/proc/self/fd"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        (devices / name).symlink_to(target)
    _bind(libc, place / "shared", devices / "shm")
    _bind(libc, devices, Path("/dev"))


def _names(libc: ctypes.CDLL, place: Path) -> None:
    """Names of machines are known at once, or at once not: nobody waits for a server that can't be reached."""
    (place / "hosts").write_text(f"127.0.0.1 localhost {socket.gethostname()}\n")
    (place / "resolv.conf").touch()
    for name in ("hosts", "resolv.conf"):
        if Path("/etc", name).is_file():
            _bind(libc, place / name, Path("/etc", name))


def _bind(libc: ctypes.CDLL, source: Path, target: Path) -> None:
    _call(libc.mount, os.fsencode(source), os.fsencode(target), None, _BIND | _RECURSIVE, None)


def _limit(libc: ctypes.CDLL, plan: Plan) -> None:
    count = _THREADS
    if not plan.apart or _linux() < _OWN_PROCESSES:  # then it counts what else this user runs
        count += sum(each.num_threads() for each in psutil.process_iter() if each.uids().real == os.getuid())
    for what, most in ((resource.RLIMIT_DATA, plan.memory), (resource.RLIMIT_NPROC, count), (resource.RLIMIT_CORE, 0)):
        allowed = resource.getrlimit(what)[1]
        most = most if allowed == resource.RLIM_INFINITY else min(most, allowed)
        resource.setrlimit(what, (most, most))
    Path("/proc/self/oom_score_adj").write_text("1000")  # where memory runs out, this goes first
    libc.prctl(_NO_MORE_RIGHTS, 1, 0, 0, 0)
    for capability in range(_CAPABILITIES if plan.apart else 0):
        libc.prctl(_DROP_BOUND, capability, 0, 0, 0)


def _attend(control: socket.socket, child: subprocess.Popen[bytes], plan: Plan) -> None:
    """Passes on signals, reaps and counts, until the command ends, whoever made the box does, or there is too much."""
    wakes, woken = socket.socketpair()
    wakes.setblocking(False)
    signal.set_wakeup_fd(wakes.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    control.setblocking(False)
    said: int | str | None = None
    counted = 0.0
    while said is None:
        ready, _, _ = select.select([control, woken], [], [], _LOOK)
        if control in ready:
            asked = control.recv(100)
            if not asked:
                return
            for number in asked.split():
                child.send_signal(int(number))
        if woken in ready:
            woken.recv(1000)
        said = _reaped(child)
        if said is None and time.monotonic() > counted + _LOOK:
            said, counted = _excess(plan), time.monotonic()
    control.setblocking(True)
    control.sendall(f"{said}\n".encode())


def _excess(plan: Plan) -> str | None:
    """What there is too much of, in a word."""
    pids = _inside(plan)
    if len(pids) <= plan.processes and sum(map(_at_most, pids)) <= plan.memory:
        return None
    total = 0
    for pid in pids:  # exactly now, which can wait for a process that forks: many such would stop this one
        if len(_inside(plan)) > plan.processes:
            return "processes"
        total += _memory(pid)
    return "memory" if total > plan.memory else None


def _inside(plan: Plan) -> list[int]:
    if plan.apart:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [each.pid for each in psutil.Process().children(recursive=True)]


def _at_most(pid: int) -> int:
    """Bytes of a process, also those that it shares since it was forked."""
    try:
        _size, resident, files, *_rest = Path(f"/proc/{pid}/statm").read_text().split()
    except OSError:
        return 0
    return (int(resident) - int(files)) * resource.getpagesize()


def _memory(pid: int) -> int:
    """Bytes of a process; of what it shares with others its part."""
    try:
        found = re.search(r"^Pss: +(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
    except OSError:
        return 0  # it has ended, or is nobody's to look at
    return int(found[1]) << 10 if found else 0


def _reaped(child: subprocess.Popen[bytes]) -> int | None:
    """Takes leave of everything that has ended; the command's exit code where it is among it."""
    while True:
        try:
            found, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return -signal.SIGKILL
        if not found:
            return None
        if found == child.pid:
            child.returncode = os.waitstatus_to_exitcode(status)
            return child.returncode


def _end_all() -> None:
    """What is left where no namespace ends it: whoever loses its parent comes to this process."""
    while left := psutil.Process().children(recursive=True):
        for each in left:
            try:
                each.kill()
            except psutil.NoSuchProcess:
                pass
        psutil.wait_procs(left, timeout=1)


def _linux() -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", platform.release())[:2]))


def _call(call: Callable[..., int], *given: object) -> None:
    if call(*given):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(given))


if __name__ == "__main__":
    main()
