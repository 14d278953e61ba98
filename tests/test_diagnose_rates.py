"""`diagnose` on runs made of numbers: what the learning rates tell that the workers wrote down, and other losses."""

from __future__ import annotations

import json

import numpy as np
import pytest
from diagnosing import later, pair, rated, told
from verifying import END, START, maker, restarted

import dtk
from dtk.checks import facts
from dtk.errors import VerificationError


@pytest.fixture
def make(tmp_path):
    return maker(tmp_path)


def further(times):
    return [s + times * (e - s) for s, e in zip(START, END, strict=True)]


def parted(make, mine, other, times=1.95):
    facts = {"updates": False, "baseline": {"updates": False}}
    run, baseline = pair(make, change=later(0.9), final=further(times), **facts)
    return rated(run, *mine), rated(baseline, *other)


def test_another_rate_at_the_first_update_is_the_reason(make):
    sentence = told(*parted(make, (0.2, 0.2), (0.1, 0.1)), mistake="learning rate")
    assert "the learning rate of adam is 0.2 at its first update, in the baseline 0.1" in sentence


def test_other_versions_are_said(make):
    runs = parted(make, (0.2, 0.2), (0.1, 0.1))
    for run, version in zip(runs, ("2.21.0", "2.15.1"), strict=True):
        (run.folder.path / "versions.json").write_text(json.dumps({"Python": "3.11.9", "tensorflow": version}))
    sentence = told(*runs, mistake="learning rate")
    assert "(they were made with other versions, tensorflow 2.21.0 and 2.15.1, which may draw other" in sentence
    (runs[1].folder.path / "versions.json").unlink()
    assert "versions" not in told(*runs, mistake="learning rate")


def test_another_rate_at_the_end_may_be_an_effect(make):
    runs = parted(make, (0.1, 0.01), (0.1, 0.1), times=1.1)
    assert facts.other_rate(*runs) is None
    diagnosis = dtk.diagnose(*runs)
    assert diagnosis.mistake == "unknown"
    assert "learning rate" in diagnosis.also
    assert any("is 0.01 at the end, in the baseline 0.1" in fact for fact in diagnosis.evidence)


def test_the_same_rates_are_said_to_be(make):
    runs = parted(make, (0.1, 0.1), (0.1, 0.1))
    assert facts.other_rate(*runs) == ""
    sentence = told(*runs, mistake="gradient scale")
    assert "a gradient that is scaled in only one of the two" in sentence
    evidence = dtk.diagnose(*runs).evidence[0]
    assert "the learning rates are the same at the first update and at the end" in evidence


def test_the_first_update_of_a_later_start_is_not_the_first(make):
    run, baseline = parted(make, (0.2, 0.2), (0.1, 0.1), times=0.5)
    restarted(run, 9)
    assert facts.rates(run) == []
    assert facts.other_rate(run, baseline) is None
    assert "is 0.2 at its first update" not in str(dtk.diagnose(run, baseline))


def test_losses_of_other_names_say_nothing_of_the_update(make, monkeypatch):
    def prove(*args, **given):
        raise VerificationError("baseline: g, d; cluster: one loss a step: they take other gradients", reason="loss")

    runs = parted(make, (0.2, 0.2), (0.1, 0.1))
    same = pair(make, change=lambda s: np.repeat(2 * s.mean(axis=1, keepdims=True), 2, axis=1))
    monkeypatch.setattr("dtk.diagnosis.diagnose.prove", prove)
    for each in (runs, same):
        sentence = told(*each, mistake="unknown")
        assert sentence == "I don't know why: baseline: g, d; cluster: one loss a step: they take other gradients"
