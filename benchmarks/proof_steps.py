"""Follows the programs of `tests/proof_programs` step by step: which are proved, which differ, from which step on.

    python benchmarks/proof_steps.py [--steps 60] [--workers 2] [--out out/proof_steps.jsonl] [NAME ...]

A line for each program: its verdict, the ones that are right, seconds of the run and of its followers, the diagnosis.
Interrupted, it goes on where it was. Without names: all. Exits with 1 where a right program is not proved, or a wrong
one is that one device does not share.
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
from dtk.proof.diagnose import diagnose
from dtk.proof.proof import kept


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("out/proof_steps.jsonl"))
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    done = {}
    if options.out.exists():
        done = {line["name"]: line for line in map(json.loads, options.out.read_text().splitlines())}
    programs = due(options.names)
    for name, (program, right) in programs.items():
        if name not in done or options.names:
            done[name] = {"name": name, "right": right, **followed(program, options.steps, options.workers)}
            with options.out.open("a") as file:
                file.write(json.dumps(done[name]) + "\n")
        print(said(done[name]), flush=True)
    wrong = [name for name, (_, right) in programs.items() if done[name].get("verdict") not in right]
    print(f"{len(programs) - len(wrong)} of {len(programs)} as they should be; not: {', '.join(wrong) or 'none'}")
    return bool(wrong)


def due(names: list[str]) -> dict[str, tuple[proof_programs.Program, list[str]]]:
    """Programs by name, each with the verdicts that are right."""
    found = {}
    for name, program in proof_programs.right().items():
        if program.expected != proof_programs.REFUSED:
            found[name] = program, [program.expected]
    for name, program in proof_programs.wrong().items():
        found[name] = program, ["one device", "replicas"] if program.shared else ["failed"]
    return {name: found[name] for name in names} if names else found


def followed(program: proof_programs.Program, steps: int, workers: int) -> dict[str, Any]:
    kwargs = {**program.kwargs, "steps": steps}
    try:
        began = time.monotonic()
        run = dtk.run(program.train, workers=workers, kwargs=kwargs)
        ran = time.monotonic() - began
        began = time.monotonic()
        try:
            proof, named, key = dtk.verify(run), "", ""
        except dtk.VerificationError:
            diagnosis = diagnose(run)
            proof, named, key = kept(run.dir), str(diagnosis), diagnosis.mistake
        took = time.monotonic() - began
    except dtk.DtkError as error:
        return {"error": str(error)[:300]}
    assert proof is not None
    table = proof.table
    largest = {int(n): float(rows.its_apart.max()) for n, rows in table.groupby("replicas")}
    facts = {"verdict": proof.verdict, "differs": next((s.step for s in proof.followers.values() if s.step), None)}
    places = {"truth": program.truth, "first": program.first(steps), "seconds": [round(ran, 1), round(took, 1)]}
    return {**facts, "largest": largest, **places, "failed": proof.failed, "key": key, "named": named}


def said(line: dict[str, Any]) -> str:
    if "error" in line:
        return f"{line['name']}: {line['error']}"
    step = f" at {line['differs']} (acts at {line['first']})" if line["verdict"] == "failed" else ""
    return f"{line['name']}: {line['verdict']}{step} {line['failed'][:200]}"


if __name__ == "__main__":
    sys.exit(main())
