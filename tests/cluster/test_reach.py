"""Another user of this machine, and another host, try every port of a run while it lasts."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import programs
import pytest

import dtk

sys.path.insert(0, str(Path(__file__).parents[1]))

from reaching import accepted, held, own_addresses

pytestmark = [pytest.mark.slow, pytest.mark.trains]
NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


@pytest.fixture(params=[{}, {"start": "cold"}, {"isolate": True}], ids=["warm", "cold", "isolated"])
def run(request):
    with held(**request.param) as listens:
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


def test_an_isolated_run_is_the_same_training(baseline):
    dtk.verify(dtk.run(programs.digits, isolate=True), baseline)
    dtk.verify(dtk.run(programs.digits), dtk.baseline(programs.digits, isolate=True))
