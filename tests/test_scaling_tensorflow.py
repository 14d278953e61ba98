"""The arithmetic of `dtk.scaling.shares` against TensorFlow itself, on two replicas."""

from __future__ import annotations

import pytest

import dtk
from dtk.scaling import shares as scaling

pytestmark = pytest.mark.trains

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


@pytest.mark.parametrize("name", LOSSES)
def test_the_shares_add_up_to_the_global_loss(tensorflow, name):
    shares, examples = tensorflow[name], [[len(losses) for losses in LOSSES[name]]]
    assert [scaling.share(losses, BATCH) for losses in LOSSES[name]] == pytest.approx(shares)
    every = [loss for losses in LOSSES[name] for loss in losses]
    assert scaling.global_loss([shares], examples)[0] == pytest.approx(sum(every) / BATCH)


def test_the_tutorials_numbers(tensorflow):
    assert tensorflow["the tutorial's four"] == [1.25, 2.25]
