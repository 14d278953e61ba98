"""`dtk.diagnose(..., try_it=True)`: what further runs decide, and that they are made of what lies in the directory."""

from __future__ import annotations

import json

import numpy as np
import pytest
from diagnosing import later, means, other_losses, pair, prints, rated, said, traced
from suspected import TRIED, by_fit
from verifying import END, START, STEPS, maker

import dtk
from dtk.errors import ClusterConfigError, WorkerFailed
from dtk.events import Augments

pytestmark = pytest.mark.slow  # the runs that decide between two diagnoses, made for real


@pytest.fixture
def make(tmp_path):
    return maker(tmp_path)


def answers(runs, monkeypatch, *, run=None, baseline=None):
    """Has `again` of both answer with what the two functions return; returns what was asked for."""
    asked = []
    for side, made in zip(runs, (run, baseline), strict=True):

        def again(side=side, made=made, **changes):
            asked.append((side.mode, changes))
            return made(**changes)

        monkeypatch.setattr(side, "again", again, raising=False)
    return asked


def tried(runs):
    diagnosis = dtk.diagnose(*runs, try_it=True)
    assert diagnosis.evidence[0].startswith("tested: ")
    return diagnosis


# --- in made-up numbers: which runs are asked for, and what follows from them


def test_without_draws_they_agree(make, monkeypatch):
    runs, right = pair(make, change=other_losses), pair(make)
    same = pair(make)[1]
    asked = answers(
        runs, monkeypatch, run=lambda **_: right[0], baseline=lambda **changes: right[1] if changes else same
    )
    diagnosis = tried(runs)
    assert diagnosis.mistake == "random"
    assert "both runs with nothing drawn at random: verify passes" in diagnosis.evidence[0]
    assert asked == [("single", {}), ("cluster", {"without": ("random",)}), ("single", {"without": ("random",)})]


def test_what_was_hidden_behind_the_draws(make, monkeypatch):
    runs, twice = pair(make, change=lambda s: other_losses(s) * 2), pair(make, change=lambda s: s * 2)
    answers(runs, monkeypatch, run=lambda **_: twice[0], baseline=lambda **_: pair(make)[1])
    diagnosis = tried(runs)
    assert diagnosis.mistake == "local mean"
    assert str(diagnosis).startswith("both runs with nothing drawn at random differ still: at step 1")


def test_a_trial_that_ends_in_nan_refutes_nothing(make, monkeypatch):
    runs, lost = pair(make, change=other_losses), pair(make, change=lambda s: s * np.nan)
    answers(runs, monkeypatch, run=lambda **_: lost[0], baseline=lambda **_: pair(make)[1])
    diagnosis = tried(runs)
    assert (diagnosis.mistake, "random" in diagnosis.also) == ("unknown", True)


def test_a_baseline_that_differs_from_itself_ends_it(make, monkeypatch):
    runs, other = pair(make, change=other_losses), pair(make, baseline={"shares": means(2)[:, :1]})[1]
    asked = answers(runs, monkeypatch, baseline=lambda **_: other)
    assert tried(runs).mistake == "not reproducible"
    assert asked == [("single", {})]


@pytest.mark.parametrize(("times", "key"), [(3.0, "regularisation"), (2.0, "whole batch"), (1.0, "unknown")])
def test_the_excess_of_a_part_added_whole_grows_with_the_replicas(make, monkeypatch, times, key):
    runs = traced(pair(make, change=lambda s: s + 0.0834))
    base = means(2).mean(axis=1, keepdims=True)
    four = make(
        workers=4,
        shares=np.repeat((base + times * 0.1668) / 4, 4, axis=1),
        examples=np.full((STEPS, 4), 8),
        final=END,
    )
    asked = answers(runs, monkeypatch, run=lambda **_: four, baseline=lambda **_: pair(make)[1])
    diagnosis = tried(runs)
    assert diagnosis.mistake == key
    assert f"off by {times:g} times as much as with 2; a part added whole gives 3" in diagnosis.evidence[0]
    assert asked[-1] == ("cluster", {"workers": 4})


def further(times):
    return [s + times * (e - s) for s, e in zip(START, END, strict=True)]


