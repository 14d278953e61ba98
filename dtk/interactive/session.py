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
from dtk.interactive.barrier import Place, Unlike, Wait, Where, stuck, unlike
from dtk.interactive.inspection import table
from dtk.interactive.output import Output, View, named
from dtk.interactive.processes import Peer, Started, lost
from dtk.language import N_, _
from dtk.worker.wire import Message

__all__ = ["Cell", "CellOutcome", "History", "Session", "line_in_words"]

LOOK_SECONDS = 0.25  # between two looks at where workers are, and before the first
PAUSED_SECONDS = 0.1  # the same while workers are held before collectives
SHOW_SECONDS = 0.05
ASKED_SECONDS = 0.3  # how long one that has asked is heard before others that ask
TASK_SECONDS = 600.0  # a task may run cells again
MOST_ROWS = 40  # of a value that is shown at a debugger's prompt


@dataclass
class Cell:
    """code: None for a function. ends: by worker, (ended without an error, recorded steps, batches taken)."""

    number: int
    code: str | None
    workers: tuple[int, ...]
    ends: dict[int, tuple[bool, int, int]] = field(default_factory=dict)

    def went_through(self, worker: int) -> bool:
        return worker in self.ends and self.ends[worker][0]


class History:
    """Of a session, in the kernel. workers: how many the cluster has."""

    def __init__(self, workers: int):
        self.workers = workers
        self.cells: dict[int, Cell] = {}

    def failed(self) -> bool:
        """Whether a cell that all workers were sent has ended with an error or an interrupt on any of them."""
        shared = [cell for cell in self.cells.values() if len(cell.workers) == self.workers]
        return any(not cell.went_through(worker) for cell in shared for worker in cell.ends)

    def of(self, worker: int) -> list[tuple[int, str]]:
        """(number, code) of the cells that a worker went through; one that was interrupted may never end."""
        through = [cell for cell in self.cells.values() if cell.went_through(worker)]
        return [(cell.number, cell.code) for cell in through if cell.code is not None]

    def to_replay(self) -> tuple[list[tuple[int, str, tuple[int, int] | None]], list[int]]:
        """(number, code, limit) of what all workers were sent, and the numbers of the cells that are left out.

        limit: (recorded steps, batches taken) at which a cell ended early; None for one that went through.
        """
        found: list[tuple[int, str, tuple[int, int] | None]] = []
        left = []
        for cell in self.cells.values():
            if cell.code is None or len(cell.workers) < self.workers:
                left.append(cell.number)
            else:
                through = all(map(cell.went_through, cell.workers))
                most = max(((steps, takes) for _, steps, takes in cell.ends.values()), default=(0, 0))
                found.append((cell.number, cell.code, None if through else most))
        return found, left


@dataclass
class CellOutcome:
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


