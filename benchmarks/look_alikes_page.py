"""The trials of `look_alikes.py` as tables, and as the page docs/explanation/look_alikes.md. No dtk is needed here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

__all__ = ["page", "rate", "tables"]

KINDS = ("right", "missed", "wrong name", "false alarm")
_LONGEST = 230  # characters of an example of what was said


class Named(Protocol):
    """A row of the matrix. healthy: silence is right."""

    what: str
    group: str

    @property
    def healthy(self) -> bool: ...


Line = Mapping[str, Any]


def rate(count: int, trials: int) -> str:
    """In per cent; for none of the trials the rate that 95 % of such counts exclude, by the rule of three.

    >>> rate(0, 30), rate(3, 30), rate(0, 2), rate(0, 0)
    ('0 (below 10 %)', '3 (10 %)', '0', '')
    """
    if not trials:
        return ""
    if count:
        return f"{count} ({100 * count / trials:.2g} %)"
    return f"0 (below {300 / trials:.2g} %)" if trials > 3 else "0"


def tables(rows: Sequence[Named], lines: Sequence[Line]) -> str:
    """A table for each group of rows that has trials."""
    parts = []
    for group in dict.fromkeys(row.group for row in rows):
        of_group = [row for row in rows if row.group == group and any(line["what"] == row.what for line in lines)]
        if of_group:
            parts += [f"## {group[0].upper()}{group[1:]}", _table(of_group, lines)]
    return "\n\n".join(parts)


def _table(rows: Sequence[Named], lines: Sequence[Line]) -> str:
    found = ["| what happens | right | missed | wrong name | false alarm | what was said, for example |"]
    found.append("|---" * 6 + "|")
    for row in rows:
        mine = [line for line in lines if line["what"] == row.what]
        counts = Counter(line["kind"] for line in mine)
        cells = [f"{counts['right']} of {len(mine)}", *(str(counts[kind] or "") for kind in KINDS[1:])]
        found.append(f"| {row.what} | {' | '.join(cells)} | {_cell(_example(mine))} |")
    return "\n".join(found)


def _example(lines: Sequence[Line]) -> str:
    """What was said in the first trial that was right, or in the first of all."""
    of_right = [line for line in lines if line["kind"] == "right"] or list(lines)
    return str(min(of_right, key=lambda line: line["seed"])["said"])


def _cell(words: str) -> str:
    flat = " ".join(words.split()).replace("|", "/")
    short = flat if len(flat) <= _LONGEST else f"{flat[: _LONGEST - 1]}…"
    return short.replace("<", "&lt;")  # Markdown takes <lambda> for a tag


def totals(rows: Sequence[Named], lines: Sequence[Line]) -> str:
    """What came of all trials, a line for what happened and one for silence."""
    healthy = {row.what for row in rows if row.healthy}
    found = ["| | trials | wrong names | false alarms | missed |", "|---|---|---|---|---|"]
    for name, mine in (
        ("something is wrong", [line for line in lines if line["what"] not in healthy]),
        ("nothing is", [line for line in lines if line["what"] in healthy]),
    ):
        counts = Counter(line["kind"] for line in mine)
        cells = [rate(counts[kind], len(mine)) for kind in ("wrong name", "false alarm", "missed")]
        cells = [*cells[:1], "", cells[2]] if name.startswith("something") else [*cells[:2], ""]
        found.append(f"| {name} | {len(mine)} | {' | '.join(cells)} |")
    return "\n".join(found)


def exceptions(lines: Sequence[Line]) -> str:
    """Each trial that was not right, with its seed."""
    odd = [line for line in lines if line["kind"] != "right"]
    said = [f"- {line['kind']}: {line['what']}, seed {line['seed']}: {_cell(line['said'])}" for line in odd]
    return "\n".join(sorted(said)) or "None."


def page(rows: Sequence[Named], lines: Sequence[Line]) -> str:
    least = min(Counter(line["what"] for line in lines).values(), default=0)
    states = len({line.get("version") for line in lines})
    return f"""# Every fault told from its look-alikes

`benchmarks/look_alikes.py` writes this page. Each trial is a real run on two workers; which of them it happens to, and
at which step, is drawn by the row's name and a seed, and `--only ROW --replay SEED` plays it again. A run ends after
5 s without progress, and what is healthy takes 8 s (rows with other numbers say so), so that a trial takes seconds;
the machine had two cores and other work. A row has {least} or more, {len(lines)} in all, made by
{states} states of dtk's source: after a fix, the rows that it was for began anew.

Right: what is said is so. Missed: no name, or no cause. Wrong name: another worker, or another cause. False alarm: a
healthy run was ended, or warned. Where several mistakes leave the same traces, `dtk.diagnose` has a list of suspects:
right, if the true one is in it. Of 0 in N trials, the rate in brackets is the upper bound by the rule of three, 3/N.

{totals(rows, lines)}

{tables(rows, lines)}

## Each trial that was not right

{exceptions(lines)}

## What these trials found

- A machine that slept for 5 to 10 s and more (TensorFlow's heartbeats): the network, or a frozen worker, was blamed.
  Now the sleep is named. TensorFlow ends such a training itself; `restarts=1` starts it again.
- A baseline of TensorFlow 2.15 that shuffles by the same seed in another order: "give shuffle a seed". Now a sentence
  says that the versions differ. Without a shuffle all three sets of versions gave the same numbers.
- A SIGKILL by somebody while the system killed another process for want of memory was taken for that. Now the sentence
  says "if it was that one": which process it was, the kernel's log alone knows.
- NaN on one replica and NaN on all had one sentence; the optimizer's count of steps, and the weights that each worker
  began with, were not compared.
- The wrong name above came while five other programs had the two cores (a load of 9 to 16): worker 1 was to be slow in
  one step, and the figure's title said that it waits for worker 0 in nine of ten steps, which the title takes from the
  records. What made worker 0 slow nobody had noted; it is counted as wrong.
- The false alarm is the line after 5 s of silence, not the end of a run: worker 1 computed for two minutes, and for 5 s
  of them the system counted less than a twentieth of a core for it. Other programs ran; why so little was left to it is
  not known, and a second trial with that seed was right.

## Elsewhere

Who is named where a worker fails, in six ways at five moments, 100 trials: [fault tolerance](fault_tolerance.md). Each
program of the gallery with each mistake that fits: [gallery](gallery.md). How each mistake is recognised, and what
correct runs were drawn at random to find false alarms: [diagnosis](diagnosis.md).
"""
