"""Each mistake of the table, made for real by Keras fit and by a loop of one's own, and recognised."""

from __future__ import annotations

import pytest
from mistakes import FIXTURES

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
