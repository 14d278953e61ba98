"""What is easily done wrong with Estimator: each ends at once, in one sentence that says what to do."""

import estimating
import lanes
import pytest

import dtk
from dtk.worker import ship

NO_CLUSTER = "put it into a function, and have dtk start it"


def keras3_model_fn(features, labels, mode, params):
    import keras

    return keras.layers.Dense(10)(features)


def raises_on_worker_1(features, labels, mode, params):
    if not dtk.is_chief():
        raise RuntimeError("no such column")
    return estimating.model_fn_of(features, labels, mode, params)


@pytest.mark.trains
def test_a_model_fn_that_raises_on_one_worker_is_named():
    with pytest.raises(dtk.WorkerFailed, match="worker 1 raised .*no such col"):
        dtk.run(estimating.train, workers=2, kwargs={"model_fn": raises_on_worker_1}, stall_timeout=60)


@pytest.mark.slow
def test_an_input_fn_that_does_not_shard_is_named():
    run = dtk.run(estimating.train, workers=2, kwargs={"shard": False})
    assert dtk.diagnose(run, dtk.baseline(estimating.train)).mistake == "sharding off"


@pytest.mark.trains
@pytest.mark.skipif(lanes.LANE == "tf215", reason="Keras beside this TensorFlow is Keras 2")
def test_keras_3_layers_in_a_model_fn():
    with pytest.raises(dtk.WorkerFailed, match=r"model_fn uses Keras 3 \(Dense\).*tf.keras"):
        dtk.run(estimating.train, kwargs={"model_fn": keras3_model_fn})


@pytest.mark.trains
@pytest.mark.skipif(lanes.LANE == "tf215", reason="Keras beside this TensorFlow is Keras 2")
def test_keras_3_is_refused_before_anything_starts():
    with pytest.raises(dtk.ClusterConfigError, match="keras=3 with dtk.estimator"):
        dtk.run(estimating.train, keras=3)


def test_train_and_evaluate_in_this_process_itself():
    with pytest.raises(dtk.ClusterConfigError, match=NO_CLUSTER):
        dtk.estimator.train_and_evaluate(None, None, None)


def by_name():
    return dtk.estimator.RunConfig()


def by_import():
    from dtk.estimator import RunConfig

    return RunConfig()


def by_helper():
    return [by_name() for _ in range(2)]


def without():
    return dtk.run_dir(), "estimator"


@pytest.mark.parametrize("fn", [by_name, by_helper, lambda: by_import()])
def test_a_function_that_uses_estimator_is_known_beforehand(fn):
    assert ship.uses(fn, "estimator")


@pytest.mark.parametrize("fn", [without, lambda: dtk.plot, len, print])
def test_and_one_that_does_not(fn):
    assert not ship.uses(fn, "estimator")
