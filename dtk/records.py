"""The nouns: a run's directory, what is written there, and how it is read.

A run's directory (mode 0700):

    function.pkl  sources.json     what the workers are to do
    evaluator.pkl        what the evaluator is to do, where there is one
    attempt-N/           what an attempt left that found a port taken
    dataset-NAME.txt     which data the first worker to ask found, so that all use the same
    worker-0/
        log.txt          everything the process wrote to file descriptors 1 and 2
        records.jsonl    one line a (step, replica); see COLUMNS
        events.jsonl     one line a change of state: {"at": seconds, "state": ..., more}
        weights-initial.npz  weights-final.npz
        result.pkl       what the function returned
        error.json       {"type", "message", "traceback"} where it raised
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

import json
import os
import pickle
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    import pandas

__all__ = ["COLUMNS", "Journal", "Record", "RunFolder", "Tail", "Weights", "WorkerFolder", "evaluations", "frame"]


class Record(NamedTuple):
    """What one replica did in one step.

    step and epoch count from 1; replica counts over the whole cluster; loss is the replica's share of the
    global loss (the shares of a step add up to it); examples is what the replica saw in this step; started
    and ended are seconds since the call of `dtk.run`. data is a fingerprint of these examples, whatever their
    order (`dtk.recording.fingerprint`): the replicas of a step saw what one device saw where theirs add up to
    its; NaN where unknown.
    """

    worker: int
    replica: int
    step: int
    epoch: int
    loss: float
    examples: int
    started: float
    ended: float
    data: float = float("nan")


COLUMNS = Record._fields


def frame(records: Iterable[Sequence[Any]]) -> pandas.DataFrame:
    """A DataFrame with COLUMNS, one row a (worker, replica, step), sorted by step, then replica."""
    import pandas

    table = pandas.DataFrame.from_records([Record(*row) for row in records], columns=list(COLUMNS))
    whole = dict.fromkeys(("worker", "replica", "step", "epoch", "examples"), "int64")
    table = table.astype({**whole, **dict.fromkeys(("loss", "started", "ended", "data"), "float64")})
    return table.sort_values(["step", "replica"], kind="stable", ignore_index=True)


def evaluations(events: Iterable[Mapping[str, Any]]) -> pandas.DataFrame:
    """A DataFrame with one row an evaluation, in the order of time: step, started, ended, and a column a metric.

    events: a journal's; those of the state "evaluation" count (`dtk.recording.evaluation`). step: of the weights
    that were evaluated, <NA> where unknown. started and ended are seconds since the call of `dtk.run`.
    """
    import pandas

    said = [event for event in events if event["state"] == "evaluation"]
    rows = [{"step": e["step"], "started": e["started"], "ended": e["at"], **e["metrics"]} for e in said]
    names = dict.fromkeys(name for row in rows for name in row)
    table = pandas.DataFrame(rows, columns=list(dict.fromkeys(["step", "started", "ended", *names])))
    return table.astype({"step": "Int64", "started": "float64", "ended": "float64"})


@dataclass(frozen=True)
class Weights:
    """A model's weights at one moment: names and arrays in the model's own order."""

    names: list[str]
    arrays: list[np.ndarray]


class Tail:
    """Reads a growing file from where it left off; bytes of an unfinished last line wait for the next read."""

    def __init__(self, path: Path):
        self.path = path
        self._offset = 0

    def lines(self, limit: int | None = None) -> list[bytes]:
        """Complete lines written since the last call; `limit` bounds the bytes read at once."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                data = file.read(-1 if limit is None else limit)
        except FileNotFoundError:
            return []
        end = data.rfind(b"\n") + 1
        if end == 0 and limit is not None and len(data) == limit:
            end = limit  # a line longer than the bound is handed out in pieces rather than waited for
        self._offset += end
        return data[:end].splitlines()


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
        return _text(self.path / "log.txt")

    @property
    def records(self) -> list[Record]:
        return [self.record(line) for line in Tail(self.path / "records.jsonl").lines()]

    def record(self, line: bytes) -> Record:
        """Parses one line of records.jsonl, as the Journal wrote it."""
        return Record(self.worker, *json.loads(line))

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in Tail(self.path / "events.jsonl").lines()]

    @property
    def error(self) -> dict[str, str] | None:
        """{"type", "message", "traceback"} of what the function raised, or None."""
        text = _text(self.path / "error.json")
        return json.loads(text) if text else None

    def save_error(self, kind: str, message: str, traceback: str) -> None:
        text = json.dumps({"type": kind, "message": message, "traceback": traceback})
        _replace(self.path / "error.json", text.encode())

    @property
    def result(self) -> Any:
        """What the function returned. A file of this user's own worker, in a directory of mode 0700."""
        return pickle.loads((self.path / "result.pkl").read_bytes())

    def save_result(self, pickled: bytes) -> None:
        _replace(self.path / "result.pkl", pickled)

    def weights(self, which: str) -> Weights | None:
        """Weights at "initial" (before the first step) or "final"; None where nothing recorded them."""
        import numpy as np

        file = self.path / f"weights-{which}.npz"
        if not file.exists():
            return None
        with np.load(file, allow_pickle=False) as archive:
            names = [str(name) for name in archive["names"]]
            return Weights(names, [archive[f"{i:05d}"] for i in range(len(names))])

    def save_weights(self, which: str, names: Sequence[str], arrays: Sequence[np.ndarray]) -> None:
        """Writes weights whole or not at all; types that NumPy's format lacks (bfloat16) become float32."""
        import numpy as np

        plain = [a if a.dtype.kind in "biufc" else a.astype(np.float32) for a in map(np.asarray, arrays)]
        named: dict[str, Any] = {f"{i:05d}": a for i, a in enumerate(plain)}
        part = self.path / f"weights-{which}.part.npz"
        np.savez(part, names=np.array(list(names), dtype=np.str_), **named)
        os.replace(part, self.path / f"weights-{which}.npz")


class Journal:
    """A worker's pen: appends records and events to its folder, each in one `write`."""

    def __init__(self, folder: WorkerFolder):
        self.folder = folder
        folder.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._records = os.open(folder.path / "records.jsonl", flags, 0o600)
        self._events = os.open(folder.path / "events.jsonl", flags, 0o600)

    def record(self, records: Iterable[Record]) -> None:
        """Appends rows; their `worker` is this folder's and is not written again."""
        text = "".join(json.dumps(record[1:]) + "\n" for record in records)
        os.write(self._records, text.encode())

    def event(self, at: float, state: str, **facts: Any) -> None:
        """Appends a change of state at `at` seconds, with facts that JSON can hold."""
        os.write(self._events, (json.dumps({"at": at, "state": state, **facts}) + "\n").encode())

    def close(self) -> None:
        os.close(self._records)
        os.close(self._events)


@dataclass(frozen=True)
class RunFolder:
    """A run's directory, readable at any time: during the run, after it, after a failure."""

    path: Path
    workers: int
    has_evaluator: bool = False

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
    def records(self) -> pandas.DataFrame:
        return frame(record for folder in self.each for record in folder.records)

    @property
    def evaluations(self) -> pandas.DataFrame:
        """One row an evaluation: the evaluator's, or, without one, the chief's; see the function `evaluations`."""
        return evaluations((self.evaluator if self.has_evaluator else self.worker(0)).events)


def _replace(path: Path, data: bytes) -> None:
    """Writes a file whole or not at all."""
    part = path.with_suffix(".part")
    part.write_bytes(data)
    os.replace(part, path)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="backslashreplace")
    except FileNotFoundError:
        return ""
