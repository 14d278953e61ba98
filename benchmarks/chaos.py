"""Chaos by seed: real kernels whose runs fail, stall, are interrupted, start again, and end in every way.

    python benchmarks/chaos.py [--sequences 200] [--seed 0] [--only SEED]

A sequence is drawn from its seed: one kernel or two at once, warm or cold, each with three runs of two or three workers
that train, with or without TensorFlow; what happens to each run; how the kernel ends. Held each time: every run ends
with its result or a named culprit, which is the right one; the next run works; the kernel's processes, descriptors,
threads, ports and memory do not grow; 3 s after its end no process and no file is left but its runs' directories. A
line is printed for each sequence: `--only SEED` plays it again. Exits 1 where anything is wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import kernel_kills
import psutil
from chaos_kernel import STEPS
from culprits import WORDS

ANSWER = 240.0  # s for a run, at most
SOON = 3.0  # s after which an interrupted cell is back
GROWTH = 30.0  # MB that a sequence may add to a kernel's memory
FAILS = tuple(how for how in WORDS if how != "memory")
STALLS = ("sleeps", "SIGSTOP")
HAPPENS = (*FAILS, *STALLS, "interrupt", "interrupt", "parent killed", "nothing", "nothing")
ENDS = ("closed", "closed", "SIGTERM", "SIGKILL", "SIGKILL in a run")
KILLED = ("SIGKILL", "the process that starts workers")


def drawn(seed: int) -> list[dict[str, Any]]:
    """The kernels of a sequence: how each starts its workers, its runs, its end."""
    draw = random.Random(seed)
    kernels = []
    for _ in range(draw.choice((1, 1, 2))):
        start = draw.choice(("warm", "cold"))
        orders = [order(draw, start) for _ in range(3)]
        kernels.append({"start": start, "runs": orders, "end": draw.choice(ENDS), "after": draw.uniform(0.0, 4.0)})
    return kernels


def order(draw: random.Random, start: str) -> dict[str, Any]:
    """One run. after: seconds until what comes from outside comes."""
    what, workers = draw.choice(HAPPENS), draw.choice((2, 2, 3))
    train = "keras" if what in STALLS else draw.choice(("keras", "plain"))
    return {
        "what": what,
        "train": train,
        "workers": workers,
        "victim": draw.randrange(workers),
        "step": draw.randrange(1, STEPS + 1),
        "restarts": draw.choice((0, 0, 1)) if what in FAILS + STALLS else 0,
        "again": draw.choice((True, False)),
        "after": draw.uniform(0.0, 0.8 if (train, start) == ("plain", "warm") else 4.0),
    }


class Kernel:
    """A program that does runs one after the other, as a notebook's kernel does; its processes carry a mark."""

    def __init__(self, plan: dict[str, Any], mark: str, place: str):
        self.plan, self.mark = plan, mark
        path = os.pathsep.join([str(kernel_kills.ROOT), str(kernel_kills.ROOT / "benchmarks")])
        env = {**os.environ, kernel_kills.TRIAL: mark, "TMPDIR": place, "PYTHONPATH": path, "DTK_LIVE": "off"}
        self.log = Path(place) / f"kernel-{mark}.txt"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", "import chaos_kernel; chaos_kernel.main()", plan["start"]],
                env=env,
                cwd=place,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )

    def ask(self, line: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(line) + "\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], ANSWER)[0]:
            raise TimeoutError(f"no answer for {ANSWER:g} s")
        line = self.process.stdout.readline()
        if not line:
            raise TimeoutError(f"the kernel is gone: {' '.join(self.log.read_text().splitlines()[-3:])}")
        return dict(json.loads(line))

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):  # what was not sent any more
                pipe.close()

    def parents(self) -> list[psutil.Process]:
        """What starts workers, below the guard that this process started."""
        return [below for guard in psutil.Process(self.process.pid).children() for below in guard.children()]

    def harm(self, what: str) -> None:
        """What comes to a run from outside of it."""
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            if what == "interrupt":
                os.kill(self.process.pid, signal.SIGINT)
            for process in self.parents() if what == "parent killed" else ():
                process.kill()


def play(kernel: Kernel) -> tuple[list[str], list[str]]:
    """Has a kernel do its runs, and one more after each; what came of each in words, and what is wrong."""
    told, wrong = [], []
    before = last = kernel.answer()
    for one in kernel.plan["runs"]:
        kernel.ask(one)
        sent = time.monotonic() + one["after"]
        if one["what"] in ("interrupt", "parent killed"):
            time.sleep(one["after"])
            kernel.harm(one["what"])
        came = kernel.answer()
        found = problem(one, came, came["ended"] - sent)
        told.append(f"{one['train']}, {one['what']}: {came['outcome']}" + f" ({found})" * bool(found))
        wrong += [f"{one['train']}, {one['what']}: {found}"] if found else []
        kernel.ask({"what": "another"})
        last = kernel.answer()
        wrong += [f"the run after {one['what']}: {last['said']}"] if last["said"] else []
        wrong += [f"{last['ports']} ports are left after {one['what']}"] if last["ports"] else []
    grown = any(last[what] > before[what] for what in ("processes", "descriptors", "threads"))
    if grown or last["memory"] > before["memory"] + GROWTH:
        wrong.append(f"grown from {before} to {last}")
    return told, [f"{kernel.plan['start']}: {words}" for words in wrong]


