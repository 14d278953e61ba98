"""Exercises of lab 2, eight broken functions: what is wrong in each is named first, then corrected, then run.

`dtk.verify` decides, with a batch, a number of steps and a seed that the lab does not show, and the function must
train what a right one trains. What `dtk.diagnose` says of a function is shown to those who have named the mistake.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dtk.course.exercise import CheckFailed, Trial, not_solved
from dtk.datasets import load
from dtk.errors import DtkError, VerificationError
from dtk.language import N_, _
from dtk.proof.diagnose import diagnose
from dtk.proof.following import Following
from dtk.proof.mistakes import MISTAKES
from dtk.proof.verify import prove
from dtk.runs import baseline, run
from dtk.worker.keras import Recorder
from dtk.worker.loop import record_step

__all__ = ["EXERCISES", "Broken", "right"]

_CLOSE = 1e-3  # of the losses of a right function on one device


def right(strategy: Any, global_batch: int, steps: int, penalty: float = 0.0, by_fit: bool = False) -> None:
    """What each function of the lab trains once it is right. Runs in a worker.

    by_fit: by Keras's `fit`, which Keras 2 gives the data as they are shuffled the second time.
    """
    import keras
    import tensorflow as tf

    (images, _), _ = load("mnist", source="embedded")
    data = images.map(lambda image, digit: (tf.cast(image, tf.float32) / 255.0, digit)).cache()
    data = data.shuffle(2000, seed=1).repeat().batch(global_batch).take(steps)
    with strategy.scope():
        layers = [keras.layers.Flatten(), keras.layers.Dense(32, activation="relu"), keras.layers.Dense(10)]
        model = keras.Sequential([keras.layers.Input((28, 28, 1)), *layers])
        optimizer = keras.optimizers.SGD(0.1)
        if by_fit:
            model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    if by_fit:
        model.fit(data, callbacks=[Recorder()], verbose=0)
        return

    def replica_step(images: Any, digits: Any) -> Any:
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(digits, model(images, training=True))
            squares = tf.add_n([tf.nn.l2_loss(weight) for weight in model.trainable_variables])
            share = tf.nn.compute_average_loss(losses, global_batch_size=global_batch)
            share += penalty * tf.nn.scale_regularization_loss(squares)
        gradients = tape.gradient(share, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return share

    @tf.function
    def step(batch: Any) -> None:
        record_step(strategy.run(replica_step, args=batch), batch=batch, model=model)

    for batch in strategy.experimental_distribute_dataset(data):
        step(batch)


def _hint_for(answer: Callable[..., Any], penalty: float, by_fit: bool, draw: random.Random) -> str:
    """What is wrong with the answer, "" where nothing is. The seed and the arguments are not the lab's."""
    found: dict[int, Following] = {}
    kwargs = {"global_batch": draw.choice((52, 56, 60, 68)), "steps": draw.randint(6, 8)}
    seed = draw.randint(3, 99)
    try:
        together = run(answer, workers=2, kwargs=kwargs, seed=seed)
        alone = baseline(answer, kwargs=kwargs, seed=seed)
    except DtkError as error:
        return _("it does not run: {error}", error=error)
    try:
        proof = prove(together, alone, found=found)
    except VerificationError:
        return _("dtk.diagnose says of your function: {diagnosis}", diagnosis=diagnose(together, alone))
    if proof.verdict == "replicas":
        return _("workers and one device don't train the same: {why}", why=found[1].failed)
    reference = baseline(right, kwargs={**kwargs, "penalty": penalty, "by_fit": by_fit}, seed=seed)
    mine, its = (each.records.loss.to_numpy() for each in (alone, reference))
    if len(mine) != len(its):
        return _("it takes {steps} steps where {asked} were asked for", steps=len(mine), asked=len(its))
    if abs(mine / its - 1).max() > _CLOSE:
        return _("workers and one device agree, but it trains something else now: change the mistake alone")
    return ""


@dataclass(frozen=True)
class Broken(Trial):
    """One broken function. mistake: its key in `dtk.proof.mistakes`. penalty, by_fit: of `right`."""

    mistake: str
    penalty: float = 0.0
    by_fit: bool = False

    def judge(self, answer: Any, *objects: Any, seed: str = "") -> int:
        """As `Trial.judge`; objects: the mistake's name, as the learner gives it.

        Raises:
            NotSolved: no mistake is named yet.
            CheckFailed: another mistake is named, or the function is not right yet.
        """
        named = objects[0] if objects else None
        if named is None or named is ...:
            raise not_solved(self.name, N_("name the mistake in the cell above first"))
        if not isinstance(named, str) or named not in MISTAKES:
            what = _("{exercise}: {named!r} is no name of a mistake", exercise=self.name, named=named)
            raise CheckFailed(what, remedy=_("take one from the lab's list"))
        if named != self.mistake:
            what = _("{exercise}: {named!r} is not what is wrong here", exercise=self.name, named=named)
            symptom = _(MISTAKES[named].symptom)
            raise CheckFailed(what, remedy=_("hint: it would be seen by this: {symptom}", symptom=symptom))
        draw = random.Random(self.name + seed)
        hint = self.hint_for(answer, penalty=self.penalty, by_fit=self.by_fit, draw=draw)
        if hint:
            what = _("{exercise}: {named!r} is named rightly, and not corrected yet", exercise=self.name, named=named)
            raise CheckFailed(what, remedy=_("hint: {hint}", hint=hint))
        print(f"{self.name}: {named}: {_(MISTAKES[named].symptom)}")
        return 1


EXERCISES = [
    Broken("lab2.first", _hint_for, "local mean"),
    Broken("lab2.second", _hint_for, "global batch", by_fit=True),
    Broken("lab2.third", _hint_for, "sharding off", by_fit=True),
    Broken("lab2.fourth", _hint_for, "divided twice"),
    Broken("lab2.fifth", _hint_for, "worker order", by_fit=True),
    Broken("lab2.sixth", _hint_for, "regularisation", penalty=0.01),
    Broken("lab2.seventh", _hint_for, "not in scope", by_fit=True),
    Broken("lab2.eighth", _hint_for, "learning rate"),
]
