"""What a worker process is started with."""

from __future__ import annotations

from typing import Any, TypedDict

__all__ = ["WorkerSpec"]


class WorkerSpec(TypedDict):
    """What starts a worker, of JSON's types: it travels in a line to the parent, and to an agent elsewhere.

    `dtk.launch.launch.spec` makes it. `clock`: `time.monotonic()`, on the worker's machine, at the call of `dtk.run`.
    """

    dir: str  # the run's directory on its machine
    worker: int  # its number; the evaluator's is the number of workers
    role: str  # "worker" or "evaluator"
    has_evaluator: bool
    workers: int
    replicas: int
    mode: str  # "cluster", "mirrored" or "single"
    clock: float
    seed: int | None
    communication: dict[str, Any]  # of the strategy
    without: list[str]  # what is switched off
    record: bool  # whether every Keras fit gets a Recorder
    follow: dict[str, Any]  # the run whose steps are followed; {} for none
    states: bool  # whether each step's state is recorded
    alone: bool  # an evaluator with a function of its own
    env: dict[str, str]
    host: str  # its machine's name; "" for the kernel's
    listen: str | None  # the name or address that its own server listens on
    core: int | None  # that it keeps to
    cwd: str  # this and sys_path an agent fills in
    sys_path: list[str]
    again: bool  # in the place of another process, whose files stay
