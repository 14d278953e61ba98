"""Follows the programs of `tests/proof_programs` step by step: which are proved, which differ, from which step on.

    python benchmarks/proof_steps.py [--steps 60] [--out out/proof_steps.jsonl] [NAME ...]

A line for each program: its verdict, the one that is right, seconds of the run and of its follower. Interrupted, it
goes on where it was. Without names: all that one device is to agree with, and all wrong ones that one device does not
share. Exits with 1 where a right program is not proved or a wrong one is.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import proof_programs

import dtk
from dtk.proof.steps import judged


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--out", type=Path, default=Path("out/proof_steps.jsonl"))
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    done = {}
    if options.out.exists():
        done = {line["name"]: line for line in map(json.loads, options.out.read_text().splitlines())}
    programs = due(options.names)
    for name, (program, proved) in programs.items():
        if name not in done or options.names:
            done[name] = {"name": name, "right": proved, **followed(program, options.steps)}
            with options.out.open("a") as file:
                file.write(json.dumps(done[name]) + "\n")
        print(said(done[name]), flush=True)
    wrong = [name for name in programs if done[name].get("proved") is not programs[name][1]]
    print(f"{len(programs) - len(wrong)} of {len(programs)} as they should be; not: {', '.join(wrong) or 'none'}")
    return bool(wrong)


def due(names: list[str]) -> dict[str, tuple[proof_programs.Program, bool]]:
    """Programs by name, each with whether one device should agree at every step."""
    right = {n: (p, True) for n, p in proof_programs.right().items() if p.expected == proof_programs.ONE_DEVICE}
    wrong = {n: (p, False) for n, p in proof_programs.wrong().items() if not p.shared}
    found = right | wrong
    return {name: found[name] for name in names} if names else found


def followed(program: proof_programs.Program, steps: int) -> dict[str, Any]:
    kwargs = {**program.kwargs, "steps": steps}
    try:
        began = time.monotonic()
        run = dtk.run(program.train, kwargs=kwargs)
        ran = time.monotonic() - began
        baseline = dtk.baseline(program.train, kwargs=kwargs)
        began = time.monotonic()
        _, lines = run.followed(baseline)
        took = time.monotonic() - began
    except dtk.DtkError as error:
        return {"error": str(error)[:300]}
    found = judged(run.folder, lines)
    facts = {"units": found.units, "differs": found.step, "undecided": found.undecided, "complete": found.complete}
    places = {
        "variables": [part.name for part in found.parts[:4]],
        "first": program.first(steps),
        "seconds": [round(ran, 1), round(took, 1)],
    }
    return {"proved": found.proved, **facts, **places, "end": lines[-1] if lines else None}


def said(line: dict[str, Any]) -> str:
    if "error" in line:
        return f"{line['name']}: {line['error']}"
    verdict = "proved" if line["proved"] else f"differs at {line['differs']}" if line["differs"] else "open"
    due = "" if line["right"] else f" (due: {line['first']})"
    return f"{line['name']}: {verdict}{due}, {line['units']} steps, undecided {line['undecided']}, {line['seconds']} s"


if __name__ == "__main__":
    raise SystemExit(main())
