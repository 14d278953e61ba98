"""Figures from fabricated runs, and TF_CONFIG as a picture: what is drawn and said must be what the records hold."""

from __future__ import annotations

import base64
import inspect
import json
import re
import xml.etree.ElementTree as ET

import matplotlib.pyplot as plt
import numpy as np
import pytest
from fabricate import fabricate, losses, said, seconds_of, spans_of
from live_folder import tell
from matplotlib.colors import to_hex, to_rgb
from matplotlib.patches import StepPatch
from verifying import edit_events, edit_records

import dtk
from dtk import plot as plots
from dtk.errors import WorkerFailed
from dtk.launch.place import tf_configs
from dtk.records.events import Failed, FaultCame, Finished
from dtk.scaling import summary, timing
from dtk.scaling.timing import PARTS, step_parts
from dtk.view.canvas import NO_RECORDS
from dtk.view.cluster_picture import ClusterPicture
from dtk.view.palette import EVALUATOR_COLOR, PART_COLORS, stroke, worker_color
from dtk.watch.waiting import State, Waiting, save


@pytest.fixture
def pair(tmp_path):
    return fabricate(tmp_path / "cluster", steps=30), fabricate(tmp_path / "alone", workers=1, mode="single", steps=30)


def stacks(ax):
    return [patch for patch in ax.patches if isinstance(patch, StepPatch)]


def failed(path, *events):
    """The error of a run of 12 steps whose worker 1 made 5, and then failed, after these events; worker 0 with it."""
    run = fabricate(path, steps=12)
    edit_records(run, 1, lambda rows: rows[:5])
    edit_events(run, 1, lambda event: not isinstance(event, Finished))
    tell(run.folder.worker(1), *events)
    edit_events(run, 0, lambda event: not isinstance(event, Finished))
    tell(run.folder.worker(0), Failed(1.5))  # whose collective broke
    save(run.folder, Waiting([State(0, "worker 0", "consequence"), State(1, "worker 1", "failed")]))
    run.folder.save_attempt(1, "SIGKILL", 0.0, 1.6)
    return WorkerFailed("worker 1 raised", worker=1, folder=run.folder)


def test_a_figures_text_form_says_what_is_drawn(pair, tmp_path):
    cluster, alone = pair
    for ax in (plots.loss_scaling(cluster, alone), plots.throughput(alone, cluster), plots.timeline(cluster)):
        words = repr(ax.figure)
        title = " ".join(ax.get_title("left").split())
        assert words.startswith(f"<Figure: {title}. "), words
        assert len(words) > len(title) + 40, "the caption too"
    assert repr(plots.loss_scaling(fabricate(tmp_path / "empty", steps=0)).figure) == f"<Figure: {NO_RECORDS}>"
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


def test_the_baseline_runs_along_the_top_or_is_said_to_differ(tmp_path, pair):
    ax = plots.loss_scaling(*pair)
    np.testing.assert_allclose(ax.lines[0].get_ydata(), losses(30))
    assert "2 replicas' shares add up to the loss of one device" in said(ax)
    assert "runs along the top of the stack" in said(ax)
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
    edit_records(pair[0], 1, lambda rows: rows[:12])
    ax = plots.loss_scaling(*pair)
    assert len(stacks(ax)[0].get_data().values) == 12
    assert ax.get_xlim() == (0.5, 30.5)


def test_timeline_has_the_phases_of_the_events(pair):
    ax = plots.timeline(pair[0])
    np.testing.assert_allclose(spans_of(ax, "start", 0), [(0.0, 0.1)])  # until the function was called
    np.testing.assert_allclose(spans_of(ax, "build", 0), [(0.1, pair[0].records.ended.min())])  # the first step's end
    assert len(ax.figure.axes) == 2


def late(run, worker, seconds):
    """Lets a worker begin each of its steps later."""
    edit_records(run, worker, lambda rows: [[*row[:5], row[5] + seconds, *row[6:]] for row in rows])


def test_timeline_shows_who_waits(tmp_path):
    run = fabricate(tmp_path, steps=10, step_seconds=0.1)
    late(run, 1, 0.03)
    table = step_parts(run).groupby("worker").waiting.sum()
    assert table[0] == pytest.approx(9 * 0.03)
    assert table[1] == 0
    upper, lower = plots.timeline(run).figure.axes
    for worker in (0, 1):
        assert seconds_of(upper, "waiting", worker) == pytest.approx(table[worker])
        assert (seconds_of(lower, "waiting", worker) > 0) == (worker == 0)


