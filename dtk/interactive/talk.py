"""Cells to workers and back: sent, waited for, shown; a worker that waits for what can't come ends the wait."""

from __future__ import annotations

import linecache
import os
import select
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from dtk.errors import ClusterConfigError
from dtk.interactive import begin
from dtk.interactive import compare_replicas as beside
from dtk.interactive.labels import named
from dtk.interactive.output import Output
from dtk.interactive.peers import Peer, lost
from dtk.interactive.view import View
from dtk.interactive.waits import Place, Unlike, Wait, Where, stuck, unlike
from dtk.interactive.words import in_line, refusal
from dtk.language import N_, _
from dtk.view.palette import worker_name

__all__ = ["Outcome", "Talk"]

Message = dict[str, Any]

LOOK_SECONDS = 0.25  # between two looks at where workers are, and before the first
PAUSED_SECONDS = 0.1  # the same while workers are held before collectives
SHOW_SECONDS = 0.05
ASKED_SECONDS = 0.3  # how long one that has asked is heard before others that ask
TASK_SECONDS = 600.0  # a task may run cells again


@dataclass
class Outcome:
    """How a cell ended. ends: by worker. waits: who waits for what can't come. lost: who ended, and with what code.

    held: who is held by the gate, and where. unlike: who met in one collective from different lines.
    """

    number: int
    ends: dict[int, Message] = field(default_factory=dict)
    waits: list[Wait] = field(default_factory=list)
    lost: list[Peer] = field(default_factory=list)
    held: dict[int, Place] = field(default_factory=dict)
    unlike: Unlike | None = None

    @property
    def errors(self) -> dict[int, Message]:
        return {worker: end for worker, end in sorted(self.ends.items()) if end["status"] == "error"}


