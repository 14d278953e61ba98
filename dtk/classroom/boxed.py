"""The grader's end of a box: starts a kernel in it, asks it one thing at a time, and stops what exceeds a limit."""

from __future__ import annotations

import json
import os
import re
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dtk.classroom.box import Plan
from dtk.errors import DtkError

__all__ = ["Box", "GivenUp", "Limits", "Rules", "Stopped", "can_be_apart", "environment", "plan_of"]

_GRACE = 10.0  # seconds from an interrupt to the kill
_START = 60.0  # for Python and dtk to be imported
_LOOK = 0.5  # between two looks whether the grading was given up
_STACK = 1.0
_MOST_ANSWER = 1 << 20  # bytes
_PASSED_ON = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "TZ", "PYTHONWARNINGS")
_TEMPORARY = Path("/tmp")
_SOCKETS = Path("/run")  # of services that would do for a submission what it can't do itself


@dataclass(frozen=True)
class Limits:
    """For each question. seconds: of the clock. memory: bytes, of all processes together. disk: bytes of a box."""

    seconds: float = 120.0
    memory: int = 4 << 30
    disk: int = 1 << 30
    processes: int = 50  # three workers come to 7


@dataclass(frozen=True)
class Rules:
    """Of all boxes. hidden: directories that look empty inside. apart: whether each has namespaces of its own.

    given_up: set where all are to end.
    """

    limits: Limits
    hidden: tuple[Path, ...] = ()
    apart: bool = True
    given_up: threading.Event = field(default_factory=threading.Event)


class Stopped(Exception):
    """The kernel was stopped. why: "time", "memory", "processes", "disk" or "ended" (by itself).

    answer: what it still said to the interrupt; None where it had to be killed, and the box is gone. line: of the cell,
    where Python was; 0 where that is not known. code: the exit code, where it ended by itself.
    """

    def __init__(self, why: str, answer: dict[str, Any] | None = None, line: int = 0, code: int | None = None):
        super().__init__(why)
        self.why, self.answer, self.line, self.code = why, answer, line, code


class GivenUp(Exception):
    """Somebody interrupted the grading."""