def test_clipping_or_the_rate(make, monkeypatch):
    def runs():
        uncounted = {"updates": False, "baseline": {"updates": False}}
        return pair(make, change=later(0.9), final=further(1.95), **uncounted)

    def fails(**_):
        raise WorkerFailed("worker 0 raised NotImplementedError", worker=0)

    found, right = runs(), pair(make)
    found = tuple(rated(side, 0.1, 0.1, clips=None) for side in found)
    asked = answers(
        found,
        monkeypatch,
        run=lambda **_: right[0],
        baseline=lambda **changes: fails() if "rate" in changes else right[1],
    )
    diagnosis = tried(found)
    assert diagnosis.mistake == "clipping"
    assert "could not be made (worker 0 raised NotImplementedError)" in diagnosis.evidence[0]
    assert ("single", {"rate": 2.0}) in asked
    found = tuple(rated(side, 0.1, 0.1, clips=None) for side in runs())
    shares = found[0].records.groupby("step").loss.sum().to_numpy()[:, None]
    faster = make("single", shares=shares, examples=np.full((STEPS, 1), 32), final=further(1.95))
    answers(found, monkeypatch, baseline=lambda **changes: faster if changes else right[1])
    assert tried(found).mistake == "learning rate"


def test_what_no_run_confirms_stays_open(make, monkeypatch):
    def runs():
        return pair(make, change=later(0.9), final=further(1.95), updates=False, baseline={"updates": False})

    def answer(before, after):
        before = tuple(rated(side, 0.1, 0.1, clips=before) for side in runs())
        wrong, right = runs()[0], pair(make)[1]
        for side in (wrong, right):
            rated(side, 0.1, 0.1, clips=after)
        answers(before, monkeypatch, run=lambda **_: wrong, baseline=lambda **_: right)
        return tried(before)

    diagnosis = answer(["clipnorm=1.0"], ["clipnorm=1.0"])
    assert (diagnosis.mistake, diagnosis.also) == ("unknown", ())
    assert "both runs without clipping: they differ still" in diagnosis.evidence[0]
    # A switch that had no effect, or perhaps none, refutes nothing.
    for left in (None, ["clip_by_norm"]):
        diagnosis = answer(left, left)
        assert "clipping" in diagnosis.also
        assert "both runs without clipping refute nothing" in diagnosis.evidence[0]


@pytest.mark.parametrize(
    ("left", "key"), [([], "whole batch"), (["RandomGammaV3 at noise"], "random"), (None, "random")]
)
def test_draws_that_are_still_there_are_not_refuted(make, monkeypatch, left, key):
    runs = traced(pair(make, change=other_losses), ["RandomUniform"])
    still = traced(pair(make, change=other_losses), left)

    def run(**changes):
        if "workers" in changes:
            raise ClusterConfigError("4 workers do not fit; ask for fewer")
        return still[0]

    answers(runs, monkeypatch, run=run, baseline=lambda **changes: still[1] if changes else pair(make)[1])
    assert tried(runs).mistake == key


@pytest.mark.parametrize(("kind", "open"), [(np.float32, True), (np.float64, False)])
def test_a_loop_that_stays_in_float32_refutes_no_rounding(make, monkeypatch, kind, open):
    def parting(kind):
        late = np.where(np.arange(STEPS) < 5, 1 + 1e-6, 1 + 5e-4)[:, None]
        ends = [end.astype(kind) for end in END]
        return traced(pair(make, change=lambda s: s * late, final=ends, baseline={"final": ends}))

    runs, still = parting(np.float32), parting(kind)
    answers(runs, monkeypatch, run=lambda **_: still[0], baseline=lambda **c: still[1] if c else pair(make)[1])
    diagnosis = tried(runs)
    assert ("rounding" in (diagnosis.mistake, *diagnosis.also)) == open
    assert open == ("refute nothing: still there is float32 in w0" in diagnosis.evidence[0])


def test_a_map_that_was_refuted_is_not_named(make, monkeypatch):
    def spoiled(*draws):
        data = prints(lambda data: data + 0.1 * np.arange(STEPS)[:, None])
        return tuple(said(side, Augments, draws=list(draws)) for side in pair(make, change=other_losses, data=data))

    runs, still = spoiled("RandomUniform"), spoiled()
    answers(runs, monkeypatch, run=lambda **_: still[0], baseline=lambda **c: still[1] if c else pair(make)[1])
    diagnosis = tried(runs)
    assert "augmentation" not in (diagnosis.mistake, *diagnosis.also)
    assert diagnosis.mistake == "unknown"


