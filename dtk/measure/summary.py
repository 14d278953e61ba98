"""A run in a few lines: how it ended, what was trained, and a row for each worker."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from dtk.digits import counted, three
from dtk.events import Failed, Finished, of_kind
from dtk.measure.scaling import by_step, global_loss
from dtk.measure.timing import step_times, throughput

if TYPE_CHECKING:
    from dtk.tables import Kept

__all__ = ["facts", "lines", "rows"]


def facts(run: Kept) -> dict[str, Any]:
    """What was trained: steps, epochs, global_batch, first_loss, last_loss, examples_per_second, first_step_seconds.

    examples_per_second is that of `dtk.measure.timing.throughput`, of all workers together. A value is None where the
    records don't have it.
    """
    table = run.records
    steps = by_step(table, "examples")
    if steps.empty:
        names = ("epochs", "global_batch", "first_loss", "last_loss", "examples_per_second", "first_step_seconds")
        return {"steps": 0, **dict.fromkeys(names)}
    losses = global_loss(by_step(table, "loss").to_numpy(), steps.to_numpy())
    return {
        "steps": len(steps),
        "epochs": int(table.epoch.max()),
        "global_batch": int(steps.sum(axis=1).max()),
        "first_loss": _finite(losses[0]),
        "last_loss": _finite(losses[-1]),
        "examples_per_second": _finite(throughput(table).total),
        "first_step_seconds": _finite(by_step(table, "ended").iloc[0].max()),
    }


def rows(run: Kept) -> list[dict[str, Any]]:
    """Of each worker, and of the evaluator: name, steps, examples, step_seconds (median, the first left out), ended.

    ended: "finished", "failed", or "stopped" where it was ended because of another, or by whoever waited for it.
    """
    found = []
    assert run.folder is not None
    times = step_times(run.records)
    for member in run.folder.members:
        own, events = times[times.worker == member.worker], member.events
        ended = "finished" if of_kind(events, Finished) else "failed" if of_kind(events, Failed) else "stopped"
        found.append(
            {
                "name": member.name,
                "steps": len(own),
                "examples": int(own.examples.sum()),
                "step_seconds": _finite(own.seconds.iloc[1:].median()),
                "ended": ended,
            }
        )
    return found


def lines(run: Kept) -> list[str]:
    """The facts and the rows as text, a table of fixed width."""
    said, table = facts(run), rows(run)
    words = ["no step was recorded: a program's fits are with --record, a loop with dtk.record_step"]
    if said["steps"]:
        words = [f"{counted(said['steps'], 'step')} in {counted(said['epochs'], 'epoch')}"]
        words += [
            f"global batch {said['global_batch']:,}",
            f"loss {_loss(said['first_loss'])} to {_loss(said['last_loss'])}",
        ]
        if said["examples_per_second"] is not None:
            words.append(f"{three(said['examples_per_second'])} examples/s")
        words.append(f"first step after {said['first_step_seconds']:.1f} s")
    heads = ("", "steps", "examples", "a step", "ended")
    cells = [
        (row["name"], f"{row['steps']:,}", f"{row['examples']:,}", _milliseconds(row), row["ended"]) for row in table
    ]
    widths = [max(len(each[k]) for each in [heads, *cells]) for k in range(len(heads))]
    laid = [
        "  ".join([each[0].ljust(widths[0]), *(each[k].rjust(widths[k]) for k in (1, 2, 3)), each[4]]).rstrip()
        for each in [heads, *cells]
    ]
    return [", ".join(words), *laid]


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _loss(value: float | None) -> str:
    return "nan" if value is None else f"{value:.4g}"


def _milliseconds(row: dict[str, Any]) -> str:
    return "" if row["step_seconds"] is None else f"{three(1000 * row['step_seconds'])} ms"
