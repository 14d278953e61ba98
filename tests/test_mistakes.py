"""Each mistake of the table, made for real by Keras fit and by a loop of one's own, and recognised."""

from __future__ import annotations

import pytest
from mistakes import COUNT, FIXTURES, by_fit, by_loop

import dtk
from dtk.proof.mistakes import MISTAKES

MADE = [(key, kind) for key, kinds in FIXTURES.items() for kind in kinds]


BASELINES: dict[str, dtk.Run] = {}


def baseline_of(train, facts, seed=0):
    """Made once: many mistakes have the same right baseline."""
    key = f"{train.__name__} {facts} {seed}"
    if key not in BASELINES:
        BASELINES[key] = dtk.baseline(train, kwargs=facts, seed=seed)
    return BASELINES[key]


def pair(facts):
    """The run and its baseline; `start` goes to dtk.run, which has two workers unless it says otherwise."""
    run = dtk.run(facts["train"], kwargs=facts["run"], **{"workers": 2, **facts["start"]})
    return run, baseline_of(facts["train"], facts["baseline"])


@pytest.mark.slow  # trained for real; test_diagnose*.py has them in made-up numbers
@pytest.mark.parametrize(("key", "kind"), MADE)
def test_the_mistake_is_recognised(key, kind, capsys):
    run, baseline = pair(FIXTURES[key][kind])
    capsys.readouterr()
    diagnosis = dtk.diagnose(run, baseline)
    print(f"[{key} by {kind}] {diagnosis}\n  {diagnosis.evidence}")
    assert diagnosis.mistake == key, str(diagnosis)
    assert MISTAKES[key].remedy in str(diagnosis)


def test_there_is_a_fixture_for_each_mistake():
    # tests/proof_programs has what is made on one worker alone, or by larger programs; tests/test_verify.py, records.
    elsewhere = (
        "file sharding",
        "one worker",
        "optimizer on a copy",
        "own mean",
        "python data",
        "records",
        "replica gradient",
        "scaled twice",
        "unrecorded",
        "sparse gradient",
        "gradient scale",
        "settings",
        "not summed",
        "reduction",
        "set by hand",
    )
    odd = {*MISTAKES} ^ {*FIXTURES, *elsewhere}
    assert not odd, f"tests/mistakes.py: FIXTURES must make each mistake that is not made elsewhere: {sorted(odd)}"


CORRECT = [
    (by_fit, {"rate": 0.1}, {"workers": 1}),
    (by_fit, {"batch": 24, "epochs": 2}, {"workers": 3, "seed": 5}),
    (by_fit, {"batch": 64, "loss": "actual count"}, {"workers": 2, "seed": 1}),
    (by_fit, {"count": COUNT + 8, "order": "same"}, {"workers": 4}),
    (by_fit, {"images": True, "loss": "label mean", "batch": 24}, {"workers": 1, "replicas": 3, "seed": 2}),
    (by_loop, {"loss": "loss object alone"}, {"workers": 2, "seed": 3}),
    (by_loop, {"order": "same", "epochs": 2}, {"workers": 4}),
    (by_loop, {"loss": "scaled penalty"}, {"workers": 1, "replicas": 2, "seed": 4}),
    (by_fit, {"batch_by_replicas": True}, {"workers": 2}),
    (by_loop, {"rate_by_replicas": True}, {"workers": 2}),
    (by_fit, {"layer": "normalisation"}, {"workers": 2}),
    (by_loop, {"layer": "random"}, {"workers": 2}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("train", "facts", "start"), CORRECT)
def test_no_false_alarm_on_correct_runs(train, facts, start):
    run = dtk.run(train, kwargs=facts, **start)
    diagnosis = dtk.diagnose(run, baseline_of(train, facts, start.get("seed", 0)))
    assert diagnosis.mistake == "none", str(diagnosis)
