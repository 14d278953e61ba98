"""`dtk.ring`: a worker's place in a ring of workers, for an all-reduce by hand. No TensorFlow.

The all-reduce itself, which chunk to send, what to do with the one that comes, is the learner's. Here are the
connections, and what is recorded of them: each message is an event of the worker (`RingEvent` of `dtk.records.events`).

A round begins with each `split`; steps count its exchanges, from 1. parts: the workers whose gradient is in the
chunk's sum, a worker twice that was added twice; None where the numbers are something else. What was done with a
chunk is found out from the numbers when the chunk is next sent, or joined.
"""

from __future__ import annotations

import atexit
import json
import socket
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from dtk.environment import Here, here
from dtk.errors import ClusterConfigError, DtkError, seconds
from dtk.language import N_, _
from dtk.records.events import RingEvent, of_kind
from dtk.worker import wire
from dtk.worker.progress import progress

Parts = list[int] | None
OFTEN = N_("every worker must call ring.exchange, or ring.swap, equally often")


def ring(timeout: float = 10.0) -> Ring:
    """Join the ring of all workers of the run; every worker has to call it.

        ring = dtk.ring()
        chunks = ring.split(gradient)
        number, values = ring.exchange(0, chunks[0])     # to the next worker; from the previous one

    Worker k sends to worker k + 1, the last one to worker 0 (Patarasuk and Yuan 2009, J. Parallel Distrib. Comput.
    69(2)). All workers have to be on one machine; in a baseline the ring has one. A function that calls it needs no
    strategy: `dtk.record_step` records it, and `dtk.verify` follows it.

    Args:
        timeout: seconds without a sign of a neighbor until RingBroken names it.

    Returns:
        A `Ring`: `split`, `exchange` and `join`; and `swap`, for an all-reduce that is no ring.

    Raises:
        RuntimeError: outside of a run.
        ClusterConfigError: in the evaluator, or for a timeout that is not above 0.
        RingBroken: a neighbor is late or has gone.
    """
    place = here()
    if place is None:
        raise RuntimeError(_("dtk.ring() is for use inside a function that dtk.run runs"))
    if place.role == "evaluator":
        raise ClusterConfigError(_("dtk.ring() was called in the evaluator, which is no part of the workers' ring"))
    progress(place).rings += place.workers > 1
    return Ring(place, seconds("timeout", timeout))


class RingBroken(DtkError, ConnectionError):
    """A neighbor in the ring is late, has gone, or is somewhere else in the exchange.

    Attributes:
        by_a_peer: whether another worker is the reason, so that this failure is a consequence.
    """

    def __init__(self, what: str, remedy: str = "", by_a_peer: bool = False):
        super().__init__(what, remedy=remedy)
        self.by_a_peer = by_a_peer


class _Arrival(NamedTuple):
    """A chunk that came and whose use is not known yet."""

    step: int
    values: np.ndarray
    parts: Parts


