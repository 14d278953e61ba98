"""The nouns: a run's directory, what is written there, and how it is read.

A run's directory (mode 0700):

    function.pkl  sources.json     what the workers are to do
    job.json             how it was asked for: workers, seed and the rest, for the workers and for `Run.again`
    versions.json        of Python, TensorFlow and Keras
    evaluator.pkl        what the evaluator is to do, where asked for
    proof.json           what `dtk.verify` found last
    attempt.json         of the last start of the cluster: {"number", "failed", "began", "ended"}
    attempt-N/           what an earlier start left that failed: its workers' corners and its attempt.json
    port-taken-N-M/      what a start left that found a port taken, the Nth time in the Mth attempt
    states.json          what each worker was doing, and who waited for whom, where the run failed or stalled
    .dataset/            which data the first worker to ask found, so that all of its machine use the same
    worker-0/
        log.txt          everything the process wrote to file descriptors 1 and 2
        records.jsonl    one line a (step, replica); see COLUMNS
        marks.jsonl      one line a wait for data or an all-reduce: [kind, begin, end, bytes]
        events.jsonl     one line a change of state: {"at": seconds, "state": ..., more}; `events` has the kinds
        variables.jsonl  units.jsonl  states.bin    the state of each step (`dtk.worker.states`)
        losses.jsonl     where a step has several losses: [replica, step, {name: share}]
        weights-final.npz    of the first model that was recorded, at the end; weights-final-1.npz of the second, …
        result.pkl  error.json   what the function returned; {"type", "message", "traceback"} where it raised
        follow.jsonl     of a follower: a line for each step that it made again (`dtk.worker.follow`)
        stacks.txt       Python stacks, written when dtk asks for them (a stall, a time-out)
        tmp/             the worker's TMPDIR
        saves.txt        where the function saved checkpoints by itself
        elsewhere/       where the callbacks of a worker that is not the chief write
    evaluator/           the same of the evaluator, where there is one; its events are evaluations, not steps

Each line goes out in one `write`, so a process that is killed loses none that it has written.
All times are seconds on one clock, which starts at the call of `dtk.run`; every process of a machine
reads it alike (`time.monotonic`).
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pickle
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dtk.language import N_, _
from dtk.records.events import Event, Tail, content, parse, write
from dtk.records.tables import Record as Record
from dtk.records.tables import counting, evaluations, joined, named, rows

if TYPE_CHECKING:
    import numpy as np
    import pandas

# What a worker's corner has that grows by whole lines; all else is put there whole. The events last: they say that the
# rest is there.
GROWING = (
    "log.txt",
    "stacks.txt",
    "records.jsonl",
    "marks.jsonl",
    "losses.jsonl",
    "states.bin",
    "variables.jsonl",
    "units.jsonl",
    "events.jsonl",
)


# ECMA-48 control sequences (colors, cursor), operating-system commands (window titles), and single escapes.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_ERASED = re.compile(r"[^\x08]\x08")
_END = 1 << 15  # bytes of a log's end


class Weights(NamedTuple):
    """Weights at one moment: names and arrays in the models' own order."""

    names: list[str]
    arrays: list[np.ndarray]


