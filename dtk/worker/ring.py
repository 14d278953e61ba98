"""`dtk.ring`: a worker's place in a ring of workers, for an all-reduce by hand. No TensorFlow.

The all-reduce itself, which chunk to send, what to do with the one that comes, is the learner's. Here are the
connections, and the book that is kept of them: each message goes to the worker's events (`dtk.records.events.Ring`).

A round begins with each `split`; steps count its exchanges, from 1. parts: the workers whose gradient is in the
chunk's sum, a worker twice that was added twice; None where the numbers are something else. What was done with a
chunk is found out from the numbers when the chunk is next sent, or joined.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import json
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dtk.environment import Here, here
from dtk.errors import ClusterConfigError
from dtk.language import N_, _
from dtk.records.events import Ring as RingEvent
from dtk.records.events import RingReceived, RingSent, RingSplit, RingUsed, of_kind
from dtk.worker.wire import RingBroken, RingPortTaken

__all__ = ["Ring", "ring"]

Parts = list[int] | None
OFTEN = N_("every worker must call ring.exchange, or ring.swap, equally often")


def ring(timeout: float = 10.0) -> Ring:
    """This worker's place in the ring of all workers of the run; call it in each of them.

        ring = dtk.ring()
        chunks = ring.split(gradient)
        number, values = ring.exchange(0, chunks[0])     # to the next worker; from the previous one

    Worker k sends to worker k + 1, the last one to worker 0. In a baseline the ring has one worker, which has no other
    to exchange with. It uses the worker's own port of TF_CONFIG, so that a function has either a ring or a
    MultiWorkerMirroredStrategy. The algorithm it is for: Patarasuk and Yuan 2009, J. Parallel Distrib. Comput. 69(2).

    Args:
        timeout: seconds without a sign of a neighbour until RingBroken names it.

    Returns:
        A `Ring`: `split`, `exchange` and `join`; and `swap`, for an all-reduce that is no ring.

    Raises:
        RuntimeError: outside of a run.
        ClusterConfigError: in the evaluator, or for a timeout that is not above 0.
        RingBroken: a neighbour is late or has gone.
    """
    place = here()
    if place is None:
        raise RuntimeError(_("dtk.ring() is for use inside a function that dtk.run runs"))
    if place.role == "evaluator":
        raise ClusterConfigError(_("dtk.ring() was called in the evaluator, which is no part of the workers' ring"))
    if not timeout > 0:
        raise ClusterConfigError(_("timeout={timeout!r}: it takes seconds above 0", timeout=timeout))
    return Ring(place, timeout)


@dataclass
class _Arrival:
    """A chunk that came and whose use is not known yet."""

    step: int
    values: np.ndarray
    parts: Parts


class Ring:
    """Splits a gradient into chunks, exchanges them with the neighbours, and joins them.

    Attributes:
        worker: this worker's number.
        workers: how many there are.
        bytes_sent: of all numbers that it sent.
    """

    def __init__(self, place: Here, timeout: float):
        self.worker, self.workers = place.worker, place.workers
        self.bytes_sent = 0
        self._place = place
        self._round = self._step = 0
        self._shape: tuple[int, ...] = ()
        self._held: dict[int, tuple[np.ndarray, Parts]] = {}
        self._arrived: dict[int, _Arrival] = {}
        self._neighbours: Neighbours | None = None
        if place.workers > 1:
            self._neighbours = Neighbours(_addresses(), place.worker, _key(place), timeout, self._suspect)

    def split(self, gradient: Any) -> list[np.ndarray]:
        """Cuts a gradient into chunks, one per worker, and begins a new all-reduce.

        Args:
            gradient: numbers, of any shape.

        Returns:
            `workers` flat arrays of as equal a size as possible.
        """
        whole = np.array(gradient)
        if whole.dtype.kind not in "iuf":
            raise ClusterConfigError(
                _("ring.split takes an array of numbers, not one of type {dtype}", dtype=whole.dtype)
            )
        chunks = np.array_split(whole.ravel(), self.workers)
        self._round, self._step, self._shape = self._round + 1, 0, whole.shape
        self._held = {number: (chunk.copy(), [self.worker]) for number, chunk in enumerate(chunks)}
        self._arrived = {}
        self._write(RingSplit, bytes=[chunk.nbytes for chunk in chunks])
        return chunks

    def exchange(self, number: int, values: Any) -> tuple[int, np.ndarray]:
        """Sends a chunk to the next worker, and returns the one that the previous worker sent.

        Args:
            number: of the chunk that is sent, from 0.
            values: what it holds, `(chunk size,)`.

        Returns:
            Number and values of the previous worker's chunk.

        Raises:
            ClusterConfigError: a number that no chunk has.
            RingBroken: a neighbour is late or has gone.
        """
        if self._neighbours is None:
            raise ClusterConfigError(_("ring.exchange: this ring has one worker, and no other to exchange with"))
        self._check_number(number)
        self._settle(number, values)
        self._step += 1
        array, parts = self._held[number]
        about = {"round": self._round, "step": self._step, "chunk": int(number), "parts": parts}
        receiver, sender = self._neighbours.next, self._neighbours.previous
        self._write(RingSent, step=self._step, chunk=int(number), receiver=receiver, bytes=array.nbytes, parts=parts)
        return self._take(*self._trade(about, array, receiver, sender))

    def swap(self, receiver: int, values: Any, sender: int | None = None) -> np.ndarray:
        """Sends numbers to any other worker, and returns those that another one sent; nothing of it is drawn.

        Args:
            receiver: the worker that gets the numbers. It must call `swap` with this worker as its sender.
            values: numbers, of any shape.
            sender: the worker whose numbers are returned; None: the receiver.

        Returns:
            The other worker's numbers, flat.

        Raises:
            ClusterConfigError: a worker that there is not, or this one.
            RingBroken: a worker is late or has gone.
        """
        sender = receiver if sender is None else sender
        for other in (receiver, sender):
            if isinstance(other, bool) or other not in range(self.workers) or other == self.worker:
                words = N_("ring.swap: worker {other}, but this is worker {worker}; the others are among 0 to {last}")
                raise ClusterConfigError(_(words, other=other, worker=self.worker, last=self.workers - 1))
        array = np.array(values).ravel()
        if array.dtype.kind not in "iuf":
            raise ClusterConfigError(
                _("ring.swap takes an array of numbers, not one of type {dtype}", dtype=array.dtype)
            )
        return self._trade({}, array, int(receiver), int(sender))[1]

    def join(self, chunks: Sequence[Any]) -> np.ndarray:
        """The chunks as one array of the gradient's shape.

        Args:
            chunks: all of them, by number.
        """
        if len(chunks) != self.workers or not self._held:
            raise ClusterConfigError(
                _("ring.join got {n} chunks; it takes the {workers} of ring.split", n=len(chunks), workers=self.workers)
            )
        for number, values in enumerate(chunks):
            self._settle(number, values)
        return np.concatenate([np.ravel(values) for values in chunks]).reshape(self._shape)

    def close(self) -> None:
        """Leaves the ring; the end of the function does so too."""
        if self._neighbours is not None:
            self._neighbours.close()

    def _check_number(self, number: int) -> None:
        if not self._held:
            raise ClusterConfigError(_("ring.exchange: cut the gradient into chunks first, with ring.split"))
        if isinstance(number, bool) or number not in range(self.workers):
            words = N_(
                "ring.exchange: chunk {chunk} in step {step}, but there are the chunks 0 to {last}; "
                "numbers go round with % {workers}"
            )
            known = {"last": self.workers - 1, "workers": self.workers}
            raise ClusterConfigError(_(words, chunk=number, step=self._step + 1, **known))

    def _trade(
        self, about: dict[str, Any], array: np.ndarray, receiver: int, sender: int
    ) -> tuple[dict[str, Any], np.ndarray]:
        """Sends numbers, and what is to be known about them; returns those that came, with the same of them."""
        assert self._neighbours is not None  # a ring of one has no other worker, which was refused
        head = json.dumps({**about, "dtype": array.dtype.str}).encode()
        message = self._neighbours.trade(head + b"\n" + array.tobytes(), receiver, sender)
        self.bytes_sent += array.nbytes
        head, body = message.split(b"\n", 1)
        theirs = json.loads(head)
        values = np.frombuffer(body, np.dtype(theirs.pop("dtype"))).copy()
        if theirs.keys() != about.keys():  # one called `exchange` and the other `swap`
            raise RingBroken(_(OFTEN))
        return theirs, values

    def _take(self, about: dict[str, Any], values: np.ndarray) -> tuple[int, np.ndarray]:
        """The previous worker's chunk, checked and written down."""
        sender = (self.worker - 1) % self.workers
        if (about["round"], about["step"]) != (self._round, self._step):
            words = N_(
                "worker {worker} is at step {its} of all-reduce {its_round}, this worker at step {step} "
                "of {round}; all must call ring.exchange equally often"
            )
            theirs = {"its": about["step"], "its_round": about["round"]}
            raise RingBroken(_(words, worker=sender, step=self._step, round=self._round, **theirs))
        number = int(about["chunk"])
        if number in self._arrived:
            self._used(number, "overwritten", None)  # it never left again, so what became of it is not known
        self._arrived[number] = _Arrival(self._step, values, about["parts"])
        self._write(RingReceived, step=self._step, chunk=number, sender=sender, bytes=values.nbytes)
        return number, values.copy()

    def _settle(self, number: int, values: Any) -> None:
        """Finds out what chunk `number` holds now, and what was done with the one that came for it."""
        now = np.ravel(np.array(values))
        held, parts = self._held[number]
        came = self._arrived.get(number)
        how, parts = _use_of(now, held, parts, came)
        if came is not None:
            self._used(number, how, parts)
        self._held[number] = (now, parts)

    def _used(self, number: int, how: str, parts: Parts) -> None:
        came = self._arrived.pop(number)
        self._write(RingUsed, step=came.step, chunk=number, how=how, parts=parts)

    def _suspect(self) -> int:
        """The worker that all wait for: going back, the first that is not itself in an unfinished exchange."""
        worker = self.worker
        for _neighbour in range(self.workers - 1):
            worker = (worker - 1) % self.workers
            said = self._place.run.worker(worker).events
            if len(of_kind(said, RingSent)) == len(of_kind(said, RingReceived)):
                break
        return worker

    def _write(self, kind: type[RingEvent], **facts: Any) -> None:
        self._place.journal.event(kind(self._place.now(), round=self._round, **facts))


