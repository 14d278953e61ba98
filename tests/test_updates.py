"""What was trained beside what was recorded: training that nobody recorded does not pass, and verify says what did."""

from __future__ import annotations

import numpy as np
import proof_programs
import pytest
from covered import (
    BATCH,
    COUNT,
    alone,
    by_hand,
    by_keyword,
    eager,
    skips_steps,
    then_more,
    three_fits,
    two_models,
    without_a_gradient,
)
from verifying import maker, refused

import dtk

pytestmark = pytest.mark.trains


def pair(fn, **kwargs):
    return dtk.run(fn, workers=2, kwargs=kwargs), dtk.baseline(fn, kwargs=kwargs)


def test_any_train_step_is_recorded_and_its_mistake_found():
    error = refused(*pair(three_fits, wrong=True))
    assert error.reason == "loss"
    assert error.step == COUNT // BATCH + 1


@pytest.mark.parametrize("start", ["warm"])
def test_three_fits_are_covered_and_said(capsys, start):
    run, baseline = pair(three_fits)
    capsys.readouterr()
    dtk.verify(run, baseline)
    assert "check updates: PASS (12 of 12 updates recorded, 3 models)" in capsys.readouterr().out
    assert len(run.weights) == 12


def test_a_fit_without_a_recorder_is_named():
    run, baseline = pair(three_fits, recorded=(True, False, True))
    error = refused(run, baseline)
    assert error.reason == "updates"
    assert "4 of the 12 updates that the cluster made were not recorded: 4 of 4 by " in str(error)
    assert "dense_2/kernel" in str(error)  # the second model's


def test_weights_that_change_after_the_fit_are_compared():
    error = refused(*pair(then_more, what="assign"))
    assert error.reason == "between"


def test_a_model_that_was_not_handed_over_is_named():
    error = refused(*pair(two_models, given="a", wrong="b"))
    assert error.reason == "updates"
    assert "4 of the 8 updates" in str(error)
    assert "dense_2/kernel" in str(error)


@pytest.mark.parametrize(
    ("given", "inside"),
    [
        ("both", True),
        pytest.param("list", False, marks=pytest.mark.slow),
    ],
)
def test_two_models_in_one_loop(given, inside, capsys):
    run, baseline = pair(two_models, given=given, inside=inside)
    capsys.readouterr()
    dtk.verify(run, baseline)
    assert "check updates: PASS (8 of 8 updates recorded, 2 models)" in capsys.readouterr().out
    assert len(run.weights) == 8
    assert {"loss.a", "loss.b"} <= {*run.records.columns}
    sums = run.records["loss.a"] + run.records["loss.b"]
    np.testing.assert_allclose(sums, run.records.loss, rtol=1e-12)


def test_an_optimizer_that_has_the_variables_of_a_copy_is_named():
    program = proof_programs.wrong()["optimizer on a copy"]
    found = dtk.diagnose(dtk.run(program.train, kwargs={**program.kwargs, "steps": 3}))
    assert found.mistake == "optimizer on a copy"


def test_steps_before_the_first_that_is_recorded_are_found():
    error = refused(*pair(skips_steps))
    assert error.reason == "updates"
    assert "2 of the 8 updates" in str(error)


def test_a_cluster_function_without_a_strategy_is_told_at_its_first_step():
    with pytest.raises(dtk.WorkerFailed, match="nothing makes a strategy, so each of the 2 workers trains alone"):
        dtk.run(alone, workers=2)
    assert len(dtk.baseline(alone).records) == COUNT // BATCH


def test_it_is_told_too_where_nothing_is_recorded(capsys):
    dtk.run(alone, workers=2, kwargs={"record": False})
    assert "nothing makes a strategy, so each of the 2 workers trains alone" in capsys.readouterr().out


@pytest.mark.parametrize("keras", [None, pytest.param(2, marks=pytest.mark.slow)])
def test_an_optimizer_may_be_called_by_keyword(keras, capsys):
    facts = {"keras": keras}
    dtk.verify(dtk.run(by_keyword, workers=2, **facts), dtk.baseline(by_keyword, **facts))
    assert "4 of 4 updates recorded, 1 model" in capsys.readouterr().out


def test_a_step_without_a_gradient_has_no_loss_and_verify_says_so():
    run = dtk.baseline(without_a_gradient)
    error = refused(dtk.run(without_a_gradient, workers=1, replicas=1), run)
    assert error.reason == "records"
    assert "took no gradient" in str(error)


@pytest.fixture
def make(tmp_path):
    return maker(tmp_path)


def test_without_a_count_nothing_passes(make):
    error = refused(make(updates=False), make("single"))
    assert error.reason == "updates"
    assert "nothing tells how many updates the cluster has made" in str(error)


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.slow  # the gallery and the fuzzed programs have it, too
def test_a_rate_by_the_number_of_replicas_passes_as_so_many_however_small_it_is(traced, capsys):
    right, baseline = pair(eager, traced=traced)
    assert dtk.verify(right, baseline).verdict == "one device"
    assert dtk.verify(*pair(eager, traced=traced, by_replicas=True)).verdict == "replicas"
    assert "the learning rate depends on the number of replicas" in capsys.readouterr().out


@pytest.mark.slow  # the gallery and the fuzzed programs have it, too
def test_training_by_hand_beside_a_recorded_fit_is_found():
    error = refused(*pair(by_hand))
    assert (error.reason, error.step) == ("update", 5)
