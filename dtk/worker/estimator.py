"""`dtk.EstimatorRecorder`, and what `train_and_evaluate` keeps to itself: results, evaluations, their checkpoints."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dtk.compat import estimators, states, updates
from dtk.compat.libraries import tf
from dtk.environment import Here, here, training_ended
from dtk.errors import ClusterConfigError
from dtk.language import N_, _
from dtk.records import weights
from dtk.records.events import Loop, Optimizer, Outcome, Traced, Training
from dtk.worker import states as watching
from dtk.worker.progress import evaluated, evaluating, progress, with_base

__all__ = ["EstimatorRecorder", "listen"]

NAME = "the Estimator"  # of its optimizer


class EstimatorRecorder:
    """A hook for tf.estimator, without arguments: `TrainSpec(input_fn, hooks=[dtk.EstimatorRecorder()])`.

    For each step and replica it records the replica's share of the global loss, as Estimator reports it (under a
    strategy a v1 optimizer takes the mean over the replicas, so a share is the `loss` of the replica's EstimatorSpec
    divided by their number), the number of examples, their fingerprint, and start and end of the step. It saves the
    variables before the first step, and at the end those of the chief's last checkpoint; on the other workers, those in
    memory. Estimator knows no epochs: epoch is 1 throughout.

    In a function that `dtk.run` or `dtk.baseline` starts, a training without this hook gets one: the results that
    train_and_evaluate does not return come from it. Elsewhere it records nothing and prints that once.
    """

    recording: Any = None  # the recorder of the training that goes on

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return with_base(cls, tf.compat.v1.train.SessionRunHook)

    def __init__(self) -> None:
        self._place = here()
        self._rows: list[Any] = []
        self._began = 0.0
        self._variables: list[states.InGraph] = []
        self._begun: Any = None  # what the watcher of steps said before this one
        self._before: tuple[int, int] | None = None  # the global step and the steps recorded, as training begins
        self.model_dir: str | None = None
        self.global_step: int | None = None
        if self._place is None:
            print(
                _("dtk.EstimatorRecorder: this process was not started by dtk.run or dtk.baseline; nothing is recorded")
            )

    def __reduce__(self) -> Any:
        return EstimatorRecorder, ()  # the class made in __new__ has no name to be found by

    def begin(self) -> None:
        if self._place is None:
            return
        self._rows, self._variables = estimators.replica_rows(), states.of_graph()
        self._global_step = tf.compat.v1.train.get_global_step()
        if not self._rows:
            raise ClusterConfigError(
                _("dtk.EstimatorRecorder is a hook for training; leave it out of EvalSpec's hooks")
            )
        if EstimatorRecorder.recording is not self:
            self._place = None  # one of a model_fn's training_hooks, beside the one that this training has already
            return
        self._before = None
        draws = updates.drawn(tf.compat.v1.get_default_graph())
        self._place.journal.event(Traced(self._place.now(), optimizer=NAME, draws=draws, clips=None))
        if self.model_dir is not None:
            latest = tf.train.latest_checkpoint(self.model_dir)
            words = N_(
                "training goes on from {latest}, which model_dir held before this run; give every run a directory of "
                "its own: model_dir=str(dtk.run_dir() / 'model'), to begin anew"
            )
            if latest is not None:
                print("dtk: " + _(words, latest=latest))

    def after_create_session(self, session: Any, coord: Any) -> None:
        if self._place is None:
            return
        state, step = progress(self._place), int(session.run(self._global_step))
        if not state.trainings:
            state.begins(step)
        self._before = self._before or (step, state.steps)
        states.enter_graph(self._variables, session)
        if not weights.exists(self._place.folder.path, "initial", 0):
            self._save(self._place, "initial")
        self._began = self._place.now()

    def before_run(self, context: Any) -> Any:
        if self._place is None:
            return None
        progress(self._place).before_step()
        watcher = watching.watcher()
        self._begun = None if watcher is None else watcher.begins(context.session.graph)
        self._began = self._place.now()
        return tf.compat.v1.train.SessionRunArgs(self._rows)

    def after_run(self, context: Any, values: Any) -> None:
        if self._place is None:
            return
        watcher = watching.watcher()
        if watcher is not None:
            watcher.ends(context.session.graph, self._begun)
        state, ended = progress(self._place), self._place.now()
        if not state.announced:
            state.announced = True
            self._place.journal.event(Loop(ended, kind="estimator"))
            self._place.journal.event(Training(ended, steps=None, epochs=None))
        state.epoch = 1
        state.record(values.results, [], (self._began, ended))

    def end(self, session: Any) -> None:
        if self._place is None:
            return
        states.enter_graph(self._variables, None)
        names = self._save(self._place, "final")
        self.global_step = int(session.run(self._global_step))
        if self._before is not None:
            state, (step, steps) = progress(self._place), self._before
            made, recorded = self.global_step - step, state.steps - steps
            state.estimated.append(Optimizer(name=NAME, variables=names[:1], made=made, recorded=recorded))

    def _save(self, place: Here, which: str) -> list[str]:
        """Saves the variables but for the global step; returns their names."""
        held = {
            each.name: values[0] for each, values in zip(self._variables, states.read(self._variables), strict=True)
        }
        del held[self._global_step.op.name]
        place.folder.save_weights(which, list(held), list(held.values()))
        return list(held)


def listen() -> None:
    """Called in a worker, once Estimator is imported there."""
    place = here()
    if place is not None:
        estimators.apply(_Listener(place), place.replicas)


class _Listener:
    def __init__(self, place: Here):
        self.place = place
        self.recorder: Any = None

    def hooks(self, given: list[Any], estimator: Any) -> list[Any]:
        found = [hook for hook in given if isinstance(hook, EstimatorRecorder)]
        self.recorder = EstimatorRecorder.recording = found[0] if found else EstimatorRecorder()
        self.recorder.model_dir = estimator.model_dir
        # The last in the list: what it measures leaves out what other hooks do after a step.
        return [*(hook for hook in given if hook not in found), self.recorder]

    def trained(self, estimator: Any, loss: Any) -> None:
        step = self.recorder.global_step
        loss = None if loss is None else float(loss)
        self.place.journal.event(Outcome(self.place.now(), loss=loss, step=step))
        if self.place.worker == 0:
            self._save_last_checkpoint(estimator.model_dir)

    def evaluation(self, evaluate: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        started = evaluating(self.place)
        metrics = evaluate()
        numbers = {name: float(value) for name, value in metrics.items() if name != "global_step"}
        evaluated(self.place, step=int(metrics["global_step"]), started=started, metrics=numbers)
        return metrics

    def saved(self, prefix: str) -> None:
        """The chief puts each checkpoint aside for the evaluator: Estimator deletes all but the last five."""
        if self.place.run.has_evaluator and self.place.worker == 0:
            aside = _aside(self.place)
            aside.mkdir(exist_ok=True)
            files = sorted(Path(prefix).parent.glob(f"{Path(prefix).name}.*"), key=lambda file: file.suffix == ".index")
            for file in files:  # the index comes last: where it is, all is
                shutil.copyfile(file, aside / "part")
                os.replace(aside / "part", aside / file.name)

    def follow_training(self, executor: Any) -> None:
        """Evaluates each of the chief's checkpoints, and ends when training has, in place of Estimator's timetable."""
        count = 0
        while True:
            ended = training_ended()  # asked first: what was saved before the end is then on the list
            new = sorted(_aside(self.place).glob("*.index"), key=lambda file: int(file.stem.rsplit("-", 1)[1]))
            for index in new:
                estimators.evaluate_checkpoint(executor, str(index.with_suffix("")))
                for file in index.parent.glob(f"{index.stem}.*"):
                    file.unlink()
                count += 1
            if ended and not new:
                break
        if count == 0:
            raise ClusterConfigError(
                _("the evaluator had nothing to evaluate: the chief's Estimator saved no checkpoint")
            )

    def _save_last_checkpoint(self, model_dir: str) -> None:
        """The chief's final weights as the last checkpoint has them: that is what a user of the model will get."""
        final, latest = self.place.folder.weights("final"), tf.train.latest_checkpoint(model_dir)
        if final is None or latest is None:
            return
        reader = tf.train.load_checkpoint(latest)
        stored = [name for name in final.names if reader.has_tensor(name)]
        if len(stored) == len(final.names):
            self.place.folder.save_weights("final", stored, [reader.get_tensor(name) for name in stored])


def _aside(place: Here) -> Path:
    return place.run.evaluator.path / "checkpoints"
