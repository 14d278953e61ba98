"""Lesson 06's exercises that only a run can decide: right and wrong input functions and losses, each with its hint."""

from __future__ import annotations

import pytest

import dtk
from dtk.course.exercise import CheckFailed, NotSolved


def order(examples, batch, context, shuffle=None, shard=True, divide=True, first=0):
    """Numbers dealt out; shuffle: keywords of Dataset.shuffle, None for no shuffle."""
    import tensorflow as tf

    workers, worker = context.num_input_pipelines, context.input_pipeline_id
    data = tf.data.Dataset.range(first, examples)
    if shuffle is not None:
        data = data.shuffle(examples, **shuffle)
    if shard:
        data = data.shard(workers, worker)
    return data.batch(batch // workers if divide else batch)


def right_order(examples, batch, input_context):
    return order(examples, batch, input_context, {"seed": 1})


def sharded_first(examples, batch, input_context):
    import tensorflow as tf

    workers, worker = input_context.num_input_pipelines, input_context.input_pipeline_id
    data = tf.data.Dataset.range(examples).shard(workers, worker)
    return data.shuffle(examples, seed=1).batch(batch // workers)


def unseeded(examples, batch, input_context):
    return order(examples, batch, input_context, {})


def seed_of_its_own(examples, batch, input_context):
    return order(examples, batch, input_context, {"seed": input_context.input_pipeline_id})


def not_shuffled(examples, batch, input_context):
    return order(examples, batch, input_context)


def backwards(examples, batch, input_context):
    import tensorflow as tf

    data = tf.data.Dataset.range(examples - 1, -1, -1)
    workers, worker = input_context.num_input_pipelines, input_context.input_pipeline_id
    return data.shard(workers, worker).batch(batch // workers)


def not_divided(examples, batch, input_context):
    return order(examples, batch, input_context, {"seed": 1}, shard=False)


def whole_batches(examples, batch, input_context):
    return order(examples, batch, input_context, {"seed": 1}, divide=False)


def from_one(examples, batch, input_context):
    return order(examples, batch, input_context, {"seed": 1}, first=1)


def without_an_end(examples, batch, input_context):
    return right_order(examples, batch, input_context).repeat()


def unfinished(examples, batch, input_context):
    return order(examples, batch, context)  # noqa: F821  (a name that is not there)


def stub(examples, batch, input_context):
    return None


@pytest.mark.slow
@pytest.mark.trains
def test_an_input_function_that_deals_as_one_device_passes(capsys):
    dtk.check("06.input", right_order)
    assert capsys.readouterr().out == "check 06.input: PASS\n"


@pytest.mark.slow
@pytest.mark.trains
@pytest.mark.parametrize(
    ("make", "hint"),
    [
        (sharded_first, "not those that one device sees: mind the order"),
        (unseeded, "all workers have to shuffle alike, by one seed"),
        (seed_of_its_own, "all workers have to shuffle alike, by one seed"),
        (not_shuffled, "nothing is shuffled"),
        (backwards, "nothing is shuffled"),
        (not_divided, "every worker sees all examples: nothing divides them"),
        (whole_batches, "in a step the workers together see 16 examples, one device 8"),
        (from_one, "once, in batches of 8"),
        (without_an_end, "the data has no end: one epoch is asked for"),
        (unfinished, "in a worker it fails: NameError: name 'context' is not defined"),
    ],
)
def test_an_input_function_that_is_wrong_gets_its_hint(make, hint):
    with pytest.raises(CheckFailed) as failed:
        dtk.check("06.input", make)
    assert hint in failed.value.remedy


@pytest.mark.parametrize(("name", "objects"), [("06.input", ()), ("06.divides", (None,))])
def test_the_stub_is_not_solved(name, objects):
    with pytest.raises(NotSolved):
        dtk.check(name, stub, *objects)


def numbers(mode, params, input_context=None):
    import tensorflow as tf

    data = tf.data.Dataset.range(2 * 96 + 19).map(lambda number: tf.cast(number, tf.float32) / 100)
    if input_context:
        data = data.shard(input_context.num_input_pipelines, input_context.input_pipeline_id)
    workers = input_context.num_input_pipelines if input_context else 1
    return data.batch(params["batch"] // workers, drop_remainder=params.get("even", True)).repeat()


def one_weight(features, labels, mode, params):
    import tensorflow as tf

    v1 = tf.compat.v1
    losses = tf.square(v1.get_variable("weight", initializer=1.0) * features - 3.0)
    loss_of = params.get("loss_of")
    loss = loss_of(losses, params) if loss_of else tf.reduce_mean(losses)
    train_op = v1.train.GradientDescentOptimizer(0.01).minimize(loss, v1.train.get_or_create_global_step())
    return dtk.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def train(steps, **params):
    import tensorflow as tf

    est = dtk.estimator
    config = est.RunConfig(train_distribute=tf.distribute.MultiWorkerMirroredStrategy())
    classifier = est.Estimator(one_weight, str(dtk.run_dir() / "model"), config, params)
    train_spec = est.TrainSpec(numbers, max_steps=steps, hooks=[dtk.EstimatorRecorder()])
    est.train_and_evaluate(classifier, train_spec, est.EvalSpec(numbers, steps=1))


def right_loss(losses, params):
    import tensorflow as tf

    return tf.reduce_sum(losses) * tf.distribute.get_strategy().num_replicas_in_sync / params["batch"]


def own_mean(losses, params):
    import tensorflow as tf

    return tf.reduce_mean(losses)


def by_global_batch(losses, params):
    import tensorflow as tf

    return tf.reduce_sum(losses) / params["batch"]


def typed_in(losses, params):
    import tensorflow as tf

    return tf.reduce_sum(losses) * 2 / params["batch"]


def shown_batch(losses, params):
    import tensorflow as tf

    return tf.reduce_sum(losses) * tf.distribute.get_strategy().num_replicas_in_sync / 128


@pytest.mark.slow
@pytest.mark.trains
def test_a_loss_that_is_divided_once_passes(capsys):
    dtk.check("06.divides", right_loss, train)
    assert capsys.readouterr().out == "check 06.divides: PASS\n"


@pytest.mark.slow
@pytest.mark.trains
@pytest.mark.parametrize(
    ("loss_of", "hint"),
    [
        (own_mean, "right for a full batch, but not where worker 0 has one image more"),
        (by_global_batch, "the optimizer divides by the number of replicas once more"),
        (typed_in, "a number of workers that is typed in holds for one cluster"),
        (shown_batch, "on one device, a full batch's loss should stay the mean of its losses"),
    ],
)
def test_a_loss_that_is_wrong_gets_its_hint(loss_of, hint):
    with pytest.raises(CheckFailed) as failed:
        dtk.check("06.divides", loss_of, train)
    assert hint in failed.value.remedy
