"""Many runs, much output, several kernels at once: what grows, what is lost, what crosses.

    python benchmarks/endurance.py runs --count 200     # one kernel: processes, descriptors, memory, files
    python benchmarks/endurance.py output --megabytes 1000
    python benchmarks/endurance.py kernels              # two kernels with two clusters each at the same time

Each prints a table and exits with 1 where a promise is broken. The functions need no TensorFlow, except the last's.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import io
import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any, NamedTuple

import psutil

import dtk
from dtk.launch import folders

ROOT = Path(__file__).parent.parent


class Footprint(NamedTuple):
    """What a kernel has at one moment; memory in MB, its parent's and guard's included."""

    processes: int
    descriptors: int
    threads: int
    memory: float
    files: int


def footprint() -> Footprint:
    gc.collect()
    me = psutil.Process()
    below = me.children(recursive=True)
    scratch = dtk.environment.scratch()
    files = sum(len(names) for _, _, names in os.walk(scratch))
    memory = sum(process.memory_full_info().uss for process in [me, *below]) / 1e6
    return Footprint(len(below), me.num_fds(), me.num_threads(), memory, files)


def nothing() -> int:
    return os.getpid()


def many_runs(count: int, start: str) -> tuple[Footprint, Footprint]:
    """Footprints before and after `count` runs, when the directories that are kept are as many as there may be."""

    def runs(how_many: int) -> Footprint:
        for _ in range(how_many):
            gc.collect()  # the live view of a run is let go of as a circle, and with it the run's directory
            dtk.run(nothing, start=start)
        return footprint()

    return runs(folders.KEPT_RUNS + 5), runs(count)


def flood(megabytes: int) -> None:
    """Writes so many MB in lines of 100 bytes, from one worker."""
    piece = b"".join(b"%08d " % line + b"x" * 90 + b"\n" for line in range(10_000))
    for _ in range(megabytes if dtk.is_chief() else 0):
        view = memoryview(piece)
        while view:
            view = view[os.write(1, view) :]


class Flooded(NamedTuple):
    """MB in the worker's log file; MB by which the kernel's memory grew at most; bytes that the view printed."""

    kept: float
    growth: float
    shown: int


def much_output(megabytes: int, start: str) -> Flooded:
    """One worker writes, the view shows: with the text view, whose output can be counted."""
    dtk.run(nothing, start=start)
    me, shown, ended = psutil.Process(), io.StringIO(), threading.Event()
    before = highest = me.memory_info().rss

    def look() -> None:
        nonlocal highest
        while not ended.wait(0.05):
            highest = max(highest, me.memory_info().rss)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        with contextlib.redirect_stdout(shown):
            run = dtk.run(flood, args=(megabytes,), start=start)
    finally:
        ended.set()
        thread.join()
    size = (run.folder.worker(0).path / "log.txt").stat().st_size
    return Flooded(size / 1e6, (highest - before) / 1e6, len(shown.getvalue()))


def add_up(number: int, steps: int) -> list[float]:
    """All-reduces a number of this cluster's own, step after step; every sum tells of a crossing."""
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    sums = []
    for step in range(steps):
        total = strategy.reduce("sum", strategy.run(lambda step=step: tf.constant(1000.0 * number + step)), axis=None)
        sums.append(float(total))
        print(f"cluster {number} step {step}")
    return sums


def two_clusters(first: int, steps: int) -> list[str]:
    """Two clusters at once in this kernel; returns what crossed."""
    wrong: list[str] = []

    def one(number: int) -> None:
        run = dtk.run(add_up, args=(number, steps))
        if run.results != [[2 * (1000.0 * number + step) for step in range(steps)]] * 2:
            wrong.append(f"cluster {number} computed {run.results}")
        if any(f"cluster {other} " in log for log in run.logs for other in range(1, 9) if other != number):
            wrong.append(f"cluster {number} has another's output")

    threads = [threading.Thread(target=one, args=(first + k,)) for k in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return wrong


def two_kernels(steps: int, third: bool = True) -> dict[str, Any]:
    """Two kernels with two clusters each; a third, with two more, is killed while they run."""
    code = (
        f"import sys, json; sys.path[:0] = {[str(ROOT), str(ROOT / 'benchmarks')]!r}\n"
        "import dtk, endurance; first, steps = map(int, sys.argv[1:])\n"
        "print(json.dumps(endurance.two_clusters(first, steps)))"
    )
    env = {**os.environ, "DTK_LIVE": "off"}
    started = [
        subprocess.Popen([sys.executable, "-c", code, str(first), str(count)], env=env, stdout=subprocess.PIPE)
        for first, count in ((1, steps), (3, steps), *(((5, 10**9),) if third else ()))
    ]
    runs = dtk.environment.scratch() / "runs"
    try:
        if third:
            _wait_for_output(runs, ("cluster 5 step 3", "cluster 6 step 3"), started[2])
            started[2].kill()
        said = [process.communicate(timeout=280)[0] for process in started[:2]]
    finally:
        for process in started:
            process.kill()
            process.communicate()
    wrong = [word for text in said for word in (json.loads(text) if text else ["a kernel failed"])]
    return {"clusters": 4, "steps": steps, "killed beside them": 2 * third, "crossings": wrong}


def _wait_for_output(runs: Path, words: tuple[str, ...], process: subprocess.Popen[bytes]) -> None:
    import time

    deadline, missing = time.monotonic() + 240, set(words)
    while missing:
        logs = [path.read_text(errors="replace") for path in runs.glob("*/worker-0/log.txt")] if runs.exists() else []
        missing = {word for word in missing if not any(word in log for log in logs)}
        if time.monotonic() > deadline or process.poll() is not None:
            raise TimeoutError("the third kernel's clusters did not train")
        time.sleep(0.1)


def main() -> int:
    """Returns 0 where all promises hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("runs", "output", "kernels"))
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--start", default="auto")
    options = parser.parse_args()
    os.environ["DTK_LIVE"] = "text" if options.what == "output" else "off"
    if options.what == "runs":
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as own:  # other kernels' files are not counted
            os.environ["DTK_SCRATCH"] = own
            before, after = many_runs(options.count, options.start)
        print("| | processes | descriptors | threads | memory (MB) | files |\n|---|---|---|---|---|---|")
        for when, row in (("before", before), (f"after {options.count} runs", after)):
            print(f"| {when} | " + " | ".join(f"{value:.0f}" for value in row) + " |")
        same = before[:3] == after[:3] and before.files == after.files
        return int(not same or after.memory - before.memory > 20)
    if options.what == "output":
        flooded = much_output(options.megabytes, options.start)
        print("| written (MB) | kept (MB) | kernel's memory grew by (MB) | shown (bytes) |\n|---|---|---|---|")
        print(f"| {options.megabytes} | {flooded.kept:.0f} | {flooded.growth:.1f} | {flooded.shown} |")
        return int(flooded.kept != options.megabytes or flooded.growth > 200 or flooded.shown > 1_000_000)
    outcome = two_kernels(options.steps)
    print(outcome)
    return int(bool(outcome["crossings"]))


if __name__ == "__main__":
    sys.exit(main())
