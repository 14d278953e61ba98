"""What was trained beside what was recorded: training that nobody recorded does not pass, and verify says what did."""

from __future__ import annotations

import numpy as np
import proof_programs
import pytest
from training import dealt
from verifying import refused

import dtk

BATCH, COUNT = 16, 64


def data():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(COUNT, 8)).astype("float32")
    return dealt((x, (x @ rng.normal(size=(8, 1))).astype("float32")), BATCH)


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


def then_assigns(strategy):
    model = model_of(strategy, name="m")
    model.fit(data(), epochs=1, verbose=0, callbacks=[dtk.Recorder()])
    model.layers[-1].layers[-1].bias.assign_add([float(strategy.num_replicas_in_sync)])


def one_layer(strategy, rate=0.05):
    from tensorflow import keras

    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(1)])
        return model, keras.optimizers.SGD(rate)


def updated(model, optimizer, inputs, factor=1, apply=None):
    """A replica's share of the loss, after its update; apply: by which way of the optimizer."""
    import tensorflow as tf

    x, y = inputs
    with tf.GradientTape() as tape:
        each = tf.reduce_mean(tf.square(model(x) - y), 1)
        loss = tf.nn.compute_average_loss(each, global_batch_size=BATCH) * factor
    gradients = tape.gradient(loss, model.trainable_variables)
    if apply:
        apply(gradients, model.trainable_variables)
    else:
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    return loss


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
        return {name: updated(models[name], optimizers[name], inputs, n if name == wrong else 1) for name in models}

    handed = {"a": models["a"], "both": models, "list": list(models.values())}[given]

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


def eager(strategy):
    """Trains outside of any tf.function; the cluster's rate is twice one device's, both small."""
    model, optimizer = one_layer(strategy, 1e-7 * strategy.num_replicas_in_sync)
    for batch in strategy.experimental_distribute_dataset(data()):
        losses = strategy.run(lambda inputs: updated(model, optimizer, inputs), (batch,))
        dtk.record_step(losses, batch=batch, model=model)


def skips_steps(strategy):
    """Two steps that nobody records, and then each."""
    import tensorflow as tf

    model, optimizer = one_layer(strategy)
    step = tf.function(lambda inputs: updated(model, optimizer, inputs))
    for number, batch in enumerate(strategy.experimental_distribute_dataset(data().repeat(2))):
        losses = strategy.run(step, (batch,))
        if number >= 2:
            dtk.record_step(losses, batch=batch, model=model)


def alone(record=True):
    import tensorflow as tf

    model = model_of(tf.distribute.get_strategy())
    model.fit(data(), verbose=0, callbacks=[dtk.Recorder()] if record else [])


def by_keyword(strategy):
    import tensorflow as tf

    model, optimizer = one_layer(strategy)

    def apply(gradients, variables):
        if not hasattr(optimizer, "apply"):  # Keras 2
            optimizer.apply_gradients(grads_and_vars=zip(gradients, variables, strict=True))
        else:
            optimizer.apply(grads=gradients, trainable_variables=variables)

    @tf.function
    def train(batch):
        losses = strategy.run(lambda inputs: updated(model, optimizer, inputs, apply=apply), (batch,))
        dtk.record_step(losses, batch=batch, model=model)

    for batch in strategy.experimental_distribute_dataset(data()):
        train(batch)


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


def by_hand(strategy):
    """A recorded fit, and a second model whose weights are changed without an optimizer, by N times its gradient."""
    import tensorflow as tf

    model_of(strategy).fit(data(), verbose=0, callbacks=[dtk.Recorder()])
    other, _ = one_layer(strategy)

    def apply(gradients, variables):
        together = tf.distribute.get_replica_context().all_reduce("sum", gradients)
        for variable, gradient in zip(variables, together, strict=True):
            variable.assign_sub(0.05 * strategy.num_replicas_in_sync * gradient)

    step = tf.function(lambda inputs: updated(other, None, inputs, apply=apply))
    for batch in strategy.experimental_distribute_dataset(data()):
        strategy.run(step, (batch,))


pytestmark = pytest.mark.trains


def ran(fn, **kwargs):
    return dtk.run(fn, workers=2, kwargs=kwargs)


def test_any_train_step_is_recorded_and_its_mistake_found():
    error = refused(ran(three_fits, wrong=True))
    assert error.reason == "loss"
    assert error.step == COUNT // BATCH + 1


