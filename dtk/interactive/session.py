"""Cells to workers and back: sent, waited for, shown; a worker that waits for what can't come ends the wait.

Ends of cells come by a connection, output by files, so that a worker that prints much, or whose kernel does not listen,
waits for nobody: what it displays is a file of its own, which a line of its log stands for.
"""

from __future__ import annotations

import hashlib
import json
import linecache
import os
import re
import select
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from dtk import environment
from dtk.errors import ClusterConfigError, cell_here, cell_of, shell
from dtk.interactive import DISPLAYED
from dtk.interactive.barrier import Place, Wait, Where, stuck, unlike
from dtk.interactive.processes import Peer, Started, lost
from dtk.language import N_, _
from dtk.live.text import Printer, named
from dtk.records import RunFolder
from dtk.worker.wire import Message

LOOK_SECONDS = 0.25  # between two looks at where workers are, and before the first
HEAR_SECONDS = 0.05  # also between two looks at their logs
ASKED_SECONDS = 0.3  # how long one that has asked is heard before others that ask
TASK_SECONDS = 600.0  # a task may run cells again
MOST = 1 << 18  # characters of a worker that a cell shows; all of it is in its log
_DISPLAYED = re.compile(DISPLAYED.format(number=r"(\d+)"))
# What TensorFlow's C++ code logs of collectives that end early: the error itself says it once more.
_ABORTS = re.compile(
    r"[EWI]\d{4} .*(_collective_executor|ring_alg|collective_param_resolver|rendezvous|coordination)"
    r"|The error could be from a previous operation\. Restart your program"
    r"|Additional GRPC error information from remote target|:UNKNOWN:Error received from peer|\t \[\["
)
_IN_A_CELL = re.compile(r'(?<=^  )File "<cell (\d+)>"', re.MULTILINE)
_RICH = "\x00"  # begins what stands for a display among lines


@dataclass
class Cell:
    """What was sent. code: None for a function. ends: by worker, its message at the end.

    prompt: "In [14]", of the notebook's cell that sent it; "" without one. whole: whether it is all of that cell.
    """

    number: int
    code: str | None
    workers: tuple[int, ...]
    prompt: str = ""
    whole: bool = False
    ends: dict[int, Message] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """By its prompt, which the reader sees; without one by the cluster's own number."""
        return self.prompt or _("cell {cell}", cell=self.number)

    @property
    def place(self) -> str:
        """Where a line of it is."""
        return self.name if self.whole or not self.prompt else _("a string in {cell}", cell=self.name)

    def went_through(self, worker: int) -> bool:
        return worker in self.ends and self.ends[worker]["status"] == "ok"

    @property
    def limit(self) -> tuple[int, int] | None:
        """(recorded steps, batches taken) at which it ended early; None where it went through on all its workers."""
        if all(map(self.went_through, self.workers)):
            return None
        return max(((end["steps"], end["takes"]) for end in self.ends.values()), default=(0, 0))


@dataclass
class CellOutcome:
    """How a cell ended. ends: by worker. waits: who waits for what can't come. lost: who ended, and with what code.

    held: who is held by the gate, and where. unlike: who met in one collective from different lines.
    """

    ends: dict[int, Message] = field(default_factory=dict)
    waits: list[Wait] = field(default_factory=list)
    lost: list[Peer] = field(default_factory=list)
    held: dict[int, Place] = field(default_factory=dict)
    unlike: list[tuple[int, Place]] = field(default_factory=list)

    @property
    def errors(self) -> dict[int, Message]:
        return {worker: end for worker, end in sorted(self.ends.items()) if end["status"] == "error"}


