"""Real worker processes, functions without TensorFlow: launching, output, failures, ends. Warm and cold alike."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

import dtk
from dtk.records import Record

ROOT = Path(__file__).parent.parent


@pytest.fixture(params=["warm", "cold"])
def start(request):
    if request.param == "warm" and not dtk.environment.can_fork():
        pytest.skip("workers can't be forked here")
    return request.param


def wait_gone(pids, seconds=3.0):
    """The pids that still run after `seconds` (zombies don't run)."""
    deadline = time.monotonic() + seconds
    while True:
        left = []
        for pid in pids:
            try:
                if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                    left.append(pid)
            except psutil.NoSuchProcess:
                pass
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.02)


def place():
    config = json.loads(os.environ["TF_CONFIG"])
    return config["task"], config["cluster"], os.getcwd(), dtk.is_chief(), str(dtk.run_dir())


def test_each_worker_knows_its_place(start, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = dtk.run(place, workers=3, start=start)
    assert [result[0]["index"] for result in run.results] == [0, 1, 2]
    assert len({json.dumps(result[1]) for result in run.results}) == 1, "one cluster, the same for all"
    assert [result[1]["worker"] for result in run.results] == [run.tf_config[0]["cluster"]["worker"]] * 3
    assert {result[2] for result in run.results} == {str(tmp_path)}
    assert [result[3] for result in run.results] == [True, False, False]
    assert {result[4] for result in run.results} == {str(run.dir)}
    assert run.dir.stat().st_mode & 0o777 == 0o700


def lone():
    return "TF_CONFIG" in os.environ, dtk.is_chief()


def test_a_baseline_has_no_tf_config(start):
    run = dtk.baseline(lone, start=start)
    assert (run.mode, run.workers, run.results) == ("single", 1, [(False, True)])


def draws():
    import numpy

    return random.random(), float(numpy.random.rand())


def test_every_process_is_seeded_alike(start):
    cluster, again, other = (dtk.run(draws, start=start, seed=seed).results for seed in (1, 1, 2))
    assert cluster == again
    assert cluster[0] == cluster[1]
    assert cluster != other
    assert dtk.baseline(draws, seed=1, start=start).results == cluster[:1]


def variables():
    return {k: v for k, v in os.environ.items() if "proxy" in k.lower() or k.endswith("_THREADS")}


def test_proxies_stay_behind_and_cores_are_shared(start, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    seen = dtk.run(variables, start=start).results[0]
    assert not [name for name in seen if "proxy" in name.lower()]
    share = str(max(1, dtk.environment.cores() // 2))
    assert seen["TF_NUM_INTRAOP_THREADS"] == seen["TF_NUM_INTEROP_THREADS"] == seen["OMP_NUM_THREADS"] == share


def temporary():
    import tempfile

    return tempfile.gettempdir()


def test_temporary_files_stay_in_the_runs_directory(start):
    run = dtk.run(temporary, start=start)
    assert run.results == [str(worker.path / "tmp") for worker in run.folder.each]


def speak():
    print("from Python")
    os.write(1, b"from C, to fd 1\n")
    os.write(2, b"from C, to fd 2\n")
    print("no newline at the end", end="")


def test_all_output_reaches_the_log(start):
    for log in dtk.run(speak, start=start).logs:
        assert log.splitlines() == ["from Python", "from C, to fd 1", "from C, to fd 2", "no newline at the end"]


def flood():
    line = "x" * 99 + "\n"
    for _ in range(100_000):
        os.write(1, line.encode())


def test_a_flood_blocks_nobody_and_is_kept_whole(start):
    run = dtk.run(flood, start=start)
    assert [(worker.path / "log.txt").stat().st_size for worker in run.folder.each] == [10_000_000] * 2


def module_call():
    import beside

    return beside.answer()


def test_modules_beside_the_notebook_come_along(start, tmp_path, monkeypatch):
    (tmp_path / "beside.py").write_text("def answer():\n    return 42\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    assert dtk.run(module_call, start=start).results == [42, 42]


def test_closures_and_lambdas_travel(start):
    factor = 3
    assert dtk.run(lambda x: factor * x, args=(5,), start=start).results == [15, 15]


# ---- failures ------------------------------------------------------------------------------------------------


def write_then(end):
    """Leaves a record and a line on every worker, then ends worker 1 as told."""
    place = dtk.environment.here()
    place.journal.record([Record(place.worker, place.worker, 1, 1, 0.5, 64, place.now(), place.now())])
    print("a last line")
    if not dtk.is_chief():
        end()
    time.sleep(60)


def raise_it():
    raise ValueError("bad label 7")


def exit_it():
    sys.exit(3)


def exit_zero():
    sys.exit(0)


def os_exit():
    os._exit(0)


def segfault():
    os.kill(os.getpid(), signal.SIGSEGV)


def kill_it():
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    ("end", "code", "words"),
    [
        (raise_it, 1, "worker 1 raised ValueError: bad label 7"),
        (exit_it, 3, "worker 1 called sys.exit(3) before its function returned"),
        (exit_zero, 0, "worker 1 called sys.exit(0) before its function returned"),
        (os_exit, 0, "worker 1 ended itself with exit code 0 before its function returned (os._exit?)"),
        (segfault, -11, "worker 1 crashed with SIGSEGV; the last Python lines before it are in its log"),
        (kill_it, -9, "worker 1 was killed by SIGKILL; the kernel's log or the memory limit may say why"),
    ],
)
def test_the_culprit_is_named_and_nothing_is_lost(start, end, code, words):
    with pytest.raises(dtk.WorkerFailed) as caught:
        dtk.run(write_then, args=(end,), start=start)
    error = caught.value
    assert (str(error), error.worker, error.exitcode) == (words, 1, code)
    assert all("a last line" in log for log in error.logs)
    assert list(error.records.worker) == [0, 1]
    if end is raise_it:
        assert "raise ValueError" in error.traceback
        assert "dtk/cluster" not in error.traceback, "the learner's lines, not dtk's"
    if end is segfault:
        assert "segfault" in error.logs[1], "faulthandler shows the function's name"


def wrong_everywhere():
    if not dtk.is_chief():
        raise KeyError("missing")
    time.sleep(0.1)
    raise KeyError("missing")


def test_the_same_mistake_everywhere_is_named_by_the_lowest_worker(start):
    with pytest.raises(dtk.WorkerFailed, match="^worker 0 raised KeyError: 'missing'$") as caught:
        dtk.run(wrong_everywhere, start=start)
    assert "Worker 1 raised KeyError: 'missing'  (the same" in caught.value.detail


class Unpicklable:
    def __init__(self):
        self.lock = threading.Lock()


def returns_unpicklable():
    return Unpicklable()


def test_a_result_that_cannot_be_pickled_says_so(start):
    with pytest.raises(dtk.WorkerFailed, match="returned a Unpicklable that can't be pickled"):
        dtk.run(returns_unpicklable, start=start)


def coroutine_maker():
    async def later():
        return 1

    return later()


def message_with_a_path_and_port():
    raise OSError("connect to 127.0.0.1:41234 from /very/long/path/file.txt failed at 0x7f00deadbeef")


def test_the_message_is_stable(start):
    with pytest.raises(dtk.WorkerFailed) as caught:
        dtk.run(message_with_a_path_and_port, workers=1, start=start)
    said = "worker 0 raised OSError: connect to 127.0.0.1:PORT from .../file.txt failed at 0x..."
    assert str(caught.value) == said
    assert "41234" in caught.value.traceback


# ---- ends ----------------------------------------------------------------------------------------------------


def deaf():
    """Sleeps through SIGINT and SIGTERM, as a worker inside a collective does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    (dtk.run_dir() / f"pids-{os.getpid()}").write_text(str(child.pid))
    time.sleep(60)


def pids_in(folder):
    files = list(Path(folder).glob("pids-*"))
    return [int(f.name.split("-")[1]) for f in files if f.read_text()] + [int(f.read_text()) for f in files if f.read_text()]


def wait_for(condition, seconds=20.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def newest_run():
    from dtk.environment import scratch

    return max((scratch() / "runs").iterdir(), key=lambda path: path.stat().st_mtime)


def test_an_interrupt_stops_the_workers(start):
    before = newest_run() if dtk.run(lone_pid, start=start) else None
    seen = {}

    def interrupt():
        wait_for(lambda: newest_run() != before and len(pids_in(newest_run())) == 4)
        seen["pids"] = pids_in(newest_run())
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        dtk.run(deaf, start=start)
    thread.join()
    assert wait_gone(seen["pids"]) == [], "grandchildren too"
    assert len(dtk.run(lone_pid, start=start).results) == 2, "the next run works"


def lone_pid():
    return os.getpid()


def test_a_timeout_shows_where_everybody_is(start):
    with pytest.raises(dtk.RunTimeout, match="timeout of 1 s; states: worker 0 running, worker 1 running") as caught:
        dtk.run(deaf, timeout=1, start=start)
    assert caught.value.detail.count("in deaf") == 2


def test_a_stall_is_reported_with_stacks(start):
    with pytest.raises(dtk.WorkerStalled, match="no worker made progress for 1 s") as caught:
        dtk.run(deaf, stall_timeout=1, start=start)
    assert caught.value.detail.count("in deaf") == 2


def busy():
    end = time.monotonic() + 2.5
    while time.monotonic() < end:
        sum(range(1000))
    return "done"


def test_silent_work_is_no_stall(start):
    assert dtk.run(busy, workers=1, stall_timeout=1.2, start=start).results == ["done"]


KERNEL = """
import sys, os
sys.path[:0] = {path!r}
import dtk, test_run
print(os.getpid(), flush=True)
test_run.dtk.run(test_run.deaf, start={start!r})
"""


def test_no_process_outlives_a_killed_kernel(start, tmp_path):
    code = KERNEL.format(path=[str(ROOT), str(ROOT / "tests")], start=start)
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    runs = tmp_path / f"dtk-{os.getuid()}" / "runs"
    with subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.DEVNULL) as kernel:
        wait_for(lambda: kernel.poll() is not None or runs.exists() and any(len(pids_in(d)) == 4 for d in runs.iterdir()), 60)
        family = [p.pid for p in psutil.Process(kernel.pid).children(recursive=True)]
        kernel.kill()
    assert len(family) >= 5, "the parent, two workers, two grandchildren"
    assert wait_gone(family) == []


def test_a_killed_parent_takes_its_workers_along_and_is_replaced(start):
    from dtk.cluster import warm

    dtk.run(lone_pid, start=start)
    parent = warm.parent(start == "warm")
    before = newest_run()
    seen = {}

    def kill_parent():
        wait_for(lambda: newest_run() != before and len(pids_in(newest_run())) == 4)
        seen["pids"] = pids_in(newest_run())
        os.kill(parent.pid, signal.SIGKILL)

    thread = threading.Thread(target=kill_parent)
    thread.start()
    with pytest.raises(dtk.WorkerFailed, match="killed by SIGKILL"):
        dtk.run(deaf, start=start)
    thread.join()
    workers = [pid for pid in seen["pids"] if pid != 0][:2]
    assert wait_gone(workers) == []
    for pid in wait_gone(seen["pids"], 0):  # the learner's own grandchildren have no one left to end them
        os.kill(pid, signal.SIGKILL)
    assert len(dtk.run(lone_pid, start=start).results) == 2


def open_things():
    process = psutil.Process()
    return process.num_fds(), len(process.children(recursive=True)), len(process.net_connections())


def test_twenty_runs_leave_nothing_behind(start):
    dtk.run(lone_pid, start=start)
    first = open_things()
    for _ in range(20):
        dtk.run(lone_pid, start=start)
    assert open_things() == first


def test_old_run_directories_make_room(start, monkeypatch):
    from dtk.cluster import launch

    monkeypatch.setattr(launch, "KEPT_RUNS", 3)
    runs = [dtk.run(lone_pid, workers=1, start=start) for _ in range(5)]
    assert [run.dir.exists() for run in runs] == [False, True, True, True, True]
