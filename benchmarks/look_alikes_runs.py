"""The rows of `look_alikes.py` in which something happens to a run: is it said, and is a healthy run left alone?"""

from __future__ import annotations

import contextlib
import io
import os
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oddities import MEMORY, QUOTA, STEPS, Happening, train

import dtk

STALL, LONG = 5.0, 8.0  # seconds without progress that end a run; seconds of what is healthy and long
ASLEEP = "this process and its workers sleep"
CULPRIT, WAITS, ORDER = "a worker fails", "a worker stands still", "each in another collective"
SLOW, HEALTHY = "a worker is slow, and goes on", "healthy and odd"
LIMITS = {  # groups of Linux's own, by root alone: file, what it is set to
    MEMORY: ("memory.limit_in_bytes", "900000000"),
    QUOTA: ("cpu.cfs_quota_us", "10000"),
}


@dataclass(frozen=True)
class Trial:
    """kind: "right", "wrong name", "missed" or "false alarm". said: by dtk. drawn: what the seed gave."""

    kind: str
    said: str
    drawn: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Heard:
    """What dtk said of a run: its error, and whom the timeline's title calls the worker that others wait for."""

    error: dtk.DtkError | None
    victim: int
    awaited: int | None = None
    notice: str = ""

    @property
    def vague(self) -> bool:
        """Whether nobody and nothing was named that could be wrong."""
        if isinstance(self.error, dtk.WorkerFailed):
            return self.error.worker == self.victim and "may say why" in str(self.error)
        return not isinstance(self.error, dtk.WorkerStalled) or self.error.reason in ("", "unknown")

    def __str__(self) -> str:
        named = "" if self.awaited is None else f"; the timeline: others wait for worker {self.awaited}"
        return (str(self.error) if self.error else "nothing" + named) + (f"; {self.notice}" if self.notice else "")


@dataclass(frozen=True)
class Row:
    """what: what happens, and, unless `how` says it, its name in `oddities`. right: whether what was said is so.

    long: seconds that something healthy takes. start: further arguments of `dtk.run`. needs: a group of Linux's own.
    """

    what: str
    group: str
    right: Callable[[Heard], bool]
    how: str = ""
    long: float = LONG
    start: Mapping[str, Any] = field(default_factory=dict)
    steps: int = STEPS
    needs: Path | None = None

    @property
    def healthy(self) -> bool:
        return self.group in (SLOW, HEALTHY)

    def trial(self, seed: int) -> Trial:
        draw, how = random.Random(f"{self.what} {seed}"), self.how or self.what
        victim, at = draw.randrange(self.start.get("workers", 2)), draw.randrange(2, max(3, self.steps - 5))
        case = Happening(how, victim, at, self.long, self.steps)
        if how == ASLEEP:
            with lid_that_closes(self.long) as lid:
                heard = hear(Happening(how, victim, at, self.long, self.steps, lid), self.start)
        else:
            heard = hear(case, self.start)
        return Trial(self._kind(heard), str(heard), {"victim": victim, "at": at})

    def _kind(self, heard: Heard) -> str:
        if self.right(heard):
            return "right"
        if self.healthy:
            return "false alarm" if heard.error or heard.notice else "wrong name"
        return "missed" if heard.vague else "wrong name"


def hear(case: Happening, start: Mapping[str, Any]) -> Heard:
    given = {"stall_timeout": STALL, "timeout": 120 + 4 * case.long, **start}
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            run = dtk.run(train, args=(case,), **given)
    except (dtk.WorkerFailed, dtk.WorkerStalled, dtk.RunTimeout) as error:
        return Heard(error, case.victim)
    notices = re.findall("nothing has moved for .*", printed.getvalue())
    return Heard(None, case.victim, awaited(run), "; ".join(notices))


