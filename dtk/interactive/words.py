"""Workers and lines of cells, as they are called in what a cluster that stays says."""

from __future__ import annotations

from collections.abc import Sequence

from dtk.interactive.peers import Peer
from dtk.language import N_, _, ngettext
from dtk.live.fold import label

__all__ = ["busy_in_words", "in_line", "none_open", "open_already", "refusal", "workers_in_words"]


def workers_in_words(numbers: Sequence[int]) -> str:
    """
    >>> workers_in_words([1]), workers_in_words([2, 0, 1])
    ('worker 1', 'workers 0-2')
    """
    return ngettext("worker {workers}", "workers {workers}", len(numbers), workers=label(sorted(numbers)))


def refusal(peer: Peer, how: str) -> str:
    """Why nothing can be asked of a worker, and what brings it back."""
    return _("{worker} {how}: {remedy}", worker=peer.name, how=how, remedy=peer.remedy)


def busy_in_words(who: str, busy: Sequence[int]) -> str:
    """Why what `who` asks for can't be done: these workers are not idle."""
    return ngettext(
        "{who}: {workers} is in a cell or has ended; cluster.free() frees those that wait",
        "{who}: {workers} are in a cell or have ended; cluster.free() frees those that wait",
        len(busy),
        who=who,
        workers=workers_in_words(busy),
    )


def open_already(workers: int, cells: int) -> str:
    """Why no other cluster can be started."""
    words = N_("a cluster of {workers} workers is open, with {cells} cells so far; go on with it, or close() it first")
    return _(words, workers=workers, cells=cells)


def none_open(who: str, ended: str) -> str:
    """Why nothing can be run. ended: how the last cluster did, in words; "" where there was none."""
    none = N_("{who}: there is no cluster: cluster = dtk.cluster(workers=2) makes one")
    over = N_("{who}: the cluster is {state}")
    return _(over if ended else none, who=who, state=ended)


def in_line(line: int, text: str, cell: str = "", file: str = "") -> str:
    """A line with its text, in another cell, or in a file.

    >>> in_line(3, "total = 1"), in_line(3, "total = 1", cell="7"), in_line(3, "", file="train.py")
    ('line 3 (`total = 1`)', 'line 3 of cell 7 (`total = 1`)', 'a line that is not known')
    """
    if not text:
        return _("a line that is not known")
    words = N_("line {line} (`{text}`)")
    if cell:
        words = N_("line {line} of cell {cell} (`{text}`)")
    elif file:
        words = N_("line {line} of {file} (`{text}`)")
    return _(words, line=line, text=text, cell=cell, file=file)