def test_timeline_goes_on_to_the_runs_real_end(tmp_path):
    run = fabricate(tmp_path, steps=12)
    for worker in (0, 1):
        edit_events(run, worker, lambda event: not isinstance(event, Finished))
    last = run.records.ended.max()
    run.folder.save_attempt(1, "no worker made progress for 5 s", 0.0, last + 5)
    ax = plots.timeline(run)
    assert [seconds_of(ax, "silence", worker) for worker in (0, 1)] == pytest.approx([5, 5], abs=0.2)
    assert said(ax).startswith("No worker made progress for 5 s")


def test_a_trace_has_the_spans_of_the_timeline(tmp_path):
    run = fabricate(tmp_path, steps=10, step_seconds=0.1)
    late(run, 1, 0.03)
    events = json.loads(run.trace(tmp_path / "run.json").read_text())["traceEvents"]
    whole = [each for each in events if each["name"].startswith("step ")]
    assert len(whole) == 20
    assert {each["pid"] for each in events} == {0, 1}
    first = run.records[run.records.worker == 0].iloc[0]
    assert whole[0]["args"] == {"loss": f"{first.loss:.6g}", "examples": first.examples}
    parts = step_parts(run)[["worker", *PARTS]].groupby("worker").sum()
    for worker, row in parts.iterrows():
        for part in PARTS:
            spans = [each["dur"] for each in events if each["name"] == part and each["pid"] == worker]
            assert sum(spans) == pytest.approx(row[part] * 1e6, abs=20), part
    for each in (each for each in events if each["name"] in PARTS):
        around = [one for one in whole if one["pid"] == each["pid"] and one["ts"] <= each["ts"]]
        assert each["ts"] + each["dur"] <= around[-1]["ts"] + around[-1]["dur"], "each lies within its step"


def test_timeline_of_a_failure_names_the_worker(tmp_path):
    error = failed(tmp_path, FaultCame(1.2, kind="kill", step=6, words="kill(1, 6)", number=0))
    ax = plots.timeline(error)
    assert ax.get_title("left") == "SIGKILL"
    assert ax.lines[-1].get_xydata().tolist() == [[1.2, 1]], "the cross is where it was killed, not where another broke"
    assert [row["ended"] for row in summary.rows(error)] == ["stopped", "failed"]


# What these draw of a run without records, or of a lab, their own tests say.
OTHERWISE = {"difference", "fault_lab", "overlap", "ring", "timeline", "wait_for"}
OF_A_RUN = {
    name for name in plots.__all__ if next(iter(inspect.signature(getattr(plots, name)).parameters))[:3] == "run"
}


@pytest.mark.parametrize("name", sorted(OF_A_RUN - OTHERWISE))
def test_without_records_the_figure_says_how_to_get_them(tmp_path, name):
    words = said(getattr(plots, name)(fabricate(tmp_path, steps=0))).strip()
    assert words == NO_RECORDS, f"dtk.plot.{name}: return only_text(ax, NO_RECORDS) of dtk/view/canvas.py"
    assert NO_RECORDS in said(getattr(plots, name)(WorkerFailed("worker 0 raised", worker=0)))


def test_timeline_without_records_still_has_the_events(tmp_path):
    assert NO_RECORDS in said(plots.timeline(WorkerFailed("worker 0 raised", worker=0)))
    ax = plots.timeline(fabricate(tmp_path, steps=0))
    assert NO_RECORDS[1:] in said(ax)
    np.testing.assert_allclose(spans_of(ax, "build", 1), [(0.1, 1.0)])


def test_a_cell_that_ends_with_a_figure_shows_no_text_beside_it(pair):
    from IPython.core.formatters import DisplayFormatter

    formatter = DisplayFormatter()
    for ax in (plots.timeline(pair[0]), plots.loss_scaling(pair[0]).figure.axes[0], *plots.axes(None)):
        assert formatter.format(ax) == ({}, {})
    own = plots.loss_scaling(pair[0], ax=plt.figure().subplots())
    assert "text/plain" in formatter.format(own)[0], "axes of one's own are left as they are"


def picture(shown):
    return base64.b64decode(re.search(r'base64,([^"]+)', shown)[1])


