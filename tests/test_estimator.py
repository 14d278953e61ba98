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


def train_model_of_keras():
    import tensorflow as tf

    tf.keras.utils.set_random_seed(0)
    model = tf.keras.Sequential(
        [tf.keras.layers.Flatten(input_shape=(28, 28, 1)), tf.keras.layers.Dense(10)],
    )
    model.compile(tf.keras.optimizers.legacy.SGD(0.1), tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    folder = dtk.run_dir() / "model"
    classifier = dtk.estimator.model_to_estimator(model, model_dir=str(folder))
    classifier.train(lambda: estimating.input_fn_of("train", 64), steps=5)
    receiver = dtk.estimator.export.build_raw_serving_input_receiver_fn(
        {"flatten_input": tf.keras.Input((28, 28, 1), dtype=tf.float32)}
    )
    assert receiver is not None
    return sorted(path.name for path in folder.glob("model.ckpt-5*"))


def test_a_keras_model_becomes_an_estimator():
    run = dtk.baseline(train_model_of_keras)
    assert {"model.ckpt-5.index", "model.ckpt-5.meta"} <= set(run.results[0])
    assert len(run.records) == 5


def export():
    import tensorflow as tf

    classifier = estimating.estimator()
    train_spec = dtk.estimator.TrainSpec(lambda: estimating.input_fn_of("train", 64), max_steps=5)
    dtk.estimator.train_and_evaluate(
        classifier, train_spec, dtk.estimator.EvalSpec(lambda: estimating.input_fn_of("eval", 64))
    )

    def receiver():
        images = tf.compat.v1.placeholder(tf.float32, [None, 28, 28, 1])
        return dtk.estimator.export.TensorServingInputReceiver(images, {"images": images})

    saved = tf.saved_model.load(classifier.export_saved_model(str(dtk.run_dir() / "export"), receiver).decode())
    serve = saved.signatures["serving_default"]
    images = tf.constant(dtk.datasets.digits()[0][:3].astype("float32") / 255)
    return {name: value.numpy().shape for name, value in serve(images).items()}


@pytest.mark.slow
def test_an_estimator_is_exported_as_a_saved_model():
    assert dtk.baseline(export).results == [{"logits": (3, 10)}]
