"""Each step from the state that the run recorded: correct programs, wrong ones, and how findings are judged."""

from __future__ import annotations

import json

import proof_programs
import pytest

import dtk
from dtk.proof.steps import judged, recorded_whole
from dtk.records import RunFolder

RIGHT, WRONG = proof_programs.right(), proof_programs.wrong()
PASS = "check every step vs one device: PASS"


def recorded(tmp_path, units=2, made=2, end=True):
    corner = tmp_path / "worker-0"
    corner.mkdir()
    variables = [
        {"number": 0, "name": "dense/kernel", "shape": [30, 3]},
        {"number": 1, "name": "key/bias", "shape": [3]},
    ]
    lines = [
        *({"unit": k + 1} for k in range(units)),
        *[{"unit": units + 1, "end": True}] * end,
        {"last": {"units": made}},
    ]
    for name, rows in (("variables", variables), ("units", lines)):
        (corner / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return RunFolder(tmp_path, 1)


def line(unit, ratio=(1e-6, 1e-6), wrong=(), kind="update"):
    return {"unit": unit, "kind": kind, "numbers": [0, 1], "ratio": list(ratio), "wrong": list(wrong)}


END = {"end": "done", "units": 2, "coarse": 0.0}


def test_all_steps_agree(tmp_path):
    assert judged(recorded(tmp_path), [line(1), line(2), END]).proved


def test_a_small_variable_that_is_rounding_alone_leaves_a_step_decided(tmp_path):
    assert judged(recorded(tmp_path), [line(1, (1e-6, 2.0)), line(2), END]).proved


def test_most_values_rounding_alone_leaves_a_step_open(tmp_path):
    found = judged(recorded(tmp_path), [line(1), line(2, (0.5, 1e-6)), END])
    assert (found.undecided, found.differs, found.proved) == (1, None, False)


@pytest.mark.parametrize("kind", ["update", "between"])
def test_the_first_step_that_differs_and_its_variables(tmp_path, kind):
    found = judged(recorded(tmp_path), [line(1), line(2, (0.02, 1e-6), [0], kind), {**END, "end": "enough"}])
    assert (found.differs, found.variables, found.proved) == (2, ("dense/kernel",), False)


@pytest.mark.parametrize(
    "lines", [[], [line(1), END], [line(1), line(2)], [line(1), line(2), {**END, "end": "unmatched"}]]
)
def test_a_follower_that_did_not_come_to_the_end_proves_nothing(tmp_path, lines):
    assert not judged(recorded(tmp_path), lines).proved


def test_all_states_are_there(tmp_path):
    assert recorded_whole(recorded(tmp_path))


@pytest.mark.parametrize("facts", [{"made": 3}, {"end": False}])
def test_states_that_are_not_all_there(tmp_path, facts):
    assert not recorded_whole(recorded(tmp_path, **facts))
    assert not recorded_whole(RunFolder(tmp_path / "nothing", 1))


def compared(program, steps):
    kwargs = {**program.kwargs, "steps": steps}
    return dtk.run(program.train, kwargs=kwargs), dtk.baseline(program.train, kwargs=kwargs)


@pytest.mark.trains
@pytest.mark.parametrize("name", ["attention adam", "loop relu adam", "two fits"])
def test_each_step_of_a_right_program_agrees(name):
    run, baseline = compared(RIGHT[name], 20)
    _, lines = run.followed(baseline)
    assert judged(run.folder, lines).proved


@pytest.mark.trains
def test_a_right_program_whose_rounding_grows_passes(capsys):
    dtk.verify(*compared(RIGHT["cnn bfloat16"], 60))
    assert PASS in capsys.readouterr().out


@pytest.mark.trains
@pytest.mark.parametrize("name", ["rate 1 % off, adam", "loop gradient"])
def test_a_small_mistake_shows_at_its_first_step(name):
    run, baseline = compared(WRONG[name], 30)
    follower, lines = run.followed(baseline)
    found = judged(run.folder, lines)
    assert found.differs == WRONG[name].first(30)
    assert found.variables
    assert follower.mode == "single"


@pytest.mark.trains
def test_without_states_nothing_is_followed(monkeypatch):
    monkeypatch.setenv("DTK_STATES", "0")
    program = RIGHT["cnn relu momentum"]
    run = dtk.run(program.train, kwargs={**program.kwargs, "steps": 3})
    assert not recorded_whole(run.folder)
