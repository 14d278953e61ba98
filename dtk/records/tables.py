"""Rows in, DataFrames out: what a run recorded and what its evaluator evaluated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, get_type_hints

from dtk.records.events import Evaluation, Event, of_kind

if TYPE_CHECKING:
    import pandas

    from dtk.records import RunFolder

NAMED = "loss."  # begins the column of one of several losses of a step


class Record(NamedTuple):
    """What one replica did in one step.

    step and epoch count from 1; replica counts over the whole cluster; loss is the replica's share of the
    global loss (the shares of a step add up to it); examples is what the replica saw in this step; started
    and ended are seconds since the call of `dtk.run`. data is a fingerprint of these examples, whatever their
    order (`dtk.compat.fingerprint`): the replicas of a step saw what one device saw where theirs add up to its; or NaN.
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
_TYPES = get_type_hints(Record)  # int and float: the columns' 64 bits


class Recorded:
    """What a run left behind, readable however it ended: the base of `Run`, and of an error of one that had started.

    Attributes:
        folder: the run's directory, as dtk reads it (`dtk.records.RunFolder`); None in an error that has none.
    """

    folder: RunFolder

    @cached_property
    def records(self) -> pandas.DataFrame:
        """One row for each (worker, replica, step); replicas are counted over all workers, steps and epochs from 1.

        Further columns: epoch, loss (the replica's share of the global loss; `loss.NAME` for each of several),
        examples, started, ended (s since the call of `dtk.run`, one clock for all), data (the examples' fingerprint).
        """
        return self.folder.records if self.folder is not None else frame([])

    @cached_property
    def evaluations(self) -> pandas.DataFrame:
        """One row for each evaluation of the evaluator: step, started, ended (s), then a column per metric."""
        return self.folder.evaluations if self.folder is not None else evaluations([])

    @property
    def logs(self) -> list[str]:
        """Everything each worker printed, C++ output included, by worker; after restarts, in the last attempt."""
        return self.folder.logs if self.folder is not None else []

    @property
    def evaluator_log(self) -> str:
        """Everything the evaluator printed; "" in a run without one."""
        return self.folder.evaluator.log if self.folder is not None else ""


class RunLike(Recorded):
    """What rooms below that of `dtk.Run` need of one."""

    mode: str
    replicas: int
    seed: int | None


def frame(records: Iterable[Sequence[Any]]) -> pandas.DataFrame:
    """A DataFrame with COLUMNS, one row a (worker, replica, step), sorted by step, then replica."""
    import pandas

    table = pandas.DataFrame.from_records([Record(*row) for row in records], columns=list(COLUMNS))
    return joined([table.astype(_TYPES)])


def joined(tables: Sequence[pandas.DataFrame]) -> pandas.DataFrame:
    """The rows of all workers, sorted by step, then replica."""
    import pandas

    return pandas.concat(tables).sort_values(["step", "replica"], kind="stable", ignore_index=True)


def rows(worker: int, lines: bytes) -> pandas.DataFrame:
    """One worker's rows from its file's lines, JSON lists of numbers, read by NumPy at once and to the last bit."""
    import numpy as np
    import pandas

    names = COLUMNS[1:]
    numbers = np.fromstring(lines.translate(None, b"[] ").replace(b"\n", b",").decode(), sep=",")
    table = pandas.DataFrame(numbers.reshape(-1, len(names)), columns=list(names))
    table.insert(0, "worker", worker)
    return table.astype(_TYPES)


def named(table: pandas.DataFrame, losses: Sequence[tuple[int, int, Mapping[str, float]]]) -> pandas.DataFrame:
    """The rows of one worker with a column "loss.NAME" for each of a step's several losses; NaN where there is none.

    losses: (replica, step, shares by name).
    """
    import pandas

    if not losses:
        return table
    columns = [{"replica": r, "step": s, **{NAMED + name: v for name, v in each.items()}} for r, s, each in losses]
    return table.merge(pandas.DataFrame(columns), on=["replica", "step"], how="left")


def evaluations(events: Iterable[Event]) -> pandas.DataFrame:
    """A DataFrame with one row per evaluation, in the order of time: step, started, ended, and a column per metric.

    events: a journal's, of which the evaluations count. step: of the weights that were evaluated, <NA> where unknown.
    started and ended are seconds since the call of `dtk.run`.
    """
    import pandas

    rows = [{"step": e.step, "started": e.started, "ended": e.at, **e.metrics} for e in of_kind(events, Evaluation)]
    table = pandas.DataFrame(rows, columns=None if rows else ["step", "started", "ended"])
    return table.astype({"step": "Int64", "started": "float64", "ended": "float64"})


def counting(tables: Sequence[pandas.DataFrame]) -> pandas.DataFrame:
    """The rows that count of all attempts of a run, given in their order: the training as if nothing had happened.

    An attempt's steps count up to the one from which a later attempt went on, which trained them anew.

    >>> lost = frame([(0, 0, step, 1, 0.5, 64, step, step + 0.5) for step in (1, 2, 3)])
    >>> anew = frame([(0, 0, step, 1, 0.4, 64, step + 9, step + 9.5) for step in (2, 3, 4)])
    >>> counting([lost, anew])[["step", "loss"]].to_numpy().tolist()
    [[1.0, 0.5], [2.0, 0.4], [3.0, 0.4], [4.0, 0.4]]
    """
    kept: list[pandas.DataFrame] = []
    first = float("inf")
    for table in reversed(tables):
        kept.insert(0, table[table.step < first])
        first = min(first, float(table.step.min()) if len(table) else first)
    full = [table for table in kept if len(table)]
    return joined(full) if full else tables[-1]
