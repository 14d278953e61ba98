"""Exercises that only a run can judge: right answers pass, each wrong one gets its hint, a stub is not solved."""

from __future__ import annotations

from functools import partial

import pytest
from lessons import FOLDER, functions_of, hint, passes

import dtk
from dtk.course.exercise import CheckFailed, NotSolved, Trial, all_exercises
from dtk.course.lesson_files import lessons

TRIALS = {name: trial for name, trial in all_exercises().items() if isinstance(trial, Trial)}
SOLUTIONS = {task.name: task.solution for lesson in lessons(FOLDER) for task in lesson.tasks}


@pytest.mark.parametrize("name", sorted(name for name, trial in TRIALS.items() if trial.of_function))
def test_without_an_answer_nothing_is_started(name):
    for stub in (None, *[lambda *given: None] * bool(TRIALS[name].stub)):
        with pytest.raises(NotSolved):
            dtk.check(name, stub)
    with pytest.raises(CheckFailed, match="a function is asked for, not 2"):
        dtk.check(name, 2)


# ---- a replica's share of a loss, in lessons 02, 05 and 06


def replicas():
    import tensorflow as tf

    return tf.distribute.get_strategy().num_replicas_in_sync


def train(strategy, share, global_batch=128, steps=None):
    """Two numbers an example, and a last batch that is short and unequal."""
    import keras
    import tensorflow as tf

    numbers = tf.random.Generator.from_seed(1).uniform((global_batch + 19, 2))
    data = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices(numbers).batch(global_batch))
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
        optimizer = keras.optimizers.SGD(0.1)

    def step(mine):
        with tf.GradientTape() as tape:
            losses = tf.square(model(mine)[:, 0] - 1)
            loss = share(losses, model, global_batch)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    @tf.function
    def one(mine):
        shares = strategy.run(step, args=(mine,))
        dtk.record_step(shares, batch=mine, model=model)

    for _ in range(2):
        for mine in data:
            one(mine)


def share(losses, model, global_batch, *, part="scaled", own_mean=False):
    """A loss with a penalty. part: of the penalty, by name. own_mean: of the replica's examples."""
    import tensorflow as tf

    penalty = 0.1 * tf.add_n([tf.nn.l2_loss(weight) for weight in model.trainable_variables])
    parts = {
        "scaled": penalty / replicas(),
        "whole": penalty,
        "typed in": penalty / 2,
        "twice": penalty / replicas() ** 2,
        "none": 0.0,
        "without gradient": tf.stop_gradient(penalty) / replicas(),
    }
    loss = tf.reduce_mean(losses) if own_mean else tf.nn.compute_average_loss(losses, global_batch_size=global_batch)
    return loss + parts[part]


WHOLE = partial(share, part="whole")


def in_lesson_02(strategy, share_of, global_batch, steps):
    train(strategy, share_of, global_batch)


PENALTIES = pytest.mark.parametrize(("name", "its"), [("02.penalty", in_lesson_02), ("05.penalty", train)])


@pytest.mark.slow
@PENALTIES
def test_a_penalty_that_counts_once_passes(name, its, capsys):
    assert passes(capsys, name, share, its, WHOLE)


@pytest.mark.slow
@PENALTIES
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"part": "whole"}, "the cluster's too large: each replica still adds the whole penalty"),
        ({"part": "twice"}, "the cluster's too small: something is divided once too often"),
        ({"part": "typed in"}, "a number of replicas that is typed in holds for one cluster"),
        ({"part": "none"}, "in a short batch, and is the penalty what it was?"),
        ({"own_mean": True}, "are the losses divided by the global batch, also in a short batch"),
        ({"part": "without gradient"}, "does the penalty reach the gradients"),
        ({"part": "?"}, "in a worker it fails: KeyError"),
    ],
)
def test_a_penalty_that_is_wrong_gets_its_hint(wrong, words, name, its):
    assert words in hint(name, partial(share, **wrong), its, WHOLE)


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
    loss = params["loss_of"](losses, params)
    train_op = v1.train.GradientDescentOptimizer(0.01).minimize(loss, v1.train.get_or_create_global_step())
    return dtk.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def train_estimator(steps, **params):
    import tensorflow as tf

    est = dtk.estimator
    config = est.RunConfig(train_distribute=tf.distribute.MultiWorkerMirroredStrategy())
    classifier = est.Estimator(one_weight, str(dtk.run_dir() / "model"), config, params)
    train_spec = est.TrainSpec(numbers, max_steps=steps, hooks=[dtk.EstimatorRecorder()])
    est.train_and_evaluate(classifier, train_spec, est.EvalSpec(numbers, steps=1))


