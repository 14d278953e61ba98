"""Figures from fabricated runs: what is drawn, and what is said about it, must be what the records hold."""

from __future__ import annotations

import inspect
import json
from types import SimpleNamespace

import matplotlib

from dtk.records.events import Failed

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas
import pytest
from fabricate import fabricate, losses, said
from matplotlib.colors import to_hex, to_rgba
from matplotlib.patches import StepPatch

from dtk import plot as plots
from dtk.errors import WorkerFailed
from dtk.records import Journal
from dtk.view.canvas import NO_RECORDS
from dtk.view.palette import worker_color


@pytest.fixture
def pair(tmp_path):
    return fabricate(tmp_path / "cluster", steps=30), fabricate(tmp_path / "alone", workers=1, mode="single", steps=30)


def stacks(ax):
    return [patch for patch in ax.patches if isinstance(patch, StepPatch)]


def cut(run, worker, rows):
    """Leaves a worker's first records only, as a worker that was killed does."""
    path = run.folder.worker(worker).path / "records.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:rows]))


def test_a_figures_text_form_says_what_is_drawn(pair, tmp_path):
    cluster, alone = pair
    for ax in (plots.loss_scaling(cluster, alone), plots.throughput(alone, cluster), plots.timeline(cluster)):
        words = repr(ax.figure)
        title = " ".join(ax.get_title("left").split())
        assert words.startswith(f"<Figure: {title}. "), words
        assert len(words) > len(title) + 40, "the caption too"
    empty = fabricate(tmp_path / "empty", steps=0)
    assert repr(plots.loss_scaling(empty).figure) == f"<Figure: {NO_RECORDS}>"
    own = plt.figure()
    plots.loss_scaling(cluster, alone, ax=own.subplots())
    assert repr(own) == "<Figure size 640x480 with 1 Axes>", "a figure of one's own is left as it is"


def test_shares_are_stacked_to_the_global_loss(tmp_path):
    shares = np.abs(np.random.default_rng(0).normal(1, 0.2, (20, 4)))
    ax = plots.loss_scaling(fabricate(tmp_path, workers=4, steps=20, shares=shares))
    drawn = [patch.get_data() for patch in stacks(ax)]
    for k, data in enumerate(drawn):
        np.testing.assert_allclose(data.values, shares[:, : k + 1].sum(axis=1))
        np.testing.assert_allclose(data.values - data.baseline, shares[:, k])
    assert [to_hex(patch.get_facecolor()).upper() for patch in stacks(ax)] == [worker_color(k) for k in range(4)]


def test_the_baseline_runs_along_the_top(pair):
    ax = plots.loss_scaling(*pair)
    np.testing.assert_allclose(ax.lines[0].get_ydata(), losses(30))
    assert "2 replicas' shares add up to the loss of one device" in said(ax)
    assert "runs along the top of the stack" in said(ax)


def test_a_baseline_that_differs_is_said_to(tmp_path, pair):
    curve = losses(30)
    curve[11:] *= 1.05
    other = fabricate(tmp_path / "other", workers=1, mode="single", steps=30, shares=curve[:, None])
    ax = plots.loss_scaling(pair[0], other)
    assert "do not add up" in said(ax)
    assert "leaves the top of the stack at step 12" in said(ax)


def test_a_nan_is_a_hatched_gap(tmp_path):
    shares = np.repeat(losses(20)[:, None] / 2, 2, axis=1)
    shares[7:9, 1] = np.nan
    ax = plots.loss_scaling(fabricate(tmp_path, steps=20, shares=shares))
    for patch in stacks(ax):
        assert list(np.flatnonzero(np.isnan(patch.get_data().values))) == [7, 8]
    (gap,) = [patch for patch in ax.patches if patch.get_hatch()]
    assert (gap.get_x(), gap.get_width()) == (7.5, 2)
    assert "no finite loss" in ax.get_legend_handles_labels()[1]


def test_records_that_end_early_leave_the_rest_empty(pair):
    cut(pair[0], 1, 12)
    ax = plots.loss_scaling(*pair)
    assert len(stacks(ax)[0].get_data().values) == 12
    assert ax.get_xlim() == (0.5, 30.5)


def spans(ax, worker, alpha):
    """Left and right ends of the blocks in a lane, by the opacity of their phase."""
    found = []
    for blocks in ax.collections:
        boxes = [path.get_extents() for path in blocks.get_paths()]
        if boxes and round((boxes[0].y0 + boxes[0].y1) / 2) == worker and blocks.get_facecolor()[0][3] == alpha:
            found += [(box.x0, box.x1) for box in boxes]
    return np.array(found)