def awaited(run: dtk.Run) -> int | None:
    """Whom the timeline's title names, if it does."""
    import matplotlib.pyplot as plt

    figure = dtk.plot.timeline(run).figure
    titles = " ".join(text.get_text() for axes in figure.axes for text in (axes.title, axes._left_title))
    plt.close(figure)
    found = re.search(r"waits for worker (\d+)", titles)
    return int(found[1]) if found else None


# ---- what is right to say


def failed(words: str, code: int | None = None, never: str = "\n") -> Callable[[Heard], bool]:
    def right(heard: Heard) -> bool:
        said = heard.error
        found = isinstance(said, dtk.WorkerFailed) and said.worker == heard.victim and words in str(said)
        return found and (code is None or said.exitcode == code) and never not in str(said)

    return right


def stalled(reason: str) -> Callable[[Heard], bool]:
    def right(heard: Heard) -> bool:
        said, waits = heard.error, {1 - heard.victim: [heard.victim]}
        return isinstance(said, dtk.WorkerStalled) and said.reason == reason and said.waits == waits

    return right


def order(heard: Heard) -> bool:
    """Nobody is the culprit of two orders: what is to be said is that there are two."""
    said = heard.error
    alike = isinstance(said, dtk.WorkerStalled) and said.reason in ("order", "unknown")
    return alike or (isinstance(said, dtk.WorkerFailed) and "different collectives" in str(said))


def unequal(heard: Heard) -> bool:
    return heard.error is not None and "give all workers equally many steps" in str(heard.error)


def asleep(heard: Heard) -> bool:
    """No worker is to blame where TensorFlow heard no heartbeat of one for 10 s, because nothing ran at all."""
    return isinstance(heard.error, dtk.WorkerFailed) and "stood still for" in str(heard.error)


def left_alone(heard: Heard) -> bool:
    """Neither ended nor warned; and if a worker is called slow, it is the one that is."""
    return heard.error is None and not heard.notice and heard.awaited in (None, heard.victim)


def nobody(heard: Heard) -> bool:
    return left_alone(heard) and heard.awaited is None


DOZE = {"stall_timeout": 3.0}  # from 5 to 10 s without a heartbeat on, by chance, TensorFlow ends the training
ROWS = (
    Row("raises", CULPRIT, failed("raised ValueError: bad label 7", 1)),
    Row("killed for want of memory", CULPRIT, failed("for want of memory", -9), needs=MEMORY),
    Row("SIGKILL", CULPRIT, failed("was killed by SIGKILL", -9, never="want of memory")),
    Row(
        "SIGKILL, and another process is killed for want of memory",
        CULPRIT,
        failed("memory meanwhile; if it was that one: ", -9),  # which one, the kernel's log alone says
        needs=MEMORY,
    ),
    Row("SIGSEGV in a library", CULPRIT, failed("was killed by SIGSEGV", -11)),
    Row("SIGABRT in a library", CULPRIT, failed("was killed by SIGABRT", -6)),
    Row("sys.exit", CULPRIT, failed("called sys.exit(3)", 3)),
    Row("os._exit", CULPRIT, failed("ended itself with exit code 4", 4)),
    Row("disk full", CULPRIT, failed("No space left on device", 1)),
    Row("input()", CULPRIT, failed("raised EOFError", 1)),
    Row("SIGSTOP", WAITS, stalled("stopped")),
    Row("sleeps in Python", WAITS, stalled("silent")),
    Row("waits for a lock", WAITS, stalled("silent")),
    Row("hangs in a library that holds Python's lock", WAITS, stalled("silent")),
    Row("reads a pipe that nobody writes", WAITS, stalled("silent")),
    Row("a pipeline that stands still", WAITS, stalled("silent")),
    Row("a collective more", ORDER, order),
    Row("an all-reduce of another shape", ORDER, order),
    Row("fewer steps than the other", ORDER, unequal),
    Row("slow: sleeps in every step", SLOW, left_alone),
    Row("slow: a slow disk in the input pipeline", SLOW, left_alone),
    Row("slow: its core is shared with three busy processes", SLOW, left_alone),
    Row("slow: collects garbage in every step", SLOW, left_alone),
    Row("slow: a tenth of a core is left to it (throttled)", SLOW, left_alone, needs=QUOTA),
    Row("slow: frozen for 0.2 of each 0.25 s", SLOW, left_alone),
    Row("skewed data: one worker has 8 times as many examples", SLOW, left_alone),
    Row("SIGTERM", HEALTHY, nobody),  # TensorFlow takes it for the notice of a preemption, and goes on
    Row("computes for long", HEALTHY, left_alone),
    Row("a very long step", HEALTHY, left_alone),
    Row("a first step that is traced for long", HEALTHY, left_alone),
    Row("one worker starts late", HEALTHY, left_alone),
    Row("writes a large checkpoint to a slow disk", HEALTHY, left_alone),
    Row("an evaluation on one worker after the training", HEALTHY, left_alone),
    Row("the machine sleeps for 4 s, where 3 s without progress end a run", HEALTHY, nobody, ASLEEP, 4, DOZE),
    Row("the machine sleeps for 14 s, and TensorFlow gives its workers up", CULPRIT, asleep, ASLEEP, 14),
    Row(
        "steps without processor time, one longer than the limit", HEALTHY, nobody, start={"stall_timeout": 2}, steps=10
    ),
    Row("16 workers on two cores", HEALTHY, nobody, start={"workers": 16}, steps=12),
)


