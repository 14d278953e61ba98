"""The live views, fed by fabricated folders: what they show, and that a flood of output stays small."""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ET
from types import SimpleNamespace

import numpy as np
import pytest
from live_folder import BAR, announce, empty, step, write

from dtk import live
from dtk.live import dashboard as module
from dtk.live import text
from dtk.live.dashboard import curve
from dtk.view.palette import worker_color
from dtk.watch import waiting
from dtk.watch.reader import Reader
from dtk.watch.waiting import Line, State

# ---- the plain-text twin


def test_text_labels_lines_and_leaves_out_chatter(folder, capsys):
    view = text.TextView(Reader(folder), 1, "cluster of 2 workers")
    write(folder, 0, f"hello\nI0000 00:00:1794212.5 41 cpu.cc:227] note\n{BAR}half")
    write(folder, 1, "hello\nE0000 00:00:1794212.5 41 server.cc:1] an error stays\n")
    view.update([Line.of("training")] * 2)
    assert capsys.readouterr().out.splitlines() == ["dtk: cluster of 2 workers", "[worker 0-1] hello"]
    view.close("finished in 1.0 s", finished=True)
    first, *more, last = capsys.readouterr().out.splitlines()
    assert {first, *more} == {
        "[worker 0] 2/2 ━━━━ loss: 1",
        "[worker 0] half",
        "[worker 1] E0000 00:00:1794212.5 41 server.cc:1] an error stays",
    }
    assert last == "dtk: cluster of 2 workers: finished in 1.0 s"


def test_text_caps_a_worker_and_names_its_log(folder, capsys):
    view = text.TextView(Reader(folder), 1, "run")
    write(folder, 0, "".join(f"line {i}\n" for i in range(5000)))
    write(folder, 1, "y" * 30_000 + "\n")
    view.update([Line.of("running")] * 2)
    view.close("finished", finished=True)
    lines = capsys.readouterr().out.splitlines()
    first = [line for line in lines if line.startswith("[worker 0]")]
    assert 2000 < len(first) < 2500
    assert str(folder.worker(0).path / "log.txt") in first[-1]
    assert sum(len(line) for line in lines if line.startswith("[worker 1] y")) <= 20_020


def test_of_a_program_all_is_printed(folder, capsys):
    view = text.TextView(Reader(folder), 1, "run", whole=True)
    write(folder, 0, "".join(f"line {i}\n" for i in range(10_000)))
    view.close("finished", finished=True)
    assert capsys.readouterr().out.splitlines()[1:-1] == [f"[worker 0] line {i}" for i in range(10_000)]


def test_text_tells_the_progress_every_few_seconds(folder, capsys, now):
    view = text.TextView(Reader(folder), 1, "run")
    announce(folder, 4, 1)
    step(folder, 1)
    for seconds in (0.5, 1.0, 2.1, 4.3):  # the last brings no new step, so no new line
        now[0] = seconds
        view.update([Line.of("training")] * 2)
    view.close("finished in 5.0 s", finished=True)
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["dtk: run", "dtk: step 1/4, loss 1", "dtk: run: step 1/4, loss 1; finished in 5.0 s"]


@pytest.mark.parametrize("terminal", [True, False], ids=["terminal", "file"])
def test_a_follower_says_how_far_it_is_and_leaves_nothing(folder, capsys, monkeypatch, terminal):
    now = [100.0]
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    monkeypatch.setattr("tqdm.std.time", lambda: now[0])
    reader = Reader(folder)
    view = live.Counting(reader, "each step again", 4)
    for number, seconds in enumerate((0.5, 2.1, 0.1, 0.5), start=1):
        step(folder, number)
        reader.look()
        now[0] += seconds
        view.update([])
    view.close("finished", finished=True)
    said = capsys.readouterr().err.split("\r")
    if not terminal:
        assert said == [""]
        return
    assert [line.split("|")[-1].split()[0] for line in said if line.strip()] == ["2/4", "4/4"]
    assert "each step again:  50%" in said[1]
    assert said[-1] == ""
    assert not said[-2].strip()


# ---- choosing


def test_the_mode_chooses_the_view(folder, monkeypatch, capsys):
    kinds = []
    for mode in ("off", "text", "widgets"):
        monkeypatch.setenv("DTK_LIVE", mode)
        kinds.append(type(live.show(2, 1, "cluster", Reader(folder))).__name__)
    assert kinds == ["Live", "TextView", "Dashboard"]


# ---- the dashboard


def test_dashboard_shows_states_progress_curves_and_logs(folder, dashboard):
    announce(folder, 20, 1)
    for number in range(1, 6):
        step(folder, number)
    write(folder, 1, f"<b>bold?</b>\n{BAR}")
    dashboard.update([Line.of("finished"), Line.of("training")])
    rows = dashboard.page.value
    assert "worker 0 (chief)" in rows
    assert "finished, waits for the others" in rows
    assert "step 5 of 20" in rows
    assert worker_color(0) in rows
    assert worker_color(1) in rows
    assert 'value="5" max="20"' in rows
    assert "ETA" in rows
    assert '<svg role="img" aria-label="loss 1 at step 5: worker 0 0.5, worker 1 0.5"' in rows
    assert "&lt;b&gt;bold?&lt;/b&gt;\n2/2 ━━━━ loss: 1</pre>" in dashboard.panes[1].value
    assert "nothing</pre>" in dashboard.panes[0].value


