"""Every public figure and lab, drawn from made-up runs: for tests of what all of them must do."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from fabricate import fabricate, losses
from matplotlib.figure import Figure
from matplotlib.text import Text
from test_evaluator_views import beside, evaluation
from test_overlap import ONE, SEVERAL
from test_parts import with_marks
from test_plots import failed, late
from test_processes import cluster, noted
from test_restarts_figure import restarted
from test_ring_figure import Held, fabricated
from test_sharding_figure import dealt, everywhere
from test_step_time import broken, study, with_reductions
from test_wait_for import ended, error_of, waits
from verifying import edit_records

import dtk
from dtk import plot
from dtk.proof.proof import Proof, judged
from dtk.records.events import FaultCame, Finished
from dtk.scaling.job import ETHERNET_10, Cluster
from dtk.studies.shards import from_lists
from dtk.view.what_if import EXAMPLE


def _pair(path: Path, **facts: Any) -> tuple[Any, Any]:
    alone = fabricate(path / "alone", workers=1, mode="single", steps=30)
    return fabricate(path / "cluster", steps=30, **facts), alone


def _apart(path: Path) -> tuple[Any, Any]:
    """A run that leaves its baseline at step 12, whose losses are no numbers for a while, and of which a part lacks."""
    shares = np.repeat(losses(30)[:, None] / 2, 2, axis=1)
    shares[11:] *= 1.05
    shares[20:22] = np.nan
    run, alone = _pair(path, shares=shares)
    edit_records(run, 1, lambda rows: rows[:27])
    return run, alone


def _close(path: Path) -> tuple[Any, Any, Any, Any]:
    """Two runs and their baselines: one within the tolerance, one that leaves it."""
    shares = np.repeat(losses(30)[:, None] / 2, 2, axis=1)
    near, far = shares * (1 + 2e-6), shares.copy()
    far[15:] *= 1.01
    return *_pair(path / "near", shares=near), *_pair(path / "far", shares=far)


def _late(path: Path) -> Any:
    run = fabricate(path, steps=10, step_seconds=0.1)
    late(run, 1, 0.06)
    return run


def _study(scaling: str) -> Any:
    rows = [{**each, "scaling": scaling} for each in study(broken()).rows]
    return dtk.Study(rows, "train")


def _lost(path: Path) -> Any:
    return Held(fabricated(path, leave_out=[(1, "received", 2), (1, "used", 2)], finished=False))


def _proof(differs: int | None = None) -> Proof:
    """Of 30 steps, or until the eleventh after one that differs."""
    last, draw = differs + 11 if differs else 30, np.random.default_rng(3)
    lines: list[dict[str, Any]] = [{"variables": [["dense/kernel", 90], ["dense/bias", 3]]}]
    for step in range(1, last + 1):
        apart = [1e-6 * draw.random(), 0.02 if step == differs else 2e-6 * draw.random()]
        each = {"size": [1.0, 1.0], "own": [1.0, 0.98], "along": [1.0, 0.98], "level": [2e-5, 2e-5], "numbers": [0, 1]}
        facts = {"unit": step, "units": 1, "step": step, "kind": "update", "wrong": [1] * (step == differs)}
        lines.append({**facts, **each, "apart": apart, "ratio": apart})
    lines.append({"end": "enough" if differs else "done", "recorded": 30, "whole": not differs})
    return Proof("failed" if differs else "one device", (), 30, "", {1: judged(lines)})


# What is drawn, by a name that begins with the public function's.
DRAWN: dict[str, Callable[[Path], Any]] = {
    "difference": lambda path: plot.difference(*_pair(path)),
    "difference, apart": lambda path: plot.difference(*_apart(path)),
    "difference, of several": lambda path: plot.difference(*_close(path), labels=["tanh", "relu"]),
    "efficiency": lambda path: plot.efficiency(_study("weak")),
    "efficiency, strong": lambda path: plot.efficiency(_study("strong")),
    "fan": lambda path: plot.fan(fabricate(path, workers=4, steps=3)),
    "fan, of one": lambda path: plot.fan(fabricate(path, workers=1, steps=3)),
    "fan, of two workers": lambda path: plot.fan(fabricate(path, workers=2, replicas=2, steps=3)),
    "proof": lambda path: plot.proof(_proof()),
    "proof, of a step that differs": lambda path: plot.proof(_proof(differs=12)),
    "fault_lab": lambda path: plot.fault_lab(dtk.run, fabricate, workers=2, steps=6),
    "loss_scaling": lambda path: plot.loss_scaling(*_pair(path)),
    "loss_scaling, alone": lambda path: plot.loss_scaling(fabricate(path, workers=8, steps=20)),
    "loss_scaling, apart": lambda path: plot.loss_scaling(*_apart(path)),
    "loss_scaling_lab": lambda path: plot.loss_scaling_lab(3, 4),
    "overlap": lambda path: plot.overlap(with_marks(path, ONE)),
    "overlap, of two": lambda path: plot.overlap(with_marks(path / "a", ONE), with_marks(path / "b", SEVERAL)),
    "processes": lambda path: plot.processes(noted(cluster(path))),
    "processes, many": lambda path: plot.processes(noted(cluster(path, workers=8))),
    "processes, one": lambda path: plot.processes(cluster(path, workers=1, replicas=2)),
    "restarts": lambda path: plot.restarts(restarted(path, (1, 19), (12, 33), failed="SIGKILL")),
    "restarts, three": lambda path: plot.restarts(restarted(path, (1, 9), (4, 12), None, (2, 20), failed="SIGKILL")),
    "restarts, one": lambda path: plot.restarts(fabricate(path, steps=80)),
    "ring": lambda path: plot.ring(Held(fabricated(path))),
    "ring, interrupted": lambda path: plot.ring(_lost(path)),
    "sharding": lambda path: plot.sharding(dealt(32, 8, 2)),
    "sharding, repeated": lambda path: plot.sharding(
        from_lists([[[0, 1], [4, 5]], [[1, 2], [5, 6]]], [range(4), range(4, 8)])
    ),
    "sharding, in bars": lambda path: plot.sharding(everywhere(2000, 128, 2)),
    "step_time": lambda path: plot.step_time(with_reductions(path)),
    "step_time, of a study": lambda path: plot.step_time(study()),
    "throughput": lambda path: plot.throughput(*reversed(_pair(path))),
    "throughput, of clusters": lambda path: plot.throughput(cluster(path / "a"), cluster(path / "b", replicas=2)),
    "throughput, of a study": lambda path: plot.throughput(_study("weak")),
    "timeline": lambda path: plot.timeline(_late(path)),
    "timeline, failed": lambda path: plot.timeline(
        failed(path, FaultCame(1.15, kind="kill", step=6, words="kill(1, 6)", number=0))
    ),
    "timeline, restarted": lambda path: plot.timeline(restarted(path, (1, 19), (12, 33), failed="SIGKILL")),
    "timeline, evaluator": lambda path: plot.timeline(beside(path, evaluation(1.3, 10), Finished(1.7))),
    "wait_for": lambda path: plot.wait_for(error_of(path, waits(0), ended(1))),
    "wait_for, deadlock": lambda path: plot.wait_for(error_of(path, *(waits(k, line=f"line 1{k}") for k in range(4)))),
    "wait_for, many": lambda path: plot.wait_for(error_of(path, *(waits(k, quiet=9.0) for k in range(15)), ended(15))),
    "wait_for, nobody": lambda path: plot.wait_for(fabricate(path)),
    "what_if": lambda path: plot.what_if(workers=1000),
    "what_if, plain": lambda path: plot.what_if(replace(EXAMPLE, critical_batch=None), workers=4),
    "what_if, slow": lambda path: plot.what_if(EXAMPLE, Cluster(ETHERNET_10), workers=200),
    "what_if_lab": lambda path: plot.what_if_lab(workers=64),
}


def texts(drawn: Any) -> list[str]:
    """All that can be read on a figure, or on a lab's controls, which then need no figure."""
    if hasattr(drawn, "box"):
        return [*_of_widgets(drawn.box)]
    figure = drawn.figure
    assert isinstance(figure, Figure)
    figure.canvas.draw()
    seen = [text.get_text() for text in figure.findobj(Text) if text.get_visible()]
    return [text for text in [*seen, repr(figure).removeprefix("<Figure: ")] if text]


def _of_widgets(box: Any) -> Iterator[str]:
    for widget in (box, *getattr(box, "children", ())):
        if widget is not box and getattr(widget, "children", ()):
            yield from _of_widgets(widget)
            continue
        yield getattr(widget, "description", "")
        yield from map(str, getattr(widget, "_options_labels", ()))
        if type(widget).__name__ == "HTML":
            value = re.sub(r"(?s)<style>.*?</style>", "", widget.value)
            yield from re.findall(r'alt="([^"]*)"', value)
            yield html.unescape(re.sub(r"<[^>]*>", " ", value))
