"""Lessons 00 to 02: what the folded solutions do, values read from runs, and answers that only a run can judge."""

from __future__ import annotations

import ast
import re

import numpy as np
import pytest
from fabricate import fabricate, losses
from lessons import cells_of, names, tags

import dtk
from dtk.course.check import all_exercises
from dtk.course.exercise import CheckFailed, NotSolved

LESSONS = ("00_start_here", "01_all_reduce", "02_loss_scaling")
RUN = {"02.penalty"}  # judged by runs


def exercises_of(lesson):
    """By name: the stub's code, the check's line and the folded solution, in the lesson's order.

    Stub and solution are the first that give the name which the check takes: two exercises may share a cell.
    """
    cells = cells_of(lesson)
    stubs = [cell.source for cell in cells if "exercise" in tags(cell)]
    folded = [cell.source for cell in cells if cell.cell_type == "markdown" and "<summary><b>Solution" in cell.source]
    codes = [re.search(r"```python\n(.*?)```", text, re.DOTALL)[1] for text in folded]
    found = {}
    for check in (cell.source for cell in cells if "check" in tags(cell)):
        name, asked = re.match(r'dtk\.check\("([\w.]+)", (\w+)', check).groups()
        stub, solution = (next(code for code in each if asked in names(code, ast.Store)) for each in (stubs, codes))
        found[name] = [stub, check, solution]
    return found


ALL = {name: parts for lesson in LESSONS for name, parts in exercises_of(lesson).items()}


@pytest.fixture
def runs(tmp_path):
    """A run and its baseline: 20 steps, the larger part with replica 1, the cluster's loss the smaller at step 12."""
    curve = losses(20)
    noise = 1e-7 * np.cos(np.arange(20))
    noise[11] = -3e-7
    shares = np.stack([0.4 * curve, (0.6 + noise) * curve], axis=1)
    examples = np.tile([48, 80], (20, 1))
    return {
        "run": fabricate(tmp_path / "run", steps=20, shares=shares, examples=examples),
        "baseline": fabricate(tmp_path / "alone", mode="single", workers=1, steps=20, shares=curve[:, None]),
    }


def test_every_exercise_is_in_its_lesson():
    for lesson in LESSONS:
        assert set(exercises_of(lesson)) == set(all_exercises(lesson[:2]))
        assert len(exercises_of(lesson)) >= 4


@pytest.mark.parametrize("name", sorted(set(ALL) - RUN))
def test_the_folded_solution_passes_and_the_stub_is_not_solved(name, runs, capsys):
    stub, check, solution = ALL[name]
    space = {"dtk": dtk, "np": np, **runs}
    exec(stub, space)
    with pytest.raises(NotSolved, match=f"{name} is not solved yet"):
        exec(check, space)
    exec(solution, space)
    exec(check, space)
    assert f"check {name}: PASS" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["00.apart"])
def test_each_wrong_value_has_its_own_hint(name, runs):
    exercise = all_exercises("00")[name]
    objects = list(runs.values())[:2]
    assert exercise.judge(exercise.answer(*objects), *objects) == 1
    for answer, hint in exercise.misconceptions:
        with pytest.raises(CheckFailed) as failed:
            exercise.judge(answer(*objects), *objects)
        assert failed.value.remedy == f"hint: {hint}"
    for guess in (0, 1, 64, 1e-4, "PASS"):
        with pytest.raises(CheckFailed):
            exercise.judge(guess, *objects)


def hint(name, answer, *objects):
    with pytest.raises(CheckFailed) as failed:
        dtk.check(name, answer, *objects)
    return failed.value.remedy


def train(strategy, share_of, global_batch, steps):
    """The lesson's loop, on random numbers."""
    import keras
    import tensorflow as tf

    keras.utils.set_random_seed(0)
    images, labels = np.random.rand(global_batch * steps, 8).astype("float32"), np.arange(global_batch * steps) % 3
    batches = tf.data.Dataset.from_tensor_slices((images, labels)).batch(global_batch)
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(3)])
        optimizer = keras.optimizers.SGD(0.1)
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")

    def replica_step(images, labels):
        with tf.GradientTape() as tape:
            share = share_of(loss_of(labels, model(images, training=True)), model, global_batch)
        gradients = tape.gradient(share, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return share

    for batch in strategy.experimental_distribute_dataset(batches):
        shares = strategy.run(replica_step, args=batch)
        dtk.record_step(shares, batch=batch, model=model)


def average(losses, global_batch):
    import tensorflow as tf

    return tf.nn.compute_average_loss(losses, global_batch_size=global_batch)


def penalty(model):
    import tensorflow as tf

    return 0.01 * tf.add_n([tf.nn.l2_loss(weight) for weight in model.trainable_variables])


def replicas():
    import tensorflow as tf

    return tf.distribute.get_strategy().num_replicas_in_sync


def without(losses, model, global_batch):
    return average(losses, global_batch)


def unscaled(losses, model, global_batch):
    return average(losses, global_batch) + penalty(model)


def half(losses, model, global_batch):
    return average(losses, global_batch) + penalty(model) / 2


def by_examples(losses, model, global_batch):
    return average(losses, global_batch) + penalty(model) / global_batch


def all_divided(losses, model, global_batch):
    return unscaled(losses, model, global_batch) / replicas()


def no_number(losses, model, global_batch):
    return average(losses, global_batch) * float("nan")


def without_gradient(losses, model, global_batch):
    import tensorflow as tf

    return average(losses, global_batch) + tf.stop_gradient(penalty(model)) / replicas()


def own_mean(losses, model, global_batch):
    import tensorflow as tf

    return tf.nn.compute_average_loss(losses) + penalty(model) / replicas()


def own_part(losses, model, global_batch):
    return average(losses, global_batch) + penalty(model) * len(losses) / global_batch


def divided_twice(losses, model, global_batch):
    return average(losses, global_batch) + penalty(model) / replicas() ** 2


@pytest.mark.slow
@pytest.mark.trains
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (unscaled, "each replica still adds the whole penalty"),
        (half, "typed in holds for one cluster"),
        (by_examples, "also on one device"),
        (without, "the penalty is gone"),
        (all_divided, "something is divided once too often"),
        (divided_twice, "something is divided once too often"),
        (own_mean, "are the losses divided by the global batch, also in a short batch"),
        (own_part, "the penalty is gone, or smaller"),
        (no_number, "also on one device"),
        (without_gradient, "does the penalty reach the gradients"),
        (lambda losses, model: 0, "in a worker it fails: TypeError"),
    ],
)
def test_a_wrong_share_of_a_penalty(answer, words):
    assert words in hint("02.penalty", answer, train, without, unscaled)


@pytest.mark.slow
@pytest.mark.trains
def test_the_solution_of_the_penalty_passes(capsys):
    stub, _, solution = ALL["02.penalty"]
    space = {}
    exec(stub, space)
    with pytest.raises(NotSolved):
        dtk.check("02.penalty", space["my_share"], train, without, unscaled)
    exec(solution, space)
    dtk.check("02.penalty", space["my_share"], train, without, unscaled)
    assert "check 02.penalty: PASS\n" in capsys.readouterr().out
