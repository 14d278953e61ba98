"""Another user of this machine, and another host, try every port of a run while it lasts."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import programs
import pytest

import dtk

sys.path.insert(0, str(Path(__file__).parents[1]))

from reaching import accepted, held, held_in_cells, own_addresses

pytestmark = [pytest.mark.slow, pytest.mark.trains]
NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


@pytest.fixture(params=["warm", "cold", "isolated"])
def options(request, monkeypatch):
    monkeypatch.setenv("DTK_ISOLATE", str(int(request.param == "isolated")))
    return {"start": "cold" if request.param == "cold" else "auto"}


@pytest.fixture(params=[held, held_in_cells], ids=["a run", "cells"])
def run(request, options):
    with request.param(**options) as listens:
        yield [port for _, port in listens]


def test_another_host_is_refused(network, run):
    for k in (1, 2):
        assert accepted(own_addresses(), run, network.command(k).split()) == []


def test_what_another_user_reaches(network, run, request):
    if shutil.which("setpriv") is None:
        pytest.skip("no setpriv: apt-get install util-linux")
    assert accepted(own_addresses(), run, NOBODY) == []
    there = accepted(["127.0.0.1"], run, NOBODY)
    # Loopback is the whole machine's: only a network of its own keeps its other users out.
    assert len(there) == (0 if "isolated" in request.node.name else 2)


def test_another_user_sends_no_cells():
    if shutil.which("setpriv") is None:
        pytest.skip("no setpriv: apt-get install util-linux")
    with dtk.cluster(workers=1, replicas=2) as cluster:
        (path,) = cluster._session.started.folder.path.glob("socket")
        code = f"import socket; socket.socket(socket.AF_UNIX).connect({str(path)!r})"
        tried = subprocess.run([*NOBODY, sys.executable, "-c", code], capture_output=True, text=True)
        assert tried.returncode
        assert "PermissionError" in tried.stderr
        assert subprocess.run([sys.executable, "-c", code]).returncode == 0, "its own user gets so far"
        assert cluster.run("1 + 1") == [2]


def test_an_isolated_run_is_the_same_training(baseline, monkeypatch):
    monkeypatch.setenv("DTK_ISOLATE", "1")
    dtk.verify(dtk.run(programs.digits), baseline)
