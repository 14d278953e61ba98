"""The evaluator in the live views, the timeline and the picture of TF_CONFIG, on fabricated runs."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import numpy as np
import pytest
from fabricate import fabricate, said, spans_of
from live_folder import announce, empty, step, tell
from matplotlib.colors import to_hex

from dtk import plot as plots
from dtk.live import text
from dtk.records import RunFolder
from dtk.records.events import Evaluating, Evaluation, Finished, Running, Starting
from dtk.view.palette import EVALUATOR_COLOR
from dtk.watch.reader import Reader
from dtk.watch.waiting import Line


@pytest.fixture
def folder(tmp_path):
    return empty(tmp_path, has_evaluator=True)


def evaluation(at, number, seconds=0.2, **metrics):
    return Evaluation(at, started=at - seconds, step=number, metrics=metrics)


# ---- live


def shown(dashboard, *states):
    """The evaluator's words in the table."""
    dashboard.update([*map(Line.of, states)])
    *_, last = ET.fromstring(f"<div>{dashboard.page.value}</div>").iter("tr")
    _, name, state = ("".join(cell.itertext()) for cell in last.iter("td"))
    assert name == "evaluator"
    return state


def test_the_dashboard_says_what_the_evaluator_does(folder, dashboard):
    announce(folder, 20, 1)  # the workers alone
    for number in (1, 2, 3):
        step(folder, number)
    training = ("training", "training")
    assert shown(dashboard, *training, "starting") == "starting"
    assert shown(dashboard, *training, "running") == "waiting for a checkpoint"
    tell(folder.evaluator, Evaluating(1.0, step=None))
    assert shown(dashboard, *training, "running") == "evaluating"
    tell(folder.evaluator, evaluation(1.2, 20, accuracy=0.91234, loss=0.4))
    assert shown(dashboard, *training, "running") == "evaluated, step 20: accuracy 0.9123, loss 0.4"
    tell(folder.evaluator, Evaluating(1.3, step=40))
    assert shown(dashboard, *training, "running") == "evaluating, step 40"
    assert shown(dashboard, *training, "finished") == "finished, evaluated, step 20: accuracy 0.9123, loss 0.4"
    assert EVALUATOR_COLOR in dashboard.page.value
    assert "step 3 of 20" in dashboard.page.value, "the evaluator counts for no step"
    assert 'value="3" max="20"' in dashboard.page.value
    assert len(dashboard.panes) == 3


def test_text_labels_the_evaluator_and_tells_each_look_its_last_evaluation(folder, capsys, now):
    view = text.TextView(Reader(folder), 1, "run")
    (folder.evaluator.path / "log.txt").write_text("hello\n")
    tell(folder.evaluator, evaluation(1.0, 20, accuracy=0.5), Evaluating(1.1, step=None))
    for seconds in (2.1, 4.3):  # the second brings nothing new
        now[0] = seconds
        view.update([*map(Line.of, ("training", "training", "running"))])
    tell(folder.evaluator, evaluation(5.0, None, accuracy=0.75))
    view.close("finished in 5.0 s", finished=True)
    said = capsys.readouterr().out.splitlines()
    said.remove("[evaluator] hello")
    assert said == [
        "dtk: run",
        "dtk: evaluator: evaluated, step 20: accuracy 0.5",
        "dtk: evaluator: evaluated: accuracy 0.75",
        "dtk: run: finished in 5.0 s",
    ]


# ---- timeline


def beside(tmp_path, *events, workers=2, steps=30):
    """A fabricated run with an evaluator that started after 0.2 s and wrote these events."""
    run = fabricate(tmp_path, workers=workers, steps=steps)
    run.folder = RunFolder(tmp_path, workers, has_evaluator=True)
    tell(run.folder.evaluator, Starting(0.1), Running(0.2), *events)
    return run


def labels(ax):
    return [note.get_text() for note in ax.texts if note.get_text() and note.xyann == (0, -2)]


def test_the_evaluator_has_a_lane_with_a_block_for_each_evaluation(tmp_path):
    ax = plots.timeline(beside(tmp_path, evaluation(1.3, 10), evaluation(1.6, 20), Finished(1.7)))
    assert [label.get_text() for label in ax.get_yticklabels()] == ["worker 0", "worker 1", "evaluator"]
    np.testing.assert_allclose(spans_of(ax, "evaluation", 2), [(1.1, 1.3), (1.4, 1.6)])
    np.testing.assert_allclose(spans_of(ax, "start", 2), [(0.0, 0.2)])
    blocks, __ = (each for each in ax.collections if each.get_gid() == "evaluation")
    assert to_hex(blocks.get_facecolor()[0]).upper() == EVALUATOR_COLOR
    assert "the evaluator; each block is an evaluation" in said(ax)
    assert labels(ax) == ["step 20", "10"]
    enlarged = ax.figure.axes[1]
    assert [label.get_text() for label in enlarged.get_yticklabels()] == ["worker 0", "worker 1"]
