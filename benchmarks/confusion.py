"""Every program of the gallery with every mistake that fits into it: what is true, what `verify` and `diagnose` say.

    python benchmarks/confusion.py --out out/confusion.json --docs docs/evidence/gallery.md

trains each pair in a cluster of two workers and on one device. Rows are kept in --out as they come: started again, it
goes on, and measures anew only what a change of dtk or of the gallery has made old. Exits with 1 where a wrong run
passed or a cause was named that is not there.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import hashlib
import io
import json
import os
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tqdm

import dtk

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from gallery import Program, all_programs  # noqa: E402
from weighing import weighed  # noqa: E402

Row = dict[str, Any]
ATOL = 1e-4  # what verify allows a weight
ALONE_TOO = ("clipping",)  # slips that change what one device computes: with one replica the others do nothing
# What a row comes to, the worst first.
KINDS = {
    "false pass": "verify passed, and the cluster's weights are not the right ones",
    "false cause": "a cause was named that is not there",
    "failed": "the run did not come to its end",
    "unknown": "no cause was named",
    "candidate": "no cause was named, the true one is among the candidates",
    "its own": "the cause was named that the program has without the slip",
    "no effect": "verify passed, and the cluster's weights are the right ones: the slip does nothing in this program",
    "true": "the true cause was named, or nothing where all is right",
}


def measure(program: Program, slip: str | None) -> Row:
    """One row: the program with this slip in a cluster, against the same on one device."""
    given: dict[str, Any] = {"kwargs": {"slip": slip}}
    start = {"workers": 2, **program.start}
    row: Row = {"program": program.name, "slip": slip, "right": program.right, "passed": False, "also": [], "why": ""}
    try:
        run = dtk.run(program.train, **given, **start)
        baseline = baseline_of(program.name, slip if slip in ALONE_TOO else None)
    except dtk.DtkError as error:
        return {**row, "said": "failed", "why": f"{type(error).__name__}: {error}", "kind": "failed"}
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(dtk.VerificationError):
        dtk.verify(run, baseline)
        row["passed"] = True
    row["steps"] = int(run.records.step.max()) if len(run.records) else 0
    found = dtk.diagnose(run, baseline)
    row |= {"said": found.mistake, "also": list(found.also), "why": str(found)}
    kind = classify(row)
    if kind == "false pass":
        apart = effect(program, slip)
        row["why"] = f"largest difference of a weight from the right program's on one device: {apart:.2g}"
        kind = "no effect" if apart <= ATOL else kind
    return {**row, "kind": kind}


@functools.cache
def baseline_of(name: str, slip: str | None) -> dtk.Run:
    program = all_programs()[name]
    return dtk.baseline(program.train, kwargs={"slip": slip}, **_alone(program))


def classify(row: Mapping[str, Any]) -> str:
    """A key of KINDS; every pass in spite of a slip is a "false pass" here, and judged by `effect` afterwards.

    >>> right = {"slip": None, "right": "pass", "passed": True, "said": "none", "also": []}
    >>> classify(right), classify({**right, "slip": "order"}), classify({**right, "passed": False, "said": "order"})
    ('true', 'false pass', 'false cause')
    """
    own = None if row["right"] == "pass" else row["right"]
    if row["passed"] and row["slip"]:
        return "false pass"
    truth = row["slip"] or ("unknown" if own == "not decidable" else own) or "none"
    if row["said"] == truth:
        return "true"
    if row["said"] == own:
        return "its own"
    if row["said"] == "unknown" and truth != "none":
        return "candidate" if truth in row["also"] else "unknown"
    return "false pass" if row["passed"] and own else "false cause"


def effect(program: Program, slip: str | None) -> float:
    """By how much a variable differs between the cluster with the slip and the right program on one device.

    Both without recording: dtk's records are not asked about themselves. Infinite where the variables are others.
    """
    cluster = weighed(dtk.run, program.name, slip, **{"workers": 2, **program.start})
    (theirs,) = weighed(dtk.baseline, program.name, **_alone(program))
    apart = 0.0
    for ours in cluster:
        if [a.shape for a in ours] != [a.shape for a in theirs]:
            return float("inf")
        pairs = [(a, b) for a, b in zip(ours, theirs, strict=True) if a.dtype.kind == "f"]
        apart = max([apart, *(float(np.max(np.abs(a - b), initial=0)) for a, b in pairs)])
    return apart


def _alone(program: Program) -> dict[str, Any]:
    """What of a program's start goes to its baseline."""
    return {key: program.start[key] for key in ("keras", "seed") if key in program.start}


def version() -> str:
    """Of everything that an answer rests on."""
    files = [*sorted((ROOT / "dtk").rglob("*.py")), *sorted((ROOT / "tests" / "gallery").glob("*.py")), Path(__file__)]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]


def kept(out: Path, now: str) -> list[Row]:
    """The rows of an earlier start that still hold."""
    rows = json.loads(out.read_text(encoding="utf-8")) if out.exists() else []
    return [row for row in rows if row["version"] == now]


