"""The errors of the installed TensorFlow and Keras, caused for real and kept: `python tools/error_texts.py`.

It writes tests/texts/tf-VERSION.json, which `tests/test_texts.py` holds dtk's sentences to. What differs from run to
run (ports, addresses, paths, ids) is replaced. Which of several texts comes of a lost worker is chance: texts are added
to those that the file has of the same versions, --fresh leaves these out. --only "PATTERN" takes some of the cases,
--times repeats those in which a worker is lost. benchmarks/README.md has the command for all lanes.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import re
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

import error_cases  # noqa: E402
import lanes  # noqa: E402
import losing  # noqa: E402

import dtk  # noqa: E402
from dtk.watch.explain import in_one_sentence  # noqa: E402

BEGIN, END = 700, 1300  # characters of a text that are kept
PACKAGES = ("tensorflow", "keras", "tf-keras", "protobuf")
# gRPC writes the two in any order.
ORDER = (r"\{grpc_status:(\d+), grpc_message:((?:[^{}]|\{[^{}]*\})*)\}", r"{grpc_message:\2, grpc_status:\1}")
# What changes from run to run, or with the machine.
CHANGES = [
    (r"(localhost|127\.0\.0\.1|\[::1\]|\[?::ffff:127\.0\.0\.1\]?|%5B::1%5D):\d+", r"\1:12345"),
    (r"\b0x[0-9a-f]{6,}", "0x7f0123456789"),
    (r"(?<![\w.])/[^\s\"',:]*?/(?=(?:site-packages|python3\.\d+)/)", "/usr/lib/"),
    (rf"{re.escape(str(ROOT))}/", "/home/learner/"),
    (r"(?<![\w.])/[^\s\"',:]*/dtk-[^\s\"',:]*/", "/tmp/run/"),
    (r"\b\d{9,}\b", "1234567890"),
    (r"\d{4}-\d\d-\d\d([ T])\d\d:\d\d:\d\d\.\d+", r"2026-01-01\g<1>00:00:00.000000"),
    (r"\b([IWE])\d{4} \d\d:\d\d:[\d.]+ +\d+", r"\g<1>0000 00:00:1234567890.123456 1234"),
    (r"(__inference_[\w<>]+?)_\d+", r"\1_12"),
    (r"(Op:__\w+?)_\d+\]", r"\1_12]"),
    (r"(instance|Collective instance|step_id|collective key) \d+", r"\1 12"),
    (r"\bid=\d+", "id=1234"),
    (r'(File ".*", line )\d+', r"\g<1>12"),
    (r"goo\.gle/debug\w+ *", "goo.gle/debugstr "),  # of protobuf, which draws it
    ORDER,
    ORDER,  # one may stand in another
]


def steady(text: str) -> str:
    """A text without what changes, most places in files, and what is beyond its begin and its end."""
    lines = text.split("\n")
    places = [number for number, line in enumerate(lines) if line.lstrip().startswith('File "')]
    if len(places) > 4:
        text = "\n".join([*lines[: places[2]], *lines[places[-2] :]])
    for pattern, put in CHANGES:
        text = re.sub(pattern, put, text)
    return text if len(text) <= BEGIN + END else f"{text[:BEGIN]} [...] {text[-END:]}"


def told(results: list[Any]) -> list[list[Any]]:
    """The steady texts of what the workers raised; not where dtk refuses an untried TensorFlow before it can raise."""
    found = []
    for kind, message, by_a_peer in filter(None, results):
        if kind == "DtkError":
            continue
        text = [kind, steady(message), by_a_peer]
        if in_one_sentence(*text[:2])[:60] != steady(in_one_sentence(kind, message))[:60]:
            print(f"  is said otherwise when cut: {in_one_sentence(kind, message)}", flush=True)
        found.append(text)
    return found


def versions() -> dict[str, str]:
    found = {"python": sys.version.split()[0]}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            pass  # this lane has none
    return found


def of_case(name: str, times: int) -> list[list[Any]]:
    """What a case's workers raised."""
    if name in losing.ENDS:
        body, how, victim, workers = losing.ENDS[name]
        return [
            text
            for _ in range(times)
            for text in told(dtk.baseline(losing.texts, args=(body, how, victim, workers), timeout=300).results[0])
        ]
    if error_cases.CASES[name].raises is None:
        body = name.removesuffix(" in a collective")
        return told(dtk.baseline(losing.texts, args=(body, "", 1, 2), timeout=300).results[0])
    return told(error_cases.provoke(name))


def lines_of_a_start() -> list[str]:
    """What two cold workers print before and while they train, without a word from the function."""
    run = dtk.run(error_cases.softmax_under_logits, start="cold", timeout=200)
    return sorted({steady(line) for log in run.logs for line in log.splitlines() if line.strip()})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="*")
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("--out", type=Path, default=error_cases.TEXTS)
    options = parser.parse_args()
    os.environ["DTK_LIVE"] = "off"
    file = options.out / f"tf-{'.'.join(version('tensorflow').split('.')[:2])}.json"
    kept: dict[str, Any] = json.loads(file.read_text()) if file.exists() and not options.fresh else {}
    if kept.get("versions") != versions():
        kept = {"versions": versions(), "lane": lanes.LANE, "log": [], "texts": {}}
    for name, case in error_cases.CASES.items():
        if lanes.LANE not in case.lanes or not fnmatch.fnmatch(name, options.only):
            continue
        before = kept["texts"].get(name, [])
        new = [text for text in of_case(name, options.times) if text not in before]
        kept["texts"][name] = sorted([*before, *map(list, {tuple(text) for text in new})])
        print(f"{name}: {len(before)} text(s) kept, {len(kept['texts'][name]) - len(before)} new", flush=True)
        write(file, kept)
    if fnmatch.fnmatch("log", options.only):
        kept["log"] = sorted({*kept["log"], *lines_of_a_start()})
    write(file, kept)
    return 0


def write(file: Path, kept: dict[str, Any]) -> None:
    file.parent.mkdir(exist_ok=True)
    ordered = {**kept, "texts": {name: kept["texts"][name] for name in error_cases.CASES if name in kept["texts"]}}
    file.write_text(json.dumps(ordered, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
