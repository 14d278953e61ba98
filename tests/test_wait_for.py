"""The wait-for graph as a figure, and the same states in the live views."""

from __future__ import annotations

import pytest
from live_folder import empty, step

import dtk
from dtk.live.text import TextView
from dtk.records import RunFolder
from dtk.watch import waiting
from dtk.watch.reader import Reader
from dtk.watch.waiting import Line, State


def waits(worker, at=12, line="line 17 in train", quiet=10.0):
    return State(worker, f"worker {worker}", "training", at, quiet, silent=True, blocked="operation", line=line)


def ended(worker, at=12):
    return State(worker, f"worker {worker}", "finished", at)


def error_of(path, *states):
    told = waiting.explain(states)
    folder = RunFolder(path, len(states))
    waiting.save(folder, told)
    return dtk.WorkerStalled(told.sentence, folder, "", told.reason, told.edges)


def by_gid(ax, gid):
    return [artist for artist in [*ax.patches, *ax.texts] if artist.get_gid() == gid]


def title(ax):
    return ax.get_title("left").replace("\n", " ").replace("\N{NO-BREAK SPACE}", " ")


def inside(ax):
    """Whether every text of a box lies in the figure, and no two boxes on each other."""
    ax.figure.canvas.draw()
    boxes = [patch.get_window_extent() for patch in by_gid(ax, "box") + by_gid(ax, "source")]
    texts = [text.get_window_extent() for text in by_gid(ax, "state") + by_gid(ax, "worker")]
    apart = not any(one.overlaps(two) for k, one in enumerate(boxes) for two in boxes[:k])
    grown = [box.expanded(1.01, 1.04) for box in boxes]
    return apart and all(
        any(b.x0 <= t.x0 and t.x1 <= b.x1 and b.y0 <= t.y0 and t.y1 <= b.y1 for b in grown) for t in texts
    )


def test_an_arrow_leads_to_the_worker_that_ended(tmp_path):
    ax = dtk.plot.wait_for(error_of(tmp_path, waits(0), ended(1)))
    assert title(ax) == "Worker 1 ended after step 12, worker 0 waits in step 13: give all workers the same steps"
    (arrow,) = by_gid(ax, "waits")
    (source,) = by_gid(ax, "source")
    (start, _), (end, _) = arrow._posA_posB
    assert start < 0 < end
    assert source.get_x() > 0, "worker 1 stands on the right"
    states = [text.get_text().replace("\n", " ") for text in by_gid(ax, "state")]
    assert states == ["step 13, waits inside TensorFlow for 10 s line 17 in train", "finished after step 12"]
    assert inside(ax)


def test_a_deadlock_is_a_ring_without_a_source(tmp_path):
    ax = dtk.plot.wait_for(error_of(tmp_path, waits(0, line="line 12 in train"), waits(1, line="line 13 in train")))
    assert len(by_gid(ax, "waits")) == 2
    assert by_gid(ax, "source") == []
    assert any("a deadlock" in text.get_text().replace("\n", " ") for text in ax.texts)


@pytest.mark.parametrize("workers", [1, 4, 16])
def test_every_number_of_workers_has_room(tmp_path, workers):
    others = (waits(k, quiet=10.0 + k) for k in range(workers - 1))
    ax = dtk.plot.wait_for(error_of(tmp_path, *others, ended(workers - 1)))
    assert inside(ax)
    assert len(by_gid(ax, "waits")) == (workers - 1 if workers <= 4 else 1), "of many, those alike share a box"


def test_an_error_before_anything_started():
    ax = dtk.plot.wait_for(dtk.WorkerStalled("so it is"))
    assert ax.texts[0].get_text().endswith("nothing was started, or the run ended well or goes on")


# ---- live


def test_the_dashboard_shows_who_is_waited_for(folder, dashboard):
    step(folder, 1)
    dashboard.update(waiting.board([waits(0, at=1, quiet=5.0), State(1, "worker 1", "stopped", 1)]))
    assert "step 2, waits inside TensorFlow for 5 s, waits for worker 1" in dashboard.page.value
    assert "stopped by a signal after step 1" in dashboard.page.value
    dashboard.close("worker 1 is stopped")
    assert dashboard.page.value.count("stopped after step 1") == 2


def test_the_text_says_once_that_a_silence_lasts(tmp_path, monkeypatch, capsys):
    from dtk.live import text

    monkeypatch.setattr(text, "_EVERY", 0.0)
    view = TextView(Reader(empty(tmp_path)), 1, "cluster of 2 workers")
    for seconds in (3.0, 4.0, 5.0, 6.0, 12.0):
        view.update(waiting.board([waits(0, quiet=seconds), State(1, "worker 1", "training", 12)]))
    view.update([Line.of("training")] * 2)
    said = [line for line in capsys.readouterr().out.splitlines() if "waits" in line]
    assert said == ["dtk: worker 0 step 13, waits inside TensorFlow for 5 s, waits for worker 1, worker 1 training"]
