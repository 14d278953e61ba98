"""The fault lab: predict what a fault does to a run, inject it, see. From core ipywidgets only (7.7 and 8)."""

from __future__ import annotations

import html
from collections.abc import Callable
from typing import Any, NamedTuple

from dtk import environment, faults
from dtk.errors import DtkError, WorkerFailed, WorkerStalled, whole_number
from dtk.language import N_, _
from dtk.records.events import FaultCame, of_kind
from dtk.view.canvas import axes, image
from dtk.view.controls import STYLE, STYLED, Displayed, Verbatim, choice, number
from dtk.view.processes import wait_for

CHOICES = ("kill", "stall", "slow", "exception", "nan", "drop_network")
QUESTION = N_("How will the run end?")
ANSWERS = {
    "named": N_("the worker ends, and the run with it"),
    "lost": N_("TensorFlow notices after some seconds that a worker sends no heartbeat, and raises"),
    "stalled": N_("no worker raises: they wait for each other until dtk's stall_timeout"),
    "slower": N_("as usual, but each step takes as long as the slowest worker's"),
    "nan": N_("without an error, with NaN in every weight of every worker"),
}
_SECONDS_PER_STEP, _STALL_TIMEOUT = 0.05, 5.0
_NAMES = "4em"  # width of the controls' names


class FaultEffect(NamedTuple):
    """The end of a run with a fault. answer: a key of ANSWERS; None where the fault was not triggered.

    words: dtk's own. seconds: from the fault to the end of the run, None where unknown.
    """

    answer: str | None
    words: str
    seconds: float | None


def seen(fault: faults.Fault, outcome: Any) -> FaultEffect:
    """Return what a run, or the error that it ended with, shows of a fault."""
    at = [event.at for corner in outcome.folder.each for event in of_kind(corner.events, FaultCame)]
    attempts = outcome.folder.attempts
    words = f"{type(outcome).__name__}: {outcome}" if isinstance(outcome, DtkError) else _("finished, without an error")
    if not at:
        return FaultEffect(None, _("{words}; {fault} never came", words=words, fault=fault), None)
    if isinstance(outcome, WorkerStalled):
        answer = "stalled"
    elif isinstance(outcome, WorkerFailed):
        answer = "lost" if outcome.reason == "lost" else "named"
    else:
        answer = "nan" if outcome.records.loss.isna().any() else "slower"
    return FaultEffect(answer, words, attempts[-1].ended - at[0] if attempts else None)


def fault_lab(
    run: Callable[..., Any], fn: Callable[..., Any], workers: int = 2, steps: int = 20, **options: Any
) -> FaultLab | Verbatim:
    """Choose a fault, its worker and step; predict how the run will end; run, and see who is named, and when.

        dtk.plot.fault_lab(dtk.run, train, workers=2, steps=24)

    Args:
        run: `dtk.run`.
        fn: a training function with a Recorder or record_step.
        workers: number of workers.
        steps: how many steps `fn` makes, from which the fault's step is chosen.
        options: further arguments of `dtk.run`, such as args; stall_timeout is 5 s unless given.

    Returns:
        The lab; where widgets don't run (`dtk.environment.live_mode`), a page of text, and nothing is run.

    Raises:
        ClusterConfigError: other numbers of workers or steps.
    """
    for name, count in (("workers", workers), ("steps", steps)):
        whole_number(f"fault_lab: {name}", count)
    if environment.on_colab() and not options.get("force"):
        workers = 1  # which is what dtk.run starts there: the lab offers the worker that there is
    if environment.live_mode() != "widgets":
        return _page(fn, workers, steps)
    return FaultLab(run, fn, workers, steps, options)


def make(kind: str, worker: int, step: int) -> faults.Fault:
    """Return the fault of a kind, with the lab's seconds for a slow worker."""
    if kind == "slow":
        return faults.slow(worker, _SECONDS_PER_STEP)
    return getattr(faults, kind)(worker, step)  # type: ignore[no-any-return]


def _kinds(workers: int) -> list[str]:
    return [kind for kind in CHOICES if workers > 1 or kind != "drop_network"]


