"""A worker that was killed, or is to begin anew, gets a process in its place; the others keep what they have."""

from __future__ import annotations

import time
from collections.abc import Sequence

from dtk.interactive import begin, repair
from dtk.interactive import upload as bring
from dtk.interactive.talk import Talk
from dtk.language import _, ngettext

__all__ = ["restart"]


def restart(talk: Talk, worker: int, cells: Sequence[tuple[int, str]]) -> str:
    """Says what the new worker has and what it lacks. cells: (number, code) of those that this worker has run.

    None of the others is in a cell; some may have ended as well.
    """
    begin.replace(talk.started, worker)
    others = [peer.number for peer in talk.idle() if peer.number != worker]
    file = f"worker-{others[0] if others else worker}/lent-{time.monotonic_ns()}.pkl"
    lent = talk.do("lend", others[:1], file=file)[others[0]] if others else {"optimizers": {}}
    done = talk.do("replay", [worker], cells=list(cells), optimizers=lent["optimizers"])[worker]
    said = [_("worker {worker} is a new process", worker=worker), _cells(len(cells), done["cut"], done["failed"])]
    if others:
        bring.files(talk.started, [worker], [file])
        given = {name: lent[name] for name in ("names", "far", "counts")}
        got = talk.do("borrow", [worker], file=file, **given)[worker]
        talk.started.links.remove(file)
        repair.settle(talk, enable=True)
        if got["taken"]:
            said.append(_("{names} from worker {worker}", names=", ".join(got["taken"]), worker=others[0]))
        if got["lacking"]:
            said.append(_("it lacks {names}", names=", ".join(got["lacking"])))
        said.append(repair.sync(talk, [], others[0]))
    for peer in talk.peers:
        if peer.lost is not None:
            said.append(_("{worker} has ended, too: {remedy}", worker=peer.name, remedy=peer.remedy))
    talk.output.skip()
    return "; ".join(said)


def _cells(count: int, cut: Sequence[int], failed: Sequence[int]) -> str:
    """
    >>> _cells(4, [3], [])
    '3 of 4 cells ran again, cell 3 up to its first all-reduce'
    """
    again = count - len(cut) - len(failed)
    said = [_("{again} of {all} cells ran again", again=again, all=count)]
    if cut:
        words = ngettext(
            "cell {cells} up to its first all-reduce",
            "cells {cells} up to their first all-reduce",
            len(cut),
            cells=", ".join(map(str, cut)),
        )
        said.append(words)
    if failed:
        said.append(
            ngettext("cell {cells} raised", "cells {cells} raised", len(failed), cells=", ".join(map(str, failed)))
        )
    return ", ".join(said)
