"""Exercises of lab 2, eight broken functions: what is wrong in each is named first, then corrected, then run.

`dtk.verify` decides, with a batch, a number of steps and a seed that the lab does not show, and the function must
train what a right one trains. What `dtk.diagnose` says of a function is shown to those who have named the mistake.
"""

from __future__ import annotations

import random
from functools import partial
from typing import Any

from dtk.course.exercise import CheckFailed, Trial, failure, not_solved, trains_otherwise
from dtk.datasets import load
from dtk.errors import WorkerFailed, WorkerStalled
from dtk.language import N_, _
from dtk.proof.diagnose import diagnose
from dtk.proof.mistakes import MISTAKES
from dtk.runs import baseline, run
from dtk.worker.hooks import Recorder
from dtk.worker.loop import record_step

_CLOSE = 1e-3  # of the losses of a right function on one device


def right(global_batch: int, steps: int, penalty: float = 0.0, by_fit: bool = False) -> None:
    """Train on one device what each function of the lab trains once it is right. Runs in a worker.

    by_fit: by Keras's `fit`, which Keras 2 gives the data as they are shuffled the second time.
    """
    import keras
    import tensorflow as tf

    (images, _), _ = load("mnist", source="embedded")
    data = images.map(lambda image, digit: (tf.cast(image, tf.float32) / 255.0, digit)).cache()
    data = data.shuffle(2000, seed=1).repeat().batch(global_batch).take(steps)
    layers = [keras.layers.Flatten(), keras.layers.Dense(32, activation="relu"), keras.layers.Dense(10)]
    model = keras.Sequential([keras.layers.Input((28, 28, 1)), *layers])
    optimizer = keras.optimizers.SGD(0.1)
    if by_fit:
        model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        model.fit(data, callbacks=[Recorder()], verbose=0)
        return
    weights = model.trainable_variables
    for batch in data:
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(batch[1], model(batch[0], training=True))
            loss = tf.reduce_mean(losses) + penalty * tf.add_n([tf.nn.l2_loss(weight) for weight in weights])
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        record_step(loss, batch=batch, model=model)


def _hint_for(answer: Any, named: Any, draw: random.Random, exercise: str, mistake: str, **its_own: Any) -> str:
    """Judges the name that the learner gives to the mistake, then the corrected function.

    mistake: its key in `dtk.proof.mistakes`. its_own: what `right` is called with for this exercise.
    """
    if named is None or named is ...:
        raise not_solved(exercise, N_("name the mistake in the cell above first"))
    if not isinstance(named, str) or named not in MISTAKES:
        words = N_("{exercise}: {named!r} is no name of a mistake in the lab's list")
        raise CheckFailed(_(words, exercise=exercise, named=named))
    symptom = _(MISTAKES[named].symptom)
    if named != mistake:
        what = _("{exercise}: {named!r} is not what is wrong here", exercise=exercise, named=named)
        raise CheckFailed(what, remedy=_("hint: it would be seen by this: {symptom}", symptom=symptom))
    hint = _what_is_wrong(answer, draw, its_own)
    if hint:
        what = _("{exercise}: {named!r} is named rightly, and not corrected yet", exercise=exercise, named=named)
        raise CheckFailed(what, remedy=_("hint: {hint}", hint=hint))
    print(f"{exercise}: {named}: {symptom}")
    return ""


def _what_is_wrong(answer: Any, draw: random.Random, its_own: dict[str, Any]) -> str:
    """The hint for a function, "" where it is right. The seed and the arguments are not the lab's."""
    kwargs = {"global_batch": draw.choice((52, 56, 60, 68)), "steps": draw.randint(6, 8)}
    seed = draw.randint(3, 99)
    try:
        together = run(answer, workers=2, kwargs=kwargs, seed=seed)
        alone = baseline(answer, kwargs=kwargs, seed=seed)
    except (WorkerFailed, WorkerStalled) as error:
        return failure(error)
    if trains_otherwise(together, alone):
        return _("dtk.diagnose says of your function: {diagnosis}", diagnosis=diagnose(together, alone))
    reference = baseline(right, kwargs={**kwargs, **its_own}, seed=seed)
    mine, its = (each.records.loss.to_numpy() for each in (alone, reference))
    if len(mine) != len(its) or abs(mine / its - 1).max() > _CLOSE:
        return _("workers and one device agree, but it trains something else now: change the mistake alone")
    return ""


EXERCISES = [
    Trial(name, partial(_hint_for, exercise=name, mistake=mistake, **more))
    for name, mistake, more in (
        ("lab2.first", "local mean", {}),
        ("lab2.second", "global batch", {"by_fit": True}),
        ("lab2.third", "sharding off", {"by_fit": True}),
        ("lab2.fourth", "divided twice", {}),
        ("lab2.fifth", "worker order", {"by_fit": True}),
        ("lab2.sixth", "regularisation", {"penalty": 0.01}),
        ("lab2.seventh", "not in scope", {"by_fit": True}),
        ("lab2.eighth", "learning rate", {}),
    )
]