def test_a_rate_that_nothing_scales_stays_open(make, monkeypatch):
    """Optimizers that are none of Keras: the baseline runs as it did, which refutes nothing."""
    runs = traced(pair(make, change=later(0.9), final=further(1.95)))
    asked = answers(runs, monkeypatch, baseline=lambda **_: pair(make)[1])
    assert "learning rate" in (tried(runs).mistake, *tried(runs).also)
    assert not any("rate" in changes for _, changes in asked)


def test_what_is_certain_costs_no_run(make, monkeypatch):
    runs = pair(make, change=lambda s: s * 2)
    asked = answers(runs, monkeypatch)
    assert tried(runs).mistake == "local mean"
    assert asked == []


def test_runs_whose_directory_is_not_complete_decide_nothing(make):
    runs = pair(make, change=other_losses)
    diagnosis = tried(runs)
    assert (diagnosis.mistake, diagnosis.also) == ("unknown", ("random", "whole batch"))
    assert "has no job.json: run it anew" in diagnosis.evidence[0]


def test_an_unknown_switch_is_refused(make):
    with pytest.raises(ClusterConfigError, match="without='dropout': it takes 'batch norm', 'clipping'"):
        make().again(without=("dropout",))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"worker": 3}, r"again\(worker=...\): it takes workers, "),
        ({"payload": b""}, "again"),
        ({"workers": 0}, "a whole number from 1 up"),
        ({"replicas": True}, "a whole number from 1 up"),
        ({"rate": -1.0}, "a finite number above 0"),
        ({"rate": float("nan")}, "a finite number above 0"),
        ({"without": "random"}, r"pass a tuple, \('random',\)"),
    ],
)
def test_changes_that_can_not_be_are_refused(make, changes, words):
    run = with_job(make(), workers=2, replicas=1, mode="cluster")
    with pytest.raises(ClusterConfigError, match=words):
        run.again(**changes)


def with_job(run, **facts):
    """The run, with the files that it takes to make it again; their content is not looked at before it is started."""
    job = {
        "seed": 0,
        "keras": None,
        "strategy": False,
        "share": 2,
        "fork": True,
        "timeout": None,
        "stall_timeout": None,
    }
    (run.dir / "job.json").write_text(json.dumps({**job, **facts}))
    (run.dir / "function.pkl").write_bytes(b"")
    (run.dir / "sources.json").write_text("[]")
    return run


# --- real runs


@pytest.mark.parametrize("name", TRIED)
def test_further_runs_name_the_mistake(name, capsys):
    mistake, facts, tolerances = TRIED[name]
    run, baseline = dtk.run(**facts), dtk.baseline(**facts)
    capsys.readouterr()
    diagnosis = dtk.diagnose(run, baseline, try_it=True, **tolerances)
    assert capsys.readouterr().out == ""
    assert diagnosis.mistake == mistake, f"{diagnosis} {diagnosis.evidence}"


def test_float64_takes_rounding_away():
    def apart(run, baseline):
        mine, other = (side.records.groupby("step").loss.sum().to_numpy() for side in (run, baseline))
        return np.abs(mine - other).max()

    pair = dtk.run(by_fit), dtk.baseline(by_fit)
    assert apart(*pair) > 1e-9
    assert apart(*(side.again(without=("rounding",)) for side in pair)) < 1e-13


def test_a_run_is_made_again_from_its_directory(capsys):
    def train(count):
        import os

        print("TF_CONFIG" in os.environ)
        return count + dtk.environment.here().workers

    run = dtk.run(train, args=(3,), workers=2, seed=5)
    capsys.readouterr()
    again = run.again()
    assert capsys.readouterr().out == ""
    assert (again.results, again.seed, again.workers, again.mode) == ([5, 5], 5, 2, "cluster")
    assert again.dir != run.dir
    assert (again.dir / "function.pkl").read_bytes() == (run.dir / "function.pkl").read_bytes()
    assert json.loads((again.dir / "sources.json").read_text()) == json.loads((run.dir / "sources.json").read_text())
    assert run.again(workers=3, seed=1).results == [6, 6, 6]
