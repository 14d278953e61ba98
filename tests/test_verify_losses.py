"""The global loss at every step passes at half the tolerance and fails at twice; uneven batches are explained."""

from __future__ import annotations

import numpy as np
import pytest
from verifying import STEPS, curve_of, edit_records, maker, refused, restarted, short_batch, uneven_pair

from dtk import verify


@pytest.fixture
def make(tmp_path):
    return maker(tmp_path)


# --- losses


@pytest.mark.parametrize("workers", [2, 4])
@pytest.mark.parametrize("step", [1, 13, STEPS])
def test_the_loss_at_one_step(make, workers, step):
    baseline = make("single")
    verify(make(workers=workers, shares=curve_of(workers, step, 1 + 0.5e-4)), baseline)
    for factor in (1 + 2e-4, 1 - 2e-4):
        error = refused(make(workers=workers, shares=curve_of(workers, step, factor)), baseline)
        assert f"the losses differ from step {step} on: both near" in str(error)
        assert ", relative difference 0.00020 (0.020 %), over rtol=1e-4" in str(error)
        assert (error.step, error.reason) == (step, "loss")


def test_a_doubled_loss_shows_its_numbers(make):
    error = refused(make(shares=curve_of(2) * 2), make("single"))
    assert "the losses differ from step 1 on: baseline 2.3, cluster 4.6, relative difference 1.0 (100 %)" in str(error)
    assert "mean over the global batch" in str(error)


def test_the_first_step_at_which_they_differ_is_named(make):
    shares = curve_of(2)
    shares[5:] *= 1.01
    assert refused(make(shares=shares), make("single")).step == 6


def test_a_loss_of_nearly_0_is_compared_to_float32s_rounding(make):
    tiny = np.full((STEPS, 1), 1e-6)
    verify(make(shares=np.full((STEPS, 2), 0.7e-6)), make("single", shares=tiny))
    assert refused(make(shares=np.full((STEPS, 2), 0.8e-6)), make("single", shares=tiny)).step == 1


@pytest.mark.parametrize(("value", "name"), [(float("nan"), "NaN"), (float("inf"), "infinite")])
def test_a_loss_that_is_no_number_in_both(make, value, name):
    shares, base = curve_of(2), curve_of(1)
    shares[10:] = base[10:] = value
    error = refused(make(shares=shares), make("single", shares=base))
    assert f"the loss is {name} from step 11 in both" in str(error)
    assert (error.step, error.reason) == (11, "loss")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_loss_that_is_no_number_in_one(make, value):
    shares = curve_of(2)
    shares[3, 1] = value
    error = refused(make(shares=shares), make("single"))
    assert f"the loss at step 4 is not finite: baseline 2.02, cluster {value:g}, on replica 1 alone" in str(error)
    assert "computed at this one by replica 1 alone: its examples, its memory" in str(error)
    assert error.step == 4


def test_a_loss_that_is_no_number_on_each_replica(make):
    shares = curve_of(2)
    shares[0] = float("nan")
    error = refused(make(shares=shares), make("single"))
    assert "the loss at step 1 is not finite: baseline 2.3, cluster nan, on each of the 2 replicas;" in str(error)
    assert "of the one that is not finite: weights, rate, loss function, all examples" in str(error)


# --- the last batch


def test_a_short_last_batch_that_splits_evenly_passes(make):
    verify(*uneven_pair(make, [3, 3]))
    verify(*uneven_pair(make, [1, 1, 1, 1], step=10))


def test_an_uneven_last_batch_is_explained(make):
    error = refused(*uneven_pair(make, [3, 2], step=15, drift=1.003))
    assert str(error) == (
        "step 15, the last batch of the epoch, has 5 examples: 3 on replica 0, 2 on replica 1; Keras fit averages the "
        "replicas' means, so that an example counts 1/6 where a replica has 3, 1/4 where a replica has 2, and 1/5 on "
        "one device (weighted by examples the losses agree); use drop_remainder=True, or a custom loop that divides by "
        "the global batch"
    )
    assert (error.step, error.reason) == (15, "uneven batch")


def test_a_loop_that_averages_unequal_batches_is_called_one(make):
    assert "; the loop averages the replicas' means, so that" in str(refused(*uneven_pair(make, [3, 2], kind="loop")))


@pytest.mark.parametrize("counts", [[1, 0], [2, 1, 1, 1], [1, 1, 0, 0]])
def test_other_uneven_batches_are_explained(make, counts):
    error = refused(*uneven_pair(make, counts))
    assert (error.step, error.reason) == (STEPS, "uneven batch")


