"""Seeds and weights: at the start, between replicas, at the end; each fails at twice its tolerance and not at half."""

from __future__ import annotations

import numpy as np
import pytest
from verifying import END, START, curve_of, maker, refused, replaced, uneven_pair

from dtk import verify


@pytest.fixture
def make(tmp_path):
    return maker(tmp_path)


# --- the start


def test_different_seeds(make):
    error = refused(make(seed=3), make("single", initial=replaced(START, 0, 1)))
    assert "baseline: seed 0, cluster: seed 3" in str(error)
    assert error.reason == "seeds"


def test_a_seed_left_to_the_function_is_judged_by_the_weights(make):
    verify(make(seed=None), make("single"))
    error = refused(make(seed=None), make("single", initial=replaced(START, 0, 1)))
    assert "(seeds: None and 0)" in str(error)


def test_initial_weights_differ(make):
    verify(make(), make("single", initial=replaced(START, 1, 0.5e-4)))
    error = refused(make(), make("single", initial=replaced(START, 1, 2e-4)))
    assert "start from different weights: w1 (array 1 of 2, shape (2,)) differs by up to 2e-4" in str(error)
    assert (error.step, error.reason) == (1, "initial weights")


def test_initial_weights_that_are_no_numbers(make):
    error = refused(make(initial=replaced(START, 0, np.nan)), make("single", initial=replaced(START, 0, np.nan)))
    assert "w0 (array 0 of 2, shape (3, 2)) differs by NaN or infinite values" in str(error)


def test_models_of_different_shape_or_size(make):
    wide = [np.full((3, 4), 0.5, np.float32), START[1]]
    error = refused(make(), make("single", initial=wide))
    assert "weight 0 (w0) has the shape (3, 4) in the baseline, (3, 2) in the cluster" in str(error)
    assert "1 weight arrays in the baseline, 2 in the cluster" in str(
        refused(make(), make("single", initial=START[:1]))
    )
    error = refused(make(), make("single", final=END[:1]))
    assert (error.reason, "the models differ" in str(error)) == ("final weights", True)


def test_layers_may_be_counted_differently(make):
    baseline = make("single")
    for which, arrays in (("initial", START), ("final", END)):
        baseline.folder.worker(0).save_weights(which, ["dense_7/kernel", "dense_7/bias"], arrays)
    verify(make(), baseline)


@pytest.mark.parametrize("which", ["initial", "final"])
@pytest.mark.parametrize("worker", [0, 1])
def test_weights_that_nothing_recorded(make, which, worker):
    run = make()
    (run.folder.worker(worker).path / f"weights-{which}.npz").unlink()
    error = refused(run, make("single"))
    assert f"nothing recorded the {which} weights of worker {worker}" in str(error)
    assert error.reason == f"{which} weights"


def test_weights_that_the_baseline_lacks(make):
    baseline = make("single")
    (baseline.folder.worker(0).path / "weights-final.npz").unlink()
    assert "nothing recorded the final weights of the baseline" in str(refused(make(), baseline))


# --- replicas


def test_one_worker_is_off_in_the_last_bit(make):
    other = [END[0].copy(), END[1]]
    other[0][2, 1] = np.nextafter(other[0][2, 1], np.float32(1))
    error = refused(make(workers=4, final=[END, END, other, END]))
    assert (
        "worker 0 and worker 2 hold different final weights: w0 (array 0 of 2, shape (3, 2)) differs by up to 6e-8"
        in str(error)
    )
    assert error.reason == "replicas"


def test_the_array_with_the_largest_difference_is_named(make):
    other = [END[0] + np.float32(1e-3), END[1] + np.float32(0.5)]
    assert "w1 (array 1 of 2, shape (2,)) differs by up to 5e-1" in str(refused(make(final=[END, other])))


def test_workers_start_from_different_weights(make):
    run = make()
    run.folder.worker(1).save_weights("initial", ["a", "b"], replaced(START, 0, 1e-6))
    assert "hold different initial weights: w0" in str(refused(run))


def test_workers_hold_different_models(make):
    assert "hold different models (2 and 1 weight arrays" in str(refused(make(final=[END, END[:1]])))


def test_replicas_of_one_worker_disagree(make):
    error = refused(make("mirrored", identical=False), make("single"))
    assert "the 2 replicas of the mirrored run hold different final weights, w0 among them" in str(error)
    assert error.reason == "replicas"


def test_replicas_of_one_worker_were_not_compared(make):
    error = refused(make("mirrored", identical=None))
    assert "nothing recorded whether they agree" in str(error)


# --- the end


def test_one_final_weight(make):
    for change in (0.5e-4, -0.5e-4):
        verify(make(final=replaced(END, 1, change)), make("single"))
    for change in (2e-4, -2e-4):
        error = refused(make(final=replaced(END, 1, change)), make("single"))
        assert "the final weights differ: w1 (array 1 of 2, shape (2,)) differs by up to 2e-4, over atol=1e-4" in str(
            error
        )
        assert error.reason == "final weights"


def test_weights_that_agree_only_because_they_hardly_moved(make):
    """By a rate of 1e-6 or so: twice as far is within atol, and another training all the same."""
    slow = [array + np.float32(2e-5) for array in START]
    verify(make(final=slow), make("single", final=slow))
    nearly = [array + np.float32(2.02e-5) for array in START]
    verify(make(final=nearly), make("single", final=slow))
    error = refused(make(final=[array + np.float32(4e-5) for array in START]), make("single", final=slow))
    assert error.reason == "final weights"
    assert "only as they moved so little" in str(error)
    assert "the two ways differ by 50 % of the longer one" in str(error)


def test_a_slow_model_does_not_hide_behind_a_fast_one(make):
    """Each model's way is compared by itself."""
    run, baseline = make(), make("single")
    for side, moved in ((run, 4e-5), (baseline, 2e-5)):
        for corner in side.folder.each:
            corner.save_weights("initial", ["v"], [np.zeros(3, np.float32)], "slow", 1)
            corner.save_weights("final", ["v"], [np.full(3, moved, np.float32)], "slow", 1)
    assert "the weights of slow agree to atol=1e-4, but only as they moved so little" in str(refused(run, baseline))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_final_weights_that_are_no_numbers(make, value):
    lost = replaced(END, 0, value)
    assert "holds NaN or infinite values in the cluster;" in str(refused(make(final=lost), make("single")))
    both = refused(make(final=lost), make("single", final=lost))
    assert "holds NaN or infinite values in the cluster and the baseline;" in str(both)


def test_no_sentence_has_a_pid_a_path_or_a_line_break(make):
    pairs = [(make(shares=curve_of(2) * 2), make("single")), (make(final=replaced(END, 0, 1)), make("single"))]
    for run, baseline in [*pairs, uneven_pair(make, [3, 2])]:
        message = str(refused(run, baseline))
        assert str(run.dir) not in message
        assert "\n" not in message
