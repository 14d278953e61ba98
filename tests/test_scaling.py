"""Shares, means and the global loss, on numbers small enough to check by head."""

from __future__ import annotations

import numpy as np
import pytest

import dtk
from dtk.records.tables import frame
from dtk.scaling.shares import by_step, global_loss, uneven, weighted_loss


def random_step(rng: np.random.Generator, counts: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Every example's loss, and the replicas' shares of it as `fit` computes them: mean over replica, over R."""
    losses = rng.random(sum(counts)) + 0.1
    parts = np.split(losses, np.cumsum(counts)[:-1])
    return losses, np.array([[part.mean() / len(counts) for part in parts]])


COUNTS = [[4, 4], [3, 2], [1, 1, 1, 1], [5, 2, 1, 1], [64]]


@pytest.mark.parametrize("counts", COUNTS)
def test_weighting_by_examples_gives_back_the_mean_over_all_examples(counts):
    losses, shares = random_step(np.random.default_rng(0), counts)
    assert weighted_loss(shares, [counts])[0] == pytest.approx(losses.mean(), rel=1e-12)


@pytest.mark.parametrize("counts", COUNTS)
def test_the_sum_of_shares_is_the_mean_where_batches_are_even_alone(counts):
    losses, shares = random_step(np.random.default_rng(2), counts)
    apart = abs(global_loss(shares, [counts])[0] / losses.mean() - 1)
    assert apart < 1e-12 if len({*counts}) == 1 else apart > 1e-3


@pytest.mark.parametrize("empty", [0.0, float("nan")])
def test_a_replica_without_examples_adds_nothing(empty):
    shares, examples = [[1.0, empty]], [[1, 0]]
    assert global_loss(shares, examples).tolist() == [1.0]
    assert weighted_loss(shares, examples).tolist() == [2.0]  # one device: the one example's loss is 2
    assert uneven(examples).tolist() == [True]


def test_a_loss_that_is_nan_with_examples_stays_nan():
    assert np.isnan(global_loss([[1.0, float("nan")]], [[1, 1]])[0])
    assert np.isnan(weighted_loss([[1.0, float("nan")]], [[1, 1]])[0])
    assert np.isnan(weighted_loss([[0.0, 0.0]], [[0, 0]])[0]), "a step without any example has no mean"


def test_by_step_is_steps_by_replicas_and_refuses_duplicates():
    rows = [(r, r, s, 1, 10.0 * s + r, 4, 0.0, 1.0) for r in (1, 0) for s in (2, 1, 3)]
    assert by_step(frame(rows), "loss").to_numpy().tolist() == [[10.0, 11.0], [20.0, 21.0], [30.0, 31.0]]
    with pytest.raises(ValueError, match="step 2 of replica 1 is recorded more than once"):
        by_step(frame([*rows, rows[0]]), "loss")


# ---- against TensorFlow itself, on two replicas


LOSSES = {
    "the tutorial's four": ([2.0, 3.0], [4.0, 5.0]),
    "a short last batch": ([2.0, 3.0], [4.0]),
    "one replica without examples": ([2.0, 3.0], []),
}
BATCH = 4


def by_tensorflow(strategy):
    """For each case the share that TensorFlow computes on each replica."""
    import tensorflow as tf

    found = {}
    for name, losses in LOSSES.items():
        each = strategy.experimental_distribute_values_from_function(
            lambda context, losses=losses: tf.constant(losses[context.replica_id_in_sync_group], tf.float64)
        )
        shares = strategy.run(lambda losses: tf.nn.compute_average_loss(losses, global_batch_size=BATCH), args=(each,))
        found[name] = [float(value) for value in strategy.experimental_local_results(shares)]
    return found


@pytest.fixture(scope="module")
def tensorflow():
    return dtk.run(by_tensorflow, workers=1, replicas=2).results[0]


@pytest.mark.trains
@pytest.mark.parametrize("name", LOSSES)
def test_the_shares_add_up_to_the_global_loss(tensorflow, name):
    shares, examples = tensorflow[name], [[len(losses) for losses in LOSSES[name]]]
    assert [sum(losses) / BATCH for losses in LOSSES[name]] == pytest.approx(shares)
    every = [loss for losses in LOSSES[name] for loss in losses]
    assert global_loss([shares], examples)[0] == pytest.approx(sum(every) / BATCH)


@pytest.mark.trains
def test_the_tutorials_numbers(tensorflow):
    assert tensorflow["the tutorial's four"] == [1.25, 2.25]
