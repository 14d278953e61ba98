"""Messages between a kernel and a worker that stays: JSON, one a line, through a socket in a directory of mode 0700.

No port, and nothing that is unpickled. What a worker prints or shows does not come this way but through files, so that
a kernel that does not listen stops no worker.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

Message = dict[str, Any]

SOCKET = "socket"  # in the directory of a session, where its workers call

_PATH_BYTES = 100  # of a socket's address, at most 107 on Linux and 103 on macOS


class Wire:
    """One end of a connection. `send` may be called by several threads, `receive` by one."""

    def __init__(self, link: socket.socket):
        self._link = link
        self._buffer = b""
        self._received: list[Message] = []  # before they were asked for
        self._lock = threading.Lock()
        self.closed = False  # by the other end

    def fileno(self) -> int:
        return self._link.fileno()

    def send(self, message: Message) -> bool:
        """False where the other end is gone."""
        data = (json.dumps(message) + "\n").encode()
        try:
            with self._lock:
                self._link.sendall(data)
        except OSError:
            return False
        return True

    def receive(self) -> list[Message]:
        """Waits for something, and returns the messages that are complete by then; `closed` at the end."""
        try:
            data = self._link.recv(1 << 20)
        except OSError:
            data = b""  # killed in the middle of a line
        self.closed = not data
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        found, self._received = [*self._received, *map(json.loads, lines)], []
        return found

    def next(self, seconds: float | None = None) -> Message | None:
        """The next message; None where there is none after `seconds`, or where the other end is gone."""
        while not self._received and not self.closed:
            if not select.select([self._link], [], [], seconds)[0]:
                return None
            self._received = self.receive()
        return self._received.pop(0) if self._received else None

    def close(self) -> None:
        self._link.close()


def listen(path: Path) -> socket.socket:
    """A socket that waits there for calls."""
    made = _at(path, socket.socket.bind)
    made.listen(64)
    return made


def connect(path: Path) -> socket.socket:
    """A connection with the one who listens there."""
    return _at(path, socket.socket.connect)


def _at(path: Path, do: Callable[[socket.socket, str], None]) -> socket.socket:
    """A new socket that is bound, or connected, to an address of any length."""
    with contextlib.ExitStack() as after:
        name = str(path)
        if len(os.fsencode(path)) > _PATH_BYTES and sys.platform == "linux":
            folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
            after.callback(os.close, folder)
            name = f"/proc/self/fd/{folder}/{path.name}"
        made = socket.socket(socket.AF_UNIX)
        try:
            do(made, name)
        except BaseException:
            made.close()
            raise
        return made
