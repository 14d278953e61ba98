"""Connections with workers that stay (`dtk.interactive`), and files for them.

On this machine a `Door` is a socket in the run's directory; on another the agent has `Doors`, and passes messages on.
"""

from __future__ import annotations

import itertools
import select
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from dtk.launch import owned
from dtk.launch.messages import LinkCalls, LinkEnds, LinkSays
from dtk.worker import wire
from dtk.worker.wire import Message, Wire

__all__ = ["Door", "Doors", "Link", "Links"]

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


class Doors:
    """An agent's door, and the connections that came by it, each with a number.

    As on the kernel's machine the door is in a directory of mode 0700, and who calls must be of the same user.
    """

    def __init__(self) -> None:
        self._door: socket.socket | None = None
        self._path: Path | None = None
        self._callers: list[Wire] = []  # that have not said yet who they are
        self._links: dict[int, Wire] = {}
        self._cells: set[int] = set()  # connections that cells come by
        self._of_cells: list[LinkSays | LinkEnds] = []
        self._numbers = itertools.count(1)

    def open(self) -> str:
        """Its path; further workers come by the same."""
        if self._door is None:  # on this machine, also where runs lie in storage that all share
            self._path = owned.own_folder() / "door"
            self._door = wire.listen(self._path)
        return str(self._path)

    def waiting(self) -> list[Any]:
        """What can be read when something has come."""
        return [*([] if self._door is None else [self._door]), *self._callers, *self._links.values()]

    def of_cells(self) -> list[LinkSays | LinkEnds]:
        """What the looks so far have found of cells: to be passed on after what their worker wrote before."""
        found, self._of_cells = self._of_cells, []
        return found

    def look(self) -> list[LinkCalls | LinkSays | LinkEnds]:
        """What has come and can be passed on at once; what is of cells is kept."""
        now: list[LinkCalls | LinkSays | LinkEnds] = []
        while self._door is not None and select.select([self._door], [], [], 0)[0]:
            self._admit(self._door.accept()[0])
        for caller in list(self._callers):
            hello = caller.next(0)
            if hello is None and not caller.closed:
                continue
            self._callers.remove(caller)
            if hello is None:
                caller.close()
                continue
            number = next(self._numbers)
            self._links[number] = caller
            self._cells |= {number} if hello["channel"] == "cells" else set()
            now.append(LinkCalls(number, hello["worker"], hello["channel"]))
        for number, link in list(self._links.items()):
            said: list[Any] = self._of_cells if number in self._cells else now
            while (message := link.next(0)) is not None:
                said.append(LinkSays(number, message))
            if link.closed:
                said.append(LinkEnds(number))
                self.hang(number)
        return now

    def _admit(self, link: socket.socket) -> None:
        if wire.is_own(link):
            self._callers.append(Wire(link))
        else:
            link.close()

    def say(self, number: int, message: Message) -> None:
        """To a worker; nothing where it has hung up."""
        if number in self._links:
            self._links[number].send(message)

    def hang(self, number: int) -> None:
        if number in self._links:
            self._links.pop(number).close()

    def close(self) -> None:
        """At the end of a session; another one opens it again."""
        for each in self.waiting():
            each.close()
        self._door, self._callers, self._links = None, [], {}
        if self._path is not None:
            self._path.unlink(missing_ok=True)
