"""The figures of a study and of where a step's time goes: what they show, say and do without data."""

from __future__ import annotations

import numpy as np
import pytest
from fabricate import fabricate
from matplotlib.colors import to_hex

import dtk
from dtk.records import Journal
from dtk.view.palette import PART_COLORS

STEP, REDUCE = 1.0, 0.1  # s; the steps are those of `fabricate`


def with_reductions(path, workers=2, late=0.3):
    """A run whose all-reduces end with the step, and begin earlier on worker 0 than on the last by `late`."""
    run = fabricate(path, workers=workers, steps=4, step_seconds=STEP)
    for corner in run.folder.each if workers > 1 else []:
        journal = Journal(corner)
        for i in range(4):
            end = 1.0 + i * STEP + 0.9 * STEP
            journal.mark("reduce", end - REDUCE - late * (corner.worker == 0), end, 4000)
        journal.close()
    return run


def parts_drawn(ax):
    """By row and color, the widths of the bars."""
    bars = [(bar, round(bar.get_y() + bar.get_height() / 2)) for bar in ax.patches]
    return {(row, to_hex(bar.get_facecolor()).upper()): bar.get_width() for bar, row in bars}


def test_a_bar_a_worker_with_its_parts(tmp_path):
    ax = dtk.plot.step_time(with_reductions(tmp_path))
    drawn = parts_drawn(ax)
    expected = {"compute": 500, "all_reduce": 100, "waiting": 300}, {"compute": 800, "all_reduce": 100, "waiting": 0}
    for worker, parts in enumerate(expected):
        for name, value in parts.items():
            assert drawn[(worker, PART_COLORS[name])] == pytest.approx(value)
        assert sum(width for (row, _color), width in drawn.items() if row == worker) == pytest.approx(1000)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["worker 0", "worker 1"]
    assert (ax.get_xlabel(), "800 of 1,000 ms (worker 1)" in ax.get_label()) == ("ms a step", True)


PARTS = ("python", "input", "compute", "all_reduce", "waiting")


def row(kind, workers, rate, parts, repeat=1, failed="", scaling="weak"):
    size = {"global_batch": 10 * workers, "per_replica_batch": 10}
    values = dict(zip(PARTS, parts, strict=True))
    return {
        **{"scaling": scaling, "kind": kind, "workers": workers, **size},
        **{"repeat": repeat, "examples_per_second": rate, **values, "failed": failed},
    }


def study(*more):
    """One process computes 10 examples in 100 ms; of two workers each takes 110 apart, and 150 with communication."""
    rows = [
        row("baseline", 1, 100.0, (0, 0, 0.1, 0, 0)),
        row("cluster", 1, 98.0, (0, 0, 0.102, 0, 0)),
        row("ceiling", 2, 20 / 0.11, (0, 0, 0.11, 0, 0)),
        *(row("cluster", 2, 20 / 0.15 + wide, (0, 0, 0.112, 0.03, 0.008), i) for i, wide in enumerate((-5, 0, 5))),
        *more,
    ]
    return dtk.Study(rows, "train")


def broken(kind="cluster"):
    return row(kind, 4, np.nan, [np.nan] * 5, failed="worker 3 was killed by SIGKILL")


def test_efficiency_is_stacked_up_to_ideal():
    ax = dtk.plot.efficiency(study())
    two = [bar for bar in ax.patches if round(bar.get_x() + bar.get_width() / 2) == 1]
    assert two[0].get_height() == pytest.approx(0.1 / 0.15)
    assert two[-1].get_y() + two[-1].get_height() == pytest.approx(1.0)
    (mark,) = [line for line in ax.lines if line.get_label() == "ceiling"]
    assert mark.get_ydata()[0] == pytest.approx(0.1 / 0.11)
    assert "communication" in [text.get_text() for text in ax.texts]
    words = ax.get_label()
    assert "2 workers: 67% of ideal, 73% of what these cores can do" in words
    assert "Most of the rest: communication." in words
    assert "ranges of 1 to 3 repeats" in words


def test_throughput_of_a_study_has_ideal_ceiling_and_measured():
    ax = dtk.plot.throughput(study())
    named = {"ideal", "one process: the baseline", "ceiling: no communication", "measured"}
    assert named == set(ax.get_legend_handles_labels()[1])
    assert "2 workers: 1.33 times one process" in ax.get_label()
    assert "these cores reach 1.82 without communication" in ax.get_label()
    assert "communication" in [text.get_text() for text in ax.texts]


def test_a_failed_point_is_marked_in_both():
    for draw in (dtk.plot.efficiency, dtk.plot.throughput):
        ax = draw(study(broken()))
        assert "failed" in [text.get_text() for text in ax.texts]
        assert [label.get_text() for label in ax.get_xticklabels()] == ["1", "2", "4"]
        ax.figure.canvas.draw()


def test_table_and_figures_say_that_the_machine_was_busy(monkeypatch):
    monkeypatch.setenv("DTK_LIVE", "widgets")
    slow, fast = (row(kind, 2, rate, (0, 0, 0.1, 0, 0), 4) for kind, rate in (("cluster", 180.0), ("ceiling", 400.0)))
    said = "Busy machine, measure again: "
    for measured, words in ((study(slow), "repeats differ by up to 38%."), (study(fast), "without communication ")):
        assert said + words in measured._repr_html_()
        assert said + words in dtk.plot.efficiency(measured).get_label()
    assert said not in study()._repr_html_() + dtk.plot.efficiency(study()).get_label()


def test_the_parts_of_a_studys_steps():
    ax = dtk.plot.step_time(study())
    assert [label.get_text()[0] for label in ax.get_yticklabels()] == ["1", "2"]
    assert parts_drawn(ax)[(1, PART_COLORS["all_reduce"])] == pytest.approx(30)
    rate = dtk.plot.throughput(study()).lines[-1].get_ydata()[1]
    assert [each.get_text() for each in ax.texts if " ms" in each.get_text()][-1] == f"{20e3 / rate:.0f} ms"


def test_a_study_where_all_failed_says_so():
    for draw in (dtk.plot.efficiency, dtk.plot.throughput):
        assert "study.points.failed" in draw(dtk.Study([broken()], "train")).texts[0].get_text()
        assert "study.points.failed" in draw(dtk.Study([], "train")).texts[0].get_text()
