"""What `benchmarks/look_alikes.py` makes of its trials. The trials themselves are made by that program."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import dtk

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))
import look_alikes  # noqa: E402
import look_alikes_page  # noqa: E402
from look_alikes_pairs import PAIRS, Facts  # noqa: E402
from look_alikes_runs import FULL, ROWS, Heard  # noqa: E402

EVERY = [*ROWS, *PAIRS, *FULL]
BY_NAME = {row.what: row for row in EVERY}


def line(what, seed, kind="right", said="it said so"):
    return {"what": what, "seed": seed, "kind": kind, "said": said}


def test_the_row_with_the_fewest_trials_is_next_and_no_seed_comes_twice():
    rows = [BY_NAME[name] for name in ("raises", "SIGKILL")]
    assert look_alikes.next_trial(rows, [], 0, 2) == (rows[0], 0)
    lines = [line("raises", 0)]
    assert look_alikes.next_trial(rows, lines, 0, 2) == (rows[1], 0)
    lines += [line("SIGKILL", 0), line("SIGKILL", 1), line("raises", 2)]
    assert look_alikes.next_trial(rows, lines[:3], 0, 2) == (rows[0], 1)
    assert look_alikes.next_trial(rows, lines, 0, 2) is None
    assert look_alikes.next_trial(rows, lines, 7, 3) == (rows[0], 7)


def test_a_line_that_was_cut_off_is_no_trial(tmp_path, capsys):
    out = tmp_path / "trials.jsonl"
    assert look_alikes.lines_of(out) == []
    out.write_text(json.dumps(line("raises", 0)) + '\n{"what": "rai')
    assert look_alikes.lines_of(out) == [line("raises", 0)]
    assert "is not whole" in capsys.readouterr().out


def failed(worker, words, code):
    return dtk.WorkerFailed(f"worker {worker} {words}", worker=worker, exitcode=code)


@pytest.mark.parametrize(
    ("what", "error", "kind"),
    [
        ("raises", failed(1, "raised ValueError: bad label 7", 1), "right"),
        ("raises", failed(0, "raised ValueError: bad label 7", 1), "wrong name"),
        ("raises", None, "missed"),
        ("SIGKILL", failed(1, "was killed by SIGKILL; the kernel's log may say why", -9), "right"),
        ("SIGKILL", failed(1, "was killed by SIGKILL; for want of memory", -9), "wrong name"),
        ("killed for want of memory", failed(1, "was killed by SIGKILL; the kernel's log may say why", -9), "missed"),
        ("SIGSTOP", dtk.WorkerStalled("it is stopped", reason="stopped", edges=[(0, 1)]), "right"),
        ("SIGSTOP", dtk.WorkerStalled("it is stopped", reason="stopped", edges=[(1, 0)]), "wrong name"),
        ("SIGSTOP", dtk.WorkerStalled("no worker made progress"), "missed"),
        ("a collective more", dtk.WorkerStalled("each elsewhere", reason="order"), "right"),
        ("computes for long", None, "right"),
        ("computes for long", dtk.WorkerStalled("silent", reason="silent", edges=[(0, 1)]), "false alarm"),
    ],
)
def test_a_run_is_judged_by_what_happened(what, error, kind):
    assert BY_NAME[what]._kind(Heard(error, victim=1)) == kind


def test_a_slow_worker_is_named_or_nobody():
    slow, healthy = BY_NAME["slow: sleeps in every step"], BY_NAME["16 workers on two cores"]
    assert [slow._kind(Heard(None, 1, awaited)) for awaited in (None, 1, 0)] == ["right", "right", "wrong name"]
    assert healthy._kind(Heard(None, 1, 1)) == "wrong name"
    assert healthy._kind(Heard(None, 1, notice="nothing has moved for 5 s")) == "false alarm"


@pytest.mark.parametrize(
    ("what", "mistake", "also", "words", "kind"),
    [
        ("nothing differs", "none", (), "", "right"),
        ("nothing differs", "unknown", (), "", "false alarm"),
        ("other data on one worker", "unknown", ("worker order", "other data"), "", "right"),
        ("other data on one worker", "unknown", ("worker order",), "", "missed"),
        ("other data on one worker", "order", ("other data",), "", "wrong name"),
        ("NaN in one replica's memory", "not finite", (), "NaN on replica 1 alone", "right"),
        ("NaN in one replica's memory", "not finite", (), "NaN", "missed"),
    ],
)
def test_a_pair_is_judged_by_what_differs(what, mistake, also, words, kind):
    from dtk.proof.verdict import Diagnosis

    row = BY_NAME[what]
    facts = Facts(what, victim=1, at=3, width=8, batch=16, optimizer="SGD", epochs=1)
    assert row._kind(Diagnosis(mistake, words, also=also), row.words(facts)) == kind


def test_the_page_has_each_trial_that_was_not_right():
    lines = [line("raises", 0), line("raises", 1, "missed", "nobody"), line("computes for long", 0, said="nothing")]
    page = look_alikes_page.page(EVERY, lines)
    assert "| raises | 1 of 2 | 1 |  |  | it said so |" in page
    assert "| computes for long | 1 of 1 |  |  |  | nothing |" in page
    assert "- missed: raises, seed 1: nobody" in page
    assert "| something is wrong | 2 | 0 |  | 1 (50 %) |" in page
    assert "SIGKILL |" not in page, "a row without trials says nothing"


def test_rates():
    assert look_alikes_page.rate(0, 30) == "0 (below 10 %)"
    assert look_alikes_page.rate(3, 30) == "3 (10 %)"
    assert (look_alikes_page.rate(0, 2), look_alikes_page.rate(0, 0)) == ("0", "")