def _use_of(now: np.ndarray, held: np.ndarray, parts: Parts, came: _Arrival | None) -> tuple[str, Parts]:
    """What was done ("added", "copied", "ignored" or "changed"), and the parts that are in the chunk then.

    Where the numbers allow several answers (zeros, for one), a sum without a worker twice is taken first.
    """
    if came is None:
        return ("ignored", parts) if _same(now, held) else ("changed", None)
    fits = came.values.shape == held.shape
    answers = {"copied": came.parts} if _same(now, came.values) else {}
    if fits and _same(now, held + came.values):
        answers["added"] = None if parts is None or came.parts is None else sorted(parts + came.parts)
    if _same(now, held):
        answers["ignored"] = parts
    apart = parts is not None and came.parts is not None and not set(parts) & set(came.parts)
    for how in ("added", "copied", "ignored") if apart else ("copied", "added", "ignored"):
        if how in answers:
            return how, answers[how]
    return "changed", None


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    return one.shape == other.shape and bool(np.array_equal(one, other, equal_nan=one.dtype.kind == "f"))


def _addresses() -> list[tuple[str, int]]:
    workers = json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"]
    return [(host, int(port)) for host, port in (address.rsplit(":", 1) for address in workers)]


def _key(place: Here) -> bytes:
    """A secret of this run: the name of its directory, whose random part only this user can list."""
    return hashlib.sha256(str(place.run.path).encode()).digest()