class Ring:
    """Splits a gradient into chunks, exchanges them with the neighbors, and joins them.

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
        self._neighbors: Neighbors | None = None
        if place.workers > 1:
            sockets = [corner.path / f"ring-{progress(place).rings}" for corner in place.run.each]
            self._neighbors = Neighbors(sockets, place.worker, timeout, self._suspect)

    def split(self, gradient: Any) -> list[np.ndarray]:
        """Cuts a gradient into chunks, one per worker, and begins a new all-reduce.

        Args:
            gradient: numbers, of any shape.

        Returns:
            `workers` flat arrays of as equal a size as possible.
        """
        whole = _numbers(gradient, "ring.split")
        chunks = np.array_split(whole.ravel(), self.workers)
        self._round, self._step, self._shape = self._round + 1, 0, whole.shape
        self._held = {number: (chunk.copy(), [self.worker]) for number, chunk in enumerate(chunks)}
        self._arrived = {}
        self._write("split")
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
            RingBroken: a neighbor is late or has gone.
        """
        if self._neighbors is None:
            raise ClusterConfigError(_("ring.exchange: this ring has one worker, and no other to exchange with"))
        if not self._held:
            raise ClusterConfigError(_("ring.exchange: cut the gradient into chunks first, with ring.split"))
        if isinstance(number, bool) or number not in range(self.workers):
            words = N_(
                "ring.exchange: chunk {chunk} in step {step}, but there are the chunks 0 to {last}; "
                "numbers go round with % {workers}"
            )
            known = {"last": self.workers - 1, "workers": self.workers}
            raise ClusterConfigError(_(words, chunk=number, step=self._step + 1, **known))
        self._settle(number, values)
        self._step += 1
        array, parts = self._held[number]
        about = {"round": self._round, "step": self._step, "chunk": int(number), "parts": parts}
        receiver, sender = self._neighbors.next, self._neighbors.previous
        self._write("sent", step=self._step, chunk=int(number))
        theirs, came = self._trade(about, array, receiver, sender)
        if (theirs["round"], theirs["step"]) != (self._round, self._step):
            words = N_(
                "worker {worker} is at step {its} of all-reduce {its_round}, this worker at step {step} "
                "of {round}; all must call ring.exchange equally often"
            )
            its = {"its": theirs["step"], "its_round": theirs["round"]}
            raise RingBroken(_(words, worker=sender, step=self._step, round=self._round, **its))
        received = int(theirs["chunk"])
        self._arrived[received] = _Arrival(self._step, came, theirs["parts"])
        self._write("received", step=self._step, chunk=received)
        return received, came.copy()

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
        array = _numbers(values, "ring.swap").ravel()
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

    def _trade(
        self, about: dict[str, Any], array: np.ndarray, receiver: int, sender: int
    ) -> tuple[dict[str, Any], np.ndarray]:
        """Sends numbers, and what is to be known about them; returns those that came, with the same of them."""
        assert self._neighbors is not None  # a ring of one has no other worker, which was refused
        theirs, body = self._neighbors.trade({**about, "dtype": array.dtype.str}, array.tobytes(), receiver, sender)
        self.bytes_sent += array.nbytes
        values = np.frombuffer(body, np.dtype(theirs.pop("dtype"))).copy()
        if theirs.keys() != about.keys():  # one called `exchange` and the other `swap`
            raise RingBroken(_(OFTEN))
        return theirs, values

    def _settle(self, number: int, values: Any) -> None:
        """Finds out whose parts chunk `number` holds now, and so what was done with the one that came for it."""
        now = np.ravel(np.array(values))
        came = self._arrived.pop(number, None)
        parts = _parts_of(now, *self._held[number], came)
        if came is not None:
            self._write("used", step=came.step, chunk=number, parts=parts)
        self._held[number] = (now, parts)

    def _suspect(self) -> int:
        """The worker that all wait for: going back, the first that is not itself in an unfinished exchange."""
        worker = self.worker
        for _neighbor in range(self.workers - 1):
            worker = (worker - 1) % self.workers
            said = [event.what for event in of_kind(self._place.run.worker(worker).events, RingEvent)]
            if said.count("sent") == said.count("received"):
                break
        return worker

    def _write(self, what: str, **facts: Any) -> None:
        self._place.journal.event(RingEvent(self._place.now(), what=what, round=self._round, **facts))


def _parts_of(now: np.ndarray, held: np.ndarray, parts: Parts, came: _Arrival | None) -> Parts:
    """The parts of a chunk that held others before: the one that came was added to it, copied into it, or ignored.

    Where the numbers allow several answers (zeros, for one), a sum without a worker twice is taken first.
    """
    answers = [(held, parts)]
    if came is not None:
        answers.insert(0, (came.values, came.parts))
        both = None if parts is None or came.parts is None else sorted(parts + came.parts)
        apart = parts is not None and came.parts is not None and not {*parts} & {*came.parts}
        if came.values.shape == held.shape:
            answers.insert(0 if apart else 1, (held + came.values, both))
    numbers = now.dtype.kind == "f"
    return next((its for values, its in answers if np.array_equal(now, values, equal_nan=numbers)), None)


