"""What each worker of a run is doing, found out without a word from it: its files and its process.

Nothing here costs a worker anything while it works. Only one that has been silent for some seconds is asked for its
Python stack, by a signal whose handler (`faulthandler`, in C) runs also while Python is deep inside a collective.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import psutil

from dtk.errors import PACKAGE, in_words, library_of
from dtk.language import N_, _
from dtk.records import WorkerFolder
from dtk.records.events import content
from dtk.watch.reader import Member, Reader, size
from dtk.watch.waiting import State

if TYPE_CHECKING:
    from dtk.watch.watch import Watch, WorkerStatus

_LOOK = 0.25  # seconds between two looks
_SILENT = 2.0  # seconds without a sign of life after which a worker is called silent
_ASK = 3.0  # seconds of silence after which a worker is asked where it is
_ANSWER = 0.5  # seconds that an answer may take; a stopped process gives none
# A worker that waits inside a collective uses next to nothing; one that computes uses most of a core.
_BUSY = 0.05
_DISK = 1 << 20  # bytes that it reads and writes since the last sign of life; an answer to us takes less
_AWAY = 2.0  # seconds between two looks beyond which this process has not looked for want of running itself
_RECENT = 60.0  # seconds for which that can be why something fails

_STOPPED = (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)


class Vitals(NamedTuple):
    """used: processor seconds since the process began. stopped: by SIGSTOP or its like.

    disk: bytes that it has read from disks and written to them.
    """

    used: float
    stopped: bool
    disk: int = 0


def vitals(pid: int) -> Vitals | None:
    """Of a process that lives; None where there is none."""
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            times, status = process.cpu_times(), process.status()
        disk = 0
        with contextlib.suppress(AttributeError, psutil.AccessDenied):  # macOS; a process with another's rights
            counted = process.io_counters()
            disk = int(counted.read_bytes + counted.write_bytes)
    except psutil.Error:
        return None
    return Vitals(float(times.user + times.system), status in _STOPPED, disk)


@dataclass
class _Pulse:
    """Signs of life of one member: growing files, processor time; `moved` is when the last was seen."""

    written: Member
    moved: float
    stopped: bool = False
    asked: float = float("-inf")
    offset: int = 0  # where the answer begins in stacks.txt
    activity: Activity | None = None
    sizes: list[int] = field(default_factory=list)
    disk: int = 0
    cpu: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=round(1 / _LOOK) + 1))

    def look(self, vitals: Vitals | None, now: float) -> None:
        if self.written.sizes != self.sizes:
            self.moved = now
        self.sizes = self.written.sizes
        if vitals is not None:
            self.stopped = vitals.stopped
            self.cpu.append((now, vitals.used))
            then, before = self.cpu[0]  # a second ago: the system counts in steps of 10 ms
            busy = vitals.used - before > _BUSY * max(now - then, _LOOK)
            if busy or vitals.disk - self.disk >= _DISK:
                self.moved = now
        if self.moved == now:
            self.activity = None
            self.disk = vitals.disk if vitals is not None else 0

    @property
    def stacks(self) -> Path:
        return self.written.folder.path / "stacks.txt"

    def answer(self) -> str:
        """The stacks that were written since the last question; "" for none."""
        return content(self.stacks, self.offset).decode(errors="replace")


class Signs:
    """The states of a run's members, looked at four times a second.

    watch: what is known of the members. reader: of their files; what it has read by then is what is looked at. source:
    of the processes, wherever they are (`dtk.launch.place`), by each member's key.
    """

    def __init__(self, watch: Watch, reader: Reader, source: Any, keys: Sequence[str]):
        now = time.monotonic()
        self.watch, self.folder, self.source, self.keys = watch, reader.folder, source, list(keys)
        self._pulses = [_Pulse(member, now) for member in reader.members]
        self._looked = float("-inf")
        self._away = (0.0, float("-inf"))  # seconds, and when that was over

    def look(self, anew: bool = False) -> None:
        """Looks for signs of life, also sooner than four times a second where it has to be `anew`."""
        now = time.monotonic()
        if now - self._looked < _LOOK and not anew:
            return
        away = now - self._looked - _AWAY
        if 0 < away < float("inf"):  # this process was stopped, or the machine was: what happened then, nobody has seen
            self._away = now - self._looked, now
            for pulse in self._pulses:
                pulse.moved += away
        self._looked = now
        pids = self._pids()
        for member, pulse in enumerate(self._pulses):
            pulse.look(self.source.vitals(self.keys[member]) if member in pids else None, now)
            # Before its first event a worker has no handler yet, and the signal would kill it.
            listens = member in pids and self.watch.heard[member].began
            silent = listens and now - pulse.moved >= _ASK and not pulse.stopped
            if silent and pulse.asked < pulse.moved:
                self._ask(member)
            elif silent and pulse.activity is None and pulse.asked > pulse.moved:
                pulse.activity = activity(pulse.answer())

    def _pids(self) -> dict[int, int]:
        """Processes that live, by member."""
        started, exited = self.source.started, self.source.exited
        return {k: started[key] for k, key in enumerate(self.keys) if key in started and key not in exited}

    def _ask(self, member: int) -> None:
        pulse = self._pulses[member]
        pulse.asked, pulse.offset = time.monotonic(), size(pulse.stacks)
        self.source.ask(self.keys[member])

    def quiet_seconds(self, members: Iterable[WorkerFolder]) -> float:
        """Seconds since any of these made progress: a record, an event, output, processor time, or bytes of a disk."""
        return time.monotonic() - max(self._pulses[member.worker].moved for member in members)

    @property
    def slept(self) -> float:
        """For how many seconds this process stood still lately, as on a machine that slept; 0.0 where it did not."""
        seconds, at = self._away
        return seconds if time.monotonic() - at < _RECENT else 0.0

    def step_seconds(self) -> float | None:
        """How long a step of the slowest worker took lately, at most; None as long as there are only the first."""
        paces = [pulse.written.pace() for pulse in self._pulses[: self.folder.workers]]
        known = [pace for pace in paces if pace is not None]
        return max(known) if len(known) == len(paces) else None

    def ask(self) -> None:
        """Asks every member that lives where it is, and waits for the answers, for half a second at most."""
        asked = [k for k in self._pids() if self.watch.heard[k].began]
        pulses = [self._pulses[member] for member in asked]
        for member in asked:
            self._ask(member)
        deadline = time.monotonic() + _ANSWER
        while time.monotonic() < deadline and not all(pulse.answer() or pulse.stopped for pulse in pulses):
            self.source.poll(0.02)  # the handlers write to files; there is no event to wait for
        deadline = time.monotonic() + 0.05  # for the last answer's last lines
        while (left := deadline - time.monotonic()) > 0:
            self.source.poll(left)
        for pulse in pulses:
            pulse.activity = activity(pulse.answer())

    def stacks(self, anew: bool = False) -> str:
        """Each member's state, and the Python stack of each that lives, by what it answered last; or asked `anew`."""
        if anew:
            self.ask()
        texts = []
        for state, pulse in zip(self.now(), self._pulses, strict=True):
            head = f"{state.called}: {state.said()}"
            if state.pid is not None:
                head = _("{words} (process {pid})", words=head, pid=state.pid)
            stack = own_part(pulse.answer()) if pulse.asked > 0 else ""
            texts.append(f"{head}\n{stack or '  ' + _('(no stack: it is stopped, or not running)')}")
        return "\n\n".join(texts)

    def now(self) -> list[State]:
        """Each member's state as far as it is known without asking anew."""
        now, pids = time.monotonic(), self._pids()
        states = []
        for member, (heard, pulse) in enumerate(zip(self.watch.heard, self._pulses, strict=True)):
            active, quiet = pulse.activity or Activity(), max(0.0, now - pulse.moved)
            works = member < self.folder.workers  # an evaluator is silent between two checkpoints
            quiet_enough = quiet >= _SILENT or pulse.activity is not None
            states.append(
                State(
                    member=member,
                    name=pulse.written.folder.name,
                    what=_what(heard, pulse),
                    step=pulse.written.step,
                    quiet=quiet,
                    silent=works and member in pids and not pulse.stopped and quiet_enough,
                    blocked=active.blocked if works and self.folder.workers > 1 else "",
                    call=active.call,
                    line=active.line,
                    planned=heard.planned,
                    pid=pids.get(member),
                )
            )
        return states