class Session:
    """The kernel's connections with its workers, and what it has sent them."""

    def __init__(self, started: Started):
        self.started, self.peers = started, started.peers
        self.output = CellPrinter(started.folder)
        self.cells: list[Cell] = []
        # Whether all workers went through the same: no cell for all has failed, nothing was interrupted or replaced.
        self.alike = True
        self.outcome = CellOutcome()  # of the last wait, as far as it had come when it was interrupted
        self._asked: tuple[Peer | None, float] = (None, 0.0)  # who has asked, and until when it is heard first

    def idle(self) -> list[Peer]:
        return [peer for peer in self.peers if peer.idle]

    def running(self) -> list[Peer]:
        return [peer for peer in self.peers if peer.running is not None]

    # ---- cells

    def to_replay(self) -> list[Cell]:
        """What all workers were sent as code."""
        return [cell for cell in self.cells if cell.code is not None and len(cell.workers) == len(self.peers)]

    def send(self, targets: Sequence[int], message: Message) -> None:
        """Sends a cell; ClusterConfigError where one of the workers is not free for it."""
        lost(self.started, self.peers)
        for peer in (self.peers[worker] for worker in targets):
            if peer.lost is not None:
                raise ClusterConfigError(peer.ended)
            if peer.running is not None:
                words = N_(
                    "{worker} is still in {cell}, {place}: run the rest on the workers it waits for, "
                    "cluster.resume() where it is held, or cluster.free()"
                )
                place = self.in_words(Where.of(peer.ask("where") or {}).place)
                name = self.cells[peer.running - 1].name
                raise ClusterConfigError(_(words, worker=peer.name, cell=name, place=place))
        everywhere = len(targets) == len(self.peers) and self.alike
        number = len(self.cells) + 1
        self.cells.append(Cell(number, message.get("code"), tuple(targets), cell_here(), not message["value"]))
        self.output.begin()
        for worker in targets:
            self.peers[worker].running = number
            self.peers[worker].links["cells"].send({**message, "id": number, "everywhere": everywhere})

    def wait(self) -> CellOutcome:
        """Returns when no worker is in a cell, or those that are can't go on."""
        outcome = self.outcome = CellOutcome()
        looked = time.monotonic()
        before: dict[int, Where] = {}
        while self.running():
            self.hear(asks=True)
            self.output.show()
            now = time.monotonic()
            if now - looked > LOOK_SECONDS and self.running():
                looked, before = now, self._look(before)
                stopped = {*outcome.held, *(wait.worker for wait in outcome.waits)}
                still = {peer.number for peer in self.running()}
                if still and still <= stopped:
                    break
        else:
            outcome.waits, outcome.held = [], {}
        self.output.show(last=True)
        ends = {worker: Where.of(end) for worker, end in outcome.ends.items()}
        outcome.unlike = outcome.unlike or unlike(ends, self.lines)  # in a quick cell there was no look
        outcome.lost = [peer for peer in self.peers if peer.lost is not None]
        return outcome

    def _look(self, before: dict[int, Where]) -> dict[int, Where]:
        """Finds out who is held, who waits for whom, and who met in unlike collectives."""
        outcome, now = self.outcome, self.where()
        outcome.held = {worker: where.place for worker, where in now.items() if where.held}
        now |= {peer.number: Where.of({}) for peer in self.peers if peer.lost is not None}
        outcome.waits = stuck(before, now, [worker for worker, end in outcome.errors.items() if end["op"]])
        outcome.unlike = outcome.unlike or unlike(now, self.lines)
        return now

    def hear(self, asks: bool = False) -> None:
        """Takes in what workers in a cell send within HEAR_SECONDS. asks: whether the learner is asked for lines."""
        running, (asked, until) = self.running(), self._asked
        # Of two that ask, one is heard until it goes on: lines typed at a debugger are for one worker.
        first = [peer for peer in running if peer is asked and time.monotonic() < until]
        links: dict[Any, Peer] = {peer.links["cells"]: peer for peer in first or running}
        for link in select.select([*links, self.started.source], [], [], HEAR_SECONDS)[0]:
            if link in links:
                for message in link.receive():
                    self._take(links[link], message, asks)
                if time.monotonic() < self._asked[1]:
                    break
        lost(self.started, self.peers)

    def _take(self, peer: Peer, message: Message, asks: bool) -> None:
        if "ask" in message:
            self._answer(peer, message, asks)
        elif message.get("id") == peer.running:
            cell = self.cells[message["id"] - 1]
            cell.ends[peer.number] = self.outcome.ends[peer.number] = message
            self.alike &= cell.went_through(peer.number) or len(cell.workers) < len(self.peers)
            peer.running = None

    def _answer(self, peer: Peer, message: Message, asks: bool) -> None:
        """To the worker's `input`, a debugger's prompt among them."""
        self.output.show(last=True)
        answer: Message = {}
        try:
            prompt = f"{named([peer.number])} {message['ask']}"
            answer = {"said": input(prompt)} if asks else {"over": True}
        except KeyboardInterrupt:
            pass  # the worker raises it where it asked
        finally:
            peer.links["cells"].send({**answer, "answers": message["number"]})
            self._asked = peer, time.monotonic() + ASKED_SECONDS

    # ---- where the workers are

    def where(self) -> dict[int, Where]:
        """Where each worker is that lives, asked anew."""
        return {
            peer.number: Where.of(report, time.monotonic())
            for peer in self.peers
            if (report := peer.ask("where")) is not None
        }

    def lines(self, place: Place) -> str:
        """The text of both lines of a place."""
        return "\n".join((self._text(*place[:2]), self._text(*place[2:])))

    def _text(self, file: str, number: int) -> str:
        """The text of a line of a cell, or of a function that was sent."""
        if file.startswith("<cell "):
            lines = (self.cells[int(file[6:-1]) - 1].code or "").splitlines()
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
            place = "" if file == f"<cell {len(self.cells)}>" else self.cells[int(file[6:-1]) - 1].place
        else:  # a script; a function of the notebook has no file
            place = os.path.basename(file) if os.path.isfile(file) else cell_of(file)
        return line_in_words(line, self._text(file, line), place)

    def readable(self, traceback: str) -> str:
        """A worker's traceback, with the cells of the notebook as IPython names them."""
        places = [cell.place for cell in self.cells]
        named = [f"Cell {place.replace(' ', '')}" if place[:4] == "In [" else f'File "<{place}>"' for place in places]
        return _IN_A_CELL.sub(lambda found: named[int(found[1]) - 1], traceback)

    # ---- the gate

    def hold(self, raises: bool = False) -> None:
        """Holds each worker before its next collective, or stops it there; those behind go on to the highest."""
        self._limit({})
        self._limit(self.highest(), raises)

    def step(self) -> None:
        """Lets those that are held take one collective more."""
        # Each device of a worker has a counter of its own, "0.1.device:CPU:1": those of one collective begin alike.
        held = {counter.rpartition(".")[0] for where in self.where().values() for counter in where.held}
        highest = self.highest().items()
        self._limit({counter: number + (counter.rpartition(".")[0] in held) for counter, number in highest})

    def open(self) -> None:
        """Holds nobody any more."""
        self._limit(None)

    def highest(self) -> dict[str, int]:
        """The highest number of each counter that a worker has."""
        keys = [where.keys for where in self.where().values()]
        return {counter: max(each.get(counter, 0) for each in keys) for each in keys for counter in each}

    def _limit(self, limits: dict[str, int] | None, raises: bool = False) -> None:
        for peer in self.peers:
            peer.ask("hold", limits=limits, raises=raises)

    # ---- between cells

    def do(self, what: str, targets: Sequence[int] | None = None, **more: Any) -> dict[int, Message]:
        """A task (`worker_loop`) on idle workers, all at a time; ClusterConfigError with the first refusal."""
        chosen = [self.peers[worker] for worker in targets] if targets is not None else self.idle()
        number = time.monotonic_ns()
        for peer in chosen:
            peer.links["cells"].send({"do": what, "id": number, **more})
        answers: dict[int, Message] = {}
        for peer in chosen:
            while peer.number not in answers:
                answer = peer.links["cells"].next(TASK_SECONDS)
                if answer is None:
                    raise peer.silent(TASK_SECONDS)
                if answer.get("id") == number:
                    answers[peer.number] = answer
        for worker, answer in answers.items():
            if answer["status"] == "error":
                raise ClusterConfigError(answer["message"] or f"{self.peers[worker].name}: {answer['type']}")
        return answers