def problem(one: dict[str, Any], came: dict[str, Any], late: float) -> str:
    """What is wrong with how a run ended; "" where nothing is. late: seconds from an interrupt to the end."""
    what, outcome, said = one["what"], came["outcome"], came.get("said", "")
    well = outcome == "Run" and came["results"] == [[k, STEPS] for k in range(one["workers"])]
    again = one["restarts"] and not one["again"]
    name = f"worker {one['victim']} "
    if what in FAILS:
        right = f"{name}{WORDS[what]}"
        if again:
            return "" if well and came["failed"] == [right, None] else f"{outcome}: {came.get('failed', said)}"
        return "" if outcome == "WorkerFailed" and said == right else f"{outcome}: {said}"
    if what in STALLS:
        if again:
            return "" if well and name in came["failed"][0] else f"{outcome}: {came.get('failed', said)}"
        if what == "SIGSTOP" and outcome == "WorkerFailed":  # TensorFlow gave it up before the run's own limit
            return "" if said.startswith(f"{name}is stopped by a signal") else f"{outcome}: {said}"
        return "" if outcome == "WorkerStalled" and came["waits"] == [one["victim"]] else f"{outcome}: {said}"
    if what == "interrupt" and outcome in ("RunInterrupted", "KeyboardInterrupt"):
        return "" if late < SOON else f"back after {late:.1f} s"
    if what == "parent killed" and any(words in said for words in KILLED):
        return ""
    return "" if well else f"{outcome}: {said}"


def end(kernel: Kernel) -> tuple[str, list[str]]:
    """Ends a kernel in the way that was drawn; what is left after 3 s."""
    how, process = kernel.plan["end"], kernel.process
    if how == "SIGKILL in a run":
        kernel.ask({**kernel.plan["runs"][0], "what": "nothing"})
        time.sleep(kernel.plan["after"])
    known = kernel_kills.carriers(kernel.mark) - {process.pid}
    if how == "closed":
        assert process.stdin is not None
        process.stdin.close()
    else:
        process.send_signal(signal.SIGTERM if how == "SIGTERM" else signal.SIGKILL)
    process.wait(30)
    left, seconds = kernel_kills.count_left(kernel.mark, known)
    return f"{how}, all gone after {seconds:.1f} s", [f"{left} processes are left"] if left else []


def one_kernel(kernel: Kernel) -> tuple[str, list[str]]:
    """The whole life of a kernel."""
    try:
        told, wrong = play(kernel)
    except (TimeoutError, OSError) as error:
        told, wrong = [], [str(error)]
    try:
        how, left = end(kernel)
    except (OSError, subprocess.TimeoutExpired) as error:
        how, left = "", [str(error)]
    finally:
        kernel.close()
    return f"{kernel.plan['start']}: {'; '.join([*told, how])}", wrong + left


def sequence(seed: int) -> tuple[str, list[str]]:
    """What happened in the sequence, and what was wrong."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        kernels = [Kernel(plan, uuid.uuid4().hex, place) for plan in drawn(seed)]
        with ThreadPoolExecutor(len(kernels)) as pool:
            outcomes = list(pool.map(one_kernel, kernels))
        left = files_left(Path(place))
    wrong = [words for _, found in outcomes for words in found]
    return " | ".join(told for told, _ in outcomes), wrong + left


def files_left(place: Path) -> list[str]:
    """Files that no kernel needs any more, besides those of the runs that are kept."""
    kept = {place / f"dtk-{os.getuid()}" / "runs"}
    found = [path for path in place.rglob("*") if not path.is_dir() and not kept & {*path.parents}]
    names = sorted(str(path.relative_to(place)) for path in found if not path.name.startswith("kernel-"))
    return [f"files are left: {', '.join(names)}"] if names else []


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sequences", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int)
    options = parser.parse_args()
    seeds = range(options.seed, options.seed + options.sequences) if options.only is None else [options.only]
    failed: dict[int, list[str]] = {}
    counts: Counter[str] = Counter()
    for seed in seeds:
        began = time.monotonic()
        told, wrong = sequence(seed)
        failed.update({seed: wrong} if wrong else {})
        counts.update(one["what"] for plan in drawn(seed) for one in plan["runs"])
        verdict = f"WRONG: {'; '.join(wrong)}" if wrong else "right"
        print(f"seed {seed}, {time.monotonic() - began:.0f} s: {told}: {verdict}", flush=True)
    runs = ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))
    print(f"\n{len(seeds)} sequences, {sum(counts.values())} runs ({runs}); wrong: {len(failed)}")
    for seed, wrong in failed.items():
        print(f"python benchmarks/chaos.py --only {seed}: {'; '.join(wrong)}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
