"""Connections of a worker in a ring: to the next, from the previous, and, where asked for, with any other worker.

Bytes only, no wait without end.
"""

from __future__ import annotations

import hmac
import select
import socket
import struct
import time
from collections.abc import Callable, Sequence

from dtk.language import N_, _
from dtk.worker.wire import RingBroken, RingPortTaken

__all__ = ["Neighbours"]

_LENGTH = struct.Struct("!Q")
_PIECE = 1 << 20  # bytes handed to the system at once
_STRANGER = 1.0  # seconds that a connection has to say who it is
_GREETING = 32  # bytes


class Neighbours:
    """A worker's place in the ring of `addresses`, ("host", port) by worker: it sends to the next, takes from the
    previous.

    key: the secret that a run's workers share; a connection that doesn't know it is closed. timeout: seconds
    without a sign of a neighbour after which RingBroken names the worker that `suspect` finds.
    """

    def __init__(
        self,
        addresses: Sequence[tuple[str, int]],
        worker: int,
        key: bytes,
        timeout: float,
        suspect: Callable[[], int],
    ):
        self.timeout, self._suspect = timeout, suspect
        self._addresses, self._worker, self._key = addresses, worker, key
        self._links: dict[int, socket.socket] = {}
        count = len(addresses)
        self.next, self.previous = (worker + 1) % count, (worker - 1) % count
        deadline = time.monotonic() + timeout
        # Listening comes first: a neighbour can connect from then on, whoever is quicker.
        with _listen(addresses[worker]) as door:
            self._out = self._reach(self.next, addresses[self.next][1], _greeting(key, worker), deadline)
            try:
                _, self._in = self._admit(door, {self.previous: _greeting(key, self.previous)}, deadline)
            except BaseException:
                self._out.close()
                raise
        for each in (self._out, self._in):
            _set_up(each)
        # A port of its own: a call that came too early for this ring, or too late, can't be taken for a neighbour's.
        self._door = _listen((addresses[worker][0], 0))
        try:
            self._ports = self._pass_ports(count)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        for each in (self._out, self._in, self._door, *self._links.values()):
            each.close()

    def swap(self, message: bytes) -> bytes:
        """Sends a message to the next worker and returns one from the previous, both at the same time."""
        return self._both(message, (self.next, self._out), (self.previous, self._in))

    def trade(self, message: bytes, receiver: int, sender: int) -> bytes:
        """Sends a message to any other worker and returns one from any other, both at the same time.

        Two workers have one connection for this, in both directions, made when the first of them needs it.
        """
        return self._both(message, (receiver, self._link(receiver)), (sender, self._link(sender)))

    def _both(self, message: bytes, to: tuple[int, socket.socket], of: tuple[int, socket.socket]) -> bytes:
        """One after the other would not do: all workers would send, none would read, and messages larger than the
        system's buffers would never leave.
        """
        (receiver, outward), (sender, inward) = to, of
        out, got, size = memoryview(_LENGTH.pack(len(message)) + message), bytearray(), _LENGTH.size
        while out or len(got) < size:
            reading, writing = len(got) < size, bool(out)
            ready = select.select([inward] * reading, [outward] * writing, [], self.timeout)
            if not ready[0] and not ready[1]:
                raise self._late(reading, receiver, sender if inward is not self._in else self._suspect())
            if ready[1]:
                out = out[self._send(outward, receiver, out[:_PIECE]) :]
            if ready[0]:
                got += self._receive(inward, sender, min(_PIECE, size - len(got)))
                if len(got) == _LENGTH.size == size:
                    size += _LENGTH.unpack(got)[0]
        return bytes(got[_LENGTH.size :])

    def _late(self, reading: bool, receiver: int, suspect: int) -> RingBroken:
        often = _("every worker must call ring.exchange, or ring.swap, equally often")
        if reading:
            what = _("worker {worker} sent nothing for {seconds:g} s", worker=suspect, seconds=self.timeout)
            return RingBroken(what, often, by_a_peer=True)
        what = _("worker {worker} took nothing for {seconds:g} s", worker=receiver, seconds=self.timeout)
        return RingBroken(what, often)

    def _send(self, outward: socket.socket, receiver: int, piece: memoryview) -> int:
        try:
            return outward.send(piece)
        except OSError:
            raise self._gone(receiver) from None

    def _receive(self, inward: socket.socket, sender: int, count: int) -> bytes:
        try:
            data = inward.recv(count)
        except OSError:
            data = b""
        if not data:
            raise self._gone(sender)
        return data

    def _pass_ports(self, count: int) -> dict[int, int]:
        """Every worker's port for `trade`, by worker: each number goes once round the ring."""
        worker, port = self._worker, self._door.getsockname()[1]
        ports = {worker: port}
        for _again in range(count - 1):
            worker, port = map(int, self.swap(b"%d %d" % (worker, port)).split())
            ports[worker] = port
        return ports

    def _link(self, other: int) -> socket.socket:
        """The connection with another worker. The one with the higher number calls, and waits at the door if early."""
        deadline = time.monotonic() + self.timeout
        if other not in self._links and other < self._worker:
            self._links[other] = self._reach(
                other, self._ports[other], _greeting(self._key, self._worker, "link"), deadline
            )
            _set_up(self._links[other])
        while other not in self._links:
            above = range(self._worker + 1, len(self._addresses))
            expected = {k: _greeting(self._key, k, "link") for k in above if k not in self._links}
            caller, link = self._admit(self._door, expected, deadline, other)
            _set_up(link)
            self._links[caller] = link
        return self._links[other]

    def _gone(self, neighbour: int) -> RingBroken:
        what = N_("worker {worker} has left the ring: it ended, or made fewer exchanges than this one")
        return RingBroken(_(what, worker=neighbour), by_a_peer=True)

    def _reach(self, other: int, port: int, greeting: bytes, deadline: float) -> socket.socket:
        while True:
            try:
                out = socket.create_connection(
                    (self._addresses[other][0], port), timeout=max(0.1, deadline - time.monotonic())
                )
            except OSError:
                out = None
            # A refused attempt may have drawn the very port that it asks for, and then reaches itself.
            if out is not None and out.getsockname() != out.getpeername():
                out.sendall(greeting)
                return out
            if out is not None:
                out.close()
            if time.monotonic() > deadline:
                words = _("worker {worker} could not be reached for {seconds:g} s", worker=other, seconds=self.timeout)
                raise RingBroken(words, _("every worker must call dtk.ring()"))
            time.sleep(0.02)  # a port that opens in another process sends no event to wait for

    def _admit(
        self, door: socket.socket, expected: dict[int, bytes], deadline: float, awaited: int | None = None
    ) -> tuple[int, socket.socket]:
        """The next caller that says one of these greetings, by worker, and its connection; others are sent away."""
        who, call = self.previous, N_("every worker must call dtk.ring()")
        if awaited is not None:
            who, call = awaited, N_("every worker must call ring.swap with its partner")
        while True:
            door.settimeout(max(0.01, deadline - time.monotonic()))
            try:
                caller, _address = door.accept()
            except TimeoutError:
                words = _("worker {worker} did not come for {seconds:g} s", worker=who, seconds=self.timeout)
                raise RingBroken(words, _(call)) from None
            caller.settimeout(_STRANGER)
            try:
                said = caller.recv(_GREETING, socket.MSG_WAITALL)
            except OSError:
                said = b""
            for worker, greeting in expected.items():
                if hmac.compare_digest(said, greeting):
                    return worker, caller
            caller.close()


def _greeting(key: bytes, worker: int, kind: str = "ring") -> bytes:
    return hmac.digest(key, b"dtk %s, worker %d" % (kind.encode(), worker), "sha256")


def _set_up(connection: socket.socket) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setblocking(False)


def _listen(address: tuple[str, int]) -> socket.socket:
    door = socket.socket()
    door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # for a second ring soon after the first
    try:
        door.bind(("127.0.0.1", address[1]))
        door.listen()
    except OSError as error:
        door.close()
        words = N_(
            "{why}: dtk.ring() needs this worker's port for itself, and a strategy made in the same function holds "
            "it, or another program"
        )
        raise RingPortTaken(_(words, why=error.strerror)) from None
    return door