def _numbers(values: Any, call: str) -> np.ndarray:
    array = np.array(values)
    if array.dtype.kind not in "iuf":
        words = N_("{call} takes an array of numbers, not one of type {dtype}")
        raise ClusterConfigError(_(words, call=call, dtype=array.dtype))
    return array


# ---- the connections: sockets in the run's directory, which no other user may enter


class Neighbors:
    """A worker's connections with the others, each for one direction. No wait without end.

    A worker calls those that it sends to: the next one at the beginning, others when it first has something for them.
    It says its number in a line. A message is a line of JSON, and as many bytes as that says.

    sockets: where each worker listens. timeout: seconds without a sign of a neighbor after which RingBroken names the
    worker that `suspect` finds.
    """

    def __init__(self, sockets: Sequence[Path], worker: int, timeout: float, suspect: Callable[[], int]):
        self.timeout, self._suspect = timeout, suspect
        self._sockets, self._worker = sockets, worker
        self.next, self.previous = (worker + 1) % len(sockets), (worker - 1) % len(sockets)
        sockets[worker].unlink(missing_ok=True)  # of a process in whose place this one is
        self._listening = wire.listen(sockets[worker])
        self._listening.settimeout(timeout)
        atexit.register(self._listening.close)  # not before, so that a late caller learns who has left
        self._outward: dict[int, socket.socket] = {}
        self._inward: dict[int, BinaryIO] = {}  # of all who have called: one may be in another exchange than this
        self._sender = ThreadPoolExecutor(1, "dtk-ring")
        self._link(self.next)

    def trade(self, about: dict[str, Any], body: bytes, receiver: int, sender: int) -> tuple[dict[str, Any], bytes]:
        """Sends a message to one worker and returns one from another, or from the same, both at the same time.

        One after the other would not do: all workers would send, none would read, and messages larger than the
        system's buffers would never leave.
        """
        head = json.dumps({**about, "bytes": len(body)}).encode()
        sent = self._sender.submit(self._link(receiver).sendall, head + b"\n" + body)
        try:
            while sender not in self._inward:
                self._admit()
            theirs = json.loads(self._inward[sender].readline())
            size = theirs.pop("bytes")
            came = self._inward[sender].read(size)
        except TimeoutError:
            suspect = self._suspect() if sender == self.previous else sender
            what = _("worker {worker} sent nothing for {seconds:g} s", worker=suspect, seconds=self.timeout)
            raise RingBroken(what, _(OFTEN), by_a_peer=True) from None
        except (OSError, ValueError):  # a line that is cut short is no JSON
            raise self._gone(sender) from None
        if len(came) < size:
            raise self._gone(sender)
        try:
            sent.result()
        except TimeoutError:
            what = _("worker {worker} took nothing for {seconds:g} s", worker=receiver, seconds=self.timeout)
            raise RingBroken(what, _(OFTEN)) from None
        except OSError:
            raise self._gone(receiver) from None
        return theirs, came

    def _gone(self, neighbor: int) -> RingBroken:
        what = N_("worker {worker} has left the ring: it ended, or made fewer exchanges than this one")
        return RingBroken(_(what, worker=neighbor), by_a_peer=True)

    def _link(self, other: int) -> socket.socket:
        """The connection to another worker."""
        deadline = time.monotonic() + self.timeout
        while other not in self._outward:
            try:
                link = wire.connect(self._sockets[other])
            except OSError:
                if time.monotonic() > deadline:
                    words = N_("worker {worker} could not be reached for {seconds:g} s")
                    what = _(words, worker=other, seconds=self.timeout)
                    raise RingBroken(what, _("every worker must call dtk.ring()")) from None
                time.sleep(0.02)  # a socket that opens in another process sends no event to wait for
                continue
            link.settimeout(self.timeout)
            link.sendall(b"%d\n" % self._worker)
            self._outward[other] = link
        return self._outward[other]

    def _admit(self) -> None:
        """Takes the next call."""
        caller, _address = self._listening.accept()
        with caller:  # what reads keeps it open
            caller.settimeout(self.timeout)
            reader = caller.makefile("rb")
        greeting = reader.readline()
        if greeting.endswith(b"\n"):  # else who called was killed at that moment
            self._inward[int(greeting)] = reader
