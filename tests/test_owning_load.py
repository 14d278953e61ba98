"""Many runs, much output, several kernels: short forms of `benchmarks/endurance.py`."""

from __future__ import annotations

import os
import time

import owning
import pytest

import dtk
from dtk.launch import folders, warm

import endurance  # isort: skip  (benchmarks/, which `owning` puts on the path)

pytestmark = pytest.mark.slow  # many runs, much output, several kernels

assert owning.ROOT  # it is imported for the path


@pytest.fixture
def own_scratch(monkeypatch, tmp_path, start):
    monkeypatch.setenv("DTK_SCRATCH", str(tmp_path))
    monkeypatch.setattr(folders, "KEPT_RUNS", 3)
    source = warm.parent(start == "warm")
    source.replace(source.mark)  # its list and its log go into that directory, too
    yield tmp_path
    monkeypatch.undo()
    source.replace(source.mark)
    source.wait_ready(lambda: None)  # what it imports is not to be counted as another test's growth


def test_many_runs_grow_by_nothing(own_scratch, start):
    before, after = endurance.many_runs(12, start)
    assert (after.processes, after.descriptors, after.threads, after.files) == (
        before.processes,
        before.descriptors,
        before.threads,
        before.files,
    )
    assert after.memory - before.memory < 20


def flood_and_die():
    endurance.flood(50)
    if dtk.is_chief():
        os._exit(3)
    time.sleep(60)


def test_the_end_of_a_long_log_is_read_and_not_all_of_it(start, monkeypatch):
    sizes = []
    monkeypatch.setattr(dtk.records, "_text", lambda path: sizes.append(path.name) or "")
    with pytest.raises(dtk.WorkerFailed, match="worker 0 ended itself with exit code 3") as caught:
        dtk.run(flood_and_die, start=start)
    monkeypatch.undo()
    assert "log.txt" not in sizes
    assert len(caught.value.detail) < 100_000
    assert len(caught.value.logs[0]) >= 50_000_000


def test_two_kernels_with_two_clusters_each_do_not_cross():
    outcome = endurance.two_kernels(steps=20)
    assert outcome["crossings"] == []
