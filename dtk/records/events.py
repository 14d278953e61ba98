"""What happens in a run, as it stands in a worker's events.jsonl: a class for each kind of event, and its line.

A line is {"at": seconds, "state": NAME, FIELD: value, ...}. `at` is in seconds since the call of `dtk.run`, on the one
clock that all processes of a run share. A reader ignores fields that it does not know, and takes the default of one
that is missing; a line of a kind that it does not know becomes an `Event`.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, TypeVar, dataclass_transform


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
@dataclass(frozen=True)
class Event:
    """Something that happened to a member of the run. at: seconds since the call of `dtk.run`.

    A kind is a subclass, whose fields are given by keyword. state: its name on disk.
    """

    state: ClassVar[str] = ""
    at: float = field(kw_only=False)

    def __init_subclass__(cls, state: str) -> None:
        cls.state = state
        KINDS[state] = dataclass(frozen=True, kw_only=True)(cls)


KINDS: dict[str, type[Event]] = {}  # every kind that is written, by state
Kind = TypeVar("Kind", bound=Event)  # one kind


def write(event: Event) -> str:
    """The event as a line. Raises TypeError for a field that JSON can't hold."""
    return json.dumps({"at": event.at, "state": event.state, **asdict(event)}) + "\n"


def parse(line: str | bytes) -> Event:
    """The event of a line, as any version wrote it."""
    facts = json.loads(line)
    kind = KINDS.get(facts["state"], Event)
    with contextlib.suppress(TypeError):  # where it lacks a field, or has something else there
        return kind(**{each.name: facts[each.name] for each in fields(kind) if each.name in facts})
    return Event(facts["at"])


def of_kind(events: Iterable[Event], kind: type[Kind]) -> list[Kind]:
    """Those of the events that are of this kind, in their order."""
    return [event for event in events if isinstance(event, kind)]


# ---- a run


class Starting(Event, state="starting"):
    """The process has taken its place; a worker's first event."""


class Imported(Event, state="imported"):
    """TensorFlow was imported. open: its servers will listen on every address of the machine."""

    open: bool = False


class Running(Event, state="running"):
    """The function is called."""


class Finished(Event, state="finished"):
    """The function returned, and what it returned is saved."""


class Failed(Event, state="failed"):
    """The function raised; error.json has what."""


class Training(Event, state="training"):
    """A training was announced. steps: in an epoch, epochs: that are still to come; None where not known."""

    steps: int | None
    epochs: int | None


class Counted(Event, state="counted"):
    """A training begins, the count of steps with it.

    training: its number in the function, from 1. counted: steps that its optimizer has counted, None where not known.
    recorded: steps that the run has recorded before. offset: what is added to the training's own epochs.
    """

    training: int
    counted: int | None
    recorded: int
    offset: int


@dataclass(frozen=True)
class Scope:
    """Where a model was made. strategy: its class; None for TensorFlow's default; RING. replicas: in sync there."""

    strategy: str | None
    replicas: int


RING = "dtk.ring"  # no strategy: the function adds up the gradients of all workers itself


class Loop(Event, state="loop"):
    """Who trains what, at the first recorded step of a model.

    kind: "fit" (the Recorder), "loop" (record_step) or "estimator" (its hook). shapes: of one example's part in each
    component of a batch, None for a length that may differ. scope: where the model was made. norms: of each batch
    norm, whether it takes the whole batch. These three have their defaults where they are not known. blind: the model's
    name, where the loss of its train_step can't be seen.
    """

    kind: str
    shapes: list[list[int | None]] = field(default_factory=list)
    scope: Scope | None = None
    norms: list[bool] = field(default_factory=list)
    blind: str = ""

    def __post_init__(self) -> None:
        if self.scope is not None and not isinstance(self.scope, Scope):  # as it stands in a line
            object.__setattr__(self, "scope", Scope(**self.scope))


class EstimatorTrained(Event, state="outcome"):
    """An Estimator's train() came to its end. loss: the last, None without a step. step: the global step."""

    loss: float | None
    step: int | None


class Traced(Event, state="traced"):
    """What the graph of an optimizer's first update has; None where there is no graph to ask.

    optimizer: its name. clips: clipping of a replica's own gradients before they are added up. sparse: the variables
    whose gradient comes as rows, which Keras 3 lays side by side where several replicas have the same one. rate: the
    learning rate, None where it could not be read. settings: all others. alone: whether the function of a cluster
    trains without any strategy, so that each worker trains alone.
    """

    optimizer: str
    clips: list[str] | None
    sparse: list[str] | None = None
    rate: float | None = None
    settings: dict[str, Any] | None = None
    alone: bool = False


class Called(Event, state="called"):
    """A function, a step or another one, was called first. draws: operations of its graph; None without a graph."""

    draws: list[str] | None


class Augments(Event, state="augments"):
    """The data may differ from worker to worker.

    draws: operations of a map that draw at random. python: calls of Python, which no seed of TensorFlow reaches. files:
    the readers of data that is sharded by file, with the policy.
    """

    draws: list[str] = field(default_factory=list)
    python: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Optimizer:
    """One optimizer at the function's end. made: its updates of these variables; recorded: those in recorded steps."""

    name: str
    variables: list[str]
    made: int
    recorded: int


class Updates(Event, state="updates"):
    """What was trained, at the function's end, as against what was recorded.

    optimizers: all that made an update. models: how many were recorded.
    """

    optimizers: list[Optimizer]
    models: int

    def __post_init__(self) -> None:
        made = [one if isinstance(one, Optimizer) else Optimizer(**one) for one in self.optimizers]
        object.__setattr__(self, "optimizers", made)


class FaultCame(Event, state="fault"):
    """A fault of this kind came before `step`. words: as it was asked for. number: its place in the list given."""

    kind: str
    step: int
    words: str
    number: int


class Evaluating(Event, state="evaluating"):
    """An evaluation begins. step: of the weights that are evaluated, None where not known yet."""

    step: int | None


class Evaluation(Event, state="evaluation"):
    """An evaluation is over. started: seconds, as `at`. step: of the weights, None where unknown. metrics: by name."""

    started: float
    step: int | None
    metrics: dict[str, Any]


# ---- `dtk.ring`: an all-reduce by hand


class RingEvent(Event, state="ring"):
    """Something in the ring. round, step: the numbers of the all-reduce and of the exchange in it, from 1.

    what: "split" (a gradient was cut into chunks; a round begins), "sent" (a chunk leaves for the next worker),
    "received" (the previous worker's came), or "used". parts: of "used", what this worker's chunk held after one had
    come for it at `step`: the workers whose gradient is in its sum, with repetitions; None for anything else.
    """

    what: str
    round: int
    step: int = 0
    chunk: int = 0
    parts: list[int] | None = None


# ---- a file that grows by lines


def content(path: Path, start: int = 0) -> bytes:
    """A file's bytes from `start` on, or so many before its end if that is negative; b"" where there is no file."""
    try:
        with path.open("rb") as file:
            file.seek(start if start >= 0 else max(0, os.fstat(file.fileno()).st_size + start))
            return file.read()
    except FileNotFoundError:
        return b""


class Tail:
    """Reads a growing file from where it left off; bytes of an unfinished last line wait for the next read."""

    def __init__(self, path: Path):
        self.path = path
        self.offset = 0  # bytes handed out so far

    def read(self) -> bytes:
        """Complete lines written since the last call, as they stand in the file."""
        data = content(self.path, self.offset)
        end = data.rfind(b"\n") + 1
        self.offset += end
        return data[:end]

    def lines(self) -> list[bytes]:
        return self.read().splitlines()
