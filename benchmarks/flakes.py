"""Which tests fail now and then? Those that start processes, run again and again under load.

    python benchmarks/flakes.py --times 50 --load 2 [--tests GLOB] [--without-slow] [--minutes M] [--seed S]

The tests are those that `pytest --fast` leaves out, of tests/test_*.py. Those of some files run several times in a
pytest, in an order drawn anew each time, and share its warm parent; every pass sets up and takes down all fixtures.
Beside them --load processes compute. Each run is a line of --out (out/flakes.jsonl), with the seed of its order and the
end of what a failure said: started again, it goes on with the tests that have the fewest runs, the quickest first, and
in --minutes it gets as far as it gets. --without-slow takes those that `make test` runs. Exits with 1 where one failed.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import fnmatch
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
BUSY = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: pass"
PASSES = 5  # of a file in one pytest, at most
SLICE = 540.0  # seconds after which a pytest begins no further test
UNKNOWN = 4.0  # seconds that a test is thought to take before its first run
LAST = 4000  # characters of what a failure said
Row = dict[str, Any]


class Passes:
    """A plugin of pytest: runs some of the collected tests again and again, and writes a line for each run."""

    def __init__(self, wanted: set[str], times: int, seed: int, until: float, load: int, out: Path):
        self.wanted, self.times, self.seed, self.until, self.load, self.out = wanted, times, seed, until, load, out
        self.order = 0
        self.phases: list[Any] = []

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items[:] = [item for item in items if item.nodeid in self.wanted]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: Any) -> bool:
        for number in range(self.times):
            self.order = self.seed + number
            items = in_another_order(session.items, self.order) if time.time() < self.until else []
            for item, following in zip(items, [*items[1:], None], strict=True):
                late = time.time() >= self.until
                # The last one takes down what modules and the session have set up, too.
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=None if late else following)
                if late:
                    return True
        return True

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.phases.append(report)
        if report.when != "teardown":
            return
        phases, self.phases = self.phases, []
        outcomes = [phase.outcome for phase in phases]
        outcome = next((each for each in ("failed", "skipped") if each in outcomes), "passed")
        said = "\n".join(_said(phase) for phase in phases if phase.outcome == "failed")[-LAST:]
        seconds = round(sum(phase.duration for phase in phases), 2)
        row = {"test": report.nodeid, "outcome": outcome, "seconds": seconds, "order": self.order, "load": self.load}
        with self.out.open("a") as file:
            file.write(json.dumps({**row, "at": round(time.time()), "said": said}) + "\n")


def in_another_order(items: list[Any], seed: int) -> list[Any]:
    """The tests of a file stay together, as they share what the file sets up."""
    draw = random.Random(seed)
    by_file: dict[Any, list[Any]] = collections.defaultdict(list)
    for item in items:
        by_file[item.path].append(item)
    groups = list(by_file.values())
    draw.shuffle(groups)
    for group in groups:
        draw.shuffle(group)
    return [item for group in groups for item in group]


def _said(phase: Any) -> str:
    sections = [f"{title}\n{text[-LAST // 4 :]}" for title, text in phase.sections if text.strip()]
    return "\n".join([*sections, f"{phase.when}: {phase.longreprtext}"])


def batch(given: dict[str, Any]) -> int:
    """In a process of its own: some files' tests."""
    sys.path[0] = str(ROOT)  # in place of this file's own directory, as `python -m pytest` has it
    plugin = Passes(set(given["tests"]), given["times"], given["seed"], given["until"], given["load"], given["out"])
    plugin.out = Path(given["out"])
    options = ["-q", "--tb=short", "-p", "no:cacheprovider", "-p", "no:xdist"]
    files = sorted({test.partition("::")[0] for test in given["tests"]})
    return int(pytest.main([*options, *files], plugins=[plugin]))


