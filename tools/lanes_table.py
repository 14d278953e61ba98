"""The lanes' table in docs/evidence/lanes.md, out of pytest's reports: `python tools/lanes_table.py [out/lanes/*.xml]`.

Each lane leaves its reports in out/lanes. A lane that has none there keeps its row. It prints why tests were skipped,
and exits with 1 where one was skipped without a reason.
"""

from __future__ import annotations

import argparse
import re
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "evidence" / "lanes.md"
BEGIN, END = "<!-- lanes: made by tools/lanes_table.py -->", "<!-- lanes end -->"
ROWS = "| lane | versions | tests: passed, failed, skipped | lessons' | run |\n|---|---|---|---|---|\n"
COMMANDS = {
    "canary": "uv run noxfile.py -s canary",
    "colab": "uv run noxfile.py -s colab",
    "lowest": "uv run noxfile.py -s lowest",
    "main": "make test test-lessons PYTHON={python}",
    "tf215": "uv run noxfile.py -s tf215",
}
NO_REASON = "without a reason"


@dataclass
class Report:
    """What pytest reported of a lane: of its tests, and, where these have a run of their own, of its lessons."""

    title: str = ""  # "colab: Python 3.13.0, tensorflow 2.20.0, ..."
    day: str = ""
    counts: dict[str, Counter[str]] = field(default_factory=dict)  # "" or "-lessons" -> outcome -> how many
    reasons: Counter[str] = field(default_factory=Counter)

    def add(self, path: Path) -> None:
        suite = ET.parse(path).getroot().find("testsuite")
        assert suite is not None, f"{path} is no report of pytest's"
        self.title, self.day = suite.get("name", ""), suite.get("timestamp", "")[:10]
        counts = self.counts.setdefault("-lessons" if path.stem.endswith("-lessons") else "", Counter())
        for case in suite.iter("testcase"):
            outcome = next((kind for kind in ("failure", "error", "skipped") if case.find(kind) is not None), "passed")
            counts["failed" if outcome in ("failure", "error") else outcome] += 1
            if (skipped := case.find("skipped")) is not None:
                self.reasons[_reason((skipped.get("message") or "").strip())] += 1

    def row(self, name: str) -> str:
        lane, _, versions = self.title.partition(": ")
        command = COMMANDS[lane].format(python=name.removeprefix(f"{lane}-"))
        tests, lessons = (_counted(self.counts.get(part)) for part in ("", "-lessons"))
        return f"| {name} | {versions} | {tests} | {lessons} | {self.day}: `{command}` |"


def _reason(said: str) -> str:
    """Without the lane, which the table names itself."""
    if said in ("", "unconditional skip"):  # pytest's words for a mark without a reason
        return NO_REASON
    return re.sub(r"^lane \w+: ", "", said).replace("|", "/")


def _counted(counts: Counter[str] | None) -> str:
    if counts is None:
        return "with the tests"
    return ", ".join(f"{counts[kind]:,}" for kind in ("passed", "failed", "skipped"))


def reports(paths: Iterable[Path]) -> dict[str, Report]:
    """By the name of the lane and its Python, which the files have."""
    found: dict[str, Report] = {}
    for path in sorted(paths):
        found.setdefault(path.stem.removesuffix("-lessons"), Report()).add(path)
    return found


def table(found: dict[str, Report], before: str = "") -> str:
    """What stands between the page's two marks; what is there of lanes without a report stays."""
    kept_rows = re.findall(r"^\| ((?:main|colab|lowest|tf215|canary)-\S+) (\|.*)$", before, flags=re.MULTILINE)
    rows = {name: f"| {name} {rest}" for name, rest in kept_rows}
    rows |= {name: report.row(name) for name, report in found.items()}
    return ROWS + "\n".join(rows[name] for name in _order(rows))


def _order(names: Iterable[str]) -> list[str]:
    lanes = ["main", "colab", "lowest", "tf215", "canary"]
    return sorted(names, key=lambda name: (lanes.index(name.partition("-")[0]), name))


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("reports", nargs="*", type=Path, default=sorted((ROOT / "out" / "lanes").glob("*.xml")))
    parser.add_argument("--page", type=Path, default=PAGE)
    options = parser.parse_args(argv)
    found = reports(options.reports)
    text = options.page.read_text(encoding="utf-8")
    head, begin, rest = text.partition(BEGIN)
    before, end, tail = rest.partition(END)
    if not begin or not end:
        print(f"{options.page.name} has no marks {BEGIN} and {END}", file=sys.stderr)
        return 1
    options.page.write_text(f"{head}{begin}\n\n{table(found, before)}\n\n{end}{tail}", encoding="utf-8")
    for name, report in found.items():
        print(f"{name}: {'; '.join(f'{why} ({count:,})' for why, count in report.reasons.most_common())}")
    bare = {name: report.reasons[NO_REASON] for name, report in found.items() if report.reasons[NO_REASON]}
    for name, count in bare.items():
        print(f"{name}: {count} skipped {NO_REASON}", file=sys.stderr)
    return int(bool(bare))


if __name__ == "__main__":
    sys.exit(main())