def test_three_fits_are_covered_and_said(capsys):
    run = ran(three_fits)
    capsys.readouterr()
    dtk.verify(run)
    assert "check updates: PASS (12 of 12 updates recorded, 3 models)" in capsys.readouterr().out
    assert len(run.weights) == 12


def test_a_fit_without_a_recorder_is_proved_by_its_states(capsys):
    dtk.verify(ran(three_fits, recorded=(True, False, True)))
    assert "check updates: PASS (8 of 12 updates recorded, 4 by their states alone)" in capsys.readouterr().out


def test_a_fit_without_a_recorder_and_states_is_named(monkeypatch):
    monkeypatch.setenv("DTK_STATES", "0")
    error = refused(ran(three_fits, recorded=(True, False, True)))
    assert error.reason == "updates"
    assert "the 12 updates that the cluster made were not recorded: sgd_1 4/4 (sequential_1/dense_2/k" in str(error)


def test_weights_that_change_after_the_fit_are_compared():
    error = refused(ran(then_assigns))
    assert error.reason == "between"


def test_a_model_that_was_not_handed_over_is_followed():
    error = refused(ran(two_models, given="a", wrong="b"))
    assert (error.reason, error.step) == ("loss", 1)


@pytest.mark.parametrize(("given", "inside"), [("both", True), pytest.param("list", False, marks=pytest.mark.slow)])
def test_two_models_in_one_loop(given, inside, capsys):
    run = ran(two_models, given=given, inside=inside)
    capsys.readouterr()
    dtk.verify(run)
    assert "check updates: PASS (8 of 8 updates recorded, 2 models)" in capsys.readouterr().out
    assert len(run.weights) == 8
    assert {"loss.a", "loss.b"} <= {*run.records.columns}
    sums = run.records["loss.a"] + run.records["loss.b"]
    np.testing.assert_allclose(sums, run.records.loss, rtol=1e-12)


def test_steps_before_the_first_that_is_recorded_are_followed(capsys):
    dtk.verify(ran(skips_steps))
    assert "check updates: PASS (6 of 8 updates recorded, 2 by their states alone)" in capsys.readouterr().out
    program = proof_programs.right()["loss scale optimizer"]  # which leaves out its first steps
    dtk.verify(dtk.run(program.train, kwargs={**program.kwargs, "steps": 4}))
    assert "check updates: PASS (4 of 4 updates recorded, 1 model)" in capsys.readouterr().out


def test_a_cluster_function_without_a_strategy_is_told_at_its_first_step():
    with pytest.raises(dtk.WorkerFailed, match="no strategy joins the workers, so each of the 2 trains alone"):
        dtk.run(alone, workers=2)
    assert len(dtk.baseline(alone).records) == COUNT // BATCH


def test_it_is_told_too_where_nothing_is_recorded_and_is_no_cluster_that_passes(capsys):
    run = dtk.run(alone, workers=2, kwargs={"record": False})
    assert "no strategy joins the workers, so each of the 2 trains alone" in capsys.readouterr().out
    assert dtk.diagnose(run).mistake == "not in scope"


@pytest.mark.parametrize("keras", [None, pytest.param(2, marks=pytest.mark.slow)])
def test_an_optimizer_may_be_called_by_keyword(keras, capsys):
    dtk.verify(dtk.run(by_keyword, workers=2, keras=keras))
    assert "4 of 4 updates recorded, 1 model" in capsys.readouterr().out


def test_a_step_without_a_gradient_has_no_loss_and_verify_says_so():
    error = refused(dtk.run(without_a_gradient, workers=1))
    assert error.reason == "records"
    assert "took no gradient" in str(error)


def test_without_a_count_nothing_passes(make):
    error = refused(make(updates=False), make("single"))
    assert error.reason == "updates"
    assert "nothing tells how many updates the cluster has made" in str(error)


@pytest.mark.slow  # the gallery and the fuzzed programs have it, too
def test_a_rate_by_the_number_of_replicas_passes_as_so_many_however_small_it_is(capsys):
    assert dtk.verify(ran(eager)).verdict == "replicas"
    assert "the learning rate depends on the number of replicas" in capsys.readouterr().out


@pytest.mark.slow  # the gallery and the fuzzed programs have it, too
def test_training_by_hand_beside_a_recorded_fit_is_found():
    error = refused(ran(by_hand))
    assert (error.reason, error.step) == ("update", 5)