def test_a_replica_without_examples_whose_share_is_nan(make):
    shares, base, examples = short_batch(np.random.default_rng(5), [1, 0])
    shares[-1, 1] = float("nan")
    baseline = make("single", shares=base, examples=examples.sum(axis=1, keepdims=True))
    assert refused(make(shares=shares, examples=examples), baseline).reason == "uneven batch"


def test_batches_that_are_uneven_at_every_step_are_no_penalty(make):
    """45 and 44 examples: below the tolerance, from step 1 on and by nearly as much, as a term that is added whole."""
    rng, examples = np.random.default_rng(5), np.tile([45, 44], (STEPS, 1))
    each = 2.3 + 0.001 * rng.random((STEPS, 1)) + np.array([[-0.005, 0.005]])
    base = (each * examples).sum(axis=1, keepdims=True) / 89
    counts = examples.sum(axis=1, keepdims=True)
    error = refused(make(shares=each / 2, examples=examples), make("single", shares=base, examples=counts))
    assert (error.step, error.reason) == (1, "uneven batch")
    # One that the weights don't explain is still no rounding.
    more = make(shares=each / 2 + 4e-5, examples=examples)
    assert refused(more, make("single", shares=base, examples=counts)).reason == "offset"


def test_an_uneven_batch_within_the_tolerance_passes(make):
    shares, base, examples = short_batch(np.random.default_rng(5), [3, 2])
    shares[-1] = base[-1] / 2
    verify(make(shares=shares, examples=examples), make("single", shares=base, examples=examples.sum(1, keepdims=True)))


@pytest.mark.parametrize("spoil", [1 + 2e-4, 2.0])
def test_a_wrong_loss_at_an_uneven_batch_is_not_explained_away(make, spoil):
    error = refused(*uneven_pair(make, [3, 2], step=15, spoil=spoil))
    assert (error.step, error.reason) == (15, "loss")
    assert "so that is not the reason, or not the only one" in str(error)


def test_a_wrong_loss_before_the_uneven_batch_is_not_explained_away(make):
    run, baseline = uneven_pair(make, [3, 2], step=15)
    edit_records(run, 0, lambda rows: [[*row[:3], row[3] * (1 + 0.01 * (row[1] == 8)), *row[4:]] for row in rows])
    error = refused(run, baseline)
    assert (error.step, error.reason) == (8, "loss")


def test_the_second_uneven_batch_is_explained_where_the_first_agreed(make):
    shares, base, examples = short_batch(np.random.default_rng(5), [3, 2])
    shares[9], examples[9] = base[9] / 2, [3, 2]
    baseline = make("single", shares=base, examples=examples.sum(axis=1, keepdims=True))
    error = refused(make(shares=shares, examples=examples), baseline)
    assert (error.step, error.reason) == (STEPS, "uneven batch")


def test_rounding_and_kinks_are_named_for_a_small_difference_only(make):
    small, large = (refused(make(shares=curve_of(2, 9, 1 + d)), make("single")) for d in (0.005, 0.02))
    assert "kink such as relu" in str(small)
    assert "kink such as relu" not in str(large)


def test_a_difference_after_an_uneven_batch_that_agreed_is_no_proof(make):
    shares, base, examples = short_batch(np.random.default_rng(5), [3, 2], step=15)
    shares[14] = base[14] / 2
    shares[17:] *= 1.003
    baseline = make("single", shares=base, examples=examples.sum(axis=1, keepdims=True))
    error = refused(make(shares=shares, examples=examples), baseline)
    assert (error.step, error.reason) == (18, "loss")
    assert "step 15 had unequal batches (3 on replica 0, 2 on replica 1)" in str(error)


def test_losses_that_differ_where_an_attempt_began_are_the_checkpoints(make):
    run = make(shares=curve_of(2, 9, 1.05))
    restarted(run, 9)
    error = refused(run, make("single"))
    assert (error.step, error.reason) == (9, "loss")
    assert "the losses differ from step 9 on" in str(error)
    assert "attempt 2 began here: what its checkpoint does not hold began anew (the place in the data" in str(error)


def test_losses_that_are_too_small_to_compare_are_no_pass(make, capsys):
    small = curve_of(2) * 1e-8
    verify(make(shares=small * 2), make("single", shares=small.sum(axis=1, keepdims=True)))
    out = capsys.readouterr().out
    assert "loss vs single device: not compared (below 1e-6 at every step" in out
    assert "check loss" not in out


def test_a_difference_that_is_the_same_from_step_1_on_is_no_rounding(make):
    shares = curve_of(2)
    error = refused(make(shares=shares + 3e-5), make("single", shares=shares.sum(axis=1, keepdims=True)))
    assert (error.reason, error.step) == ("offset", 1)
    assert "by nearly as much at the 3 steps after it" in str(error)