@dataclass(frozen=True)
class WorkerFolder:
    """One worker's corner of a run's directory, or the evaluator's, whose number follows the last worker's."""

    path: Path
    worker: int

    @property
    def name(self) -> str:
        """What people call it: "worker 0", "evaluator"."""
        return self.path.name.replace("-", " ")

    @property
    def log(self) -> str:
        """Everything the worker wrote to its file descriptors 1 and 2; "" before it started."""
        with contextlib.suppress(FileNotFoundError):
            return (self.path / "log.txt").read_text(encoding="utf-8", errors="backslashreplace")
        return ""

    def log_end(self, lines: int = _END) -> list[str]:
        """The last lines of the log, `clean`, of which not more than its last 32 kB are read: it may have any size."""
        end = content(self.path / "log.txt", -_END).rstrip()
        return [clean(line) for line in end.split(b"\n")[-lines:]] if end else []

    @property
    def records(self) -> list[Record]:
        return self.records_of(Tail(self.path / "records.jsonl").lines())

    def records_of(self, lines: list[bytes]) -> list[Record]:
        """Parses lines of records.jsonl, as the Journal wrote them: all at once, which takes a third of the time."""
        return [Record(self.worker, *row) for row in json.loads(b"[" + b",".join(lines) + b"]")]

    @property
    def events(self) -> list[Event]:
        return [parse(line) for line in Tail(self.path / "events.jsonl").lines()]

    def lines(self, name: str) -> list[Any]:
        """The objects of one of its files of lines: "marks", "losses", "variables", "follow"; or []."""
        return [json.loads(line) for line in Tail(self.path / f"{name}.jsonl").lines()]

    @property
    def units(self) -> list[Any]:
        """The lines of units.jsonl; where no step was recorded, each call that trains is one."""
        found = self.lines("units")
        if not Tail(self.path / "records.jsonl").read():
            found = [{**line, "step": line["unit"]} if "unit" in line else line for line in found]
        return found

    @property
    def error(self) -> dict[str, Any] | None:
        """{"type", "message", "traceback", "by_a_peer"} of what the function raised, or None.

        by_a_peer: whether the error itself says that another worker is the reason (`dtk.ring`'s does).
        """
        return json.loads(content(self.path / "error.json") or "null")

    def save_error(self, kind: str, message: str, traceback: str, by_a_peer: bool = False) -> None:
        text = json.dumps({"type": kind, "message": message, "traceback": traceback, "by_a_peer": by_a_peer})
        write_whole(self.path / "error.json", text.encode())

    @property
    def result(self) -> Any:
        """What the function returned. A file of this user's own worker, in a directory of mode 0700."""
        return pickle.loads((self.path / "result.pkl").read_bytes())

    def save_result(self, pickled: bytes) -> None:
        write_whole(self.path / "result.pkl", pickled)

    @property
    def weights(self) -> Weights | None:
        """What all recorded models hold at the end; None where nothing recorded them."""
        import numpy as np

        # In the models' order: the first has no number, and a longer name has a larger one.
        files = sorted(self.path.glob("weights-final*.npz"), key=lambda file: (len(file.name), file.name))
        found = Weights([], [])
        for file in files:
            with np.load(file, allow_pickle=False) as archive:
                names = [str(name) for name in archive["names"]]
                found.names.extend(names)
                found.arrays.extend(archive[f"{i:05d}"] for i in range(len(names)))
        return found if files else None

    def save_weights(self, names: Sequence[str], arrays: Sequence[Any], part: int = 0) -> None:
        """Writes the weights of one model, the part-th of the run; bfloat16, which NumPy's format lacks, as float32."""
        import numpy as np

        plain = [a if a.dtype.kind in "biufc" else a.astype(np.float32) for a in map(np.asarray, arrays)]
        named: dict[str, Any] = {f"{i:05d}": a for i, a in enumerate(plain)}
        target = self.path / f"weights-final{f'-{part}' if part else ''}.npz"
        unfinished = target.with_suffix(".part")
        with unfinished.open("wb") as file:
            np.savez(file, names=np.array(list(names), dtype=np.str_), **named)
        os.replace(unfinished, target)


