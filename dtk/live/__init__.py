"""A run while it goes: a dashboard in a notebook, labeled lines elsewhere, nothing in CI.

Runs in the kernel. `show` chooses; `run_progress` keeps what the workers write as numbers; `dashboard` shows it in a
notebook, and `text` elsewhere.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from dtk.environment import live_mode
from dtk.language import N_, _, ngettext
from dtk.watch.reader import Reader
from dtk.watch.waiting import Line


class Live:
    """What `dtk.run` calls while it waits, from the thread that it was called in. This one shows nothing."""

    def update(self, states: Sequence[Line]) -> None:
        """Take each member's state."""

    def close(self, outcome: str, finished: bool = False) -> None:
        """Draw for the last time, with how the run ended ("finished in 3.2 s", "worker 1 raised ...").

        finished: whether it ended without an error.
        """


class Counting(Live):
    """Shows how far a run is that does its work beside others, in a bar that vanishes at its end.

    A file or a pipe, from which nothing vanishes, gets no bar.

    title: what it does; steps: how many it will make.
    """

    SOONEST = 2.0  # seconds: what is over by then needs no bar

    def __init__(self, reader: Reader, title: str, steps: int):
        from tqdm.auto import tqdm

        hidden = live_mode() != "widgets" and not sys.stderr.isatty()
        bar = tqdm(total=steps, desc=title, unit=_("step"), delay=self.SOONEST, leave=False, disable=hidden)
        self._reader, self._bar = reader, bar

    def update(self, states: Sequence[Line]) -> None:
        self._bar.update(self._reader.members[0].step - self._bar.n)

    def close(self, outcome: str, finished: bool = False) -> None:
        self._bar.total = None  # in a notebook, a bar that has not reached its total would stay
        self._bar.close()


def show(workers: int, replicas: int, mode: str, reader: Reader, note: str = "", program: str = "") -> Live:
    """Return a view of the run that `reader` reads, as `live_mode` has it.

    replicas: in each worker. mode: "cluster", "mirrored" or "single". note: what is added to the heading. program: its
    name, in the run of one, whose lines are all printed.
    """
    if (which := live_mode()) == "off":
        return Live()
    label = heading(workers, replicas, mode, program)
    if reader.folder.has_evaluator:
        label = _("{run} and an evaluator", run=label)
    label += note
    if which == "widgets":
        from dtk.live.dashboard import Dashboard

        return Dashboard(reader, replicas, label, mode)
    from dtk.live.text import TextView

    return TextView(reader, replicas, label, whole=bool(program))


def heading(workers: int, replicas: int, mode: str, program: str = "") -> str:
    """Describe a run in a few words.

    >>> heading(2, 1, "cluster"), heading(1, 4, "mirrored"), heading(1, 1, "single", "train.py")
    ('cluster of 2 workers', '1 worker with 4 replicas', 'train.py: baseline on one device')
    """
    words = {
        "single": N_("baseline on one device"),
        "apart": N_("{workers} without communication"),
        "mirrored": N_("{workers} with {replicas} replicas"),
        "cluster": N_("cluster of {workers} with {replicas} replicas each")
        if replicas > 1
        else N_("cluster of {workers}"),
    }[mode]
    said = _(words, workers=ngettext("{n} worker", "{n} workers", workers), replicas=replicas)
    return _("{name}: {words}", name=program, words=said) if program else said
