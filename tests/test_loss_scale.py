"""float16 on several replicas: a step with infinite gradients is left out by all or by none, as on one device.

Without the correction the fault shows. When one of these tests fails, Keras has been fixed, and the correction "one
decision about a loss scale" (docs/explanation/compat.md) can go.
"""

from __future__ import annotations

import pytest

import dtk


def infinite_on_the_second_replica(strategy, corrected):
    """[all weights are finite, the loss scale] after a step that float16 makes infinite on the second replica."""
    import keras
    import numpy as np

    kind = keras.optimizers.LossScaleOptimizer
    if not corrected:
        kind.check_finite = kind.check_finite.__wrapped__
    keras.mixed_precision.set_global_policy("mixed_float16")
    labels = np.array([[1.0]] * 4 + [[1e6]] * 4, "float32")
    with strategy.scope():
        layers = keras.layers.Dense(4), keras.layers.Dense(1, dtype="float32")
        model = keras.Sequential([keras.layers.Input((4,)), *layers])
        model.compile(keras.optimizers.SGD(1e-6), "mse")
    model.fit(np.ones((8, 4), "float32"), labels, batch_size=8, shuffle=False, verbose=0)
    finite = all(np.isfinite(weight).all() for weight in model.get_weights())
    return [bool(finite), float(model.optimizer.dynamic_scale.numpy())]


LEFT_OUT = [True, 2.0**14]  # the step is left out, and the scale is half of what it was


@pytest.mark.trains
def test_without_the_correction_the_first_replica_decides_about_the_loss_scale():
    one = dtk.baseline(lambda strategy: infinite_on_the_second_replica(strategy, True)).results[0]
    both, lost = (
        dtk.run(lambda strategy, c=c: infinite_on_the_second_replica(strategy, c), workers=1, replicas=2).results[0]
        for c in (True, False)
    )
    assert one == both == LEFT_OUT
    assert lost[0] is False, "the infinite gradients got into the weights"


@pytest.mark.slow
@pytest.mark.trains
def test_without_the_correction_one_of_two_workers_waits_for_ever():
    run = dtk.run(lambda strategy: infinite_on_the_second_replica(strategy, True), workers=2)
    assert run.results == [LEFT_OUT, LEFT_OUT]
    with pytest.raises(dtk.WorkerStalled):
        dtk.run(lambda strategy: infinite_on_the_second_replica(strategy, False), workers=2, stall_timeout=5)