def at_length(name: str, how: str, seconds: float) -> Row:
    return Row(name, HEALTHY, left_alone, how, seconds, {"stall_timeout": 60.0})


# With the stall_timeout that dtk has by default.
FULL = (
    at_length("a first step is traced for 90 s", "a first step that is traced for long", 90),
    at_length("an evaluation of two minutes", "an evaluation on one worker after the training", 120),
    at_length("a step of 90 s", "a very long step", 90),
    at_length("one worker starts 30 s after the other", "one worker starts late", 30),
    at_length("a checkpoint takes 70 s", "writes a large checkpoint to a slow disk", 70),
)


# ---- what has to be there


@contextlib.contextmanager
def groups() -> Iterator[set[Path]]:
    """Makes the groups with a limit that rows need; gives those that this system grants."""
    made = set()
    for group, (file, value) in LIMITS.items():
        with contextlib.suppress(OSError):
            group.mkdir(exist_ok=True)
            (group / file).write_text(value)
            made.add(group)
    try:
        yield made
    finally:
        for group in made:
            with contextlib.suppress(OSError):  # a process that has not gone yet
                group.rmdir()


_LID = """
import os, signal, sys, time, psutil
lid, notebook, seconds = sys.argv[1], psutil.Process(int(sys.argv[2])), float(sys.argv[3])
deadline = time.monotonic() + 120
while not os.path.exists(lid):
    if time.monotonic() > deadline or not notebook.is_running():
        sys.exit()
    time.sleep(0.05)
all_of_it = [notebook, *(each for each in notebook.children(recursive=True) if each.pid != os.getpid())]
for name in ("SIGSTOP", "SIGCONT"):
    for each in all_of_it:
        try:
            os.kill(each.pid, signal.Signals[name])
        except ProcessLookupError:
            pass
    if name == "SIGSTOP":
        time.sleep(seconds)
"""


@contextlib.contextmanager
def lid_that_closes(seconds: float) -> Iterator[str]:
    """The name of a file: when it is made, this process and all its workers stand still for so long.

    As on a laptop whose lid is closed; but there the clock of all processes stands still as well, and here it does not.
    """
    with tempfile.TemporaryDirectory() as folder:
        lid = str(Path(folder, "lid"))
        waker = subprocess.Popen([sys.executable, "-c", _LID, lid, str(os.getpid()), str(seconds)])
        try:
            yield lid
            waker.wait(seconds + 10)
        finally:
            waker.kill()
            waker.wait()