class Talk:
    """A session's connections with its workers. codes: of the cells, by number.

    waited: by worker, the number of the last cell in which it was said to wait for what can't come. asked: who has
    asked for a line, and until when it is heard before the others.
    """

    def __init__(self, started: begin.Started):
        self.started = started
        self.output, self.view = Output(started.folder), View(started)
        self.codes: dict[int, str] = {}
        self.number = 0
        self.paused = self.answers = False
        self.failed = False  # whether a cell of all workers did not come to its end: what follows is not one training
        self.waited: dict[int, int] = {}
        self.asked: tuple[Peer | None, float] = (None, 0.0)
        self.outcome = Outcome(0)  # of the last wait, as far as it had come when it was interrupted
        self.used = time.monotonic()

    @property
    def peers(self) -> list[Peer]:
        return self.started.peers

    def send(self, targets: Sequence[int], message: Message, code: str) -> int:
        """A cell's number, after it was sent; ClusterConfigError where one of the workers is not free for it."""
        self.started.site.source.poll(0)
        lost(self.peers, self.started.site)
        for peer in (self.peers[worker] for worker in targets):
            if peer.lost is not None:
                raise ClusterConfigError(refusal(peer, peer.gone or _("has ended")))
            if peer.running is not None:
                words = N_(
                    "{worker} is still in cell {cell}, {place}: run the rest on the workers it waits for, "
                    "cluster.resume() where it is held, or cluster.free()"
                )
                at = self.position(peer.number)
                raise ClusterConfigError(_(words, worker=peer.name, cell=peer.running, place=at))
        self.number += 1
        self.codes[self.number] = code
        self.output.begin()
        for worker in targets:
            peer = self.peers[worker]
            peer.running = self.number
            assert peer.cells is not None, "it is ready"
            everywhere = len(targets) == len(self.peers) and not self.failed
            peer.cells.send({**message, "id": self.number, "cell": self.number, "everywhere": everywhere})
        return self.number

    def wait(self) -> Outcome:
        """Until no worker is in a cell, or those that are can't go on. Here alone the learner is asked for lines."""
        self.answers = True
        self.view.begin()
        try:
            return self._wait()
        finally:
            self.answers = False
            self.view.end(self.outcome)

    def _wait(self) -> Outcome:
        outcome = self.outcome = Outcome(self.number)
        looked = shown = time.monotonic()
        before: dict[int, Where] = {}
        while running := [peer for peer in self.peers if peer.running is not None]:
            self.take(running, outcome)
            now = time.monotonic()
            if now - shown > SHOW_SECONDS:
                self.output.look()
                self.view.look(outcome)
                shown = now
            if now - looked > (PAUSED_SECONDS if self.paused else LOOK_SECONDS) and any(
                peer.running is not None for peer in self.peers
            ):
                looked = now
                seen = self.where()
                outcome.held = {worker: where.place for worker, where in seen.items() if where.held}
                seen |= {peer.number: Where.of(peer.number, now, {}) for peer in self.peers if peer.lost is not None}
                broken = [worker for worker, end in outcome.errors.items() if end.get("op")]
                outcome.waits = stuck(before, seen, broken)
                outcome.unlike = outcome.unlike or unlike(seen, self.lines)
                before = seen
                still = {peer.number for peer in self.peers if peer.running is not None}
                if still and still <= {*outcome.held, *(wait.worker for wait in outcome.waits)}:
                    break
        else:
            outcome.waits, outcome.held = [], {}
        self.used = time.monotonic()
        self.show_rest(outcome)
        self._compare(outcome)
        outcome.lost += [peer for peer in self.peers if peer.lost is not None and peer not in outcome.lost]
        cells = {wait.worker: self.peers[wait.worker].running for wait in outcome.waits}
        self.waited |= {worker: cell for worker, cell in cells.items() if cell is not None}
        return outcome

    def take(self, running: Sequence[Peer], outcome: Outcome, seconds: float = 0.02) -> None:
        # Of two that ask, one is heard until it goes on: lines typed at a debugger are for one worker.
        first = [peer for peer in running if peer is self.asked[0] and time.monotonic() < self.asked[1]]
        links: dict[Any, Peer] = {peer.cells: peer for peer in first or running if peer.cells is not None}
        for link in select.select([*links, self.started.site.source], [], [], seconds)[0]:
            if link in links:
                self._hear(links[link], outcome)
                if time.monotonic() < self.asked[1]:
                    break
        self.started.site.source.poll(0)
        outcome.lost += lost(self.peers, self.started.site)

    def _hear(self, peer: Peer, outcome: Outcome) -> None:
        assert peer.cells is not None, "it said something"
        for message in peer.cells.receive():
            if "ask" in message:
                self._prompt(peer, message)
            elif "beside" in message:
                beside.show(self, peer, message)
                self._heard(peer, message, {})
            elif message.get("id") == peer.running:
                outcome.ends[peer.number] = message
                peer.running = None

    def _prompt(self, peer: Peer, message: Message) -> None:
        """The worker's `input`, a debugger's prompt among them."""
        self.output.end({peer.number: (message["log"], message["shown"])})
        answer: Message = {}
        try:
            prompt = f"{named([peer.number])} {message['ask']}"
            answer = {"said": input(prompt)} if self.answers else {"over": True}
        except KeyboardInterrupt:
            pass  # the worker raises it where it asked
        finally:
            self._heard(peer, message, answer)

    def _heard(self, peer: Peer, message: Message, answer: Message) -> None:
        assert peer.cells is not None, "it asked"
        peer.cells.send({**answer, "answers": message["number"]})
        self.asked = (peer, time.monotonic() + ASKED_SECONDS)

    def show_rest(self, outcome: Outcome) -> None:
        sizes = {worker: (end["log"], end["shown"]) for worker, end in outcome.ends.items()}
        self.output.end(sizes)

    def _compare(self, outcome: Outcome) -> None:
        """At the end of a quick cell, in which there was no look."""
        ends = outcome.ends
        if outcome.unlike is None and len({(end["sum"], end["count"]) for end in ends.values()}) > 1:
            now = {worker: Where.of(worker, 0.0, {**end, "last": end["id"]}) for worker, end in ends.items()}
            outcome.unlike = unlike(now, self.lines)

    def where(self) -> dict[int, Where]:
        """Where each worker is that lives, asked anew."""
        return {
            peer.number: Where.of(peer.number, time.monotonic(), said)
            for peer in self.peers
            if (said := peer.ask("where")) is not None
        }

    def hold(self) -> None:
        """Each worker is held before its next collective, those behind go on to the highest."""
        for peer in self.peers:
            peer.ask("hold", limits={}, raises=False)
        self._limit(self.highest())

    def step(self) -> None:
        """Those that are held may take one collective more."""
        held = {group_of(counter) for where in self.where().values() for counter in where.held}
        self._limit({counter: number + (group_of(counter) in held) for counter, number in self.highest().items()})

    def highest(self) -> dict[str, int]:
        """Of each counter the highest number that a worker has."""
        keys = [where.keys for where in self.where().values()]
        return {counter: max(each.get(counter, 0) for each in keys) for each in keys for counter in each}

    def _limit(self, limits: dict[str, int]) -> None:
        self.paused = True
        for peer in self.peers:
            peer.ask("hold", limits=limits, raises=False)

    def open(self) -> None:
        """Nobody is held any more."""
        self.paused = False
        for peer in self.peers:
            peer.ask("open")

    def do(self, what: str, targets: Sequence[int] | None = None, **more: Any) -> dict[int, Message]:
        """A task (`interactive.tasks`) on idle workers, all at a time; ClusterConfigError with the first refusal."""
        chosen = [self.peers[worker] for worker in targets] if targets is not None else self.idle()
        number = time.monotonic_ns()
        for peer in chosen:
            assert peer.cells is not None, "it is idle"
            peer.cells.send({"do": what, "id": number, **more})
        answers: dict[int, Message] = {}
        for peer in chosen:
            assert peer.cells is not None, "it is idle"
            while peer.number not in answers:
                answer = peer.cells.next(TASK_SECONDS)
                if answer is None:
                    late = _("did not answer for {seconds:g} s", seconds=TASK_SECONDS)
                    raise ClusterConfigError(refusal(peer, _("has ended") if peer.cells.closed else late))
                if answer.get("id") == number:
                    answers[peer.number] = answer
        for worker, answer in answers.items():
            if answer["status"] == "error":
                raise ClusterConfigError(answer["message"] or f"{worker_name(worker)}: {answer['type']}")
        return answers

    def idle(self) -> list[Peer]:
        return [peer for peer in self.peers if peer.idle]

    def lines(self, place: Place) -> str:
        """The text of both lines of a place."""
        return "\n".join((self._text(*place[:2]), self._text(*place[2:])))

    def _text(self, file: str, number: int) -> str:
        """The text of a line of a cell, or of a function that was sent."""
        if file.startswith("<cell "):
            lines = self.codes.get(int(file[6:-1]), "").splitlines()
            return lines[number - 1].strip() if 0 < number <= len(lines) else ""
        linecache.checkcache(file)
        return linecache.getline(file, number).strip()

    def position(self, worker: int) -> str:
        """ "line 3 (`total = ...`)" of where a worker is."""
        said = self.peers[worker].ask("where") or {}
        return self.in_words(Where.of(worker, 0.0, said).place)

    def in_words(self, place: Place) -> str:
        """ "line 3 (`total = ...`)", with where that is called if it is in another line of the cell."""
        file, line, cell, outer = place
        words = self._line_in_words(file, line)
        if (file, line) == (cell, outer):
            return words
        return _("{line}, called in {other}", line=words, other=self._line_in_words(cell, outer))

    def _line_in_words(self, file: str, line: int) -> str:
        text = self._text(file, line)
        if file.startswith("<cell "):
            return in_line(line, text, "" if file == f"<cell {self.number}>" else file[6:-1])
        # A script; a function of the notebook has no file.
        return in_line(line, text, file=os.path.basename(file) if os.path.isfile(file) else "")


def group_of(counter: str) -> str:
    """What counters of one collective have in common: each device of a worker has one.

    >>> group_of("0.1.device:CPU:1")
    '0.1'
    """
    return counter.rpartition(".")[0]
