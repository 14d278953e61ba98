"""Estimator in a cluster, on one device, on several replicas: the same losses, the same variables, the results."""

import estimating
import numpy as np
import pytest

import dtk
from dtk.compat import strategies
from dtk.worker.recorded import RecordedStates

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
    names = cluster.folder.worker(0).weights.names
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
    second = dtk.run(estimating.train, kwargs={**kwargs, "steps": 6}, workers=1)
    assert second.results[0]["global_step"] == 6
    assert "training goes on from" in second.logs[0]
    begin = [copies[0] for copies in RecordedStates(second.folder).before(0).values()]
    assert all(any(np.array_equal(a, b) for b in begin) for a in first.weights)


# ---- the evaluator


def beside(strategy, **more):
    import tensorflow as tf

    apart = tf.distribute.MirroredStrategy(["CPU:0"])
    estimating.train(strategy=strategy, eval_distribute=apart, save_checkpoints_steps=5, steps=40, **more)


@pytest.fixture(scope="module")
def run():
    kwargs = {"steps": 40, "save_checkpoints_steps": 5}
    return dtk.run(estimating.train, kwargs=kwargs, evaluator=True)


def test_each_checkpoint_is_evaluated_once_and_in_order(run):
    assert list(run.evaluations.step) == [0, 5, 10, 15, 20, 25, 30, 35, 40], "Estimator itself keeps the last five"
    assert run.evaluations.accuracy.iloc[-1] > 0.8 > run.evaluations.accuracy.iloc[0]
    assert not list((run.dir / "evaluator" / "checkpoints").iterdir())


def test_every_workers_result_has_the_last_metrics(run):
    last = run.evaluations.iloc[-1]
    assert [result["metrics"]["accuracy"] for result in run.results] == [last.accuracy] * 2
    assert run.evaluator is None


def test_tf_config_has_the_evaluator_apart_from_the_workers(run):
    assert [sorted(config["cluster"]) for config in run.tf_config] == [["worker"], ["worker"]]


@pytest.mark.slow
def test_a_chief_that_saves_nothing_leaves_nothing_to_evaluate():
    none = {"save_checkpoints_steps": None, "save_checkpoints_secs": None}
    with pytest.raises(dtk.WorkerFailed) as caught:
        dtk.run(estimating.train, kwargs=none, evaluator=True)
    assert caught.value.worker == "evaluator"
    assert "ClusterConfigError" in caught.value.traceback


@pytest.mark.slow
def test_eval_distribute_evaluates_alike(run):
    other = dtk.run(beside, evaluator=True)
    assert list(other.evaluations.accuracy) == pytest.approx(list(run.evaluations.accuracy), abs=0.01)


def make_strategy():
    import tensorflow as tf

    return tf.distribute.MultiWorkerMirroredStrategy().num_replicas_in_sync


def unpatched():
    import tensorflow as tf
    from tensorflow.python.distribute import collective_all_reduce_strategy as strategies

    def as_tensorflow_has_it(self, resolver, devices=None):
        self._initialize_multi_worker(resolver)

    strategies.CollectiveAllReduceExtended._initialize_strategy = as_tensorflow_has_it
    config = dtk.estimator.RunConfig(train_distribute=tf.distribute.MultiWorkerMirroredStrategy())
    config.replace(model_dir=str(dtk.run_dir()))


def test_the_correction_is_still_needed():
    """When this fails, the strategy can be copied in an evaluator; look whether compat.strategies.alone can go."""
    assert strategies.alone
    dtk.run(make_strategy, evaluator=make_strategy)
    with pytest.raises(dtk.WorkerFailed, match="cannot be deep copied in eager mode"):
        dtk.run(make_strategy, evaluator=unpatched)
