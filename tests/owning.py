"""Runs in kernels of their own, for tests of what is left of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

from waiting import started_by, wait_for, wait_gone

import dtk

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))

CHILDREN = (
    "import time; time.sleep(300)",
    "import os, time; os.setsid(); time.sleep(300)",
    "import os, time; os.setsid()\nif os.fork() == 0: time.sleep(300)",
)


def stay_with_children():
    """Three children of a worker that is deaf: of its group, in a session of its own, and left by its own parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    *stays, leaves = CHILDREN
    for code in stays:
        subprocess.Popen([sys.executable, "-c", code])
    subprocess.run([sys.executable, "-c", leaves], check=True)
    (dtk.run_dir() / f"here-{os.getpid()}").touch()
    time.sleep(300)


KERNEL = """
import sys
sys.path[:0] = {path!r}
import dtk, owning
dtk.run(owning.stay_with_children, start={start!r})
"""


@contextmanager
def kernel(tmp_path, start="cold", **options):
    """A process with a run of two workers that stay, and the pids of all that it started."""
    code = KERNEL.format(path=[str(ROOT), str(ROOT / "tests")], start=start)
    env = {**os.environ, "TMPDIR": str(tmp_path), "DTK_LIVE": "off"}
    pids: list[int] = []
    said = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, **options}
    with subprocess.Popen([sys.executable, "-c", code], env=env, **said) as process:
        try:
            wait_for(lambda: len(list(tmp_path.glob("*/runs/*/here-*"))) == 2)
            # A guard, a parent, two workers with three each; a cold parent has multiprocessing's tracker beside it.
            wait_for(lambda: len(started_by(process.pid)) >= 10)
            pids = started_by(process.pid)
            yield process, pids
        finally:
            process.kill()
    assert wait_gone(pids) == []