def _what(heard: WorkerStatus, pulse: _Pulse) -> str:
    if heard.state in ("finished", "failed"):
        return heard.state
    if heard.exited is not None:
        return "failed"
    if pulse.stopped:
        return "stopped"
    if heard.state == "starting" or pulse.written.step:
        return "training" if pulse.written.step else "starting"
    return "building" if heard.state == "training" else "imported" if heard.imported else "running"


# ---- what a Python stack tells


# Not of the "file" `__init__`: the frame that Python 3.12 and later put below a class's __init__, at line ???.
_FRAME = re.compile(r'^  File "(?P<file>(?!__init__")[^"]*)", line (?P<line>\d+|\?\?\?) in (?P<function>.*)$', re.M)
_THREAD = re.compile(r"^(?=(?:Current thread|Thread) 0x[0-9a-f]+)", re.M)
_ENTRY = os.path.join(PACKAGE, "worker", "worker.py")

# Python code that does nothing but take part in a collective: a thread there waits for its peers.
_COLLECTIVE = re.compile(r"tensorflow/python/(distribute/cross_device_(ops|utils)|ops/(gen_)?collective_ops)\.py$")
_CONNECTING = "tensorflow/python/distribute/collective_all_reduce_strategy.py"
# Where Python hands over to TensorFlow's runtime; what goes on below it, no Python stack shows.
_RUNTIME = re.compile(r"tensorflow/python/(eager/(execute|context)|client/session|ops/gen_\w+_ops)\.py$")
# Python that an operation of a graph runs: `py_function`, `numpy_function`, a dataset's generator.
_CALLED_BACK = re.compile(r"tensorflow/python/ops/script_ops\.py$")
_SAVING = re.compile(r"(checkpoint|saved_model|saving|gfile|file_io|saver|summary)")
_TRAINERS = re.compile(r"(keras/src/backend/tensorflow/trainer|keras/src/engine/training)\.py$")
_CALLS = ("fit", "evaluate", "predict")


