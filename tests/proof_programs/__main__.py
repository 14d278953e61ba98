"""`python -m proof_programs [--steps 12] [NAME ...]`, in `tests/`: trains programs, and compares final weights.

Of each: how far the cluster's weights end from one device's and from those of two replicas in one process, divided by
how far training moved them. What is not as the program's facts say is marked. A look at the programs, before any proof.
"""

from __future__ import annotations

import argparse
import sys

import dtk
from proof_programs import ONE_DEVICE, REFUSED, REPLICAS, UNKNOWN, Program, right, wrong

AGREES = 2e-4  # of what training changed, after some steps: rounding has grown by then


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", help="parts of names; all without any")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--kind", choices=["right", "wrong"])
    parser.add_argument("--behind", default="", help="dropout, norm, or both: beside each mistake")
    parser.add_argument("--without", action="store_true", help="wrong programs without their mistakes")
    asked = parser.parse_args()
    odd = []
    for kind, programs in (("right", right()), ("wrong", wrong())):
        for name, program in programs.items():
            named = not asked.names or any(each in f"{kind}: {name}" for each in asked.names)
            if not named or asked.kind not in (None, kind):
                continue
            given = program.given(steps=asked.steps, **_switches(program, asked))
            if kind == "wrong" and asked.without:
                kind_now, given = "right", given.without_mistake()
            else:
                kind_now = kind
            said, fine = _tried(given, kind_now, asked.workers, bool(_switches(program, asked).get("dropout")))
            odd += [] if fine else [f"{kind}: {name}"]
            print(f"{'  ' if fine else '! '}{kind}: {name}: {said}", flush=True)
    print(f"not as they should be: {odd or 'none'}")
    return 1 if odd else 0


def _switches(program: Program, asked) -> dict:
    more = {"at": min(program.kwargs["at"], max(1, asked.steps // 2))} if "at" in program.kwargs else {}
    if program.behind and asked.behind in ("dropout", "both"):
        more["dropout"] = 0.4
    if program.behind and asked.behind in ("norm", "both"):
        more["batch_norm"] = True
    return more


def _tried(program: Program, kind: str, workers: int, random: bool) -> tuple[str, bool]:
    """What came out, and whether it is what the program's facts say."""
    try:
        run = dtk.run(program.train, workers=workers, kwargs=program.kwargs, timeout=120)
        single = dtk.baseline(program.train, kwargs=program.kwargs, workers=workers, timeout=120)
        together = None
        if not program.alone:
            together = dtk.run(program.train, workers=1, replicas=workers, kwargs=program.kwargs, timeout=120)
    except dtk.errors.DtkError as error:
        return f"{type(error).__name__}: {str(error)[:1500]}", program.expected == REFUSED
    one, several = _apart(run, single), _apart(run, together) if together else 0.0
    said = f"one device {one:.1e}, replicas {several:.1e}"
    if one != one or "bfloat16" in str(program.kwargs) or "float16" in str(program.kwargs):
        return f"{said}, not judged", True
    if kind == "right":
        wanted = {ONE_DEVICE: (True, True), REPLICAS: (False, True), UNKNOWN: (False, False)}[program.expected]
    else:
        wanted = (program.shared, program.replicas or program.shared)
    wanted = (wanted[0] and not random, wanted[1])
    return said, wanted == (one < AGREES, several < AGREES)


def _apart(run: dtk.Run, other: dtk.Run) -> float:
    """The distance of final weights, divided by the run's way from the initial ones; NaN without records."""
    import numpy as np

    initial, final = (run.folder.worker(0).weights(which) for which in ("initial", "final"))
    if not final or not final.arrays or len(other.weights) != len(final.arrays):
        return float("nan")
    begin = initial.arrays if initial else [np.zeros_like(each) for each in final.arrays]

    def flat(arrays):
        return np.concatenate([np.ravel(each).astype("float64") for each in arrays])

    mine = flat(final.arrays)
    return float(np.linalg.norm(mine - flat(other.weights)) / max(np.linalg.norm(mine - flat(begin)), 1e-12))


if __name__ == "__main__":
    sys.exit(main())
