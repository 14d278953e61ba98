"""What one worker is doing, and the words for it."""

from __future__ import annotations

from dataclasses import dataclass

from dtk.events import Failed, Finished, Running, Starting, Training

__all__ = ["STAGES", "Line", "State"]

STAGES = (Starting, Running, Training, Finished, Failed)  # the events that a worker's state in a word is taken from


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
        lasting = "" if self.seconds is None else f" for {self.seconds:.0f} s"
        return f"{self.words}{lasting}{self.waits}"


@dataclass(frozen=True)
class State:
    """What one worker is doing.

    what: "starting", "imported" (TensorFlow is), "running" (its function), "server up" (it listens on its port of
    TF_CONFIG), "building" (all servers are up, no step is recorded), "training", "stopped" (by SIGSTOP or its like),
    "finished", "failed" or "consequence" (failed because of another). step: the last that it recorded, 0 before.
    quiet: seconds without a record, an event, output or processor time. silent: whether that is long enough to ask
    where it is; blocked, call, line then say so (`dtk.watch.stack.Activity`). server: whether its port answers,
    None where that is not known. planned: steps an epoch that its `fit` announced.
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
    def place(self) -> str:
        """Where in the training: "in step 13", "in evaluate after step 12", "at line 17 in train", or ""."""
        if self.blocked == "connecting":
            return "in MultiWorkerMirroredStrategy()"
        if self.position or self.call:
            return f"in {self.position or self.call}"
        return f"at {self.line}" if self.line else ""

    @property
    def position(self) -> str:
        """How far it has come: "step 13", "evaluate after step 12"; "" before the first step."""
        if self.call in ("evaluate", "predict"):
            return f"{self.call} after step {self.step}" if self.step else self.call
        return f"step {self.step + 1}" if self.step else ""

    def board(self) -> Line:
        """The state for the live view, which knows the steps itself: one word as long as all goes well."""
        plain = self.ended or (self.what == "training" and not self.silent)
        return Line(self.what, what=self.what) if plain else self.said()

    def said(self) -> Line:
        """The state in a few words, with the seconds of a silence."""
        how = {"collective": "in a collective", "operation": "waits inside TensorFlow", "connecting": "waits for peers"}
        ways = {"consequence": "failed in consequence", "stopped": "stopped by a signal"}
        if self.ended or self.what == "stopped":
            return Line(ways.get(self.what, self.what) + (f" after step {self.step}" if self.step else ""))
        where = self.position or self.what
        if self.silent:
            return Line(f"{where}, {how.get(self.blocked, 'silent')}", self.quiet)
        return Line(where, what="" if self.position else self.what)

    def words(self) -> str:
        """The state in a few words: "step 13, in a collective for 5 s"."""
        return str(self.said())