def loss_of(losses, params, *, times=None, batch=None):
    """A sum, divided by the global batch or by `batch`, times the number of replicas or `times`."""
    import tensorflow as tf

    return tf.reduce_sum(losses) * (times or replicas()) / (batch or params["batch"])


def own_mean(losses, params):
    import tensorflow as tf

    return tf.reduce_mean(losses)


@pytest.mark.slow
def test_a_loss_that_is_divided_once_passes(capsys):
    assert passes(capsys, "estimator.divides", loss_of, train_estimator)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (own_mean, "step 1 is right, a later one is not: is an epoch's short last batch divided by the global batch"),
        (partial(loss_of, times=1), "something is divided once too often"),
        (partial(loss_of, times=2), "a number of replicas that is typed in holds for one cluster"),
        (partial(loss_of, batch=128), "one device's loss is another one: are the losses divided by the global batch"),
        (lambda losses, params: own_mean(losses, params) * replicas(), "the cluster's too large"),
    ],
)
def test_a_loss_that_is_wrong_gets_its_hint(wrong, words):
    assert words in hint("estimator.divides", wrong, train_estimator)


# ---- the input function of an Estimator


def dealt(examples, batch, context, *, shuffle=None, shard=True, divide=True, first=0, late=None, epochs=1):
    """Numbers dealt out. shuffle, late: keywords of Dataset.shuffle, before and after the sharding."""
    import tensorflow as tf

    workers, worker = context.num_input_pipelines, context.input_pipeline_id
    data = tf.data.Dataset.range(first, examples)
    data = data if shuffle is None else data.shuffle(examples, **shuffle)
    data = data.shard(workers, worker) if shard else data
    data = data if late is None else data.shuffle(examples, **late)
    return data.batch(batch // workers if divide else batch).repeat(epochs)


@pytest.mark.slow
def test_an_input_function_that_deals_as_one_device_passes(capsys):
    assert passes(capsys, "estimator.input", partial(dealt, shuffle={"seed": 1}))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"late": {"seed": 1}}, "not those that one device sees: mind the order"),
        ({"shuffle": {}}, "all workers have to shuffle alike, by one seed"),
        ({}, "nothing is shuffled"),
        ({"shuffle": {"seed": 1}, "shard": False}, "every worker sees all examples: nothing divides them"),
        ({"shuffle": {"seed": 1}, "divide": False}, "in a step the workers together see 16 examples, one device 8"),
        ({"shuffle": {"seed": 1}, "first": 1}, "once, in batches of 8"),
        ({"shuffle": {"seed": 1}, "epochs": None}, "the data has no end: one epoch is asked for"),
        ({"shuffle": {"sed": 1}}, "in a worker it fails: TypeError"),
    ],
)
def test_an_input_function_that_is_wrong_gets_its_hint(wrong, words):
    assert words in hint("estimator.input", partial(dealt, **wrong))


# ---- lesson 04: whose strategy a function counts by


def workers_only():
    import json
    import os

    return len(json.loads(os.environ.get("TF_CONFIG", "{}")).get("cluster", {}).get("worker", [""]))


def from_the_environment():
    import json
    import os

    return len(json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"])


@pytest.mark.trains
def test_the_strategy_that_is_handed_over_passes(capsys):
    assert passes(capsys, "04.strategy", lambda strategy: strategy.num_replicas_in_sync)
    with pytest.raises(NotSolved, match="04.strategy is not solved yet; in a worker there is no such name"):
        dtk.check("04.strategy", lambda: strategy.num_replicas_in_sync)  # noqa: F821  (the name that it is about)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda: 2, "it says 2: in two workers"),
        (replicas, "it says 1: in two workers"),
        (workers_only, "this counts workers only"),
        (from_the_environment, "in a worker it fails: KeyError"),
        (lambda strategy: strategy.num_replicas_in_sync + 1, "in one process with more replicas"),
    ],
)
def test_a_wrong_number_of_replicas_gets_its_hint(answer, words):
    assert words in hint("04.strategy", answer)


# ---- lessons 07 and 08: what is left of the data, an input pipeline