def test_a_picture_for_someone_who_looks_is_light_or_dark_as_the_page_is(pair, monkeypatch):
    figure = plots.timeline(pair[0]).figure
    assert figure._repr_html_() is None
    assert pair[0]._repr_html_() is None
    monkeypatch.setenv("DTK_LIVE", "widgets")
    shown = figure._repr_html_()
    said = re.findall(r'title="(.*?)"', shown, re.DOTALL)
    assert len([words for words in said if words.startswith("computing: ")]) == 2 * 6, "steps enlarged"
    assert len([words for words in said if words.startswith("step ") and "\ncomputing: " in words]) == 2 * 29
    drawn = ET.fromstring(picture(shown))
    assert "prefers-color-scheme: dark" in drawn.find("{*}style").text
    colors = {color for each in drawn.iter() for color in re.findall("#[0-9a-f]{6}", each.get("style", ""))}
    assert {"#000000", "#ffffff"}.isdisjoint(colors)
    assert {color.lower() for color in PART_COLORS.values()} & colors
    assert "<td>worker 1</td><td>30</td>" in pair[0]._repr_html_()
    figure.set_facecolor("#222222")  # of a style of one's own
    assert b"prefers-color-scheme" not in picture(figure._repr_html_())
    said = re.findall(r'title="(.*?)"', plots.loss_scaling(pair[0]).figure._repr_html_(), re.DOTALL)
    assert "step 1\nloss 2.3\nreplica 1 1.15\nreplica 0 1.15" in said, "a column says all"
    assert len(said) == len({each.step for each in pair[0].folder.worker(0).records})
    assert "worker 1\nexamples/s 3,200" in plots.throughput(pair[0]).figure._repr_html_()


def test_every_step_of_a_long_run_says_its_numbers(tmp_path, monkeypatch):
    monkeypatch.setenv("DTK_LIVE", "widgets")
    run, alone = (fabricate(tmp_path / name, workers=n, steps=600) for name, n in (("four", 4), ("one", 1)))
    said = re.findall(r'title="(.*?)"', plots.loss_scaling(run, alone).figure._repr_html_(), re.DOTALL)
    assert len([words for words in said if words.startswith("steps ") and words.count("replica") == 4]) == 150
    assert len([words for words in said if words.startswith("one device alone")]) == 150


def test_curves_on_new_axes_have_no_workers_colors():
    (ax,) = plots.axes(None)
    colors = [ax.plot([0, 1], [0, k])[0].get_color().upper() for k in range(6)]
    assert len(set(colors)) == 6
    assert not {worker_color(k) for k in range(8)} & {*colors, *PART_COLORS.values()}
    for color in [*colors, *(stroke(worker_color(k)) for k in range(8))]:
        rgb = np.array(to_rgb(color))
        light = np.where(rgb > 0.04045, ((rgb + 0.055) / 1.055) ** 2.4, rgb / 12.92) @ [0.2126, 0.7152, 0.0722]
        assert 1.05 / (light + 0.05) >= 3, "WCAG 2.2, 1.4.11"


def test_what_can_not_be_drawn_is_refused_in_one_sentence(pair):
    for name in set(plots.__all__) - {"loss_scaling_lab", "what_if_lab"}:
        with pytest.raises(TypeError, match=f"^dtk.plot.{name}: .* is of type int; it takes "):
            getattr(plots, name)(3)
    with pytest.raises(TypeError, match="baseline is of type DataFrame; it takes a run from dtk.run"):
        plots.loss_scaling(pair[0], pair[1].records)


# ---- throughput, and the fan


def test_throughput_stacks_workers_and_marks_the_ideal(pair, tmp_path):
    cluster, alone = pair  # 128 examples a step, each 0.02 s: 6,400 examples/s in both
    ax = plots.throughput(alone, cluster)
    np.testing.assert_allclose([bar.get_width() for bar in ax.patches], [6400, 3200, 3200])
    np.testing.assert_allclose(ax.lines[0].get_xdata(), 12800)
    assert "2 workers: 1.00 times one device, ideal would be 2" in said(ax)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["baseline", "2 workers"]
    assert "after the first" in said(ax)
    assert "no step after the first" in said(plots.throughput(fabricate(tmp_path / "one", steps=1)))


def test_a_bar_is_as_long_as_the_rate_at_its_end(tmp_path):
    """Medians of workers do not add up to the median of all: here each worker is slow at every second step."""
    run = fabricate(tmp_path, steps=41)

    def slow(rows):
        for number, row in enumerate(rows):
            late = 0.015 if (number + row[0]) % 2 else 0.0
            row[5:7] = [1.0 + 0.05 * number + late, 1.0 + 0.05 * number + 0.02 + late]
        return rows

    for worker in (0, 1):
        edit_records(run, worker, slow)
    ax = plots.throughput(run, labels=["two"])
    length = sum(bar.get_width() for bar in ax.patches)
    total = timing.throughput(run.records)
    assert length == pytest.approx(total)
    alone = [timing.throughput(run.records[run.records.worker == worker]) for worker in (0, 1)]
    assert abs(sum(alone) / total - 1) > 0.02, "the sum of the workers' medians is another number"
    assert "two: " in said(ax)


