"""The trials of `look_alikes.py` as lists, and as the page docs/evidence/look_alikes.md. No dtk is needed here."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

KINDS = ("right", "missed", "wrong name", "false alarm")
_LONGEST = 100  # characters of an example of what was said
_USUAL = "30 of 30"
_SILENT = "no worker made progress for 5 s; "
_MISTAKE = re.compile(r"^((?:not )?[a-z]+(?: order)?): .*", re.DOTALL)  # of what `dtk.diagnose` says, the name alone


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
    """A list for each group of rows that has trials."""
    parts = []
    for group in dict.fromkeys(row.group for row in rows):
        of_group = [row for row in rows if row.group == group and any(line["what"] == row.what for line in lines)]
        if of_group:
            parts += [f"## {group[0].upper()}{group[1:]}", "\n".join(_item(row.what, lines) for row in of_group)]
    return "\n\n".join(parts)


def _item(what: str, lines: Sequence[Line]) -> str:
    mine = [line for line in lines if line["what"] == what]
    counts = Counter(line["kind"] for line in mine)
    others = [f"{kind} {counts[kind]}" for kind in KINDS[1:] if counts[kind]]
    each = [f"{counts['right']} of {len(mine)}", *others]
    said = _cell(_MISTAKE.sub(r"\1", _example(mine).removeprefix(_SILENT)))
    quoted = "" if said == "nothing" else f": *{said}*"
    shown = "" if each == [_USUAL] else f" ({', '.join(each)})"
    return f"- {what}{shown}{quoted}"


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
at which step, is drawn by the row's name and a seed, and `--only ROW --replay SEED` plays it again. A run ends after 5
s without progress, and what is healthy takes 8 s (rows with other numbers say so). The machine had two cores and other
work. A row has {least} or more, {len(lines)} in all, made by {states} states of dtk's source: after a fix, the rows
that it was for began anew.

Each line has an example of what was said, cut off; without one, nothing was said, which is right. It was true in
{_USUAL} trials, unless the line has other numbers. Missed: no name, or no cause. Wrong name: another worker, or another
cause. False alarm: a healthy run was ended, or warned. If several mistakes leave the same traces, `dtk.diagnose` has a
list, which must have the true one. Of 0 in N trials, the rate in brackets is at most 3/N.

{totals(rows, lines)}

{tables(rows, lines)}

## Each trial that was not right

{exceptions(lines)}
"""
