"""What was trained beside what was recorded: training that nobody recorded does not pass, and verify says what did."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from verifying import maker, refused

import dtk

BATCH, COUNT = 16, 64


def data(strategy=None):
    import tensorflow as tf

    rng = np.random.default_rng(0)
    x = rng.normal(size=(COUNT, 8)).astype("float32")
    y = (x @ rng.normal(size=(8, 1))).astype("float32")
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH).with_options(options)


def model_of(strategy, own_step=False, name=None):
    import keras
    import tensorflow as tf

    class Own(keras.Model):
        def train_step(self, inputs):
            x, y = inputs
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(self(x, training=True) - y))  # a replica's own mean
            gradients = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
            return {"loss": loss}

    with strategy.scope():
        inner = keras.Sequential([keras.layers.Dense(6, activation="tanh"), keras.layers.Dense(1)])
        inputs = keras.layers.Input((8,))
        model = (Own if own_step else keras.Model)(inputs, inner(inputs), name=name)
        model.compile(keras.optimizers.SGD(0.05), "mse")
    return model


def three_fits(strategy, wrong=False, recorded=(True, True, True)):
    for number, record in enumerate(recorded):
        model = model_of(strategy, own_step=wrong and number == 1, name=f"m{number}")
        model.fit(data(), epochs=1, verbose=0, callbacks=[dtk.Recorder()] if record else [])


def then_more(strategy, what):
    model = model_of(strategy, name="m")
    model.fit(data(), epochs=1, verbose=0, callbacks=[dtk.Recorder()])
    if what == "fit":
        model.fit(data(), epochs=1, verbose=0)
    elif what == "train_on_batch":
        for x, y in data():
            model.train_on_batch(x, y)
    elif what == "assign":
        model.layers[-1].layers[-1].bias.assign_add([float(strategy.num_replicas_in_sync)])
    else:
        model.fit(data(), epochs=1, verbose=0, callbacks=[dtk.Recorder()])


def two_models(strategy, given="both", wrong=None, inside=True):
    import keras
    import tensorflow as tf

    n = strategy.num_replicas_in_sync
    with strategy.scope():
        models = {
            name: keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(4, "tanh"), keras.layers.Dense(1)])
            for name in "ab"
        }
        optimizers = {name: keras.optimizers.Adam(0.01) for name in models}

    def step(inputs):
        x, y = inputs
        losses = {}
        for name, model in models.items():
            with tf.GradientTape() as tape:
                each = tf.reduce_mean(tf.square(model(x) - y), 1)
                losses[name] = tf.nn.compute_average_loss(each, global_batch_size=BATCH) * (n if name == wrong else 1)
            gradients = tape.gradient(losses[name], model.trainable_variables)
            optimizers[name].apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return losses

    handed = {
        "a": models["a"],
        "both": models,
        "list": list(models.values()),
        "checkpoint": tf.train.Checkpoint(**models, **{f"optimizer_{k}": v for k, v in optimizers.items()}),
    }[given]

    def train(batch):
        losses = strategy.run(step, (batch,))
        if inside:
            dtk.record_step(losses, batch=batch, model=handed)
        return losses

    graph = tf.function(train)
    for batch in strategy.experimental_distribute_dataset(data()):
        losses = graph(batch)
        if not inside:
            dtk.record_step(losses, batch=batch, model=handed)


def skips_steps(strategy):
    """Two steps that nobody records, and then each."""
    import keras
    import tensorflow as tf

    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(1)])
        optimizer = keras.optimizers.SGD(0.05)

    @tf.function
    def step(inputs):
        x, y = inputs
        with tf.GradientTape() as tape:
            each = tf.reduce_mean(tf.square(model(x) - y), 1)
            loss = tf.nn.compute_average_loss(each, global_batch_size=BATCH)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    for number, batch in enumerate(strategy.experimental_distribute_dataset(data().repeat(2))):
        losses = strategy.run(step, (batch,))
        if number >= 2:
            dtk.record_step(losses, batch=batch, model=model)


def alone(record=True):
    import tensorflow as tf

    model = model_of(tf.distribute.get_strategy())
    model.fit(data(), verbose=0, callbacks=[dtk.Recorder()] if record else [])


def pair(fn, **kwargs):
    return dtk.run(fn, workers=2, kwargs=kwargs), dtk.baseline(fn, kwargs=kwargs)


def test_any_train_step_is_recorded_and_its_mistake_found():
    error = refused(*pair(three_fits, wrong=True))
    assert error.reason == "loss"
    assert error.step == COUNT // BATCH + 1


@pytest.mark.parametrize("start", ["warm"])
def test_three_fits_are_covered_and_said(capsys, start):
    run, baseline = pair(three_fits)
    capsys.readouterr()
    dtk.verify(run, baseline)
    assert "check updates: PASS (12 of 12 updates recorded, 3 models)" in capsys.readouterr().out
    assert run.folder.worker(0).moments == ["fit-1-end", "fit-2-end"]
    assert len(run.weights) == 12


def test_a_fit_without_a_recorder_is_named(capsys):
    run, baseline = pair(three_fits, recorded=(True, False, True))
    error = refused(run, baseline)
    assert error.reason == "updates"
    assert "4 of the 12 updates that the cluster made were not recorded: 4 of 4 by sgd_1" in str(error)
    capsys.readouterr()
    dtk.verify(run, baseline, allow_unrecorded=True)
    assert "updates: 8 of 12 recorded, 2 models; 4 of 4 by sgd_1" in capsys.readouterr().out


@pytest.mark.parametrize("what", ["fit", "train_on_batch"])
def test_training_after_the_recorded_fit_is_found(what):
    error = refused(*pair(then_more, what=what))
    assert error.reason == "updates"
    assert "4 of the 8 updates" in str(error)


def test_weights_that_change_after_the_fit_are_compared():
    error = refused(*pair(then_more, what="assign"))
    assert error.reason == "final weights"


def test_a_second_fit_of_one_model_is_covered(capsys):
    run, baseline = pair(then_more, what="recorded fit")
    capsys.readouterr()
    dtk.verify(run, baseline)
    assert "8 of 8 updates recorded, 1 model" in capsys.readouterr().out
    assert run.folder.worker(0).moments == ["fit-1-end", "fit-2-begin"]


def test_a_model_that_was_not_handed_over_is_named():
    error = refused(*pair(two_models, given="a", wrong="b"))
    assert error.reason == "updates"
    assert "4 of the 8 updates" in str(error)
    assert "adam_1" in str(error)


@pytest.mark.parametrize(("given", "inside"), [("both", True), ("list", False), ("checkpoint", True)])
def test_two_models_in_one_loop(given, inside, capsys):
    run, baseline = pair(two_models, given=given, inside=inside)
    capsys.readouterr()
    dtk.verify(run, baseline)
    assert "check updates: PASS (8 of 8 updates recorded, 2 models)" in capsys.readouterr().out
    assert len(run.weights) == 8
    assert {"loss.a", "loss.b"} <= {*run.records.columns}
    sums = run.records["loss.a"] + run.records["loss.b"]
    np.testing.assert_allclose(sums, run.records.loss, rtol=1e-12)


def test_a_wrong_loss_of_one_model_is_named():
    error = refused(*pair(two_models, wrong="b"))
    assert (error.reason, error.loss, error.step) == ("loss", "b", 1)
    assert str(error).startswith("b: the losses")


def test_steps_before_the_first_that_is_recorded_are_found():
    error = refused(*pair(skips_steps))
    assert error.reason == "updates"
    assert "2 of the 8 updates" in str(error)


def test_a_cluster_function_without_a_strategy_is_told_at_its_first_step():
    with pytest.raises(dtk.WorkerFailed, match="the function makes no strategy, so each of the 2 workers trains alone"):
        dtk.run(alone, workers=2)
    assert len(dtk.baseline(alone).records) == COUNT // BATCH


def test_it_is_told_too_where_nothing_is_recorded(capsys):
    dtk.run(alone, workers=2, kwargs={"record": False})
    assert "makes no strategy, so each of the 2 workers trains alone" in capsys.readouterr().out


def fails_and_goes_on(strategy):
    import keras

    class Stops(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            raise RuntimeError("stopped")

    model = model_of(strategy, name="m")
    with contextlib.suppress(RuntimeError):
        model.fit(data(), verbose=0, callbacks=[dtk.Recorder(), Stops()])
    model.fit(data(), verbose=0)
    model.fit(data(), verbose=0, callbacks=[dtk.Recorder()])


def test_a_fit_after_one_that_failed_is_not_recorded_by_it():
    error = refused(*pair(fails_and_goes_on))
    assert error.reason == "updates"
    assert "4 of the 9 updates" in str(error)


def in_float16(strategy):
    import keras

    model = model_of(strategy)
    with strategy.scope():
        scaled = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.05), initial_scale=8.0)
        model.compile(scaled, "mse")
    model.fit(data(), verbose=0, callbacks=[dtk.Recorder()])


def test_updates_of_a_scaled_loss_are_recorded_and_the_loss_is_unscaled(capsys):
    run, baseline = pair(in_float16)
    capsys.readouterr()
    dtk.verify(run, baseline)
    assert "4 of 4 updates recorded, 1 model" in capsys.readouterr().out
    plain = dtk.baseline(then_more, kwargs={"what": "assign"})
    np.testing.assert_allclose(baseline.records.loss, plain.records.loss, rtol=1e-5)


def by_keyword(strategy, old=False):
    import tensorflow as tf
    from tensorflow import keras

    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(1)])
        optimizer = keras.optimizers.SGD(0.05)

    @tf.function
    def train(batch):
        def step(inputs):
            x, y = inputs
            with tf.GradientTape() as tape:
                each = tf.reduce_mean(tf.square(model(x) - y), 1)
                loss = tf.nn.compute_average_loss(each, global_batch_size=BATCH)
            gradients = tape.gradient(loss, model.trainable_variables)
            if old:
                optimizer.apply_gradients(grads_and_vars=zip(gradients, model.trainable_variables, strict=True))
            else:
                optimizer.apply(grads=gradients, trainable_variables=model.trainable_variables)
            return loss

        dtk.record_step(strategy.run(step, (batch,)), batch=batch, model=model)

    for batch in strategy.experimental_distribute_dataset(data()):
        train(batch)


@pytest.mark.parametrize("keras", [2, 3])
def test_an_optimizer_may_be_called_by_keyword(keras, capsys):
    facts = {"kwargs": {"old": keras == 2}, "keras": keras}
    dtk.verify(dtk.run(by_keyword, workers=2, **facts), dtk.baseline(by_keyword, **facts))
    assert "4 of 4 updates recorded, 1 model" in capsys.readouterr().out


def without_a_gradient(strategy):
    import keras
    import tensorflow as tf

    class Means(keras.Model):
        def train_step(self, inputs):
            x, _ = inputs
            self.layers[-1].layers[-1].bias.assign_add(0.1 * tf.reduce_mean(x, 0)[:1])
            return {"moved": tf.constant(0.0)}

    with strategy.scope():
        inputs = keras.layers.Input((8,))
        model = Means(inputs, keras.Sequential([keras.layers.Dense(1)])(inputs))
        model.compile(keras.optimizers.SGD(0.05), "mse")
    model.fit(data(), verbose=0, callbacks=[dtk.Recorder()])


def test_a_step_without_a_gradient_has_no_loss_and_verify_says_so():
    run = dtk.baseline(without_a_gradient)
    error = refused(dtk.run(without_a_gradient, workers=1, replicas=1), run)
    assert error.reason == "records"
    assert "took no gradient" in str(error)


def lists_with_one_beginning(strategy, wrong=False):
    """The second list has all that the first one has, and more."""
    import keras
    import tensorflow as tf

    n = strategy.num_replicas_in_sync
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(4, "tanh"), keras.layers.Dense(1)])
        optimizers = [keras.optimizers.SGD(0.05), keras.optimizers.SGD(0.05)]
    for count, optimizer in zip((2, 4), optimizers, strict=True):
        weights = model.trainable_variables[:count]

        def step(inputs, weights=weights, optimizer=optimizer):
            x, y = inputs
            with tf.GradientTape() as tape:
                each = tf.reduce_mean(tf.square(model(x) - y), 1)
                loss = tf.nn.compute_average_loss(each, global_batch_size=BATCH)
            optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
            return loss

        run = tf.function(lambda batch, step=step: strategy.run(step, (batch,)))
        for batch in strategy.experimental_distribute_dataset(data()):
            dtk.record_step(run(batch), batch=batch, model=weights)
    if wrong and n > 1:
        model.layers[1].kernel.assign(model.layers[1].kernel * 2.0)


def test_each_list_of_variables_is_compared(capsys):
    run, baseline = pair(lists_with_one_beginning)
    capsys.readouterr()
    dtk.verify(run, baseline)
    assert "8 of 8 updates recorded, 2 models" in capsys.readouterr().out
    assert refused(*pair(lists_with_one_beginning, wrong=True)).reason == "final weights"


def by_hand(strategy):
    """A recorded fit, and a second model whose weights are changed without an optimizer, by N times its gradient."""
    import tensorflow as tf

    model, other = model_of(strategy, name="m"), model_of(strategy, name="other")
    model.fit(data(), verbose=0, callbacks=[dtk.Recorder()])

    def step(inputs):
        x, y = inputs
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(other(x) - y))
        gradients = tf.distribute.get_replica_context().all_reduce(
            "sum", tape.gradient(loss, other.trainable_variables)
        )
        for variable, gradient in zip(other.trainable_variables, gradients, strict=True):
            variable.assign_sub(0.05 * gradient)

    train = tf.function(lambda batch: strategy.run(step, (batch,)))
    for batch in strategy.experimental_distribute_dataset(data()):
        train(batch)


def test_training_by_hand_beside_a_recorded_fit_is_found():
    error = refused(*pair(by_hand))
    assert error.reason == "updates"
    assert "gradients were taken of 4 variables" in str(error)


def estimator_with_two_hooks():
    import estimating

    def model_fn(features, labels, mode, params):
        spec = estimating.model_fn_of(features, labels, mode, params)
        return spec._replace(training_hooks=[dtk.EstimatorRecorder()]) if mode == "train" else spec

    estimating.train(steps=5, model_fn=model_fn)


def test_an_estimators_steps_are_recorded_once():
    run = dtk.run(estimator_with_two_hooks, workers=2)
    assert run.records.groupby("worker").step.apply(list).tolist() == [[1, 2, 3, 4, 5]] * 2
    said = [event for event in run.folder.worker(1).events if event["state"] == "updates"]
    assert [(each["made"], each["recorded"]) for each in said[0]["optimizers"]] == [(5, 5)]


@pytest.fixture
def make(tmp_path):
    return maker(tmp_path)


def test_without_a_count_nothing_passes(make, capsys):
    error = refused(make(updates=False), make("single"))
    assert error.reason == "updates"
    assert "nothing tells how many updates the cluster has made" in str(error)
    dtk.verify(make(updates=False), make("single", updates=False), allow_unrecorded=True)
    assert "updates: not known how many were made" in capsys.readouterr().out
