"""A function that has a strategy and makes another one: both train, and the cluster does not stand still."""

from __future__ import annotations

import pytest

import dtk

LATE = 1.0  # s


def totals(another, late, corrected):
    """Each worker's weight, which begins as the chief's, after a step with each strategy, and its sum over workers."""
    import time

    import tensorflow as tf
    from tensorflow.python.distribute.collective_all_reduce_strategy import CollectiveAllReduceExtended as Extended

    first = tf.distribute.MultiWorkerMirroredStrategy()
    if not corrected:
        Extended._initialize_multi_worker = Extended._initialize_multi_worker.__wrapped__
    if first.cluster_resolver.task_id == late:
        time.sleep(LATE)
    second = tf.distribute.MultiWorkerMirroredStrategy() if another else first
    print("both strategies are made")
    found = []
    for strategy in (second, first, second):
        with strategy.scope():
            weight = tf.Variable(1.0 + first.cluster_resolver.task_id, aggregation=tf.VariableAggregation.SUM)
        strategy.run(tf.function(lambda w=weight: w.assign_add(0.25)))
        found += [float(weight.numpy()), float(strategy.reduce("SUM", tf.constant(weight.numpy()), axis=None))]
    return found


@pytest.mark.trains
@pytest.mark.parametrize("late", [0, 1])
def test_a_second_strategy_computes_what_the_first_does(late):
    one = dtk.run(totals, workers=2, args=(False, late, True)).results
    assert dtk.run(totals, workers=2, args=(True, late, True)).results == one == [[1.5, 3.0] * 3] * 2


@pytest.mark.slow
@pytest.mark.trains
def test_without_the_correction_a_second_strategy_stands_still():
    """The chief's new executor knows nothing of what the other worker has asked the old one."""
    with pytest.raises(dtk.RunTimeout) as caught:
        dtk.run(totals, workers=2, args=(True, 0, False), timeout=20)
    assert ["both strategies are made" in log for log in caught.value.logs] == [True, True]
