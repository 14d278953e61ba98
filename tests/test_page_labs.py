"""The labs that run in the page compute what dtk computes; their data and their words are complete."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from dtk.course.exercises.lesson_01 import CHUNK
from dtk.scaling.job import LINKS, Cluster, slowest_mean
from dtk.scaling.prediction import predict
from dtk.view.loss_scaling import DIVISORS, numbers
from dtk.view.what_if import EXAMPLE

ROOT = Path(__file__).parent.parent
LABS = ROOT / "docs/_static/labs"
DATA = json.loads((LABS / "data.json").read_text())
COMPARED = ["seconds", "compute", "straggler", "latency", "bandwidth", "throughput", "ideal", "efficiency", "useful"]
WORKERS = [1, 2, 3, 8, 100, 256, 1000, 10_000]


def cases():
    for name, algorithm, overlap, spread in itertools.product(
        LINKS, ("ring", "halving_doubling", "tree"), (0, 1), (0, 0.2)
    ):
        yield name, algorithm, replace(EXAMPLE, overlap=overlap, spread=spread)
    yield "NVLink", "ring", replace(EXAMPLE, batch=1, gradient_bytes=1e5, pack_bytes=0, critical_batch=None)


@pytest.fixture(scope="module")
def of_the_page():
    """What the page's JavaScript makes of every case."""
    if shutil.which("node") is None:
        pytest.skip("there is no node here, which runs the page's JavaScript without a page")
    given = {
        "predict": [
            {
                "job": {**DATA["job"], **{key: getattr(job, key) for key in DATA["job"]}},
                "link": DATA["links"][name],
                "algorithm": algorithm,
                "workers": workers,
            }
            for name, algorithm, job in cases()
            for workers in WORKERS
        ],
        "slowest": [[n, spread] for n in WORKERS for spread in (0.01, 0.1, 0.5, 2.0)],
        "numbers": [[r, e, by] for r in range(1, 5) for e in range(1, 9) for by in DIVISORS],
        "losses": DATA["losses"],
        "rings": [2, 3, 4, 5, 6],
    }
    command = ["node", str(ROOT / "tests/page_labs.mjs")]
    done = subprocess.run(command, input=json.dumps(given), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return {**json.loads(done.stdout), "given": given}


def test_predictions_are_those_of_dtk(of_the_page):
    found = iter(of_the_page["predicted"])
    for name, algorithm, job in cases():
        for row in predict(job, Cluster(LINKS[name], algorithm), WORKERS).to_dict("records"):
            mine = next(found)
            for column in COMPARED:
                right = pytest.approx(row[column], rel=1e-6, abs=1e-12)
                assert mine[column] == right, (name, algorithm, row["workers"])
            assert (mine["limit"], mine["slowed_by"]) == (row["limit"], row["slowed_by"])
    assert next(found, None) is None


def test_the_slowest_of_n_is_that_of_dtk(of_the_page):
    for (workers, spread), mine in zip(of_the_page["given"]["slowest"], of_the_page["slowest"], strict=True):
        assert mine == pytest.approx(slowest_mean(workers, spread), rel=1e-7)


def test_shares_are_those_of_the_lab(of_the_page):
    for (replicas, examples, by), mine in zip(of_the_page["given"]["numbers"], of_the_page["numbers"], strict=True):
        right = numbers(replicas, examples, by)
        assert mine["shares"] == pytest.approx(right.shares)
        assert mine["slopes"] == pytest.approx(right.slopes)
        assert (mine["alone"], mine["ratio"], mine["divisor"]) == pytest.approx(
            (right.alone, right.ratio, right.divisor)
        )


def test_the_ring_sends_as_lesson_01_says_and_ends_with_all_sums(of_the_page):
    for workers, found in zip(of_the_page["given"]["rings"], of_the_page["rings"], strict=True):
        assert len(found["messages"]) == 2 * (workers - 1)
        for step, messages in enumerate(found["messages"]):
            assert [m["chunk"] for m in messages] == [CHUNK.right(m["sender"], step, workers) for m in messages]
        assert all(parts == list(range(workers)) for chunks in found["holds"][-1] for parts in chunks)


def test_the_data_are_dtk_s(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import page_data

    fresh = json.loads(json.dumps(page_data.constant()))
    assert {key: DATA[key] for key in fresh} == fresh, "python tools/page_data.py"
    for run in DATA["runs"].values():
        assert [step["step"] for step in run["steps"]] == list(range(2, page_data.STEPS + 1))
        assert {*run["steps"][0]["workers"][0]} == {*page_data.PARTS, "share"}
    sys.modules.pop("page_data")


def test_every_sentence_has_its_chinese():
    code = "".join(file.read_text() for file in LABS.glob("*.js"))
    said = set(re.findall(r'\bt\("([^"]+)"', code)) | {*DIVISORS, "compute", "straggler", "bandwidth", "latency"}
    said |= set(re.findall(r': "([^"]+)"', re.search(r"const NAMES = (.*);", code)[1]))
    chinese = json.loads((LABS / "zh.json").read_text())
    assert set(chinese) == said
    for sentence, other in chinese.items():
        assert set(re.findall(r"\{\w+\}", sentence)) == set(re.findall(r"\{\w+\}", other)), sentence