class Journal:
    """Appends records and events to a worker's files, each in one `write`."""

    def __init__(self, folder: WorkerFolder):
        folder.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._files = {
            name: os.open(folder.path / f"{name}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            for name in ("records", "events", "marks", "losses")
        }
        self.silent = False

    @contextlib.contextmanager
    def muted(self) -> Iterator[None]:
        """No mark is appended within: a step that is repeated only to be compared is no step of the run."""
        self.silent = True
        try:
            yield
        finally:
            self.silent = False

    def record(self, records: Iterable[Record]) -> None:
        """Appends rows; their `worker` is this folder's and is not written again."""
        _append(self._files["records"], "".join(json.dumps(record[1:]) + "\n" for record in records))

    def losses(self, rows: Iterable[tuple[int, int, dict[str, float]]]) -> None:
        """Appends (replica, step, each loss's share by its name) where a step has several."""
        _append(self._files["losses"], "".join(json.dumps(row) + "\n" for row in rows))

    def event(self, event: Event) -> None:
        """Appends an event (`events`)."""
        _append(self._files["events"], write(event))

    def mark(self, kind: str, began: float, ended: float, size: int) -> None:
        """Appends a wait for data ("take") or an all-reduce ("reduce", of `size` bytes); see `dtk.compat.marks`.

        Times to the microsecond, which is what TensorFlow's clock tells: JSON's writer and reader of all digits take
        twice as long. Rounded down, so that what ended in a step does not end after it.
        """
        if self.silent:
            return
        begin = "NaN" if began != began else f"{began - 5e-7:.6f}"
        _append(self._files["marks"], f'["{kind}", {begin}, {ended - 5e-7:.6f}, {size}]\n')

    def close(self) -> None:
        for descriptor in self._files.values():
            os.close(descriptor)


@dataclass(frozen=True)
class RunFolder:
    """A run's directory, readable at any time: during the run, after it, after a failure."""

    path: Path
    workers: int
    has_evaluator: bool = False

    @classmethod
    def of(cls, path: Path) -> RunFolder:
        """The directory of a run, as job.json tells; OSError, ValueError, LookupError or TypeError where none does."""
        return cls(path, cls(path, workers=0).job["workers"], (path / "evaluator.pkl").exists())

    @property
    def job(self) -> dict[str, Any]:
        """How the run was asked for, by the names of `dtk.launch.launch.RunJob`."""
        return json.loads((self.path / "job.json").read_text())

    def worker(self, index: int) -> WorkerFolder:
        return WorkerFolder(self.path / f"worker-{index}", index)

    @property
    def each(self) -> list[WorkerFolder]:
        return [self.worker(index) for index in range(self.workers)]

    @property
    def evaluator(self) -> WorkerFolder:
        """The evaluator's corner; nothing is there in a run without one."""
        return WorkerFolder(self.path / "evaluator", self.workers)

    @property
    def members(self) -> list[WorkerFolder]:
        """All that take part: the workers by index, then the evaluator where there is one."""
        return [*self.each, self.evaluator] if self.has_evaluator else self.each

    @property
    def logs(self) -> list[str]:
        return [folder.log for folder in self.each]

    @property
    def attempt(self) -> int:
        """The number of the present start of the cluster, from 1: `dtk.run(..., restarts=...)` may make several."""
        return 1 + len(self.earlier)

    @property
    def earlier(self) -> list[RunFolder]:
        """What the starts of the cluster left that failed and were followed by another, in their order."""
        numbers = sorted(int(path.name[8:]) for path in self.path.glob("attempt-*") if path.name[8:].isdigit())
        return [RunFolder(self.path / f"attempt-{n}", self.workers, self.has_evaluator) for n in numbers]

    @property
    def attempts(self) -> list[Attempt]:
        """Each start of the cluster that has come to an end, in their order."""
        files = [(folder.path / "attempt.json", folder) for folder in (*self.earlier, self)]
        return [Attempt(**json.loads(file.read_text()), folder=folder) for file, folder in files if file.exists()]

    def save_attempt(self, number: int, failed: str | None, began: float, ended: float) -> None:
        """Writes down how a start of the cluster ended; failed: what is said of it, None where all went well."""
        text = json.dumps({"number": number, "failed": failed, "began": began, "ended": ended})
        write_whole(self.path / "attempt.json", text.encode())

    @property
    def records(self) -> pandas.DataFrame:
        """The rows that count, of all attempts (`tables.counting`); the column's times go on through them."""
        return counting([folder.own_records for folder in (*self.earlier, self)])

    @property
    def own_records(self) -> pandas.DataFrame:
        """All rows of the last start of the cluster; a column "loss.NAME" each where steps have several losses."""
        tables = [rows(worker.worker, Tail(worker.path / "records.jsonl").read()) for worker in self.each]
        return joined([named(table, worker.lines("losses")) for table, worker in zip(tables, self.each, strict=True)])

    @property
    def evaluations(self) -> pandas.DataFrame:
        """One row an evaluation: the evaluator's, or, without one, the chief's; see the function `evaluations`."""
        members = [f.evaluator if f.has_evaluator else f.worker(0) for f in (*self.earlier, self)]
        return evaluations(event for member in members for event in member.events)


@dataclass(frozen=True)
class Attempt:
    """One start of the cluster: `run.attempts`. A run without restarts has one.

    number: from 1. failed: what is said of its failure, None where it ended well. began, ended: in seconds since the
    call of `dtk.run`. seconds: from this start to its end. records: all that it recorded, with the columns of
    `run.records`, also the steps that a later attempt has trained anew. steps: the first and the last step that it
    recorded, None without any.
    """

    number: int
    failed: str | None
    began: float
    ended: float
    folder: RunFolder

    @property
    def seconds(self) -> float:
        return self.ended - self.began

    @property
    def records(self) -> pandas.DataFrame:
        return self.folder.own_records

    @property
    def steps(self) -> tuple[int, int] | None:
        table = self.records
        return (int(table.step.min()), int(table.step.max())) if len(table) else None

    @property
    def logs(self) -> list[str]:
        """Everything each worker printed in this attempt, by worker."""
        return self.folder.logs

    def __repr__(self) -> str:
        # No seconds: this text stands in stored outputs of notebooks.
        first, last = self.steps or (0, 0)
        words = N_("<Attempt {number}: steps {first} to {last}, {end}>")
        words = words if last else N_("<Attempt {number}: no step, {end}>")
        return _(words, number=self.number, first=first, last=last, end=self.failed or _("finished"))


def write_whole(path: Path, data: bytes) -> None:
    """Writes a file whole or not at all."""
    part = path.with_suffix(".part")
    part.write_bytes(data)
    os.replace(part, path)


def _append(descriptor: int, text: str) -> None:
    """Whole lines or none: a disk that fills up in the middle of one must not leave half of it to the reader."""
    data, before = text.encode(), os.fstat(descriptor).st_size
    if os.write(descriptor, data) < len(data):
        os.ftruncate(descriptor, before)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def clean(line: bytes) -> str:
    """A line of a log as a terminal would leave it: escapes gone, carriage returns and backspaces carried out.

    >>> clean(b"\\x1b[1m 1/2\\x1b[0m loss 3\\r\\x1b[1m 2/2\\x1b[0m loss 1")
    ' 2/2 loss 1'
    >>> clean(b"10%\\x08\\x08\\x08100%")
    '100%'
    """
    text = _ESCAPES.sub("", line.decode("utf-8", "backslashreplace").rstrip("\r"))
    while (erased := _ERASED.sub("", text)) != text:
        text = erased
    if "\r" in text:
        # A progress bar writes a whole line anew each time; what an empty rest would leave is the state before.
        text = next((part for part in reversed(text.split("\r")) if part.strip()), "")
    return _CONTROLS.sub("", text)