class Box:
    """A kernel in a box of its own; leaving the `with` block ends everything in it."""

    def __init__(self, lesson: str, files: Path | None, rules: Rules):
        self._rules = rules
        self._folder = Path(tempfile.mkdtemp(prefix="dtk-class-"))
        plan = plan_of(self._folder, files, rules)
        self._control, control = socket.socketpair()
        self._channel, channel = socket.socketpair()
        self._stacks, stacks = os.pipe()
        output, printed = os.pipe()
        passed = (control.fileno(), channel.fileno(), stacks)
        kernel = ["-m", "dtk.classroom.kernel", str(passed[1]), str(passed[2]), f"{plan.place}/work", lesson]
        command = [sys.executable, *kernel]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "dtk.classroom.box", str(plan), str(passed[0]), "--", *command],
            env=environment(),
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=printed,
            pass_fds=passed,
            start_new_session=True,
        )
        for each in (control, channel):
            each.close()
        os.close(stacks)
        os.close(printed)
        self.output = bytearray()  # its end
        threading.Thread(target=self._drain, args=(output,), daemon=True).start()
        self._answers = b""
        try:
            self._wait(time.monotonic() + _START)
        except Stopped:
            self.close()
            said = bytes(self.output).decode(errors="replace").strip().splitlines()
            raise DtkError("no kernel starts in a box", remedy=said[-1] if said else "see --help") from None

    def __enter__(self) -> Box:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends everything in the box. Where it has namespaces of its own the system does, at once."""
        self._control.close()
        try:
            self._process.wait(5.0)
        except subprocess.TimeoutExpired:
            self._process.kill()  # its first process inside dies with it
            self._process.wait()
        self._channel.close()
        if self._stacks >= 0:
            os.close(self._stacks)
            self._stacks = -1
        shutil.rmtree(self._folder, ignore_errors=True)

    def ask(self, question: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """The kernel's answer.

        Raises:
            Stopped: there is none within these seconds, or it ended. Without an answer the box is closed then.
        """
        try:
            key = secrets.token_hex()  # an answer that a cell wrote itself, without this question, is none
            self._channel.sendall(json.dumps({**question, "key": key}).encode() + b"\n")
            answer = self._wait(time.monotonic() + seconds)
            if answer.pop("key", "") != key:
                raise self._ended()
        except OSError:
            raise self._ended() from None
        except Stopped as stopped:
            if stopped.why != "time":
                raise
            raise self._stop() from None
        if answer.get("full"):
            self.close()
            raise Stopped("disk")
        return answer

    def _wait(self, deadline: float) -> dict[str, Any]:
        while b"\n" not in self._answers:
            left = deadline - time.monotonic()
            if self._rules.given_up.is_set():
                raise GivenUp
            if left <= 0:
                raise Stopped("time")
            if select.select([self._channel], [], [], min(left, _LOOK))[0]:
                part = self._channel.recv(1 << 16)
                if not part:
                    raise self._ended()
                self._answers += part
                if len(self._answers) > _MOST_ANSWER:
                    raise self._ended()  # a cell writes into the channel
        line, _, self._answers = self._answers.partition(b"\n")
        try:
            return dict(json.loads(line))
        except ValueError:
            raise self._ended() from None  # a cell wrote into the channel

    def _stop(self) -> Stopped:
        self._signal(signal.SIGUSR1)
        ready, _, _ = select.select([self._stacks], [], [], _STACK)
        time.sleep(0.05 if ready else 0)  # for the stack's last line: it is written line by line
        line = _line(os.read(self._stacks, 1 << 16).decode(errors="replace")) if ready else 0
        self._signal(signal.SIGINT)
        try:
            return Stopped("time", self._wait(time.monotonic() + _GRACE), line)
        except (Stopped, OSError):
            self.close()
            return Stopped("time", None, line)

    def _ended(self) -> Stopped:
        """It says so itself, in a moment: then with its exit code."""
        said = ""
        try:
            if select.select([self._control], [], [], _STACK)[0]:
                said = self._control.recv(100).decode().strip()
        except OSError:
            pass
        self.close()
        if said in ("memory", "processes"):
            return Stopped(said)
        return Stopped("ended", code=int(said) if said else None)

    def _signal(self, number: int) -> None:
        try:
            self._control.sendall(f"{number}\n".encode())
        except OSError:
            pass  # it has ended, which the next look finds

    def _drain(self, output: int) -> None:
        """Takes what is printed, however much, and keeps the end."""
        with os.fdopen(output, "rb", buffering=0) as stream:
            while part := stream.read(1 << 20):
                self.output += part[-4000:]
                del self.output[:-4000]


def plan_of(folder: Path, files: Path | None, rules: Rules, shown: bool = False) -> Plan:
    """The box that these rules allow, on an empty folder of this user's. files, shown: of `Plan`."""
    limits, apart = rules.limits, rules.apart
    roots = [_TEMPORARY, _SOCKETS, *rules.hidden, Path.home()] if apart else []
    place = _TEMPORARY if apart and _can_hide(_TEMPORARY) else folder
    covered = [str(each) for each in dict.fromkeys(roots) if each != place and _can_hide(each) and each.is_dir()]
    below = tuple(each for each in covered if not Path(each).is_relative_to(place))  # is empty already
    return Plan(str(place), below, str(files or ""), limits.disk, limits.memory, limits.processes, apart, shown)


def can_be_apart(rules: Rules) -> bool:
    """Whether the system lets a box have namespaces of its own."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        Box("00", None, replace(rules, apart=True)).close()
    except DtkError:
        return False
    return True


def _line(stack: str) -> int:
    """The outermost line of a cell in what `faulthandler` wrote, the innermost first; 0 where there is none."""
    found = re.findall(r'File "<ipython-input[^"]*", line (\d+)', stack)
    return int(found[-1]) if found else 0


def _can_hide(folder: Path) -> bool:
    """Whether nothing that Python needs lies in there."""
    needed = [sys.prefix, sys.base_prefix, sys.exec_prefix, os.path.realpath(sys.executable), *sys.path, __file__]
    found = [Path(each).resolve() for each in needed if each and Path(each).exists()]  # some are names of hooks
    return not any(each.is_relative_to(folder.resolve()) for each in found)


def environment() -> dict[str, str]:
    """No token and no password of the grader's gets into a box, and nothing that a cell would wait for."""
    mine = {name: value for name, value in os.environ.items() if name in _PASSED_ON or name.startswith("TF_CPP")}
    return {
        **mine,
        "PYTHONPATH": os.pathsep.join(each for each in sys.path if each),
        "PYTHONDONTWRITEBYTECODE": "1",
        "DTK_LIVE": "off",
        "DTK_COLAB": "0",
        "MPLBACKEND": "agg",
    }
