"""What dtk started is known by a mark and by pid and start time; a parent that is gone is replaced in silence."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import psutil
import pytest
from owning import kernel, mine
from waiting import newest_run, wait_for, wait_gone

import dtk
from dtk.cli import main
from dtk.launch import owned, warm

SLEEP = [sys.executable, "-c", "import time; time.sleep(300)"]


@pytest.fixture
def list_here(monkeypatch, tmp_path):
    """Has this process keep its files in tmp_path only."""
    (tmp_path / "scratch").mkdir(mode=0o700)
    monkeypatch.setenv("DTK_SCRATCH", str(tmp_path / "scratch"))
    return tmp_path / "scratch"


@pytest.fixture
def stranger():
    """A process that dtk did not start."""
    with subprocess.Popen(SLEEP) as process:
        yield process
        process.kill()


@pytest.mark.trains
def test_ps_names_what_runs_and_clean_leaves_a_living_kernels_alone(tmp_path, capsys, monkeypatch):
    with kernel(tmp_path) as (process, pids):
        monkeypatch.setenv("DTK_SCRATCH", str(tmp_path / f"dtk-{os.getuid()}"))
        assert main(["ps"]) == 0
        said = capsys.readouterr().out
        for words in ("guard", "parent (cold)", "worker 0 of 0", "worker 1 of 0", "started by"):
            assert words in said
        assert all(f"{pid:>8}  " in said for pid in pids)
        assert str(process.pid) in said
        chosen = [each for each in owned.processes() if each.kernel == process.pid]
        assert not any(each.left for each in chosen)
        assert main(["clean"]) == 0
        assert "more belong to kernels that live; `dtk clean --all` ends them too" in capsys.readouterr().out
        assert mine(process.pid) == pids
        # What `dtk clean --all` does, to this kernel only: others may be at work beside this test.
        assert owned.end(chosen) == []
        assert wait_gone(pids) == []
        assert process.wait(60) == 1, "the run failed, and its kernel says so"


def left_behind(process):
    """Kills kernel, guard and parent in one moment: nobody is there to end what the workers started."""
    chosen = [each for each in owned.processes() if each.kernel == process.pid]
    above = [each for each in chosen if each.what.startswith(("guard", "parent"))]
    for pid in [process.pid, *(each.pid for each in above)]:
        os.kill(pid, signal.SIGSTOP)
    for pid in [process.pid, *(each.pid for each in above)]:
        os.kill(pid, signal.SIGKILL)
    return [each.pid for each in chosen]


@pytest.mark.trains
def test_clean_ends_what_outlived_its_kernel_and_nothing_else(tmp_path, list_here, stranger, capsys):
    with kernel(tmp_path) as (process, _):
        pids = left_behind(process)
        process.wait()
        wait_for(lambda: len(mine(process.pid)) < len(pids))  # the workers go with their parent
        assert mine(process.pid), "the learner's own processes have outlived all"
        assert main(["clean"]) == 0
        assert "ended " in capsys.readouterr().out
        assert wait_gone(pids) == []
    assert stranger.poll() is None


def test_what_is_marked_is_listed_with_its_kernel_and_ended(list_here, stranger):
    assert stranger.pid not in [each.pid for each in owned.processes()]
    mark = owned.new_mark()
    with subprocess.Popen(SLEEP, env={**os.environ, owned.MARK: mark}) as process:
        wait_for(lambda: psutil.Process(process.pid).cmdline()[:1] == SLEEP[:1])
        (found,) = owned.processes(mark.split(":")[0])
        assert (found.pid, found.run, found.kernel, found.left) == (process.pid, "", os.getpid(), False)
        assert 0 <= found.seconds < 3600
        assert found.megabytes > 1
        owned.sweep(mark)
        assert process.wait(10) == -signal.SIGKILL
        assert owned.end([found]) == [], "whoever has its pid by now is somebody else"
    assert stranger.poll() is None


def test_pids_of_another_machine_or_container_mean_nothing(list_here, monkeypatch):
    parts = owned.new_mark().split(":")
    marks = [":".join([*parts[:3], "other"]), ":".join(parts)]
    for mark, seen in zip(marks, (False, True), strict=True):
        with subprocess.Popen(SLEEP, env={**os.environ, owned.MARK: mark}) as process:
            wait_for(lambda pid=process.pid: psutil.Process(pid).cmdline()[:1] == SLEEP[:1])
            assert (process.pid in mine(os.getpid())) is seen
            process.kill()


def test_logs_and_folders_of_processes_that_are_gone_are_removed(list_here):
    logs = [list_here / f"parent-{pid}-1.log" for pid in (os.getpid(), 1 << 30)]
    folders = [owned.own_folder(), owned.own_folder().with_name(f"{owned.machine()}-{os.getpid()}-0")]
    for log, folder in zip(logs, folders, strict=True):
        log.touch()
        folder.mkdir(exist_ok=True)
    owned.tidy()
    assert [log.exists() for log in logs] == [True, False]
    assert [folder.exists() for folder in folders] == [True, False]


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
    parent.replace(parent.mark)  # with that limit
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
        parent.replace(parent.mark)
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
