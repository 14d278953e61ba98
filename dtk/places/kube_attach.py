"""Brings messages to an agent in a pod and back, over the connection that attaches to its container.

What the official client's connection is like, up to its version 37: its `update` keeps a copy of all that has ever
come, waits in older versions for more while TLS still holds a message back, and is not made for two threads. So here
one thread reads and writes, and takes the frames from the websocket below it: a byte for the channel, then data.
https://github.com/kubernetes/kubernetes/blob/master/staging/src/k8s.io/apimachinery/pkg/util/remotecommand/constants.go
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import threading
import time
from collections.abc import Callable
from typing import Any

from dtk.places.carriers import END_SECONDS, Heard
from dtk.process.piped import ALIVE_SECONDS

__all__ = ["Attached"]

FRAME = 8192  # bytes that are written at once, where the system says that it takes some
SILENCE_SECONDS = 30.0  # for the rest of a message that has begun, and for the API server to take what is sent
ATTEMPTS = 3  # of attaching: the kubelet may say that a container runs before it lets anybody in
PAUSE_SECONDS = 1.0
STDOUT = 1  # the channel
_TEXT, _BINARY, _CLOSE = 1, 2, 8  # kinds of frames, RFC 6455


class Attached:
    """An agent in a pod.

    connect: gives the client's connection. why: what became of the pod, once the connection has ended.
    """

    def __init__(self, connect: Callable[[], Any], heard: Heard, why: Callable[[BaseException | None], str]):
        self._connect, self._heard, self._why = connect, heard, why
        self._lock = threading.Lock()
        self._out = bytearray(b"{}\n")  # a first word: an agent that no kernel speaks to ends
        self._close_by = float("inf")  # when it ends at the latest, once it is to be closed
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def send(self, message: dict[str, Any]) -> None:
        data = json.dumps(message).encode() + b"\n"
        with self._lock:
            if self._wake >= 0:  # otherwise it has ended, and says so by itself
                self._out += data
                self._rouse()

    def _rouse(self) -> None:
        with contextlib.suppress(BlockingIOError):  # it is awake already
            os.write(self._wake, b".")

    def close(self) -> None:
        """The agent's input ends with the connection, and the agent with its input."""
        with self._lock:
            self._close_by = min(self._close_by, time.monotonic() + END_SECONDS)
            if self._wake >= 0:
                self._rouse()
        if threading.current_thread() is not self._thread:
            self._thread.join(END_SECONDS)

    @property
    def _closing(self) -> bool:
        return self._close_by < float("inf")

    # ---- in a thread of its own

    def _serve(self) -> None:
        error: BaseException | None = None
        try:
            client = self._attached()
            try:
                self._pass_on(client)
            finally:
                with contextlib.suppress(Exception):
                    client.close(timeout=1)
                client.sock.shutdown()  # where the other side was first, `close` leaves the socket open
        except Exception as caught:  # of the client's, of the library's below it, or of the system's
            error = caught
        with self._lock:
            os.close(self._wake)
            os.close(self._woken)
            self._wake = -1
        if not self._closing:
            self._heard({"gone": self._why(error)})

    def _attached(self) -> Any:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return self._connect()
            except Exception:  # see ATTEMPTS
                if attempt == ATTEMPTS or self._closing:
                    raise
                time.sleep(PAUSE_SECONDS)
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _pass_on(self, client: Any) -> None:
        """Until the connection ends, or is to be closed and everything is sent."""
        socket = client.sock.sock
        client.sock.settimeout(SILENCE_SECONDS)
        held_back = getattr(socket, "pending", lambda: 0)  # by TLS: what the system has given already
        begun, sent = bytearray(), time.monotonic()
        while self._out or not self._closing:
            if time.monotonic() - sent > ALIVE_SECONDS:
                sent = time.monotonic()
                self.send({"alive": 0})
            poll = select.poll()
            poll.register(socket, select.POLLIN | (select.POLLOUT if self._out else 0))
            poll.register(self._woken, select.POLLIN)
            ready = dict(poll.poll(0 if held_back() else 1000))
            if self._woken in ready:
                os.read(self._woken, 4096)
            if held_back() or ready.get(socket.fileno(), 0) & ~select.POLLOUT:
                kind, frame = client.sock.recv_data_frame(True)
                if kind == _CLOSE:
                    return
                if kind in (_TEXT, _BINARY) and frame.data[:1] == bytes([STDOUT]):
                    *lines, rest = frame.data[1:].split(b"\n")
                    for line in lines:
                        self._hear(bytes(begun + line))
                        begun.clear()
                    begun += rest
            if ready.get(socket.fileno(), 0) & select.POLLOUT:
                with self._lock:
                    part = bytes(self._out[:FRAME])
                    del self._out[:FRAME]
                client.write_stdin(part)
            if time.monotonic() > self._close_by:
                return

    def _hear(self, line: bytes) -> None:
        with contextlib.suppress(ValueError):  # the rest of one that was begun before; a line that the image prints
            message = json.loads(line)
            if isinstance(message, dict):
                self._heard(message)
