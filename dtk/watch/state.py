"""What one worker is doing, and the words for it."""

from __future__ import annotations

from dataclasses import dataclass

from dtk.language import N_, _
from dtk.records.events import Failed, Finished, Running, Starting, Training

__all__ = ["STAGES", "Line", "State", "called"]

STAGES = (Starting, Running, Training, Finished, Failed)  # the events that a worker's state in a word is taken from
_EVALUATES = ("evaluate", "predict")

_WHAT = (
    *(N_("starting"), N_("imported"), N_("running"), N_("server up"), N_("building"), N_("training")),
    *(N_("stopped"), N_("finished"), N_("failed"), N_("consequence")),
)
_ENDS = {"consequence": N_("failed in consequence"), "stopped": N_("stopped by a signal")}  # of others, their `what`
_BLOCKED = {
    "": N_("{where}, silent"),
    "collective": N_("{where}, in a collective"),
    "operation": N_("{where}, waits inside TensorFlow"),
    "connecting": N_("{where}, waits for peers"),
}


def called(name: str, number: int) -> str:
    """What people call a member of a run, by the name of its directory and its number."""
    return _("evaluator") if name == "evaluator" else _("worker {worker}", worker=number)


@dataclass(frozen=True)
class Line:
    """One member's line in the live view.

    words: its state. seconds: how long it has been silent there; None where it is not. waits: for whom, in words.
    what: the state as in `State`, where it says all that there is to say; otherwise "".
    """

    words: str
    seconds: float | None = None
    waits: str = ""
    what: str = ""

    def __str__(self) -> str:
        said = self.words
        if self.seconds is not None:
            said = _("{words} for {seconds:.0f} s", words=said, seconds=self.seconds)
        return _("{first}, {more}", first=said, more=self.waits) if self.waits else said


@dataclass(frozen=True)
class State:
    """What one worker is doing.

    name: of its directory. what: "starting", "imported" (TensorFlow is), "running" (its function), "server up" (it
    listens on its port of TF_CONFIG), "building" (all servers are up, no step is recorded), "training", "stopped" (by
    SIGSTOP or its like), "finished", "failed" or "consequence" (failed because of another). step: the last that it
    recorded, 0 before. quiet: seconds without a record, an event, output or processor time. silent: whether that is
    long enough to ask where it is; blocked, call, line then say so (`dtk.watch.signs.Activity`). server: whether its
    port answers, None where that is not known. planned: steps an epoch that its `fit` announced.
    """

    member: int
    name: str
    what: str = "starting"
    step: int = 0
    quiet: float = 0.0
    silent: bool = False
    blocked: str = ""
    call: str = ""
    line: str = ""
    server: bool | None = None
    planned: int | None = None
    pid: int | None = None

    @property
    def waits(self) -> bool:
        """Whether it can't go on without its peers."""
        return bool(self.blocked) and self.what not in ("finished", "failed", "consequence", "stopped")

    @property
    def ended(self) -> bool:
        return self.what in ("finished", "failed", "consequence")

    @property
    def called(self) -> str:
        return called(self.name, self.member)

    @property
    def place(self) -> str:
        """Where in the training: "in step 13", "in evaluate after step 12", "at line 17 in train", or ""."""
        return self.stage or (_("at {line}", line=self.line) if self.line else "")

    @property
    def stage(self) -> str:
        """The place without the learner's line."""
        if self.blocked == "connecting":
            return _("in {call}", call="MultiWorkerMirroredStrategy()")
        if self.call in _EVALUATES and self.step:
            return _("in {call} after step {step}", call=self.call, step=self.step)
        if self.step and self.call not in _EVALUATES:
            return _("in step {step}", step=self.step + 1)
        return _("in {call}", call=self.call) if self.call else ""

    @property
    def position(self) -> str:
        """How far it has come: "step 13", "evaluate after step 12"; "" before the first step."""
        if self.call in _EVALUATES:
            return _("{what} after step {step}", what=self.call, step=self.step) if self.step else self.call
        return _("step {step}", step=self.step + 1) if self.step else ""

    def board(self) -> Line:
        """The state for the live view, which knows the steps itself: one word as long as all goes well."""
        plain = self.ended or (self.what == "training" and not self.silent)
        return Line(_(self.what), what=self.what) if plain else self.said()

    def said(self) -> Line:
        """The state in a few words, with the seconds of a silence."""
        if self.ended or self.what == "stopped":
            end = _(_ENDS.get(self.what, self.what))
            return Line(_("{what} after step {step}", what=end, step=self.step) if self.step else end)
        where = self.position or _(self.what)
        if self.silent:
            return Line(_(_BLOCKED[self.blocked], where=where), self.quiet)
        return Line(where, what="" if self.position else self.what)

    def words(self) -> str:
        """The state in a few words: "step 13, in a collective for 5 s"."""
        return str(self.said())