class CellPrinter(Printer):
    """Shows lines as a run's text view does, and displays, HTML and figures among them, in a notebook."""

    def __init__(self, folder: RunFolder):
        super().__init__(folder, MOST)
        self._folder = folder
        self._displays: dict[str, dict[str, Any]] = {}
        self.skip()

    def begin(self) -> None:
        super().begin()
        self._displays.clear()

    def skip(self) -> None:
        """Leaves out what was printed so far: TensorFlow's notes at the start, cells that ran again."""
        for log in self.logs:
            log.skip()

    def shown(self, member: int, line: str) -> str:
        found = _DISPLAYED.fullmatch(line)
        if found is None:
            return "" if _ABORTS.match(line) else super().shown(member, line)
        path = self._folder.each[member].path / f"display-{found[1]}.json"
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return line  # the learner's own
        path.unlink()
        key = _RICH + hashlib.sha256(data).hexdigest()
        self._displays[key] = json.loads(data)
        return key

    def print_line(self, label: str, line: str) -> None:
        if line not in self._displays:
            super().print_line(label, line)
            return
        item = self._displays[line]
        data = item["data"]
        if environment.live_mode() == "text" or shell() is None:
            text = data.get("text/plain", ", ".join(data))  # a table begins below its label
            print(f"{label}\n{text}" if "\n" in text else f"{label} {text}")
            return
        print(label, flush=True)
        sys.modules["IPython"].display.display(data, metadata=item["metadata"], raw=True)


def line_in_words(line: int, text: str, place: str = "") -> str:
    """A line with its text. place: another cell, or a file.

    >>> line_in_words(3, "x = 1"), line_in_words(3, "x = 1", "cell 7"), line_in_words(3, "", "train.py")
    ('line 3 (`x = 1`)', 'line 3 of cell 7 (`x = 1`)', 'a line that is not known')
    """
    if not text:
        return _("a line that is not known")
    words = N_("line {line} of {place} (`{text}`)") if place else N_("line {line} (`{text}`)")
    return _(words, line=line, text=text, place=place)
