"""Runs made of numbers, for tests of pictures and arithmetic: no process, no TensorFlow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from dtk.records import Journal, Record, RunFolder, events
from dtk.runs import Run

UNIT = {"unit": 1, "step": 1, "began": [0, 0], "ended": [1, 0], "here": [], "values": []}
UNIT["digests"] = {"before": {}, "after": {}}


class Made(Run):
    """A run whose follower is the run that it is compared with: that one's losses are from the same state, then.

    Each step's update agrees. As many replicas in one process do what the run does.
    """

    def followed(self, source, replicas=1, levels=None, **how):
        follower = source if replicas == 1 else self
        steps = min(int(run.records.step.max()) for run in (self, follower))
        facts = {"units": 1, "kind": "update", "numbers": [0], "wrong": []}
        sizes = {"apart": [0.0], "size": [1.0], "ratio": [1e-9], "level": [2e-5]}
        lines = [{"unit": k, "step": k, "here": k, **facts, **sizes} for k in range(1, steps + 1)]
        end = {"end": "done", "recorded": steps, "whole": True, "coarse": 0.0}
        return follower, [{"variables": [["w0", 6]]}, *lines, end]


def losses(steps: int) -> np.ndarray:
    """A falling loss curve: `(steps,)`, 2.3 at the start."""
    return 0.3 + 2.0 * np.exp(-np.arange(steps) / 20.0)


def said(ax: Any) -> str:
    """What a figure says: its title, then every text in it, on one line, with plain spaces."""
    words = " ".join([ax.get_title("left"), *(text.get_text() for text in ax.texts)])
    return words.replace("\n", " ").replace("\N{NO-BREAK SPACE}", " ")


def fabricate(
    path: Path,
    *,
    workers: int = 2,
    mode: str = "cluster",
    steps: int = 30,
    shares: np.ndarray | None = None,
    examples: np.ndarray | None = None,
    step_seconds: float = 0.02,
    final: list[list[np.ndarray]] | None = None,
    replicas: int = 1,
    seed: int | None = 0,
    epochs: np.ndarray | None = None,
    data: np.ndarray | None = None,
    loop: dict[str, Any] | None = None,
    updates: bool = True,
) -> Run:
    """A `Run` whose folder holds the given numbers.

    shares, examples: `(steps, workers * replicas)`; by default equal shares of `losses(steps)`, and 128 examples
    a step. epochs: `(steps,)`, by default 1.
    data: `(steps, workers * replicas)`, fingerprints, by default unknown. loop: the facts of the event `Loop`.
    updates: whether the workers counted their optimizer's updates.
    final: each worker's own weights at the end.
    """
    curve = losses(steps)
    count = workers * replicas
    shares = np.repeat(curve[:, None] / count, count, axis=1) if shares is None else shares
    examples = np.full((steps, count), 128 // count) if examples is None else examples
    epochs = np.ones(steps) if epochs is None else epochs
    data = np.full((steps, count), np.nan) if data is None else data
    for k, corner in enumerate((folder := RunFolder(path, workers)).each):
        journal = Journal(corner)
        for event in (events.Starting(0.05), events.Running(0.1), events.Training(0.6, steps=steps, epochs=1)):
            journal.event(event)
        if loop is not None:
            journal.event(events.Loop(0.7, **loop))
        rows = []
        for i in range(steps):
            began = 1.0 + i * step_seconds
            ended = began + 0.9 * step_seconds
            for r in range(k * replicas, (k + 1) * replicas):
                numbers = float(shares[i, r]), int(examples[i, r]), began, ended, float(data[i, r])
                rows.append(Record(k, r, i + 1, int(epochs[i]), *numbers))
        journal.record(rows)
        end = 1.0 + steps * step_seconds
        if updates:
            journal.event(updated(end, "sgd", steps))
        journal.event(events.Finished(end))
        journal.close()
        (corner.path / "units.jsonl").write_text(json.dumps(UNIT) + "\n")
        (corner.path / "log.txt").write_text(f"worker {k} speaking\n")
        ends = final[k] if final is not None else [np.ones((3, 2), np.float32)]
        corner.save_weights([f"w{i}" for i in range(len(ends))], ends)
    (folder.path / "job.json").write_text("{}")
    return Made(folder=folder, mode=mode, replicas=replicas, seed=seed, results=[None] * workers, seconds=end + 0.2)


def updated(at: float, name: str, made: int, recorded: int | None = None, **facts: Any) -> events.Updates:
    """What a worker says at the end of a training in which one optimizer made so many updates; by default all recorded.

    facts: further ones of the optimizer.
    """
    recorded = made if recorded is None else recorded
    one = events.Optimizer(name=name, variables=["w0"], made=made, recorded=recorded, **facts)
    return events.Updates(at, optimizers=[one], models=1)


def spans_of(ax: Any, gid: str, worker: int) -> np.ndarray:
    """Left and right ends of the blocks that a timeline has drawn in a lane as one phase."""
    paths = [path for blocks in ax.collections if blocks.get_gid() == gid for path in blocks.get_paths()]
    boxes = [path.get_extents() for path in paths]
    return np.array([(box.x0, box.x1) for box in boxes if round((box.y0 + box.y1) / 2) == worker])


def seconds_of(ax: Any, gid: str, worker: int) -> float:
    """How many seconds of a lane a timeline has drawn as one part of steps, or one phase."""
    found = 0.0
    for path in (path for blocks in ax.collections if blocks.get_gid() == gid for path in blocks.get_paths()):
        x, y = path.vertices.T
        if round(float(y.mean())) == worker:
            found += abs(np.dot(x, np.roll(y, 1)) - np.dot(y, np.roll(x, 1))) / 2 / 0.72
    return float(found)