class Session:
    """The kernel's connections with its workers, and what it has sent them."""

    def __init__(self, started: Started):
        self.started = started
        self.output = Output(started.folder)
        self.history = History(started.job.workers)
        self.repaired = False  # whether cells were interrupted, or a worker replaced
        self.used = time.monotonic()
        self.outcome = CellOutcome(0)  # of the last wait, as far as it had come when it was interrupted
        self._paused = False
        self._waits = False  # for a cell: only then the learner is asked for lines
        self._asked: tuple[Peer | None, float] = (None, 0.0)  # who has asked, and until when it is heard first

    @property
    def peers(self) -> list[Peer]:
        return self.started.peers

    @property
    def number(self) -> int:
        """Of the last cell."""
        return len(self.history.cells)

    def idle(self) -> list[Peer]:
        return [peer for peer in self.peers if peer.idle]

    def running(self) -> list[Peer]:
        return [peer for peer in self.peers if peer.running is not None]

    # ---- cells

    def send(self, targets: Sequence[int], message: Message) -> None:
        """Sends a cell; ClusterConfigError where one of the workers is not free for it."""
        lost(self.started, self.peers)
        for peer in (self.peers[worker] for worker in targets):
            if peer.lost is not None:
                raise ClusterConfigError(_("{worker} has ended: {remedy}", worker=peer.name, remedy=peer.remedy))
            if peer.running is not None:
                words = N_(
                    "{worker} is still in cell {cell}, {place}: run the rest on the workers it waits for, "
                    "cluster.resume() where it is held, or cluster.free()"
                )
                raise ClusterConfigError(
                    _(words, worker=peer.name, cell=peer.running, place=self.position(peer.number))
                )
        everywhere = len(targets) == len(self.peers) and not self.repaired and not self.history.failed()
        number = self.number + 1
        self.history.cells[number] = Cell(number, message.get("code"), tuple(targets))
        self.output.begin()
        for worker in targets:
            self.peers[worker].running = number
            self.peers[worker].say({**message, "id": number, "cell": number, "everywhere": everywhere})

    def wait(self) -> CellOutcome:
        """Returns when no worker is in a cell, or those that are can't go on."""
        self._waits, view = True, View(self.started)
        try:
            return self._wait(view)
        finally:
            self._waits = False
            view.end(self.outcome)

    def _wait(self, view: View) -> CellOutcome:
        outcome = self.outcome = CellOutcome(self.number)
        looked = shown = time.monotonic()
        before: dict[int, Where] = {}
        while self.running():
            self.hear(outcome)
            now = time.monotonic()
            if now - shown > SHOW_SECONDS:
                self.output.look()
                view.look(outcome)
                shown = now
            if now - looked > (PAUSED_SECONDS if self._paused else LOOK_SECONDS) and self.running():
                looked, before = now, self._look(outcome, before)
                stopped = {*outcome.held, *(wait.worker for wait in outcome.waits)}
                still = {peer.number for peer in self.running()}
                if still and still <= stopped:
                    break
        else:
            outcome.waits, outcome.held = [], {}
        self.used = time.monotonic()
        self.show_rest(outcome)
        ends = {worker: Where.of(worker, 0.0, end) for worker, end in outcome.ends.items()}
        outcome.unlike = outcome.unlike or unlike(ends, self.lines)  # in a quick cell there was no look
        outcome.lost = [peer for peer in self.peers if peer.lost is not None]
        return outcome

    def _look(self, outcome: CellOutcome, before: dict[int, Where]) -> dict[int, Where]:
        """Finds out who is held, who waits for whom, and who met in unlike collectives."""
        now = self.where()
        outcome.held = {worker: where.place for worker, where in now.items() if where.held}
        now |= {peer.number: Where.of(peer.number, 0.0, {}) for peer in self.peers if peer.lost is not None}
        broken = [worker for worker, end in outcome.errors.items() if end["op"]]
        outcome.waits = stuck(before, now, broken)
        outcome.unlike = outcome.unlike or unlike(now, self.lines)
        return now

    def hear(self, outcome: CellOutcome, seconds: float = 0.02) -> None:
        """Takes in what workers in a cell send, within so many seconds."""
        running, (asked, until) = self.running(), self._asked
        # Of two that ask, one is heard until it goes on: lines typed at a debugger are for one worker.
        first = [peer for peer in running if peer is asked and time.monotonic() < until]
        links: dict[Any, Peer] = {peer.cells: peer for peer in first or running if peer.cells is not None}
        for link in select.select([*links, self.started.source], [], [], seconds)[0]:
            if link in links:
                for message in link.receive():
                    self._take(links[link], message, outcome)
                if time.monotonic() < self._asked[1]:
                    break
        lost(self.started, self.peers)

    def _take(self, peer: Peer, message: Message, outcome: CellOutcome) -> None:
        if "ask" in message or "replicas" in message:
            self._answer(peer, message)
        elif message.get("id") == peer.running:
            outcome.ends[peer.number] = message
            end = message["status"] == "ok", message["steps"], message["takes"]
            self.history.cells[message["id"]].ends[peer.number] = end
            peer.running = None

    def _answer(self, peer: Peer, message: Message) -> None:
        """To the worker's `input`, a debugger's prompt among them, or to `replicas` at that prompt."""
        self.output.end({peer.number: (message["log"], message["shown"])})
        answer: Message = {}
        try:
            if "replicas" in message:
                self._show_replicas(peer, message)
            else:
                prompt = f"{named([peer.number])} {message['ask']}"
                answer = {"said": input(prompt)} if self._waits else {"over": True}
        except KeyboardInterrupt:
            pass  # the worker raises it where it asked
        finally:
            peer.say({**answer, "answers": message["number"]})
            self._asked = peer, time.monotonic() + ASKED_SECONDS

    def _show_replicas(self, asker: Peer, message: Message) -> None:
        """A table of what a name is on all workers, and where each worker is."""
        rows = {asker.number: message["rows"]}
        for peer in self.peers:
            if peer is not asker and message["replicas"]:
                rows[peer.number] = (peer.ask("look at", code=message["replicas"]) or {}).get("rows", [])
        found = table(dict(sorted(rows.items())))
        if len(found):
            narrow = found[["name", "workers", *(name for name in found if name.startswith("worker ")), "shape"]]
            print(narrow.to_string(index=False, max_rows=MOST_ROWS))
        elif message["why"]:
            print(message["why"])
        for peer in self.peers:
            print(f"{peer.name}: {self.position(peer.number)}", flush=True)

    def show_rest(self, outcome: CellOutcome) -> None:
        self.output.end({worker: (end["log"], end["shown"]) for worker, end in outcome.ends.items()})

    # ---- where the workers are

    def where(self) -> dict[int, Where]:
        """Where each worker is that lives, asked anew."""
        return {
            peer.number: Where.of(peer.number, time.monotonic(), report)
            for peer in self.peers
            if (report := peer.ask("where")) is not None
        }

    def position(self, worker: int) -> str:
        """In words."""
        report = self.peers[worker].ask("where")
        if report is None:
            return _("has ended")
        where = Where.of(worker, 0.0, report)
        if where.cell is None:
            return _("in no cell")
        return self.in_words(where.place)

    def lines(self, place: Place) -> str:
        """The text of both lines of a place."""
        return "\n".join((self._text(*place[:2]), self._text(*place[2:])))

    def _text(self, file: str, number: int) -> str:
        """The text of a line of a cell, or of a function that was sent."""
        if file.startswith("<cell "):
            lines = (self.history.cells[int(file[6:-1])].code or "").splitlines()
            return lines[number - 1].strip() if 0 < number <= len(lines) else ""
        linecache.checkcache(file)
        return linecache.getline(file, number).strip()

    def in_words(self, place: Place) -> str:
        """ "line 3 (`total = ...`)", with where that is called if it is in another line of the cell."""
        file, line, cell, outer = place
        words = self._line_in_words(file, line)
        if (file, line) == (cell, outer):
            return words
        return _("{line}, called in {other}", line=words, other=self._line_in_words(cell, outer))

    def _line_in_words(self, file: str, line: int) -> str:
        if file.startswith("<cell "):
            place = "" if file == f"<cell {self.number}>" else _("cell {cell}", cell=file[6:-1])
        else:  # a script; a function of the notebook has no file
            place = os.path.basename(file) if os.path.isfile(file) else ""
        return line_in_words(line, self._text(file, line), place)

    # ---- the gate

    def hold(self) -> None:
        """Holds each worker before its next collective; those behind go on to the highest."""
        self._limit({})
        self._limit(self.highest())

    def step(self) -> None:
        """Lets those that are held take one collective more; each device of a worker has a counter of its own."""
        held = {_group_of(counter) for where in self.where().values() for counter in where.held}
        self._limit({counter: number + (_group_of(counter) in held) for counter, number in self.highest().items()})

    def open(self) -> None:
        """Holds nobody any more."""
        self._paused = False
        for peer in self.peers:
            peer.ask("open")

    def highest(self) -> dict[str, int]:
        """The highest number of each counter that a worker has."""
        keys = [where.keys for where in self.where().values()]
        return {counter: max(each.get(counter, 0) for each in keys) for each in keys for counter in each}

    def _limit(self, limits: dict[str, int]) -> None:
        self._paused = True
        for peer in self.peers:
            peer.ask("hold", limits=limits, raises=False)

    # ---- between cells

    def do(self, what: str, targets: Sequence[int] | None = None, **more: Any) -> dict[int, Message]:
        """A task (`interactive.tasks`) on idle workers, all at a time; ClusterConfigError with the first refusal."""
        chosen = [self.peers[worker] for worker in targets] if targets is not None else self.idle()
        number = time.monotonic_ns()
        for peer in chosen:
            peer.say({"do": what, "id": number, **more})
        answers: dict[int, Message] = {}
        for peer in chosen:
            while peer.number not in answers:
                assert peer.cells is not None, "it is idle"
                answer = peer.cells.next(TASK_SECONDS)
                if answer is None:
                    how = _("has ended")
                    if not peer.cells.closed:
                        how = _("did not answer for {seconds:g} s", seconds=TASK_SECONDS)
                    words = _("{worker} {how}: {remedy}", worker=peer.name, how=how, remedy=peer.remedy)
                    raise ClusterConfigError(words)
                if answer.get("id") == number:
                    answers[peer.number] = answer
        for worker, answer in answers.items():
            if answer["status"] == "error":
                raise ClusterConfigError(answer["message"] or f"{self.peers[worker].name}: {answer['type']}")
        return answers


def line_in_words(line: int, text: str, place: str = "") -> str:
    """A line with its text. place: another cell, or a file.

    >>> line_in_words(3, "x = 1"), line_in_words(3, "x = 1", "cell 7"), line_in_words(3, "", "train.py")
    ('line 3 (`x = 1`)', 'line 3 of cell 7 (`x = 1`)', 'a line that is not known')
    """
    if not text:
        return _("a line that is not known")
    words = N_("line {line} of {place} (`{text}`)") if place else N_("line {line} (`{text}`)")
    return _(words, line=line, text=text, place=place)


def _group_of(counter: str) -> str:
    """What counters of one collective have in common: each device of a worker has one.

    >>> _group_of("0.1.device:CPU:1")
    '0.1'
    """
    return counter.rpartition(".")[0]
