"""The loss of every step passes at half the tolerance and fails at twice; uneven batches are explained."""

from __future__ import annotations

import numpy as np
import pytest
from verifying import STEPS, curve_of, maker, refused, short_batch, uneven_pair

from dtk import verify


@pytest.fixture
def make(tmp_path):
    return maker(tmp_path)


@pytest.mark.parametrize("workers", [2, 4])
@pytest.mark.parametrize("step", [1, 13, STEPS])
def test_the_loss_at_one_step(make, workers, step):
    baseline = make("single")
    verify(make(workers=workers, shares=curve_of(workers, step, 1 + 0.5e-4)), baseline)
    for factor in (1 + 2e-4, 1 - 2e-4):
        error = refused(make(workers=workers, shares=curve_of(workers, step, factor)), baseline)
        assert "relative difference 0.00020 (0.020 %)" in str(error)
        assert (error.step, error.reason) == (step, "loss")


def test_a_doubled_loss_shows_its_numbers(make):
    error = refused(make(shares=curve_of(2) * 2), make("single"))
    assert "one device 2.3, cluster 4.6, relative difference 1.0 (100 %)" in str(error)
    assert error.numbers["run"] == pytest.approx(2 * error.numbers["baseline"])


def test_a_loss_of_nearly_0_is_compared_to_float32s_rounding(make):
    shares, base = curve_of(2) * 0 + 5e-8, np.full((STEPS, 1), 1.3e-7)
    verify(make(shares=shares), make("single", shares=base))
    assert refused(make(shares=shares), make("single", shares=base + 1e-6)).step == 1


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("both", [True, False])
def test_a_loss_that_is_no_number(make, value, both):
    shares, base = curve_of(2), curve_of(1)
    shares[3:, 1] = value
    base[3:] = value if both else base[3:]
    error = refused(make(shares=shares), make("single", shares=base))
    assert "the loss at step 4 is not finite" in str(error)
    assert ("replica 1" in str(error), "replica 0" in str(error)) == (True, False)
    assert (error.step, error.reason) == (4, "loss")


def test_a_short_last_batch_that_splits_evenly_passes(make):
    verify(*uneven_pair(make, [8, 8]))


@pytest.mark.parametrize(("kind", "who"), [("fit", "Keras fit"), ("loop", "the loop")])
def test_an_uneven_last_batch_is_explained(make, kind, who):
    error = refused(*uneven_pair(make, [8, 7], kind=kind))
    assert error.reason == "uneven batch"
    assert f"has 15 examples: 8 on replica 0, 7 on replica 1; {who} averages the replicas' means" in str(error)


@pytest.mark.parametrize("counts", [[1, 0], [64, 63], [3, 2, 2, 2]])
def test_other_uneven_batches_are_explained(make, counts):
    assert refused(*uneven_pair(make, counts)).reason == "uneven batch"


def test_a_wrong_loss_at_an_uneven_batch_is_not_explained_away(make):
    assert refused(*uneven_pair(make, [8, 7], spoil=1.2)).reason == "loss"


def test_the_second_uneven_batch_is_explained_where_the_first_agreed(make):
    shares, base, examples = short_batch(np.random.default_rng(5), [8, 7])
    examples[4] = [60, 68]
    base[4] = (shares[4] * 2 * examples[4]).sum() / 128
    shares[4] = base[4] / 2  # the means are the same, so that it does not matter how many examples each has
    counts = examples.sum(axis=1, keepdims=True)
    error = refused(make(shares=shares, examples=examples), make("single", shares=base, examples=counts))
    assert (error.step, error.reason) == (STEPS, "uneven batch")
