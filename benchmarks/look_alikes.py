"""Is a fault told from its look-alikes, and is a healthy run left alone? Rows: what happens; columns: what dtk says.

    python benchmarks/look_alikes.py --out out/look_alikes.jsonl [--trials 30] [--minutes 9] [--docs PAGE.md]

Each trial trains on two workers, one of which, drawn, does something odd at a step that is drawn. A line a trial is
appended to --out; started again, it goes on, rows with the fewest trials first, and makes a trial anew only where its
line was taken out. `--only ROW --replay SEED` plays one again. Exits with 1 where a name is wrong, or a healthy run was
ended or warned. Times are short, so that most trials take less than 8 s: a run is ended after 5 s without progress,
not 60. --full adds rows with the 60 s, and minutes of what is healthy.
"""

from __future__ import annotations

import argparse
import collections
import hashlib
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import look_alikes_page
from look_alikes_pairs import PAIRS, VERSION, Pair, other_version
from look_alikes_runs import FULL, ROWS, Row, groups

import dtk

Line = dict[str, Any]


def lines_of(out: Path) -> list[Line]:
    """The trials so far; a line that was cut off is none."""
    found = []
    for text in out.read_text(encoding="utf-8").splitlines() if out.exists() else []:
        try:
            found.append(json.loads(text))
        except ValueError:
            print(f"look_alikes: a line of {out} is not whole: {text[:60]}")
    return found


def next_trial(rows: Sequence[Row | Pair], lines: Sequence[Line], first: int, trials: int) -> tuple[Any, int] | None:
    """The row with the fewest trials, the first of several, and its lowest seed from `first` on that is not there.

    None where every row has its trials.
    """
    done = collections.defaultdict(set)
    for line in lines:
        done[line["what"]].add(line["seed"])
    row = min(rows, key=lambda row: len(done[row.what]), default=None)
    if row is None or len(done[row.what]) >= trials:
        return None
    return row, next(seed for seed in range(first, first + trials + 1) if seed not in done[row.what])


def version() -> str:
    """Of dtk, as it was when a trial was made."""
    files = sorted(Path(dtk.__file__).parent.rglob("*.py"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]


def measure(row: Row | Pair, seed: int) -> Line:
    began = time.monotonic()
    found = row.trial(seed)
    seconds = round(time.monotonic() - began, 1)
    line = {"what": row.what, "seed": seed, "kind": found.kind, "said": found.said, **found.drawn, "seconds": seconds}
    print(*(f"{name}={line[name]!r}" for name in ("what", "seed", "kind", "seconds", "said")), flush=True)
    return line


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=30, help="of each row, in all")
    parser.add_argument("--seed", type=int, default=0, help="the first")
    parser.add_argument("--only", nargs="*", help="rows whose name, or heading, holds one of these words")
    parser.add_argument("--replay", type=int, metavar="SEED", help="this seed of each row; --out is left alone")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="no trial begins later")
    parser.add_argument("--full", action="store_true", help="the rows that take minutes as well")
    parser.add_argument("--other", nargs="*", default=[], metavar="PYTHON", help="interpreters with another TensorFlow")
    parser.add_argument("--out", type=Path, default=Path("out/look_alikes.jsonl"))
    parser.add_argument("--docs", type=Path, help="write this Markdown page as well")
    return parser.parse_args()


def main() -> int:
    options, began = arguments(), time.monotonic()
    os.environ.update(DTK_LIVE="off", MPLBACKEND="agg")
    lines, now = lines_of(options.out), version()
    every = [*ROWS, *PAIRS, *map(other_version, options.other), *(FULL if options.full else ())]
    with groups() as granted:
        rows = [row for row in every if row.needs is None or row.needs in granted]
        rows = [
            row for row in rows if not options.only or any(word in f"{row.what} {row.group}" for word in options.only)
        ]
        if options.replay is not None:
            return int(any(measure(row, options.replay)["kind"] != "right" for row in rows))
        options.out.parent.mkdir(parents=True, exist_ok=True)
        while time.monotonic() - began < 60 * options.minutes:
            chosen = next_trial(rows, lines, options.seed, options.trials)
            if chosen is None:
                break
            lines.append({**measure(*chosen), "version": now})
            with options.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(lines[-1]) + "\n")
    versions = sorted({line["what"] for line in lines if line["what"].startswith(VERSION)})
    known = [*ROWS, *PAIRS, *(Pair(what, ("none",)) for what in versions), *FULL]
    print(look_alikes_page.tables(known, lines))
    if options.docs:
        options.docs.write_text(look_alikes_page.page(known, lines), encoding="utf-8")
    return int(any(line["kind"] in ("wrong name", "false alarm") for line in lines))


if __name__ == "__main__":
    sys.exit(main())