def save(rows: list[Row], out: Path) -> None:
    """Whole or not at all: an interrupted night goes on from it."""
    out.parent.mkdir(parents=True, exist_ok=True)
    part = out.with_suffix(".part")
    part.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    os.replace(part, out)


# --- what is printed


def programs_table(programs: Mapping[str, Program]) -> str:
    """The programs of each kind; a right answer other than "pass" stands behind the name."""
    kinds: dict[str, list[str]] = {}
    for name, program in programs.items():
        answer = "" if program.right == "pass" else f" [{program.right}]"
        kinds.setdefault(program.kind, []).append(f"`{name}`{answer}")
    return "\n".join(f"- {kind}: {', '.join(names)}" for kind, names in kinds.items())


def matrix(rows: list[Row]) -> str:
    """How many rows have each truth, and what is said where it is another."""
    counts = Counter((row["slip"] or (row["right"], "none")[row["right"] == "pass"], heading(row)) for row in rows)
    lines = []
    for truth in sorted({truth for truth, _ in counts}):
        said = {one: count for (of, one), count in sorted(counts.items()) if of == truth}
        others = ", ".join(f"{one} {count}" for one, count in said.items() if one != truth)
        lines.append(f"{truth} {sum(said.values())}{f' [{others}]' if others else ''}")
    return f"What is true, in how many rows, and in brackets what was said instead: {', '.join(lines)}."


def heading(row: Row) -> str:
    return {"false pass": "FALSE PASS", "no effect": "(no effect)", "candidate": "(candidate)"}.get(
        row["kind"], row["said"]
    )


def totals(rows: list[Row]) -> str:
    counts = Counter(row["kind"] for row in rows)
    shown = [kind for kind in KINDS if counts[kind] or kind.startswith("false")]
    lines = [f"- {kind}: {counts[kind]}. {KINDS[kind][0].upper()}{KINDS[kind][1:]}." for kind in shown]
    return "\n".join([f"Of {len(rows)} rows:", "", *lines])


def exceptions(rows: list[Row]) -> str:
    """A line for each row that is neither right nor named rightly."""
    told = [row for row in rows if row["kind"] != "true"]
    lines = [f"- {row['kind']}: `{row['program']}`, {row['slip'] or 'no slip'}: {_short(row['why'])}" for row in told]
    return "\n".join(sorted(lines)) or "None."


def _short(words: str, most: int = 110) -> str:
    line = " ".join(words.split())
    return line if len(line) <= most else line[: most - 1] + "…"


def document(programs: Mapping[str, Program], rows: list[Row]) -> str:
    slips = ", ".join(sorted({slip for program in programs.values() for slip in program.slips}))
    return f"""# The gallery: programs as people write them, and what dtk says of them

`benchmarks/confusion.py` writes this page. Each program of `tests/gallery/` is written after a tutorial or example that
its file names, small and on made-up data. `tests/test_gallery.py` trains each on two workers and on one device. Its
right answer is "pass", or the mistake in brackets, which is true of it as it stands. A slip is a mistake that its
author could have made: {slips}.

{programs_table(programs)}

## Each program with each slip that fits it

{matrix(rows)}

What is not decidable is rightly called unknown. {totals(rows)}

## Rows that were not named correctly, and slips without effect

{exceptions(rows)}
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/confusion.json"))
    parser.add_argument("--docs", type=Path, help="write this Markdown page as well")
    parser.add_argument("--programs", nargs="*", help="these alone")
    parser.add_argument("--slips", nargs="*", help="these alone; none: the programs as they are")
    parser.add_argument("--steps", type=int, help="so many in each epoch, not as many as the program's data has")
    options = parser.parse_args()
    if options.docs and (options.programs is not None or options.slips is not None or options.steps):
        parser.error("--docs writes of all programs and slips as they are; leave out the other options")
    os.environ["DTK_LIVE"] = "off"
    if options.steps:
        os.environ["GALLERY_STEPS"] = str(options.steps)
    programs, now = all_programs(), version()
    rows = kept(options.out, now)
    done = {(row["program"], row["slip"]) for row in rows}
    wanted = [
        (program, slip)
        for program in programs.values()
        for slip in (None, *program.slips)
        if (options.programs is None or program.name in options.programs)
        and (options.slips is None or (slip or "none") in options.slips)
        and (program.name, slip) not in done
    ]
    for program, slip in tqdm.tqdm(wanted, disable=None):
        rows.append({**measure(program, slip), "version": now})
        save(rows, options.out)
    print(matrix(rows), totals(rows), exceptions(rows), sep="\n\n")
    if options.docs:
        options.docs.write_text(document(programs, rows), encoding="utf-8")
    return int(any(row["kind"] in ("false pass", "false cause", "failed") for row in rows))


if __name__ == "__main__":
    sys.exit(main())
