"""The arithmetic of `dtk.scaling.shares` against TensorFlow itself, on two replicas."""

from __future__ import annotations

import lanes
import numpy as np
import pytest

import dtk
from dtk.scaling import shares as scaling

pytestmark = pytest.mark.trains

LOSSES = {
    "the tutorial's four": ([2.0, 3.0], [4.0, 5.0]),
    "a short last batch": ([2.0, 3.0], [4.0]),
    "one replica without examples": ([2.0, 3.0], []),
    "labels of 2 x 2": ([[[1.0, 2.0], [3.0, 6.0]]], [[[2.0, 2.0], [5.0, 7.0]]]),
}
WEIGHTS = {"the tutorial's four": ([1.0, 0.5], [0.25, 0.0]), "a short last batch": (2.0, 3.0)}
BATCH = 4


def by_tensorflow(strategy):
    """For each case what TensorFlow computes on each replica, and what a Mean metric makes of it."""
    import keras
    import tensorflow as tf

    found = {}
    for name, losses in LOSSES.items():
        each = strategy.experimental_distribute_values_from_function(
            lambda context, losses=losses: tf.constant(losses[context.replica_id_in_sync_group], tf.float64)
        )
        weights = strategy.experimental_distribute_values_from_function(
            lambda context, name=name: tf.constant(WEIGHTS.get(name, (1.0, 1.0))[context.replica_id_in_sync_group])
        )
        with strategy.scope():
            metric = keras.metrics.Mean(dtype="float64")

        def replica(losses, weights, metric=metric):
            share = tf.nn.compute_average_loss(losses, global_batch_size=BATCH)
            metric.update_state(share)
            penalty = tf.nn.scale_regularization_loss(tf.constant([0.25, 0.75], tf.float64))
            weighted = tf.nn.compute_average_loss(losses, tf.cast(weights, tf.float64), BATCH)
            return share, weighted, penalty

        results = strategy.run(replica, args=(each, weights))
        local = [[float(value) for value in strategy.experimental_local_results(result)] for result in results]
        found[name] = (*local, float(metric.result()))
    criterion = keras.losses.MeanSquaredError()  # reduction: Keras's default
    found["default reduction"] = float(criterion(tf.zeros((2, 1)), tf.constant([[1.0], [2.0]])))
    found["reduction"] = criterion.reduction
    return found


@pytest.fixture(scope="module")
def tensorflow():
    return dtk.run(by_tensorflow, workers=1, replicas=2).results[0]


@pytest.mark.parametrize("name", LOSSES)
def test_shares_and_what_a_metric_makes_of_them(tensorflow, name):
    shares, weighted, penalties, metric = tensorflow[name]
    ours = [scaling.share(losses, BATCH) for losses in LOSSES[name]]
    assert ours == pytest.approx(shares)
    assert scaling.mean_metric(ours) == pytest.approx(metric)
    assert scaling.global_loss([ours])[0] == pytest.approx(sum(shares))
    by_weight = zip(LOSSES[name], WEIGHTS.get(name, (1.0, 1.0)), strict=True)
    assert [scaling.share(losses, BATCH, weight) for losses, weight in by_weight] == pytest.approx(weighted)
    assert [scaling.regularization_share([0.25, 0.75], replicas=2)] * 2 == penalties


def test_the_tutorials_numbers(tensorflow):
    shares, _, _, metric = tensorflow["the tutorial's four"]
    assert (shares, sum(shares), metric) == ([1.25, 2.25], 3.5, 1.75)


def test_the_default_reduction_of_keras_is_the_local_mean(tensorflow):
    # Keras 2's default, "auto", means the same where no strategy is at work.
    assert tensorflow["reduction"] == ("sum_over_batch_size" if lanes.KERAS_3 else "auto")
    assert tensorflow["default reduction"] == scaling.local_mean([1.0, 4.0])


def test_a_mask_is_averaged_before_it_is_shared(tensorflow):
    height, width = np.shape(LOSSES["labels of 2 x 2"][0])[1:]
    shares = [scaling.share(scaling.per_example(losses), BATCH) for losses in LOSSES["labels of 2 x 2"]]
    assert tensorflow["labels of 2 x 2"][0] == pytest.approx([height * width * share for share in shares])


def test_a_global_batch_below_one_is_refused():
    with pytest.raises(ValueError, match="global_batch=0: it counts the examples of all replicas"):
        scaling.share([1.0], 0)
