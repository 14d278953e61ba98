"""A run in a few lines: how it ended, what was trained, and a row for each worker."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from dtk.digits import three
from dtk.language import N_, _, columns, ngettext
from dtk.records.events import Failed, Finished, of_kind
from dtk.scaling.shares import by_step, global_loss
from dtk.scaling.timing import step_times, throughput

if TYPE_CHECKING:
    from dtk.records.tables import Kept

__all__ = ["facts", "lines", "rows"]


def facts(run: Kept) -> dict[str, Any]:
    """What was trained: steps, epochs, global_batch, first_loss, last_loss, examples_per_second, first_step_seconds.

    examples_per_second is that of `dtk.scaling.timing.throughput`, of all workers together. A value is None where the
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
        ended = N_("failed") if of_kind(events, Failed) else N_("stopped")
        found.append(
            {
                "name": member.name,
                "steps": len(own),
                "examples": int(own.examples.sum()),
                "step_seconds": _finite(own.seconds.iloc[1:].median()),
                "ended": N_("finished") if of_kind(events, Finished) else ended,
            }
        )
    return found


def lines(run: Kept) -> list[str]:
    """The facts and the rows as text, a table of fixed width."""
    heads = ("", _("steps"), _("examples"), _("a step"), _("ended"))
    table = [heads]
    for row in rows(run):
        counts = f"{row['steps']:,}", f"{row['examples']:,}"
        table.append((row["name"], *counts, _milliseconds(row), _(row["ended"])))
    widths = [max(map(columns, column)) for column in zip(*table, strict=True)]
    laid = [
        "  ".join(
            _filled(word, width, k in (1, 2, 3)) for k, (word, width) in enumerate(zip(each, widths, strict=True))
        )
        for each in table
    ]
    return [_in_a_line(facts(run)), *(line.rstrip() for line in laid)]


def _in_a_line(said: dict[str, Any]) -> str:
    if not said["steps"]:
        return _("no step was recorded: a program's fits are with --record, a loop with dtk.record_step")
    line = N_("{steps} in {epochs}, global batch {batch:,}, loss {first} to {last}, first step after {seconds:.1f} s")
    rate = said["examples_per_second"]
    if rate is not None:
        line = N_(
            "{steps} in {epochs}, global batch {batch:,}, loss {first} to {last}, {rate} examples/s, first step after "
            "{seconds:.1f} s"
        )
    return _(
        line,
        steps=ngettext("{n} step", "{n} steps", said["steps"]),
        epochs=ngettext("{n} epoch", "{n} epochs", said["epochs"]),
        batch=said["global_batch"],
        first=_loss(said["first_loss"]),
        last=_loss(said["last_loss"]),
        rate="" if rate is None else three(rate),
        seconds=said["first_step_seconds"],
    )


def _filled(word: str, width: int, right: bool) -> str:
    free = " " * (width - columns(word))
    return free + word if right else word + free


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _loss(value: float | None) -> str:
    return "nan" if value is None else f"{value:.4g}"


def _milliseconds(row: dict[str, Any]) -> str:
    return "" if row["step_seconds"] is None else f"{three(1000 * row['step_seconds'])} ms"