def collected(*options: str) -> list[str]:
    """The names of the tests that pytest finds."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *options]
    files = sorted(str(file.relative_to(ROOT)) for file in (ROOT / "tests").glob("test_*.py"))
    found = subprocess.run([*command, *files], cwd=ROOT, capture_output=True, text=True, check=False)
    names = [line for line in found.stdout.splitlines() if "::" in line and line.startswith("tests/")]
    if found.returncode or not names:
        raise SystemExit(f"pytest can't collect the tests:\n{found.stdout[-LAST:]}{found.stderr[-LAST:]}")
    return names


def that_start_processes(slow: bool) -> list[str]:
    fast = set(collected("--fast"))
    return [name for name in collected(*([] if slow else ["-m", "not slow"])) if name not in fast]


def rows(file: Path) -> list[Row]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def runs(done: list[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = collections.defaultdict(list)
    for row in done:
        found[row["test"]].append(row)
    return found


def next_batch(tests: list[str], done: list[Row], times: int, draw: random.Random) -> tuple[list[str], int] | None:
    """The tests to run next, and how often; None where all have run often enough.

    They are those of some files that have the fewest runs, the quickest first, as many as fit into `SLICE`.
    """
    had = runs(done)
    skipped = {test for test, each in had.items() if each[-1]["outcome"] == "skipped"}
    left = {test: len(had[test]) for test in tests if test not in skipped and len(had[test]) < times}
    if not left:
        return None
    fewest = min(left.values())
    seconds = {test: had[test][-1]["seconds"] if had[test] else UNKNOWN for test in left if left[test] == fewest}
    by_file: dict[str, list[str]] = collections.defaultdict(list)
    for test in seconds:
        by_file[test.partition("::")[0]].append(test)

    def pace(file: str) -> tuple[float, float]:
        return sum(seconds[test] for test in by_file[file]) / len(by_file[file]), draw.random()

    again = min(PASSES, times - fewest) if fewest else 1
    taken: list[str] = []
    for file in sorted(by_file, key=pace):
        if taken and sum(seconds[test] for test in [*taken, *by_file[file]]) * again > SLICE / 2:
            break
        taken += by_file[file]
    return taken, again


@contextlib.contextmanager
def loaded(count: int) -> Iterator[None]:
    """Beside so many processes that compute. They end with this one, however it goes."""
    busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(count)]
    try:
        yield
    finally:
        for each in busy:
            each.kill()
            each.wait()


def measure(tests: list[str], options: argparse.Namespace, until: float) -> None:
    draw = random.Random(options.seed)
    with loaded(options.load):
        while time.time() < until:
            found = next_batch(tests, rows(options.out), options.times, draw)
            if found is None:
                return
            wanted, times = found
            given = {"tests": wanted, "times": times, "seed": draw.randrange(1 << 30)}
            given |= {"load": options.load, "out": str(options.out), "until": min(until, time.time() + SLICE)}
            environ = {**os.environ, "DTK_THOROUGH": "1"}
            command = [sys.executable, __file__, "--batch", json.dumps(given)]
            before = len(rows(options.out))
            ended = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
            if len(rows(options.out)) == before:
                raise SystemExit(f"none of {wanted} ran:\n{ended.stdout[-LAST:]}{ended.stderr[-LAST:]}")
            new = rows(options.out)[before:]
            bad = sum(row["outcome"] == "failed" for row in new)
            files = sorted({Path(row["test"].partition("::")[0]).stem for row in new})
            print(f"{len(new)} runs, {bad} failed: {', '.join(files)}", flush=True)


def table(tests: list[str], done: list[Row]) -> str:
    """By file, and each test that failed."""
    had = runs([row for row in done if row["outcome"] != "skipped"])
    known = [test for test in tests if test in had]
    failed = {test: [row for row in had[test] if row["outcome"] == "failed"] for test in known}
    lines = ["| file | tests | runs | failures |", "|---|---|---|---|"]
    for file in sorted({test.partition("::")[0] for test in known}):
        own = [test for test in known if test.startswith(f"{file}::")]
        lines.append(f"| {file} | {len(own)} | {sum(len(had[t]) for t in own)} | {sum(len(failed[t]) for t in own)} |")
    count, bad = sum(len(had[test]) for test in known), sum(map(len, failed.values()))
    most = 3 / count if count and not bad else None  # of the rule of three: with 95 % certainty
    less = f" (less than {most:.2%} of runs, with 95 % certainty)" if most else ""
    lines.append(f"| **{len(known)} of {len(tests)} tests** | | **{count}** | **{bad}**{less} |")
    for test, each in failed.items():
        for row in each:
            lines += ["", f"{test}: failed {len(each)} of {len(had[test])}; order {row['order']}", row["said"]]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=50)
    parser.add_argument("--load", type=int, default=2)
    parser.add_argument("--tests", default="*", help="a pattern of tests' names, such as 'tests/test_watch.py*'")
    parser.add_argument("--without-slow", action="store_true", help="only those that `make test` runs")
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "flakes.jsonl")
    parser.add_argument("--batch", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.batch:
        return batch(json.loads(options.batch))
    until = time.time() + 60 * options.minutes
    options.out = options.out.absolute()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    tests = [
        test for test in that_start_processes(not options.without_slow) if fnmatch.fnmatchcase(test, options.tests)
    ]
    before = len(rows(options.out))
    measure(tests, options, until)
    done = rows(options.out)
    print(f"\n{table(tests, done)}")
    return int(any(row["outcome"] == "failed" for row in done[before:]))


if __name__ == "__main__":
    sys.exit(main())
