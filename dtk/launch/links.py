"""Connections with workers that stay (`dtk.interactive`), and files for them; here, a socket in the run's directory."""

from __future__ import annotations

import select
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from dtk.worker import wire
from dtk.worker.wire import Message, Wire

__all__ = ["Door", "Link", "Links"]

_HELLO_SECONDS = 5.0


class Link(Protocol):
    """One connection with a worker: `dtk.worker.wire.Wire`, or what does the same by an agent on another machine."""

    closed: bool

    def fileno(self) -> int: ...
    def send(self, message: Message) -> bool: ...
    def receive(self) -> list[Message]: ...
    def next(self, seconds: float | None = None) -> Message | None: ...
    def close(self) -> None: ...


class Links(Protocol):
    """All connections of a session. Files have names in its directory, which each machine has where it likes.

    What a worker puts whole into its corner of that directory before it says something is here when that is heard.
    here: whether the workers see the directory itself.
    """

    here: bool

    def fileno(self) -> int:
        """Can be read when a worker calls."""

    def calls(self) -> Iterator[tuple[int, str, Link]]:
        """The workers that have called since: number, channel, connection."""

    def put(self, worker: int, name: str) -> None:
        """What is sent to the worker from now on finds this file there."""

    def remove(self, name: str) -> None:
        """A file that was handed over, here and wherever it was put or came from."""

    def close(self) -> None: ...


class Door:
    """A socket where workers of this machine call. It stays open, so that one in another's place can come later."""

    here = True

    def __init__(self, run: Path):
        self.run, self.path = run, run / "door"
        self._socket = wire.listen(self.path)

    def fileno(self) -> int:
        return self._socket.fileno()

    def calls(self) -> Iterator[tuple[int, str, Link]]:
        """Each has said by its first line who it is; strangers are sent away."""
        while select.select([self._socket], [], [], 0)[0]:
            link, _ = self._socket.accept()
            caller = Wire(link)
            hello = caller.next(_HELLO_SECONDS) if wire.is_own(link) else None
            if hello is None:
                caller.close()
            else:
                yield hello["worker"], hello["channel"], caller

    def put(self, worker: int, name: str) -> None:
        pass  # it is there

    def remove(self, name: str) -> None:
        (self.run / name).unlink(missing_ok=True)

    def close(self) -> None:
        self._socket.close()
        try:
            self.path.unlink()
        except OSError:
            pass  # the run's directory is gone
