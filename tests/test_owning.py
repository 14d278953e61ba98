"""What is left of processes that are gone is removed, orphans end, and a parent that is gone is replaced in silence."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import psutil
import pytest
from waiting import newest_run, wait_gone

import dtk
from dtk.launch import folders, warm


@pytest.fixture
def list_here(monkeypatch, tmp_path):
    """Has this process keep its files in tmp_path only."""
    (tmp_path / "scratch").mkdir(mode=0o700)
    monkeypatch.setenv("DTK_SCRATCH", str(tmp_path / "scratch"))
    return tmp_path / "scratch"


def test_logs_and_folders_of_processes_that_are_gone_are_removed(list_here):
    logs = [list_here / f"parent-{pid}-1.log" for pid in (os.getpid(), 1 << 30)]
    ours = folders.own_folder()
    places = [ours, ours.with_name(f"{folders.machine()}-{os.getpid()}-0")]
    for log, folder in zip(logs, places, strict=True):
        log.touch()
        folder.mkdir(exist_ok=True)
    folders.tidy()
    assert [log.exists() for log in logs] == [True, False]
    assert [folder.exists() for folder in places] == [True, False]


def pid_of():
    return os.getpid()


def killed(parent):
    os.kill(parent.pid, signal.SIGKILL)  # its guard; the parent goes with it


def killed_inside(parent):
    (child,) = psutil.Process(parent.pid).children()
    child.kill()  # the guard ends by itself


@pytest.mark.trains
@pytest.mark.parametrize("how", [killed, killed_inside])
@pytest.mark.slow  # a new parent for each
def test_a_dead_parent_is_replaced_with_a_line_in_its_log_only(start, how, capfd):
    first = dtk.run(pid_of, start=start)
    parent = warm.parent(start == "warm")
    pid, family = parent.pid, psutil.Process(parent.pid).children(recursive=True)
    capfd.readouterr()
    how(parent)
    assert wait_gone([pid]) == []
    again = dtk.run(pid_of, start=start)
    said = capfd.readouterr()
    assert len(again.results) == 2
    assert set(again.results) & set(first.results) == set()
    assert parent.pid != pid
    assert said.err == ""
    assert all(line.startswith("dtk: cluster of 2 workers") for line in said.out.splitlines())
    assert f"dtk: in place of parent {pid}, which was killed by signal 9\n" in parent.log.read_text()
    assert wait_gone([pid, *(process.pid for process in family)]) == []


@pytest.mark.slow
def test_a_parent_that_nobody_uses_ends_and_the_next_run_starts_another(start, monkeypatch):
    monkeypatch.setattr(warm, "IDLE_SECONDS", 0.5)
    parent = warm.parent(start == "warm")
    parent.replace(parent.pid)  # with that limit
    try:
        dtk.run(pid_of, start=start)
        pid, log = parent.pid, parent.log
        family = [pid, *(process.pid for process in psutil.Process(pid).children(recursive=True))]
        assert wait_gone(family, 20) == []
        assert "dtk: no run used this parent for 0.5 s; it ends\n" in log.read_text()
        monkeypatch.undo()
        assert len(dtk.run(pid_of, start=start).results) == 2
        assert parent.pid != pid
        assert parent.log.read_text().startswith(f"dtk: in place of parent {pid}, which had ended\n")
    finally:
        monkeypatch.undo()
        parent.replace(parent.pid)
        parent.wait_ready(lambda: None)


def leave_a_child():
    """A child in a session of its own, whose parent has ended: it looks like nobody's."""
    code = "import os, time\nos.setsid()\nif os.fork() == 0:\n    print(os.getpid(), flush=True); time.sleep(300)"
    done = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env={}, text=True)
    pid = int(done.stdout.readline())
    done.wait()
    return pid


def leave_a_child_and_crash():
    (dtk.run_dir() / f"orphan-{os.getpid()}").write_text(str(leave_a_child()))
    os._exit(5)


@pytest.mark.trains
def test_an_orphan_of_a_crashed_worker_is_ended_with_the_run(start):
    with pytest.raises(dtk.WorkerFailed):
        dtk.run(leave_a_child_and_crash, workers=1, start=start)
    (file,) = newest_run().glob("orphan-*")
    assert wait_gone([int(file.read_text())]) == []