@dataclass(frozen=True)
class Activity:
    """Where a silent worker is.

    blocked: "collective" (certain: Python code of a collective is on a stack), "operation" (inside TensorFlow's
    runtime, where a `tf.function` with a collective waits, and nothing else that waits shows), "connecting" (making
    MultiWorkerMirroredStrategy) or "" (elsewhere). call: the innermost of Keras's fit, evaluate and predict, or "".
    line: the learner's innermost line, "line 17 in train", or "".
    """

    blocked: str = ""
    call: str = ""
    line: str = ""


def activity(text: str) -> Activity:
    """What a dump tells; an empty Activity where it is empty."""
    threads = sorted(_THREAD.split(text)[1:], key=lambda each: not each.startswith("Current"))
    if not threads:
        return Activity()
    stacks = [[*_FRAME.finditer(each)] for each in threads]
    main = stacks[0]
    calls = [frame["function"] for frame in main if frame["function"] in _CALLS and _TRAINERS.search(frame["file"])]
    own = next((frame for frame in main if not library_of(frame["file"])), None)
    line = _("line {number} in {function}", number=own["line"], function=own["function"]) if own else ""
    return Activity(_blocked(stacks), calls[0] if calls else "", line)


def _blocked(stacks: list[list[re.Match[str]]]) -> str:
    main = stacks[0]
    if any(frame["file"].endswith(_CONNECTING) and frame["function"] == "__init__" for frame in main):
        return "connecting"
    # A thread of its own runs a collective for each device, while the main one waits for that thread.
    files = [[frame["file"] for frame in stack] for stack in stacks]
    handed_over = any(_RUNTIME.search(file) for stack in files for file in stack[:1])
    if handed_over and any(_COLLECTIVE.search(file) for stack in files for file in stack):
        return "collective"
    if not main or not _RUNTIME.search(files[0][0]) or any(_SAVING.search(file) for file in files[0]):
        return ""
    # Python in another thread, the learner's or called by the graph: TensorFlow waits for that.
    if any(not library_of(file) or _CALLED_BACK.search(file) for stack in files[1:] for file in stack):
        return ""
    return "" if any(file.endswith("data/ops/iterator_ops.py") for file in files[0]) else "operation"


def own_part(text: str) -> str:
    """A dump without the frames below the learner's function, which are how dtk started the worker.

    And without threads of libraries that take no part: pools that wait for work, watchers.
    """
    parts = []
    for thread in _THREAD.split(text)[1:]:
        # The learner's own, called by the graph, or inside of a collective.
        files = [frame["file"] for frame in _FRAME.finditer(thread)]
        tells = (not library_of(file) or _COLLECTIVE.search(file) or _CALLED_BACK.search(file) for file in files)
        if thread.startswith("Current") or any(tells):
            own = takewhile(lambda line: f'File "{_ENTRY}' not in line, thread.splitlines())
            parts.append("\n".join(line for line in own if not line.startswith('  File "__init__"')).rstrip())
    return "\n".join(parts)


_SOONEST, _STEPS = 5.0, 50.0  # it is said after so many seconds, and so many of the run's longest steps
_AHEAD = 5.0  # ... if that is so long before the end
_LONGEST = 3.0  # a silence of so many of its longest steps does not end a run


@dataclass
class StallPolicy:
    """When a silence is warned of, and when it ends the run, by how long the run's own steps take.

    stall_timeout: seconds without any progress that end the run; None: nothing does.
    """

    stall_timeout: float | None
    said: bool = False

    def limit(self, step_seconds: float | None) -> float | None:
        """Seconds of silence that end the run: `stall_timeout`, or three of its longest steps where that is more."""
        return None if self.stall_timeout is None else max(self.stall_timeout, _LONGEST * (step_seconds or 0.0))

    def warns(self, quiet: float, step_seconds: float | None) -> bool:
        """Whether to warn of a silence now: once, and only where the run's own steps tell that it is long."""
        if quiet < _SOONEST:
            self.said = False
        if self.said or step_seconds is None:
            return False
        after, limit = max(_SOONEST, _STEPS * step_seconds), self.limit(step_seconds)
        self.said = quiet >= after and (limit is None or limit - after >= _AHEAD)
        return self.said

    def warning(self, quiet: float, step_seconds: float | None, sentence: str) -> str:
        """The warning, with its numbers."""
        words = N_("nothing has moved for {quiet:.0f} s, where a step took {ms:,.0f} ms at most: {sentence}")
        words = _(words, quiet=quiet, ms=1000 * (step_seconds or 0.0), sentence=sentence)
        limit = self.limit(step_seconds)
        return in_words(words, _("the run ends after {limit:g} s of that", limit=limit) if limit is not None else "")
