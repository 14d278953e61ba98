"""What the kernel knows of each worker that stays, and the door by which they come."""

from __future__ import annotations

import select
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dtk.errors import DtkError
from dtk.launch.place import Source
from dtk.process import wire
from dtk.process.wire import Message, Wire

__all__ = ["Door", "Peer"]


@dataclass
class Peer:
    """A worker. key: its process's, for the source that started it; cells, control: the two connections.

    running: the cell that it is in; None between cells. awaited: the numbers of requests whose answers are to come.
    lost: its exit code, when it has ended.
    """

    number: int
    key: str
    cells: Wire | None = None
    control: Wire | None = None
    ready: bool = False
    running: int | None = None
    ended: dict[int, Message] = field(default_factory=dict)
    lost: int | None = None

    @property
    def name(self) -> str:
        return f"worker {self.number}"

    @property
    def idle(self) -> bool:
        return self.lost is None and self.running is None

    def ask(self, do: str, seconds: float = 5.0, **more: Any) -> Message | None:
        """What the control thread answers, within so many seconds; None where the worker has ended."""
        if self.control is None or self.lost is not None:
            return None
        number = time.monotonic_ns()
        self.control.send({"do": do, "id": number, **more})
        deadline = time.monotonic() + seconds
        while (answer := self.control.next(max(0.0, deadline - time.monotonic()))) is not None:
            if answer["id"] == number:
                return answer
        return None

    def close(self) -> None:
        for link in (self.cells, self.control):
            if link is not None:
                link.close()


class Door:
    """Where workers call. It stays open, so that one in another's place can come later."""

    def __init__(self, path: Path):
        self.path = path
        self._socket = wire.listen(path)

    def admit(self, peers: list[Peer]) -> None:
        """Takes in the callers that wait, each said by its first line who it is; strangers are sent away."""
        while select.select([self._socket], [], [], 0)[0]:
            link, _ = self._socket.accept()
            if not wire.is_own(link):
                link.close()
                continue
            caller = Wire(link)
            hello = caller.next(5.0)
            peer = next((each for each in peers if hello and each.number == hello.get("worker")), None)
            if hello is None or peer is None:
                caller.close()
            elif hello["channel"] == "control":
                peer.control = caller
            else:
                peer.cells = caller

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()
        try:
            self.path.unlink()
        except OSError:
            pass  # the run's directory is gone


def lost(peers: list[Peer], source: Source) -> list[Peer]:
    """Those that have ended since the last look."""
    if not source.lives():
        raise DtkError("the process that the workers were forked from has ended, and they with it; make a new cluster")
    found = []
    for peer in peers:
        if peer.lost is None and peer.key in source.exited:
            peer.lost, peer.running = source.exited[peer.key][0], None
            found.append(peer)
    return found
