"""However a kernel ends, nothing of its run is left 3 s later: killed, restarted, shut down, its terminal closed."""

from __future__ import annotations

import os
import pty
import signal
import tempfile
import uuid

import psutil
import pytest
from owning import kernel
from waiting import wait_gone

import dtk

import kernel_kills  # isort: skip  (benchmarks/, which `owning` puts on the path)

pytestmark = pytest.mark.filterwarnings("ignore:.*TCP without encryption.*")


@pytest.mark.parametrize(
    ("phase", "way"), [("importing", "warm"), ("starting", "cold"), ("collective", "warm"), ("ending", "cold")]
)
def test_nothing_is_left_of_a_killed_kernel(phase, way):
    if way == "warm" and not dtk.environment.can_fork():
        pytest.skip("workers can't be forked here")
    outcome = kernel_kills.trial(phase, way)
    assert outcome.before >= (1 if phase == "importing" else 9), "guard, parent, two workers, their children"
    assert outcome.left == 0


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