# ---- the connections


_LENGTH = struct.Struct("!Q")
_CALLER = struct.Struct("!II")  # which ring of the process, counted from 1, and which worker
_PIECE = 1 << 20  # bytes handed to the system at once
_STRANGER = 1.0  # seconds that a connection has to say who it is


class Neighbours:
    """A worker's connections in the ring of `addresses`, ("host", port) by worker. Bytes only, no wait without end.

    Two workers have one connection, for both directions: the neighbours from the beginning, others when the first of
    them needs it. The one with the higher number calls the other, at its port.

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
        self.next, self.previous = (worker + 1) % len(addresses), (worker - 1) % len(addresses)
        self._door = _door(addresses[worker], key)
        self._door.rings += 1
        self._ring = self._door.rings
        try:
            for other in (self.next, self.previous):
                self._link(other)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        for each in self._links.values():
            each.close()

    def trade(self, message: bytes, receiver: int, sender: int) -> bytes:
        """Sends a message to one worker and returns one from another, or from the same, both at the same time.

        One after the other would not do: all workers would send, none would read, and messages larger than the
        system's buffers would never leave.
        """
        outward, inward = self._link(receiver), self._link(sender)
        out, got, size = memoryview(_LENGTH.pack(len(message)) + message), bytearray(), _LENGTH.size
        while out or len(got) < size:
            reading, writing = len(got) < size, bool(out)
            ready = select.select([inward] * reading, [outward] * writing, [], self.timeout)
            if not ready[0] and not ready[1]:
                raise self._late(reading, receiver, sender)
            if ready[1]:
                try:
                    out = out[outward.send(out[:_PIECE]) :]
                except OSError:
                    raise self._gone(receiver) from None
            if ready[0]:
                try:
                    data = inward.recv(min(_PIECE, size - len(got)))
                except OSError:
                    data = b""
                if not data:
                    raise self._gone(sender)
                got += data
                if len(got) == _LENGTH.size == size:
                    size += _LENGTH.unpack(got)[0]
        return bytes(got[_LENGTH.size :])

    def _late(self, reading: bool, receiver: int, sender: int) -> RingBroken:
        if reading:
            suspect = self._suspect() if sender == self.previous else sender
            what = _("worker {worker} sent nothing for {seconds:g} s", worker=suspect, seconds=self.timeout)
            return RingBroken(what, _(OFTEN), by_a_peer=True)
        what = _("worker {worker} took nothing for {seconds:g} s", worker=receiver, seconds=self.timeout)
        return RingBroken(what, _(OFTEN))

    def _gone(self, neighbour: int) -> RingBroken:
        what = N_("worker {worker} has left the ring: it ended, or made fewer exchanges than this one")
        return RingBroken(_(what, worker=neighbour), by_a_peer=True)

    def _link(self, other: int) -> socket.socket:
        """The connection with another worker."""
        if other not in self._links:
            above = other > self._worker
            link = self._door.caller(self._ring, other, self.timeout) if above else self._call(other)
            if link is None:
                words = _("worker {worker} could not be reached for {seconds:g} s", worker=other, seconds=self.timeout)
                raise RingBroken(words, _("every worker must call dtk.ring()"))
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link.setblocking(False)
            self._links[other] = link
        return self._links[other]

    def _call(self, other: int) -> socket.socket | None:
        deadline = time.monotonic() + self.timeout
        while True:
            left = deadline - time.monotonic()
            try:
                out = socket.create_connection(self._addresses[other], timeout=max(0.1, left))
            except OSError:
                out = None
            # A refused attempt may have drawn the very port that it asks for, and then reaches itself.
            if out is not None and out.getsockname() != out.getpeername():
                out.sendall(_greeting(self._key, self._ring, self._worker))
                return out
            if out is not None:
                out.close()
            if left < 0:
                return None
            time.sleep(0.02)  # a port that opens in another process sends no event to wait for


class _Door:
    """This worker's own port, which stays open from its first ring on, and who has called there, for which ring.

    A neighbour may be in its next ring already, or in another exchange than this worker: whoever calls is kept.
    """

    def __init__(self, address: tuple[str, int], key: bytes):
        self.rings = 0
        self._key = key
        self._callers: dict[tuple[int, int], socket.socket] = {}
        self._came = threading.Condition()
        self._listening = _listen(address)
        threading.Thread(target=self._admit, daemon=True, name="dtk.ring").start()

    def caller(self, ring: int, worker: int, seconds: float) -> socket.socket | None:
        """The connection by which a worker has called for a ring; None where it has not after `seconds`."""
        with self._came:
            self._came.wait_for(lambda: (ring, worker) in self._callers, seconds)
            return self._callers.pop((ring, worker), None)

    def _admit(self) -> None:
        while True:
            try:
                caller, _address = self._listening.accept()
            except OSError:
                return  # nobody listens there any more: dtk.faults.drop_network
            caller.settimeout(_STRANGER)
            try:
                said = caller.recv(len(_greeting(self._key, 0, 0)), socket.MSG_WAITALL)
            except OSError:
                said = b""
            ring, worker = _CALLER.unpack(said[: _CALLER.size].ljust(_CALLER.size, b"\0"))
            if not hmac.compare_digest(said, _greeting(self._key, ring, worker)):
                caller.close()
                continue
            with self._came:
                self._callers[ring, worker] = caller
                self._came.notify_all()


_door = functools.cache(_Door)


def _greeting(key: bytes, ring: int, worker: int) -> bytes:
    caller = _CALLER.pack(ring, worker)
    return caller + hmac.digest(key, b"dtk ring" + caller, "sha256")


def _listen(address: tuple[str, int]) -> socket.socket:
    door = socket.socket()
    door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # for a run soon after another with the same port
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
