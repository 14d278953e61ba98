"""Orphans end, a parent is replaced; directories have one owner."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import psutil
import pytest
from waiting import newest_run, wait_gone

import dtk
from dtk.environment import scratch
from dtk.errors import DtkError
from dtk.launch import folders, warm


def killed(parent):
    os.kill(parent.pid, signal.SIGKILL)  # its guard; the parent goes with it


def killed_inside(parent):
    (child,) = psutil.Process(parent.pid).children()
    child.kill()  # the guard ends by itself


@pytest.mark.parametrize("how", [killed, killed_inside])
@pytest.mark.slow  # a new parent for each
def test_a_dead_parent_is_replaced_without_a_word(start, how, capfd):
    first = dtk.run(os.getpid, start=start)
    parent = warm.parent(start == "warm")
    pid, family = parent.pid, psutil.Process(parent.pid).children(recursive=True)
    capfd.readouterr()
    how(parent)
    assert wait_gone([pid]) == []
    again = dtk.run(os.getpid, start=start)
    said = capfd.readouterr()
    assert len(again.results) == 2
    assert set(again.results) & set(first.results) == set()
    assert parent.pid != pid
    assert said.err == ""
    assert all(line.startswith("dtk: cluster of 2 workers") for line in said.out.splitlines())
    assert wait_gone([pid, *(process.pid for process in family)]) == []


@pytest.mark.slow
def test_a_parent_that_nobody_uses_ends_and_the_next_run_starts_another(start, monkeypatch):
    monkeypatch.setattr(warm, "IDLE_SECONDS", 0.5)
    parent = warm.parent(start == "warm")
    parent.replace(parent.pid)  # with that limit
    try:
        dtk.run(os.getpid, start=start)
        pid = parent.pid
        family = [pid, *(process.pid for process in psutil.Process(pid).children(recursive=True))]
        assert wait_gone(family, 20) == []
        monkeypatch.undo()
        assert len(dtk.run(os.getpid, start=start).results) == 2
        assert parent.pid != pid
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


# ---- where dtk writes while it runs is this user's alone


@pytest.fixture
def planned(monkeypatch, tmp_path):
    """The path that dtk will take; nothing is there yet."""
    path = tmp_path / "dtk-me"
    monkeypatch.setenv("DTK_SCRATCH", str(path))
    return path


def filled(folder):
    """Somebody's folder with as many entries as dtk would keep, and more."""
    for k in range(folders.KEPT_RUNS + 5):
        (folder / "runs" / f"{k:08d}").mkdir(parents=True)
    return folder / "runs"


def test_it_is_made_for_this_user_alone(planned):
    assert scratch("runs") == planned / "runs"
    assert [path.stat().st_mode & 0o777 for path in (planned, planned / "runs")] == [0o700, 0o700]


def test_a_planted_link_deletes_nothing(planned, tmp_path):
    runs = filled(tmp_path / "tensorboard")
    planned.symlink_to(tmp_path / "tensorboard")
    with pytest.raises(DtkError, match="dtk-me is a symbolic link; remove it, or set TMPDIR"):
        folders.fresh(1, False)
    assert len(list(runs.iterdir())) == folders.KEPT_RUNS + 5


def test_nor_one_inside(planned, tmp_path):
    (tmp_path / "theirs").mkdir()
    planned.mkdir(mode=0o700)
    (planned / "runs").symlink_to(tmp_path / "theirs")
    with pytest.raises(DtkError, match="dtk-me/runs is a symbolic link"):
        folders.fresh(1, False)


def test_what_dtk_did_not_make_stays(planned, tmp_path):
    runs = filled(planned)
    planned.chmod(0o700)
    runs.chmod(0o700)
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "kernel").write_text("1 0")  # looks like a run of a kernel that is gone
    (runs / "00000000-link").symlink_to(tmp_path / "theirs")
    made = folders.fresh(1, False)
    there = {path.name for path in runs.iterdir()}
    assert len(there) == folders.KEPT_RUNS + 7
    assert made.path.name in there
    assert (tmp_path / "theirs" / "kernel").exists()


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770, 0o702])
def test_one_that_others_may_write_into_is_refused(planned, mode):
    planned.mkdir()
    planned.chmod(mode)
    with pytest.raises(DtkError, match="dtk-me is open to others' writing"):
        scratch()


def test_one_that_others_may_read_is_closed(planned):
    planned.mkdir(mode=0o755)
    scratch()
    assert planned.stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives a directory away")
def test_another_users_is_refused(planned):
    planned.mkdir(mode=0o777)
    os.chown(planned, 65534, 65534)
    with pytest.raises(DtkError, match="is another user's"):
        scratch()
