"""`dtk.Recorder`: a Keras callback that writes down what each replica did in each step of `fit`."""

from __future__ import annotations

from typing import Any

from dtk.compat import tap
from dtk.compat.fingerprint import element_shapes
from dtk.compat.libraries import keras_2_chosen
from dtk.compat.per_replica import scope_of
from dtk.environment import here
from dtk.language import _
from dtk.records.events import Loop, NoLoss, Scope, Training
from dtk.worker.progress import (
    Known,
    Progress,
    check_strategy,
    evaluated,
    evaluating,
    keep_beside,
    progress,
    save_weights,
    with_base,
)

__all__ = ["Recorder"]


class Recorder:
    """A Keras callback, without arguments: `fit(..., callbacks=[dtk.Recorder()])` on every worker and in the baseline.

    For each step and replica it records the replica's share of the global loss, the number of examples, their
    fingerprint (labels included), and start and end of the step. The share is what `train_step`, Keras's or your own,
    takes the gradient of: of Keras's own, the replica's mean divided by the number of replicas, regularisation
    included, so that a step's shares add up to the global loss (to the mean over the global batch, where all replicas
    have equally many examples). Where a step takes several gradients, as a GAN's does, `loss` is their sum, and each
    has a column `loss.NAME`, as the step's code calls it. With `steps_per_execution=n` every inner step is recorded;
    as only start and end of the n are known, the times between are spread evenly.

    Steps and epochs count from 1, and on through several `fit` calls; with `initial_epoch`, or resumed by
    BackupAndRestore, epochs are Keras's own. Of each model it saves the weights before its first step, at the beginning
    and end of each further `fit`, and at the end of the function, in the order of `model.weights`. With several
    replicas in one process it checks that their copies are identical.

    In an evaluator, `model.evaluate(..., callbacks=[dtk.Recorder()])` records each evaluation: its times, its
    metrics, and as its step what the model's optimizer has counted (unknown where that is 0: a checkpoint of
    weights alone has no count).

    The model is left as it was. Outside of `dtk.run` and `dtk.baseline` it records nothing and prints that once. Two
    Recorders in one `fit` record once.

    Raises:
        ClusterConfigError: in the worker, where it can't work: a model outside of the run's strategy, for one.
    """

    model: Any  # Keras sets these two
    params: dict[str, Any]

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        if keras_2_chosen():
            import tf_keras

            return with_base(cls, tf_keras.callbacks.Callback)
        import keras

        return with_base(cls, keras.callbacks.Callback)

    def __init__(self) -> None:
        super().__init__()
        self._fit: tuple[Progress, Known, tap.Tap] | None = None  # what the fit that goes on is recorded into
        self._first_epoch, self._offset, self._before = True, 0, 0
        self._began = 0.0

    def __reduce__(self) -> Any:
        return Recorder, ()  # the class made in __new__ has no name to be found by

    def on_train_begin(self, logs: Any = None) -> None:
        place = here()
        self._fit = None
        if place is None:
            print(_("dtk.Recorder: this process was not started by dtk.run or dtk.baseline; nothing is recorded"))
            return
        model = self.model
        check_strategy("dtk.Recorder", tap.weights_so_far(model), place)
        state = progress(place)
        known = state.known(model, lambda: tap.weights_so_far(model))
        self._first_epoch, self._before, self._began = True, state.steps, place.now()
        self._fit = state, known, tap.attach(model, owner=self, on_built=lambda: state.save_initial(known))

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        fit = self._mine()
        if fit is None:
            return
        state, known, _tap = fit
        if self._first_epoch:
            self._first_epoch = False
            # A further fit that starts from epoch 0 again continues the count; a resumed one has its own.
            offset = 0 if epoch + 1 > state.epoch else state.epoch - epoch
            self._offset = state.begins(self._counted() or 0, offset)
            steps, epochs = (None if each is None else int(each) for each in map(self.params.get, ("steps", "epochs")))
            epochs = None if epochs is None else epochs - epoch
            state.place.journal.event(Training(state.place.now(), steps=steps, epochs=epochs))
            if self.model.built:  # a model without input shape has no weights before its first step
                state.save_initial(known)
        state.epoch = epoch + 1 + self._offset

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        fit = self._mine()
        if fit is not None:
            # What makes this worker late makes it begin late: its peers wait, and the records show it.
            fit[0].before_step(fit[2].slots, lambda: self.model.trainable_variables)
            self._began = fit[0].place.now()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._record()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._record()  # steps of an execution that the end of the data cut short, where Keras has not reported it

    def on_train_end(self, logs: Any = None) -> None:
        fit = self._mine()
        if fit is not None:
            state, known, its = fit
            if self._first_epoch and state.place.run.attempt > 1:  # a backup of a training that was complete
                state.begins(self._counted() or 0)
            keep_beside(state.place)
            save_weights(state.place, "final", known.weights(), known.part)
            known.lost += its.lost
            if state.steps == self._before and not self._first_epoch:
                print(_("dtk.Recorder: no step of this fit was recorded: its train function never called train_step"))
            tap.detach(self.model)
        self._fit = None

    def on_test_begin(self, logs: Any = None) -> None:
        place = here()
        if place is not None and place.role == "evaluator":
            self._began = evaluating(place, self._counted())

    def on_test_end(self, logs: Any = None) -> None:
        place = here()
        if place is not None and place.role == "evaluator":
            evaluated(place, step=self._counted(), started=self._began, metrics=logs or {})

    def _counted(self) -> int | None:
        """Steps that the model's optimizer has made; None where it has none, or a checkpoint brought no count."""
        count = getattr(getattr(self.model, "optimizer", None), "iterations", None)
        return (int(count.numpy()) or None) if count is not None else None

    def _mine(self) -> tuple[Progress, Known, tap.Tap] | None:
        """What to record into; None outside a run, and where a later Recorder of the same fit has taken over."""
        active = tap.active(self.model)
        return None if active is None or active.owner is not self else self._fit

    def _record(self) -> None:
        fit = self._mine()
        if fit is None:
            return
        state, known, its = fit
        rows = its.read()
        count = len(rows[0])
        if count == 0:
            return
        place, ended = state.place, state.place.now()
        if not known.announced:
            known.announced = True
            shapes, scope = element_shapes(its.batch), Scope(**scope_of(self.model.weights))
            place.journal.event(Loop(ended, kind="fit", shapes=shapes, scope=scope, layers=tap.layers_of(self.model)))
            if its.blind:
                place.journal.event(NoLoss(ended, model=self.model.name))
        several = its.names if len(its.names) > 1 else []
        length = (ended - self._began) / count
        for k in range(count):
            span = (self._began + k * length, self._began + (k + 1) * length)
            state.record([values[k] for values in rows], several, span)
        self._began = ended