def test_dashboard_ends_with_the_outcome(folder, dashboard):
    announce(folder, 2, 1)
    step(folder, 1)
    step(folder, 2)
    dashboard.update([Line.of("training")] * 2)
    dashboard.close("finished in 3.2 s", finished=True)
    assert "cluster of 2 workers: finished in 3.2 s" in dashboard.page.value
    assert "finished after step 2" in dashboard.page.value
    assert 'value="2" max="2" style="width:300px;accent-color:#4CAF50"' in dashboard.page.value
    assert dashboard.page.value.startswith("<details><summary>cluster of 2 workers: finished in 3.2 s, step 2/2, loss")
    assert dashboard.box.children == (dashboard.page,)


def test_dashboard_tells_who_failed_from_who_failed_in_consequence(folder, dashboard):
    states = [State(0, "worker 0", "consequence", step=9), State(1, "worker 1", "failed", step=10)]
    waiting.save(folder, waiting.Waiting(states, reason="failed"))
    dashboard.update([Line.of("failed"), Line.of("training")])
    dashboard.close("worker 1 was killed by SIGKILL")
    assert ">failed in consequence after step 9<" in dashboard.page.value
    assert ">failed after step 10<" in dashboard.page.value


def test_dashboard_keeps_the_end_of_a_flood(folder, dashboard):
    write(folder, 0, "".join(f"line {i}\n" for i in range(100_000)))
    dashboard.update([Line.of("running")] * 2)
    pane = dashboard.panes[0].value
    assert "line 99999" in pane
    assert "not all is shown here; all of it is in" in pane
    assert len(pane) < 10_000


def test_a_page_without_a_kernel_has_the_last_frame(folder, monkeypatch):
    shown = []
    handle = SimpleNamespace(update=lambda bundle, raw: shown.append(bundle))
    monkeypatch.setattr(module, "display", lambda bundle, raw, display_id: shown.append(bundle) or handle)
    view = module.Dashboard(Reader(folder), 1, "cluster of <2> workers")
    for number in (1, 2, 3):
        step(folder, number)
    view.close("finished in 3.2 s", finished=True)
    first, last = shown
    assert first["text/plain"] == "<live view of dtk: cluster of <2> workers>"
    assert "text/html" not in first, "nothing is known yet"
    lines = last["text/plain"].splitlines()
    assert lines[:2] == ["cluster of <2> workers: finished in 3.2 s", "worker 0 (chief): finished after step 3"]
    assert lines[-1].startswith("step 3, loss ")
    for words in (
        "cluster of &lt;2&gt; workers: finished in 3.2 s",
        "worker 1",
        "step 3, loss ",
        "<progress ",
        '<img alt="loss ',
    ):
        assert words in last["text/html"]
    assert {bundle["application/vnd.jupyter.widget-view+json"]["model_id"] for bundle in shown} == {view.box.model_id}


# ---- pictures


def loss(*layers):
    each = [(f"worker {k}", worker_color(k), values) for k, values in enumerate(layers)]
    return curve(range(1, len(layers[0]) + 1), each)


def test_a_curve_is_drawn_in_the_ink_of_the_page():
    root = ET.fromstring(loss([2.0, float("nan"), 1.0, 0.5]))
    (path,) = root.iter("path")
    assert path.get("stroke") == "currentColor"
    assert path.get("d").count("M") == 2  # the gap
    assert root.get("aria-label") == "loss 0.5 at step 4"
    assert loss([2.0]) == ""


def test_of_many_steps_a_point_is_the_mean_of_several():
    (path,) = ET.fromstring(loss(range(1000))).iter("path")
    points = [tuple(map(float, place.split())) for place in path.get("d")[1:].split("L")]
    assert len(points) == 200
    np.testing.assert_allclose(np.diff([y for __, y in points]), points[1][1] - points[0][1], atol=0.11)


@pytest.mark.parametrize(("workers", "replicas", "name"), [(1, 4, "replica 3"), (3, 1, "worker 2")])
def test_who_the_layers_are(tmp_path, monkeypatch, capsys, workers, replicas, name):
    folder = empty(tmp_path, workers)
    for number in (1, 2, 3):
        step(folder, number, range(workers))
    for worker in folder.each if replicas > 1 else []:
        rows = (worker.path / "records.jsonl").read_text().splitlines()
        every = [row.replace("[0,", f"[{replica},", 1) for row in rows for replica in range(replicas)]
        (worker.path / "records.jsonl").write_text("\n".join(every) + "\n")
    view = module.Dashboard(Reader(folder), replicas, "run", "mirrored" if workers == 1 else "cluster")
    assert re.search(rf'aria-label="[^"]*, {name} [^"]*"', view.page.value)
    assert view.page.value.count("<path") == max(workers, replicas) + 1
