"""What the kernel knows of each worker that stays."""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass
from typing import Any

from dtk.errors import DtkError
from dtk.language import N_, _
from dtk.launch.links import Link, Links
from dtk.launch.place import Site
from dtk.view.palette import worker_name
from dtk.worker.wire import Message

__all__ = ["Peer", "admit", "lost"]


@dataclass
class Peer:
    """A worker. key: its process's, for the source that started it; cells, control: the two connections.

    running: the cell that it is in; None between cells.
    lost: its exit code, when it has ended. gone: what is said of its machine, where that is lost.
    """

    number: int
    key: str
    cells: Link | None = None
    control: Link | None = None
    ready: bool = False
    running: int | None = None
    lost: int | None = None
    gone: str = ""

    @property
    def name(self) -> str:
        return worker_name(self.number)

    @property
    def remedy(self) -> str:
        """When it has ended."""
        if self.gone:
            return _("close() this cluster; a new one takes other machines")
        return _("{call} replaces it", call=f"cluster.restart(worker={self.number})")

    @property
    def idle(self) -> bool:
        return self.lost is None and self.running is None

    def ask(self, do: str, seconds: float = 5.0, **more: Any) -> Message | None:
        """What the control thread answers, within so many seconds; None where the worker has ended."""
        return self.answer(self.begin(do, **more), time.monotonic() + seconds)

    def begin(self, do: str, **more: Any) -> int:
        """Asks the control thread; `answer` has what comes for this number."""
        number = time.monotonic_ns()
        if self.control is not None and self.lost is None:
            self.control.send({"do": do, "id": number, **more})
        return number

    def answer(self, number: int, deadline: float) -> Message | None:
        if self.control is None or self.lost is not None:
            return None
        while (answer := self.control.next(max(0.0, deadline - time.monotonic()))) is not None:
            if answer["id"] == number:
                return answer
        return None

    def close(self) -> None:
        for link in (self.cells, self.control):
            if link is not None:
                link.close()


def admit(links: Links, peers: list[Peer]) -> None:
    """Takes in the workers that have called."""
    for worker, channel, link in links.calls():
        if not 0 <= worker < len(peers):
            link.close()
        elif channel == "control":
            peers[worker].control = link
        else:
            peers[worker].cells = link


def lost(peers: list[Peer], site: Site) -> list[Peer]:
    """Those that have ended since the last look."""
    if not site.source.lives():
        words = N_("the process that the workers were forked from has ended, and they with it; make a new cluster")
        raise DtkError(_(words))
    found, gone = [], site.lost()
    for peer in peers:
        if peer.lost is None and (peer.key in site.source.exited or peer.number in gone):
            peer.lost, peer.running = site.source.exited.get(peer.key, (-signal.SIGKILL, 0))[0], None
            if peer.number in gone:
                peer.gone = _("on {host} {what}", host=site.machine(peer.number).host, what=gone[peer.number])
            found.append(peer)
    return found
