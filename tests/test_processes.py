"""Processes, devices and messages of a step: every number in the picture is one of the run's."""

from __future__ import annotations

import numpy as np
from fabricate import fabricate
from matplotlib.colors import to_hex
from matplotlib.patches import FancyBboxPatch
from verifying import edit_records

import dtk
from dtk.errors import WorkerFailed
from dtk.records import Journal
from dtk.scaling.timing import step_reductions
from dtk.view.palette import stroke, worker_color

WEIGHTS = [np.zeros((10, 10), np.float32), np.zeros(10, np.float32)]  # 110 numbers, 440 bytes
STEPS = 4


def noted(run, packs=(440,), small=(8, 4)):
    """Lets every worker note its all-reduces in each step, of these sizes."""
    for corner in run.folder.each:
        journal = Journal(corner)
        for i in range(STEPS):
            end = 1.0 + (i + 0.85) * 0.02
            for k, size in enumerate((*packs, *small)):
                journal.mark("reduce", end - 0.008 + 0.001 * k, end - 0.007 + 0.001 * k, size)
        journal.close()
    return run


def cluster(path, workers=2, **facts):
    return fabricate(path, workers=workers, steps=STEPS, final=[WEIGHTS] * workers, **facts)


def words(ax):
    return [" ".join(text.get_text().split()) for text in ax.texts]


def boxes(ax):
    return [patch for patch in ax.patches if isinstance(patch, FancyBboxPatch)]


def test_a_process_a_worker_and_its_numbers(tmp_path):
    shares = np.arange(2.0 * STEPS).reshape(STEPS, 2) / 8 + 0.0625
    ax = dtk.plot.processes(noted(cluster(tmp_path, shares=shares, examples=np.tile([40, 24], (STEPS, 1)))))
    said = words(ax)
    assert f"replica 0, a device 40 examples share of loss {shares[1, 0]:.4f}" in said
    assert f"replica 1, a device 24 examples share of loss {shares[1, 1]:.4f}" in said
    assert said.count("a copy of the 110 weights") == 2
    assert "all-reduce: each worker gives 440 bytes of gradients, gets the sum of all" in said
    assert {"worker 0 (chief)", "worker 1", "kernel: this notebook's process"} <= set(said)
    assert ax.get_label().startswith("A step: 2 processes, 2 replicas, an all-reduce of 440 bytes. Step 2.")
    colors = {to_hex(patch.get_edgecolor()).upper() for patch in boxes(ax)}
    assert {stroke(worker_color(0)), stroke(worker_color(1))} <= colors


def test_the_bytes_are_those_that_the_workers_noted(tmp_path):
    run = noted(cluster(tmp_path), packs=(300_000, 48_000), small=(8,))
    table = step_reductions(run)
    assert table[(table.worker == 0) & (table.step == 2)].bytes.sum() == 348_000
    assert "2 all-reduces of 348 kB" in dtk.plot.processes(run).get_label()


def test_without_marks_there_are_no_bytes(tmp_path):
    ax = dtk.plot.processes(cluster(tmp_path))
    assert ax.get_label().startswith("A step: 2 processes, 2 replicas, an all-reduce. Step 2.")
    assert "all-reduce: each replica gives its gradients, gets the sum of all" in words(ax)


def test_several_replicas_in_one_process_add_up_inside_it(tmp_path):
    ax = dtk.plot.processes(cluster(tmp_path, workers=1, replicas=2, mode="mirrored"))
    assert ax.get_label().startswith("A step: 1 process, 2 replicas, an all-reduce inside.")
    assert "one process" in words(ax)
    assert "a copy each of the 110 weights" in words(ax)
    colors = [to_hex(patch.get_edgecolor()).upper() for patch in boxes(ax)]
    assert colors.count(stroke(worker_color(1))) == 1


def test_one_replica_sends_nothing(tmp_path):
    ax = dtk.plot.processes(cluster(tmp_path, workers=1, mode="single"))
    assert ax.get_label().startswith("A step: 1 process, 1 replica, no message.")
    assert not any("all-reduce" in each for each in words(ax))


def test_of_many_workers_the_first_three_and_the_last(tmp_path):
    said = words(dtk.plot.processes(noted(cluster(tmp_path, workers=8))))
    assert [each for each in said if each.startswith("worker")] == [
        "worker 0 (chief)",
        "worker 1",
        "worker 2",
        "worker 7",
    ]
    assert "… 4 more …" in said


def test_a_worker_that_did_not_reach_the_step_has_no_numbers(tmp_path):
    run = cluster(tmp_path)
    edit_records(run, 1, lambda rows: rows[:1])
    (run.dir / "worker-0" / "weights-final.npz").unlink()  # of a run that has not come to its end
    lines = '{"shape": [10, 11], "trainable": true}\n{"shape": [9], "trainable": false}\n'
    (run.dir / "worker-0" / "variables.jsonl").write_text(lines)
    said = words(dtk.plot.processes(WorkerFailed("worker 1 was killed", worker=1, folder=run.folder)))
    assert {"no record of this step", "a copy of the 110 weights"} <= {*said}
