"""`dtk class boxed`: any command in a box of its own, such as another grader, or the kernel that one starts.

A kernel talks through files that are sockets. They lie on the box's disk, which nobody outside sees; but the box hands
that over as an open directory, and who opens `/proc/PID/fd/N/NAME` goes through it, whatever its own disk looks like.
In the same way a file is brought out when everything in the box has ended.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from dtk.classroom.box import Plan
from dtk.classroom.boxed import Limits, Rules, can_be_apart, environment, plan_of
from dtk.classroom.clock import CONNECTION
from dtk.errors import DtkError
from dtk.language import _

__all__ = ["kernel", "main"]

_PORTS = ("shell_port", "iopub_port", "stdin_port", "control_port", "hb_port")
_MOST_BROUGHT = 1 << 26  # bytes of a file
_KILLED = 137  # as a shell says it
_READ = 1 << 16


def main(options: argparse.Namespace, command: list[str]) -> int:
    """Runs the command, for a kernel its further arguments; returns the exit code, or 137 where the box ended it."""
    if sys.path and sys.path[0] in ("", os.getcwd()):
        del sys.path[0]  # `python -m` puts it there: what lies here is the submission's, and no part of Python
    limits = Limits(options.seconds, options.memory, options.disk)
    rules = Rules(limits, tuple(each.resolve() for each in options.hide))
    rules = replace(rules, apart=can_be_apart(rules))
    if not rules.apart:
        raise DtkError(
            _("this system refuses namespaces to this user, so there is no box"),
            remedy=_("see {page}", page="docs/guide/shared_machines.md"),
        )
    folder = Path(tempfile.mkdtemp(prefix="dtk-class-"))
    plan = plan_of(folder, Path.cwd(), rules, shown=True)
    empty = [plan.place, *plan.hidden]
    for each in rules.hidden:
        if not any(each.is_relative_to(place) for place in empty):
            words = _("{place} can't be hidden: Python needs what is in there", place=each)
            raise DtkError(words, remedy=_("move one of the two"))
    own = environment()
    if options.kernel is not None:
        inside, own[CONNECTION] = _moved(options.kernel, plan)
        command = [sys.executable, "-m", "ipykernel_launcher", "-f", f"{plan.place}/home/kernel.json", *command]
    elif not command:
        raise DtkError(_("no command is given"), remedy="dtk class boxed -- COMMAND ...")
    try:
        with _started(plan, own, ["-m", "dtk.classroom.clock", str(options.seconds), "--", *command]) as (box, place):
            with _doors(options.kernel, place, inside) if options.kernel is not None else contextlib.nullcontext():
                code = _attend(box, time.monotonic() + options.total)
            for name in options.bring:
                _bring(place, name, Path(name))
        return code
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def kernel(folder: Path, options: argparse.Namespace) -> Path:
    """Writes what has Jupyter start its Python kernels in boxes: for who has `folder` in JUPYTER_PATH."""
    limits = [f"--{name}={getattr(options, name)}" for name in ("seconds", "memory", "disk", "total")]
    hidden = [f"--hide={each.resolve()}" for each in options.hide]
    argv = [sys.executable, "-m", "dtk", "class", "boxed", *limits, *hidden, "--kernel={connection_file}", "--"]
    file = folder / "kernels" / "python3" / "kernel.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    whole = {"argv": argv, "display_name": "Python 3 (in a box)", "language": "python", "interrupt_mode": "signal"}
    file.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    return file


@contextlib.contextmanager
def _started(plan: Plan, own: dict[str, str], arguments: list[str]) -> Iterator[tuple[socket.socket, int]]:
    """A box; yields its control socket and its disk as an open directory. Everything in it ends with the block."""
    control, theirs = socket.socketpair()
    process = subprocess.Popen(
        [sys.executable, "-m", "dtk.classroom.box", str(plan), str(theirs.fileno()), "--", sys.executable, *arguments],
        env=own,
        cwd="/",
        stdin=subprocess.DEVNULL,
        pass_fds=[theirs.fileno()],
        start_new_session=True,
    )
    theirs.close()
    _said, places, _flags, _sender = socket.recv_fds(control, 1, 1)
    if not places:
        raise DtkError(_("no box can be made here"), remedy=_("what it said is above"))
    try:
        yield control, places[0]
    finally:
        control.close()
        process.wait()
        os.close(places[0])


def _attend(box: socket.socket, deadline: float) -> int:
    """Passes on signals until the command ends, or its time."""
    wakes, woken = socket.socketpair()
    wakes.setblocking(False)
    signal.set_wakeup_fd(wakes.fileno(), warn_on_full_buffer=False)
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, lambda *_given: None)
    while (left := deadline - time.monotonic()) > 0:
        ready = select.select([box, woken], [], [], left)[0]
        if woken in ready:
            for number in woken.recv(100):  # of signals
                if number == signal.SIGTERM:
                    return 128 + number
                box.sendall(f"{number}\n".encode())
        if box in ready:
            said = box.recv(100).decode().strip()
            if said.lstrip("-").isdigit():
                return int(said) % 256 if int(said) >= 0 else 128 - int(said)
            words = _("stopped: too much of {what}", what=said) if said else _("the box has ended")
            print(f"dtk: {words}", file=sys.stderr)
            return _KILLED
    print("dtk: " + _("stopped: its time is over"), file=sys.stderr)
    return _KILLED


def _moved(file: Path, plan: Plan) -> tuple[str, str]:
    """Where the kernel's sockets are in the box, and the connection file that says so."""
    said = json.loads(file.read_text())
    if said["transport"] != "ipc":
        raise DtkError(
            _("a kernel in a box has no network"),
            remedy=_("have Jupyter use files: {option}", option="--KernelManager.transport=ipc"),
        )
    inside = f"tmp/{secrets.token_hex(4)}"
    return inside, json.dumps({**said, "ip": f"{plan.place}/{inside}"})


@contextlib.contextmanager
def _doors(file: Path, place: int, inside: str) -> Iterator[None]:
    """Links to the kernel's sockets from where Jupyter looks for them, which can be relative to its own directory."""
    said = json.loads(file.read_text())
    asking = Path(f"/proc/{os.getppid()}/cwd").resolve()
    links = [asking / f"{said['ip']}-{said[port]}" for port in _PORTS]
    try:
        for link, port in zip(links, _PORTS, strict=True):
            link.symlink_to(f"/proc/{os.getpid()}/fd/{place}/{inside}-{said[port]}")
        yield
    finally:
        for link in links:
            link.unlink(missing_ok=True)


def _bring(place: int, name: str, to: Path) -> None:
    """Copies a file of the command's directory out, unless it is none, or a link, or large."""
    try:
        work = os.open("work", os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=place)
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=work)
    except OSError as error:
        raise DtkError(
            _("{file} is not there: {error}", file=name, error=error.strerror), remedy=_("what it said is above")
        ) from None
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise DtkError(_("{file} is no file", file=name))
    with os.fdopen(file, "rb") as found:
        content = found.read(_MOST_BROUGHT + 1)
    if len(content) > _MOST_BROUGHT:
        raise DtkError(_("{file} has more than {most} MB", file=name, most=_MOST_BROUGHT >> 20))
    to.write_bytes(content)
