"""What Keras and Estimator call while they train: `dtk.Recorder` and `dtk.EstimatorRecorder`, and what is recorded.

Of an Estimator's `train_and_evaluate` also what it keeps to itself: results, evaluations, their checkpoints.
"""

from __future__ import annotations

import operator
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dtk.compat import estimators, states, tap, updates
from dtk.compat.fingerprint import element_shapes
from dtk.compat.libraries import tf
from dtk.compat.per_replica import scope_of
from dtk.environment import Here, here, training_ended
from dtk.errors import ClusterConfigError
from dtk.language import N_, _
from dtk.records.events import Called, EstimatorTrained, Loop, Optimizer, Training
from dtk.worker.progress import Known, Progress, check_strategy, evaluated, evaluating, progress, say_unrecorded


class _Hook:
    """What gets a base class of TensorFlow's or Keras's when one is made.

    The process that workers are forked from imports the class, and must import neither; a worker has its own Keras.
    """

    base: str  # its name in TensorFlow
    made_as: type

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        base, made = operator.attrgetter(cls.base)(tf), cls
        if not issubclass(cls, base):
            own = {"made_as": cls, "__module__": cls.__module__, "__doc__": cls.__doc__}
            made = type(cls.__name__, (cls, base), own)
        return base.__new__(made)

    def __reduce__(self) -> Any:
        return self.made_as, ()  # the class made in __new__ has no name to be found by


class Recorder(_Hook):
    """A Keras callback, without arguments: `fit(..., callbacks=[dtk.Recorder()])` on every worker and in the baseline.

    Per step and replica it records the share of the global loss, the number of examples, their fingerprint (labels
    included), and start and end. The share is what `train_step`, Keras's or your own, takes the gradient of; with
    Keras's own, a step's shares add up to the mean over the global batch, if all replicas have equal numbers of
    examples. If a step takes several gradients, as a GAN's does, `loss` is their sum, and each has a column
    `loss.NAME`. With `steps_per_execution=n` the times of the inner steps are spread evenly.

    Steps and epochs count from 1 through several `fit` calls; with `initial_epoch`, or resumed by BackupAndRestore,
    epochs are Keras's own. It saves each model's weights at the end of each `fit`, in the order of `model.weights`.

    In an evaluator, `model.evaluate(..., callbacks=[dtk.Recorder()])` records times, metrics, and as step what the
    optimizer has counted. Outside of `dtk.run` and `dtk.baseline` it records nothing and prints that once.

    Raises:
        ClusterConfigError: in the worker, where it can't work: a model outside of the run's strategy, for one.
    """

    base = "keras.callbacks.Callback"
    model: Any  # Keras sets these two
    params: dict[str, Any]

    def __init__(self) -> None:
        super().__init__()
        self._fit: tuple[Progress, Known, tap.Tap] | None = None  # what the fit that goes on is recorded into
        self._first_epoch, self._offset = True, 0
        self._began = 0.0

    def on_train_begin(self, logs: Any = None) -> None:
        place = here()
        self._fit = None
        if place is None:
            say_unrecorded("dtk.Recorder")
            return
        model = self.model
        check_strategy(tap.weights_so_far(model), place)
        state = progress(place)
        known = state.known(model, lambda: tap.weights_so_far(model))
        self._first_epoch, self._began = True, place.now()
        known.tap = known.tap or tap.Tap(model)
        known.tap.attach(owner=self)
        self._fit = state, known, known.tap

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        fit = self._mine()
        if fit is None:
            return
        state = fit[0]
        if self._first_epoch:
            self._first_epoch = False
            # A further fit that starts from epoch 0 again continues the count; a resumed one has its own.
            offset = 0 if epoch + 1 > state.epoch else state.epoch - epoch
            self._offset = state.begins(self._counted() or 0, offset)
            steps, epochs = (None if each is None else int(each) for each in map(self.params.get, ("steps", "epochs")))
            epochs = None if epochs is None else epochs - epoch
            state.place.journal.event(Training(state.place.now(), steps=steps, epochs=epochs))
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
            state.save_weights(known)
            its.detach()
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
        return self._fit if self._fit is not None and self._fit[2].owner is self else None

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
            shapes, scope = element_shapes(its.batch), scope_of(self.model.weights)
            norms, blind = tap.norms_of(self.model), self.model.name if its.blind else ""
            place.journal.event(Loop(ended, kind="fit", shapes=shapes, scope=scope, norms=norms, blind=blind))
        several = its.names if len(its.names) > 1 else []
        length = (ended - self._began) / count
        for k in range(count):
            span = (self._began + k * length, self._began + (k + 1) * length)
            state.record([values[k] for values in rows], several, span)
        self._began = ended


# ---- Estimator

NAME = "the Estimator"  # of its optimizer


