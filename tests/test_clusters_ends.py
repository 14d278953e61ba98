"""However the kernel of a cluster that stays ends, nothing of it is left; a cluster that nobody uses ends by itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import started_by, wait_for, wait_gone, workers_of

pytestmark = [pytest.mark.trains, pytest.mark.slow]

ROOT = Path(__file__).parent.parent
KERNEL = """
import sys
sys.path[:0] = [{root!r}]
import dtk
cluster = dtk.cluster(workers=2)
cluster.cell("import time, tensorflow as tf; me = strategy.cluster_resolver.task_id")
cluster.cell("import subprocess; subprocess.Popen(['sleep', '300'], start_new_session=True)")
print("ready", flush=True)
try:
    {then}
finally:
    print("through", flush=True)
    time.sleep(300)
"""
REDUCE = "strategy.reduce(str('sum'), tf.constant(1.0), axis=None)"
STATES = {
    "idle": "import time; time.sleep(300)",
    "in Python": 'cluster.cell("time.sleep(300)")',
    "waits": f'cluster.cell("if me: time.sleep(300)\\n{REDUCE}")',
    "held": f'cluster.pause(); cluster.cell("{REDUCE}"); import time; time.sleep(300)',
}


def begun(then, **env):
    code = KERNEL.format(root=str(ROOT), then=then)
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env={**os.environ, **env})


@pytest.mark.parametrize("state", STATES)
def test_nothing_is_left_of_a_kernel_that_is_killed(state):
    with begun(STATES[state]) as kernel:
        assert any("ready" in line for line in kernel.stdout)
        pids = started_by(kernel.pid)
        assert len(pids) >= 6  # guard, parent, two workers, a child of each
        kernel.send_signal(signal.SIGKILL)
        kernel.wait(10)
        assert wait_gone(pids) == []


def test_a_cluster_that_nobody_uses_ends():
    then = "import time; time.sleep(6); cluster = dtk.cluster(workers=1, replicas=2); print('another', flush=True)"
    with begun(then, DTK_WARM_IDLE="3") as kernel:
        assert any("ready" in line for line in kernel.stdout)
        workers = workers_of(kernel.pid)
        assert len(workers) == 4  # and a child of each
        wait_for(lambda: not wait_gone(workers, 0.1), 20)
        assert any("another" in line for line in kernel.stdout)
        kernel.kill()
