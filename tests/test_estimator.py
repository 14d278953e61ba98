"""Estimator in a cluster, on one device, on several replicas: the same losses, the same variables, the results."""

import estimating
import pytest

import dtk

pytestmark = pytest.mark.trains


def with_strategy(strategy, **more):
    estimating.train(strategy=strategy, **more)


def adam_model_fn(features, labels, mode, params):
    """A Keras optimizer in a model_fn takes the sum over the replicas, so each loss is divided by the global batch."""
    import tensorflow as tf

    spec = estimating.model_fn_of(features, labels, "eval", params)
    optimizer = tf.keras.optimizers.legacy.Adam(0.01)
    optimizer.iterations = tf.compat.v1.train.get_or_create_global_step()
    loss = spec.loss / tf.distribute.get_replica_context().num_replicas_in_sync
    trainable = tf.compat.v1.trainable_variables()
    return dtk.estimator.EstimatorSpec(mode, loss=loss, train_op=optimizer.get_updates(loss, trainable)[0])


def branching_model_fn(features, labels, mode, params):
    """A branch on a tensor, which AutoGraph puts into the graph; a strategy converts what it calls, in training."""
    import tensorflow as tf

    spec = estimating.model_fn_of(features, labels, mode, params)
    if mode != "train":
        return spec
    loss = spec.loss
    if tf.reduce_sum(features) < 0:
        loss = loss * 0
    return spec._replace(loss=loss)


@pytest.fixture(scope="module")
def baseline():
    return dtk.baseline(estimating.train)


@pytest.fixture(scope="module")
def cluster():
    return dtk.run(estimating.train, workers=2)


def test_a_cluster_computes_what_one_device_does(cluster, baseline, capsys):
    dtk.verify(cluster, baseline)
    assert "check every step vs one device: PASS" in capsys.readouterr().out


def test_what_train_and_evaluate_keeps_to_itself_is_in_the_results(cluster, baseline):
    last = baseline.records.loss.iloc[-1]
    assert [result["global_step"] for result in cluster.results] == [20, 20]
    assert [result["loss"] for result in cluster.results] == pytest.approx([last, last], rel=1e-4)
    assert cluster.results[0]["metrics"] is None, "nobody evaluated"
    assert baseline.results[0]["metrics"]["accuracy"] > 0.8
    assert list(baseline.evaluations.step) == [20]


def test_the_weights_are_those_of_the_chiefs_last_checkpoint(cluster):
    import tensorflow as tf

    reader = tf.train.load_checkpoint(str(cluster.dir / "model" / "model.ckpt-20"))
    names = cluster.folder.worker(0).weights("final").names
    for name, weight in zip(names, cluster.weights, strict=True):
        assert (reader.get_tensor(name) == weight).all()
    assert len(names) == 4


def test_only_the_chief_writes_to_model_dir(cluster):
    model_dir = cluster.dir / "model"
    assert (model_dir / "tmp_worker_1" / "model.ckpt-20.index").exists()
    assert not (model_dir / "tmp_worker_0").exists()


@pytest.mark.slow
@pytest.mark.parametrize("form", [{"workers": 2}, {"workers": 1, "replicas": 2}], ids=["cluster", "mirrored"])
def test_a_parameter_strategy_is_filled(baseline, form):
    run = dtk.run(with_strategy, **form)
    dtk.verify(run, baseline)


def test_a_recorder_of_the_learners_own_records_once():
    run = dtk.baseline(estimating.train, kwargs={"steps": 3, "hooks": [dtk.EstimatorRecorder]})
    assert list(run.records.step) == [1, 2, 3]


@pytest.mark.slow
def test_a_keras_optimizer_takes_the_sum():
    kwargs = {"model_fn": adam_model_fn, "steps": 5}
    dtk.verify(dtk.run(estimating.train, kwargs=kwargs), dtk.baseline(estimating.train, kwargs=kwargs))


@pytest.mark.slow
def test_autograph_still_converts_a_model_fn(baseline):
    kwargs = {"model_fn": branching_model_fn, "steps": 3}
    losses = dtk.baseline(estimating.train, kwargs=kwargs).records.loss
    assert list(losses) == pytest.approx(list(baseline.records.loss[:3]), rel=1e-6)


@pytest.mark.slow
def test_training_goes_on_where_the_checkpoint_left_off(tmp_path):
    kwargs = {"model_dir": str(tmp_path / "model"), "steps": 4}
    first = dtk.baseline(estimating.train, kwargs=kwargs)
    second = dtk.baseline(estimating.train, kwargs={**kwargs, "steps": 6})
    assert second.results[0]["global_step"] == 6
    assert "training goes on from" in second.logs[0]
    begin = second.folder.worker(0).weights("initial").arrays
    assert all((a == b).all() for a, b in zip(begin, first.weights, strict=True))