class EstimatorRecorder(_Hook):
    """A hook for tf.estimator, without arguments: `TrainSpec(input_fn, hooks=[dtk.EstimatorRecorder()])`.

    Per step and replica it records the share of the global loss (with a v1 optimizer the `loss` of the replica's
    EstimatorSpec, divided by the number of replicas), the number of examples, their fingerprint, and start and end. It
    saves the variables at the end. Epoch is 1 throughout.

    Under `dtk.run` or `dtk.baseline` a training without this hook gets one. Elsewhere it records nothing, and says so.
    """

    base = "compat.v1.train.SessionRunHook"

    def __init__(self) -> None:
        if here() is None:
            say_unrecorded("dtk.EstimatorRecorder")


class _Recording(EstimatorRecorder):
    """The hook that records: one for each training, whatever hooks that was given."""

    def __init__(self, place: Here) -> None:
        self._place = place
        self._before: tuple[int, int] | None = None  # the global step and the steps recorded, as training begins
        self.global_step: int | None = None

    def begin(self) -> None:
        self._rows, self._variables = estimators.replica_rows(), states.of_graph()
        self._global_step = tf.compat.v1.train.get_global_step()
        self._place.journal.event(Called(self._place.now(), draws=updates.drawn(tf.compat.v1.get_default_graph())))

    def after_create_session(self, session: Any, coord: Any) -> None:
        state, step = progress(self._place), int(session.run(self._global_step))
        if not state.trainings:
            state.begins(step)
            self._place.journal.event(Loop(self._place.now(), kind="estimator"))
            self._place.journal.event(Training(self._place.now(), steps=None, epochs=None))
        self._before = self._before or (step, state.steps)
        states.enter_graph(self._variables, session)

    def before_run(self, context: Any) -> Any:
        progress(self._place).before_step()
        watcher = states.watcher()
        self._begun = None if watcher is None else watcher.begins(context.session.graph)
        self._began = self._place.now()
        return tf.compat.v1.train.SessionRunArgs(self._rows)

    def after_run(self, context: Any, values: Any) -> None:
        if (watcher := states.watcher()) is not None:
            watcher.ends(context.session.graph, self._begun)
        state, ended = progress(self._place), self._place.now()
        state.epoch = 1
        state.record(values.results, [], (self._began, ended))

    def end(self, session: Any) -> None:
        states.enter_graph(self._variables, None)
        held = {each.name: now[0] for each, now in zip(self._variables, states.read(self._variables), strict=True)}
        del held[self._global_step.op.name]
        self._place.folder.save_weights(list(held), list(held.values()))
        self.global_step = int(session.run(self._global_step))
        state, (step, steps) = progress(self._place), self._before or (0, 0)
        made, recorded = self.global_step - step, state.steps - steps
        state.estimated.append(Optimizer(name=NAME, variables=[*held], made=made, recorded=recorded))


class EstimatorListener:
    """What `dtk.compat.estimators` calls in a worker."""

    def __init__(self, place: Here):
        self.place = place
        self._aside = place.run.evaluator.path / "checkpoints"  # what the chief has put aside for the evaluator

    def hooks(self, given: list[Any], estimator: Any) -> list[Any]:
        latest = tf.train.latest_checkpoint(estimator.model_dir)
        if latest is not None:
            words = N_(
                "training goes on from {latest}, which model_dir held before this run; give every run a directory of "
                "its own: model_dir=str(dtk.run_dir() / 'model'), to begin anew"
            )
            print(_("dtk: ") + _(words, latest=latest))
        # The last in the list: what it measures leaves out what other hooks do after a step.
        self.recording = _Recording(self.place)
        return [*given, self.recording]

    def trained(self, loss: Any) -> None:
        loss = None if loss is None else float(loss)
        self.place.journal.event(EstimatorTrained(self.place.now(), loss=loss, step=self.recording.global_step))

    def evaluation(self, evaluate: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        started = evaluating(self.place)
        metrics = evaluate()
        numbers = {name: float(value) for name, value in metrics.items() if name != "global_step"}
        evaluated(self.place, step=int(metrics["global_step"]), started=started, metrics=numbers)
        return metrics

    def saved(self, prefix: str) -> None:
        """The chief puts each checkpoint aside for the evaluator: Estimator deletes all but the last five."""
        if self.place.run.has_evaluator and self.place.worker == 0:
            self._aside.mkdir(exist_ok=True)
            files = sorted(Path(prefix).parent.glob(f"{Path(prefix).name}.*"), key=lambda file: file.suffix == ".index")
            for file in files:  # the index comes last: where it is, all is
                shutil.copyfile(file, self._aside / "part")
                os.replace(self._aside / "part", self._aside / file.name)

    def follow_training(self, executor: Any) -> None:
        """Evaluates each of the chief's checkpoints, and ends when training has, in place of Estimator's timetable."""
        count = 0
        while True:
            ended = training_ended()  # asked first: what was saved before the end is then on the list
            new = sorted(self._aside.glob("*.index"), key=lambda file: int(file.stem.rsplit("-", 1)[1]))
            for index in new:
                estimators.evaluate_checkpoint(executor, str(index.with_suffix("")))
                for file in index.parent.glob(f"{index.stem}.*"):
                    file.unlink()
            count += len(new)
            if ended and not new:
                break
        if not count:
            raise ClusterConfigError(
                _("the evaluator had nothing to evaluate: the chief's Estimator saved no checkpoint")
            )