def test_timeline_has_the_phases_of_the_events(pair):
    ax = plots.timeline(pair[0])
    np.testing.assert_allclose(spans(ax, 0, 0.25), [(0.0, 0.1)])  # start: until the function was called
    np.testing.assert_allclose(spans(ax, 0, 0.5), [(0.1, 1.0)])  # build: until the first step
    assert len(ax.figure.axes) == 2


def late(run, worker, seconds):
    """Lets a worker begin each of its steps later."""
    path = run.folder.worker(worker).path / "records.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps([*row[:5], row[5] + seconds, *row[6:]]) + "\n" for row in rows))


def test_timeline_shows_who_waits(tmp_path):
    run = fabricate(tmp_path, steps=10, step_seconds=0.1)
    late(run, 1, 0.03)
    _, lower = plots.timeline(run).figure.axes
    busy = spans(lower, 0, 1.0)
    np.testing.assert_allclose(busy[:, 1] - busy[:, 0], 0.09 - 0.03)
    hatched = [blocks for blocks in lower.collections if blocks.get_hatch()]
    assert {round(blocks.get_paths()[0].get_extents().y0 + 0.36) for blocks in hatched} == {0}


def test_timeline_of_a_failure_names_the_worker(tmp_path):
    run = fabricate(tmp_path, steps=12)
    cut(run, 1, 5)
    path = run.folder.worker(1).path / "events.jsonl"
    path.write_text("".join(line for line in path.read_text().splitlines(keepends=True) if "finished" not in line))
    journal = Journal(run.folder.worker(1))
    journal.event(Failed(1.2))
    journal.close()
    ax = plots.timeline(WorkerFailed("worker 1 raised", worker=1, folder=run.folder))
    assert "Worker 1 failed after 1.2 s" in said(ax)
    assert [list(line.get_xdata()) for line in ax.lines] == [[1.2]]


# What these draw of a run without records, or of a lab, their own tests say.
OTHERWISE = {"difference", "fault_lab", "overlap", "ring", "timeline", "wait_for"}
OF_A_RUN = {
    name for name in plots.__all__ if next(iter(inspect.signature(getattr(plots, name)).parameters))[:3] == "run"
}


@pytest.mark.parametrize("name", sorted(OF_A_RUN - OTHERWISE))
def test_without_records_the_figure_says_how_to_get_them(tmp_path, name):
    words = said(getattr(plots, name)(fabricate(tmp_path, steps=0))).strip()
    assert words == NO_RECORDS, f"dtk.plot.{name}: return only_text(ax, NO_RECORDS) of dtk/view/canvas.py"


def test_timeline_without_records_still_has_the_events(tmp_path):
    ax = plots.timeline(fabricate(tmp_path, steps=0))
    assert NO_RECORDS[1:] in said(ax)
    np.testing.assert_allclose(spans(ax, 1, 0.5), [(0.1, 1.0)])


@pytest.mark.parametrize("name", sorted(OF_A_RUN - OTHERWISE | {"timeline"}))
def test_an_error_without_folder_is_a_figure_too(name):
    assert NO_RECORDS in said(getattr(plots, name)(WorkerFailed("worker 0 raised", worker=0)))


@pytest.mark.parametrize("style", ["default", "dark_background"])
def test_lines_follow_the_theme(pair, style):
    with plt.style.context(style):
        ax = plots.loss_scaling(*pair)
        assert to_rgba(ax.lines[0].get_color()) == to_rgba(plt.rcParams["text.color"])
        assert ax.get_facecolor() == to_rgba(plt.rcParams["axes.facecolor"])


def test_a_step_recorded_twice_is_no_picture(tmp_path):
    run = fabricate(tmp_path / "run", steps=3)
    twice = pandas.concat([run.records, run.records.tail(1)])
    with pytest.raises(ValueError, match="step 3 of replica 1 is recorded more than once"):
        plots.loss_scaling(SimpleNamespace(records=twice, folder=run.folder))


def test_a_cell_that_ends_with_a_figure_shows_no_text_beside_it(pair):
    from IPython.core.formatters import DisplayFormatter

    formatter = DisplayFormatter()
    for ax in (plots.timeline(pair[0]), plots.loss_scaling(pair[0]).figure.axes[0], *plots.axes(None)):
        assert formatter.format(ax) == ({}, {})
    own = plots.loss_scaling(pair[0], ax=plt.figure().subplots())
    assert "text/plain" in formatter.format(own)[0], "axes of one's own are left as they are"


def test_curves_on_new_axes_have_no_workers_colours():
    (ax,) = plots.axes(None)
    colors = [ax.plot([0, 1], [0, k])[0].get_color().upper() for k in range(6)]
    assert len(set(colors)) == 6
    assert not {worker_color(k) for k in range(5)} & set(colors)