def _page(fn: Callable[..., Any], workers: int, steps: int) -> Verbatim:
    """The question, its answers, and a call for each fault."""
    injected = [make(kind, workers - 1, (steps + 1) // 2) for kind in _kinds(workers)]
    given = f"{getattr(fn, '__name__', 'train')}, workers={workers}"
    calls = [f"  dtk.run({given}, faults=[dtk.faults.{fault}])" for fault in injected]
    head = _("{question} Predict, then run, one fault at a time:", question=_(QUESTION))
    return Verbatim("\n".join([head, *calls, _("Answers:"), *(f"  - {_(answer)}" for answer in ANSWERS.values())]))


class FaultLab(Displayed):
    """The lab's controls: `kind`, `worker`, `step`, `prediction` (widgets with a `value`), `button` and `words`.

    seen: what the last run showed; None before the first.
    """

    def __init__(self, run: Any, fn: Any, workers: int, steps: int, options: dict[str, Any]):
        import ipywidgets

        self._run, self._fn, self._workers = run, fn, workers
        self._options = {"stall_timeout": _STALL_TIMEOUT, **options}
        self.seen: FaultEffect | None = None
        self.title, self.page = "faults", f"<pre>{html.escape(_page(fn, workers, steps))}</pre>"
        self.kind = choice(_kinds(workers), CHOICES[0], _("fault"), _NAMES)
        self.worker = number(workers - 1, 0, workers - 1, _("worker"), _NAMES)
        self.step = number((steps + 1) // 2, 1, steps, _("step"), _NAMES)
        question = ipywidgets.HTML(f"{STYLE}<b>{_(QUESTION)}</b>")
        # (label, value) pairs; None: no answer yet, so that one has to be chosen
        answers = [(_(label), key) for key, label in ANSWERS.items()]
        self.prediction = ipywidgets.RadioButtons(options=answers, value=None, layout={"width": "auto"})
        self.button = ipywidgets.Button(description=_("run"), button_style="primary")
        self.words = ipywidgets.HTML()
        controls = [self.kind, self.worker, self.step, question, self.prediction, self.button, self.words]
        self.box = ipywidgets.VBox(controls).add_class(STYLED)
        self.button.on_click(lambda button: self.start())
        for control in (self.kind, self.worker, self.step):
            control.observe(self._forget, "value")
        self._forget()

    @property
    def fault(self) -> faults.Fault:
        """What the controls stand for now."""
        return make(self.kind.value, self.worker.value, self.step.value)

    def start(self) -> None:
        """Run the function with the fault; ask for a prediction first where there is none."""
        fault = self.fault
        if self.prediction.value is None:
            self.words.value = _("Predict first: choose one of the answers.")
            return
        self.button.disabled = True
        self.words.value = _("{fault}: the cluster runs …", fault=f"<code>{html.escape(repr(fault))}</code>")
        outcome: Any
        try:
            with environment.quiet():
                outcome = self._run(self._fn, workers=self._workers, faults=[fault], **self._options)
        except (WorkerFailed, WorkerStalled) as error:
            outcome = error
        except DtkError as error:  # nothing was started, or it took too long: no answer to the question
            self.words.value = html.escape(f"{type(error).__name__}: {error}")
            return
        finally:
            self.button.disabled = False
        self.seen = what = seen(fault, outcome)
        said = N_("dtk: {words}.") if what.seconds is None else N_("dtk, {seconds:.1f} s after the fault: {words}.")
        lines = [f"<b>{html.escape(repr(fault))}</b>", _(said, seconds=what.seconds, words=html.escape(what.words))]
        if what.answer is not None:
            right = what.answer == self.prediction.value
            how = N_("As predicted: {answer}.") if right else N_("Not as predicted: {answer}.")
            lines.insert(1, _(how, answer=_(ANSWERS[what.answer])))
        if isinstance(outcome, WorkerFailed | WorkerStalled):
            waits: Any = wait_for(outcome, *axes(None, shown=False))
            lines.append(f'<div style="overflow-x:auto">{image(waits.figure, "max-width:40em;min-width:30em")}</div>')
        self.words.value = "<br>".join(lines)

    def _forget(self, change: Any = None) -> None:
        self.step.disabled = self.kind.value == "slow"  # from the first step on
        self.prediction.value = None
        self.words.value = ""