SHARES = np.array([[1.0, 0.5], [1.25, 2.25]])


def words(ax):
    return [text.get_text() for text in ax.texts]


def rays(ax):
    """Color and style of each ray, and its x from the batch (0) or from a replica (1) on."""
    return [(to_hex(line.get_color()).upper(), line.get_linestyle(), line.get_xdata()[0] > 0.5) for line in ax.lines]


def test_it_shows_the_step_that_was_asked_for(tmp_path):
    ax = dtk.plot.fan(fabricate(tmp_path, steps=2, shares=SHARES, examples=np.array([[2, 2], [2, 1]])), step=2)
    assert "global batch\n3 examples" in words(ax)
    assert "worker 0, replica 0: 2 examples, share 1.2500" in words(ax)
    assert "worker 1, replica 1: 1 example, share 2.2500" in words(ax)
    assert "global loss\n3.5000" in words(ax)
    assert rays(ax) == [(stroke(worker_color(k)), "-", on) for k in (0, 1) for on in (False, True)]
    assert ax.get_title("left") == "strategy.run opens the fan, strategy.reduce closes it"
    mirrored = fabricate(tmp_path / "one", workers=1, replicas=2, mode="mirrored", steps=2, shares=SHARES)
    assert "replica 1: 64 examples, share 0.5000" in words(dtk.plot.fan(mirrored)), "not called workers"


def test_a_replica_without_examples_adds_nothing_whatever_its_share_says(tmp_path):
    shares, examples = np.array([[1.5, np.nan], [1.5, 0.25]]), np.array([[1, 0], [1, 0]])
    run = fabricate(tmp_path, steps=2, shares=shares, examples=examples)
    assert "global loss\n1.5000" in words(dtk.plot.fan(run))
    assert "global loss\n1.7500" in words(dtk.plot.fan(run, step=2)), "its part of a penalty"


def test_a_step_that_not_all_recorded_is_refused(tmp_path):
    run = fabricate(tmp_path, steps=3)
    edit_records(run, 1, lambda rows: rows[:1])
    with pytest.raises(ValueError, match="step=2: the run has records of steps 1 to 1"):
        dtk.plot.fan(run, step=2)


# ---- TF_CONFIG as a picture: a box for each process


def boxes(picture):
    """Of each box: its heading, what it says of the cluster, the listing, the task, and the color of the frame."""
    page = picture._repr_html_().replace("<br>", "<br/>")
    return [
        (*(box.find(tag).text for tag in ("b", "small", "pre", "code")), box.get("style"))
        for box in ET.fromstring(page).findall("div")
    ]


def test_the_same_cluster_stands_in_every_box():
    found = boxes(ClusterPicture(tf_configs([4001, 4002, 4003])))
    assert [heading for heading, *_ in found] == ["worker 0 (chief)", "worker 1", "worker 2"]
    assert {words for _, words, *_ in found} == {"cluster: the same in every box"}
    assert {listing for _, _, listing, *_ in found} == {"worker:\n  127.0.0.1:4001\n  127.0.0.1:4002\n  127.0.0.1:4003"}
    assert [task for *_, task, _ in found] == ["task: worker 0", "task: worker 1", "task: worker 2"]
    assert all(worker_color(k) in style for k, (*_, style) in enumerate(found))


@pytest.mark.parametrize("count", [1, 5])
def test_the_evaluator_knows_the_workers_who_do_not_know_it(count):
    *configs, own = tf_configs([*(4001 + k for k in range(count)), 4100], evaluator=True)
    picture = ClusterPicture(configs, own)
    assert len(picture) == count, "a list of the workers' alone"
    *workers, last = boxes(picture)
    assert {words for _, words, *_ in workers} == {"cluster: the same for all workers"}
    assert not any("4100" in listing for _, _, listing, *_ in workers)
    assert last[:2] == ("evaluator 0", "cluster: theirs, and itself")
    assert "127.0.0.1:4100" in last[2]
    assert "127.0.0.1:4001" in last[2]
    assert EVALUATOR_COLOR in last[4]


def test_a_cluster_picture_is_a_list():
    configs = tf_configs([4001, 4002])
    picture = ClusterPicture(configs)
    assert picture == configs
    assert repr(picture) == repr(configs)
    assert json.loads(json.dumps(picture)) == configs
    assert ClusterPicture([])._repr_html_() is None
