"""One round of benchmarks/failures.py: a link that is cut, where the engine's own messages go by it as well."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import netns
import pytest
import ray_here
import slurm_here

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.trains, pytest.mark.timeout(600)]


@pytest.mark.parametrize(("on", "module"), [("slurm", slurm_here), ("ray", ray_here)])
def test_a_link_that_is_cut(on, module):
    why = netns.reason_to_skip() or module.reason_to_skip()
    if why:
        pytest.skip(why)
    command = [sys.executable, str(ROOT / "benchmarks" / "failures.py"), "--on", on, "--rounds", "1"]
    env = {name: value for name, value in os.environ.items() if name not in ("RAY_ADDRESS", "SLURM_CONF")}
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [env.get("PYTHONPATH")])])
    done = subprocess.run([*command, "--only", "link cut"], env=env, capture_output=True, text=True, timeout=580)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| link cut | 1 | 1 | 0 | 0 | 0 |" in done.stdout
