"""However a kernel ends, nothing of its run is left 3 s later: killed, restarted, shut down, its terminal closed."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
import uuid
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from owning import kernel
from waiting import wait_for, wait_gone

import kernel_kills  # isort: skip  (benchmarks/, which `owning` puts on the path)

# Jupyter servers and kernels, started and killed
pytestmark = [pytest.mark.filterwarnings("ignore:.*TCP without encryption.*"), pytest.mark.slow]


@pytest.mark.parametrize("how", ["restart", "restart in good order", "shut down"])
def test_nothing_is_left_of_a_kernel_that_jupyter_ends(how):
    """Jupyter's own ways, in the middle of a cell; JupyterLab shuts its kernels down by the same calls."""
    mark = uuid.uuid4().hex
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        with kernel_kills.kernel(mark, place) as (manager, client):
            kernel_kills.begin(client, "starting", "cold", place)
            pid = manager.provisioner.pid
            family = {child.pid for child in psutil.Process(pid).children(recursive=True)}
            family |= kernel_kills.carriers(mark) - {pid}
            if how == "shut down":
                manager.shutdown_kernel(now=False)
            else:
                manager.restart_kernel(now=how == "restart")
            left = wait_gone(family)
        assert len(family) >= 9
        assert left == []


def answers(opener, url):
    try:
        with opener.open(url + "api", timeout=10):
            return True
    except urllib.error.URLError:
        return False


@contextmanager
def jupyterlab(mark, place):
    """A JupyterLab of its own without a browser, and a client of a kernel that it started."""
    from jupyter_client.blocking import BlockingKernelClient

    path = os.pathsep.join([str(kernel_kills.ROOT), str(kernel_kills.ROOT / "benchmarks")])
    names = ("TMPDIR", "HOME", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", kernel_kills.PLACE)
    env = {**os.environ, **dict.fromkeys(names, place), kernel_kills.TRIAL: mark, "PYTHONPATH": path, "DTK_LIVE": "off"}
    line = [sys.executable, "-m", "jupyter", "lab", "--no-browser", "--allow-root", "--ServerApp.port=0"]
    files = Path(place)
    with subprocess.Popen(line, env=env, cwd=place, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            wait_for(lambda: list(files.glob("jpserver-*.json")) or server.poll() is not None, 120)
            said = json.loads(next(files.glob("jpserver-*.json")).read_text())
            ask = urllib.request.Request(
                said["url"] + "api/kernels", b"{}", {"Authorization": f"token {said['token']}"}
            )
            direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            wait_for(lambda: answers(direct, said["url"]), 60)  # it writes down its port before it listens there
            with direct.open(ask, timeout=120) as answer:
                own = files / f"kernel-{json.load(answer)['id']}.json"
            wait_for(own.exists)
            client = BlockingKernelClient(connection_file=str(own))
            client.load_connection_file()
            client.start_channels()
            client.wait_for_ready(timeout=120)
            yield server, client
            client.stop_channels()
        finally:
            server.kill()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_of_jupyterlab(how):
    """Shut down while a cell runs, and killed: then nobody ends the kernel, and its own look for the server does."""
    pytest.importorskip("jupyterlab")
    mark = uuid.uuid4().hex
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        with jupyterlab(mark, place) as (server, client):
            kernel_kills.begin(client, "starting", "cold", place)
            family = kernel_kills.carriers(mark)
            (kernel_pid,) = [child.pid for child in psutil.Process(server.pid).children()]
            server.send_signal(how)
            # A kernel takes its time to end, after the server or with it; the 3 s begin with its end.
            assert wait_gone([server.pid, kernel_pid], 60) == []
            left = wait_gone(family)
        assert len(family) >= 9
        assert left == []


def test_nothing_is_left_when_the_terminal_is_closed(tmp_path):
    ours, theirs = pty.openpty()

    def take_terminal():
        os.setsid()
        import fcntl
        import termios

        fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)

    said = dict.fromkeys(("stdin", "stdout", "stderr"), theirs)
    with kernel(tmp_path, preexec_fn=take_terminal, **said) as (process, pids):
        os.close(theirs)
        os.close(ours)  # as a terminal's window does: the kernel gets SIGHUP
        assert process.wait(10) == -signal.SIGHUP
        assert wait_gone(pids) == []