PIPELINES = [
    (lambda images, decoded, batch: images.map(decoded).repeat().batch(batch), "each epoch decodes every image again"),
    (lambda images, decoded, batch: images.cache().repeat().batch(batch), "is it called once for each"),
    (lambda images, decoded, batch: images.map(decoded).cache().batch(batch), "ends after one epoch"),
    (lambda images, decoded, batch: images.map(decoded).cache().batch(batch).repeat(), "too small"),
    (
        lambda images, decoded, batch: images.map(decoded).cache().shuffle(6, seed=1).repeat().batch(batch),
        "in another order",
    ),
    (lambda images, decoded, batch: images.cache(), "is `batch` missing"),
]
RESTS = [
    (lambda data, epochs, done, steps: data.repeat(epochs), "these are all epochs"),
    (lambda data, epochs, done, steps: data.repeat(epochs - done), "in the order of the first epochs"),
    (lambda data, epochs, done, steps: data.repeat(epochs).skip(done), "counts batches"),
    (lambda data, epochs, done, steps: data.skip(done * steps).repeat(epochs), "nothing is left"),
    (lambda data, epochs, done, steps: data.repeat(epochs).skip(steps), "compare them"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "answers"), [("08.pipeline", PIPELINES), ("07.rest", RESTS)])
def test_what_a_pipeline_makes_tells_right_from_wrong(name, answers, capsys):
    space = {}
    exec(SOLUTIONS[name], space)
    assert passes(capsys, name, space[name.partition(".")[2]])
    for answer, words in answers:
        assert words in hint(name, answer)
    with pytest.raises(NotSolved):
        dtk.check(name, lambda *given: None)


# ---- the appendix on Keras: clipping

UPDATE = "appendix_keras", "def apply("


def clipped(optimizer, gradient, weight, *, reduce="SUM", divide=1, normalize=False, clip=True):
    """A gradient that is reduced, then clipped, then divided by the number of replicas to the power of `divide`."""
    import tensorflow as tf

    whole = tf.distribute.get_replica_context().all_reduce(reduce, gradient) if reduce else gradient
    short = whole / tf.norm(whole) if normalize else tf.clip_by_norm(whole, 1.0) if clip else whole
    optimizer.apply_gradients([(short / tf.cast(replicas(), tf.float32) ** divide, weight)])


@pytest.mark.slow
def test_the_clipped_sum_passes(capsys):
    update = functions_of(*UPDATE)["update"]
    assert passes(capsys, "keras.clip", clipped, update)
    with pytest.raises(NotSolved, match="a gradient longer than 1 went through"):
        dtk.check("keras.clip", partial(clipped, reduce="", divide=0, clip=False), update)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"reduce": "", "divide": 0}, "each replica clips its own part"),
        ({"divide": 0}, "apply_gradients adds these up"),
        ({"normalize": True}, "clipping is not normalizing"),
        ({"reduce": "MEAN", "divide": 0}, "their mean is smaller"),
        ({"divide": 2}, "became updates of"),
    ],
)
def test_wrong_clipping_gets_its_hint(wrong, words):
    assert words in hint("keras.clip", partial(clipped, **wrong), functions_of(*UPDATE)["update"])


# ---- lesson 14: micro-batches of a small transformer

NAMES = ("create_model", "losses_of", "words_of", "all_words", "train", "recite")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("right", "wrong", "words"),
    [
        ("", "", ""),
        ("/ everyone", "/ words_of(batch)", "does each word count the same"),
        ("/ everyone", "/ words_of(batch) / len(micro_batches)", "does each word count the same"),
        ("/ everyone", "/ (16 * 14.0)", "and padding not"),
        ("words_of(batch)", "losses_of(model, batch)[1]", "count the words of all replicas"),
        ("tensor(each)", "tensor(each) / 2", "the losses are right, and the updates are not"),
        ("loss + share, [held + ", "loss + share, [", "add up the gradients of all micro-batches"),
        ("tf.convert_to_tensor(each)", "each", "in a worker it fails: TypeError"),
    ],
)
def test_accumulated_gradients(right, wrong, words, capsys):
    names = functions_of("14_modern_training", "import codecs", "words = [", *(f"def {name}" for name in NAMES))
    exec(SOLUTIONS["14.accumulated"].replace(right, wrong), names)
    given = "14.accumulated", names["my_gradients"], names["train"], names["all_words"]
    assert words in hint(*given) if words else passes(capsys, *given)
