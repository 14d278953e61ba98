"""Connections with workers that stay on other machines: their agents pass messages on (`dtk.launch.links`)."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from dtk.launch.links import Link
from dtk.launch.messages import FilePart, LinkCalls, LinkEnds, LinkSays, Remove
from dtk.places.machines import Carrier
from dtk.worker.wire import Message

__all__ = ["Bell", "Relay", "Relayed"]

_PART = 48 << 10  # bytes of a file in a message: in base64 what Ray sends along with a call, and does not store first
_LOOK_SECONDS = 0.1


class Bell:
    """Can be waited for by `select`, and rung by any thread."""

    def __init__(self) -> None:
        self._rings, self._hears = socket.socketpair()
        for each in (self._rings, self._hears):
            each.setblocking(False)

    def fileno(self) -> int:
        return self._hears.fileno()

    def ring(self) -> None:
        with contextlib.suppress(OSError):  # it is full, and rings; or closed
            self._rings.send(b".")

    def quiet(self) -> None:
        with contextlib.suppress(OSError):
            while self._hears.recv(1 << 12):
                pass

    def close(self) -> None:
        self._rings.close()
        self._hears.close()


class Relayed:
    """A connection with a worker elsewhere; the same to `dtk.interactive` as a `Wire`.

    send: brings a message to the agent. poll: takes in what has come, of all connections, for up to so many seconds,
    and says whether the agent can be reached.
    """

    def __init__(self, number: int, send: Callable[[LinkSays | LinkEnds], None], poll: Callable[[float], bool]):
        self._number, self._send, self._poll = number, send, poll
        self._bell = Bell()
        self._heard: deque[Message] = deque()
        self.closed = False  # by the other end

    def fileno(self) -> int:
        return self._bell.fileno()

    def send(self, message: Message) -> bool:
        if not self.closed:
            self._send(LinkSays(self._number, message))
        return not self.closed

    def receive(self) -> list[Message]:
        self._bell.quiet()
        found = [*self._heard]
        self._heard.clear()
        return found

    def next(self, seconds: float | None = None) -> Message | None:
        """As a `Wire`'s; a machine that is lost has hung up."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while not self._heard and not self.closed:
            left = _LOOK_SECONDS if deadline is None else min(_LOOK_SECONDS, deadline - time.monotonic())
            reached = self._poll(max(0.0, left))
            self.closed = self.closed or not reached
            if left <= 0:
                break
        return self._heard.popleft() if self._heard else None

    def take(self, message: LinkSays | LinkEnds) -> None:
        """What its agent says of it."""
        if isinstance(message, LinkSays):
            self._heard.append(message.words)
        else:
            self.closed = True
        self._bell.ring()

    def close(self) -> None:
        if not self.closed:
            self._send(LinkEnds(self._number))
        self.closed = True
        self._bell.close()


class Relay:
    """All connections of a session whose directory is `run`. carriers: of each worker's agent.

    source: can be read when an agent has said something. poll: takes that in for up to so many seconds, and says
    whether a worker's agent can be reached.
    """

    here = False

    def __init__(self, run: Path, carriers: Sequence[Carrier], source: Any, poll: Callable[[int, float], bool]):
        self.run = run
        self._carriers, self._source, self._poll = list(carriers), source, poll
        self._links: dict[tuple[int, int], Relayed] = {}
        self._called: deque[tuple[int, str, Link]] = deque()
        self._put: dict[str, dict[int, bytes]] = {}  # files, and the hash of what each worker has there

    def fileno(self) -> int:
        return int(self._source.fileno())

    def calls(self) -> Iterator[tuple[int, str, Link]]:
        while self._called:
            yield self._called.popleft()

    def take(self, member: int, message: LinkCalls | LinkSays | LinkEnds) -> None:
        """What the agent of a member says of one of its connections."""
        key = (member, message.link)
        if isinstance(message, LinkCalls):
            link = Relayed(message.link, self._carriers[member].send, lambda seconds: self._poll(member, seconds))
            self._links[key] = link
            self._called.append((message.worker, message.channel, link))
        elif key in self._links:
            self._links[key].take(message)

    def put(self, worker: int, name: str) -> None:
        data = (self.run / name).read_bytes()
        known, digest = self._put.setdefault(name, {}), hashlib.sha256(data).digest()
        if known.get(worker) == digest:
            return
        known[worker] = digest
        for at in range(0, max(1, len(data)), _PART):
            part = base64.b64encode(data[at : at + _PART]).decode()
            self._carriers[worker].send(FilePart(self.run.name, name, at, len(data), part, worker))

    def remove(self, name: str) -> None:
        (self.run / name).unlink(missing_ok=True)
        corner = name.partition("/")[0]
        for worker, carrier in enumerate(self._carriers):
            if worker in self._put.get(name, ()) or corner == f"worker-{worker}":
                carrier.send(Remove(self.run.name, [name]))
        self._put.pop(name, None)

    def close(self) -> None:
        for link in self._links.values():
            link.close()
        self._links.clear()
