"""Machines of several kinds, made on this one; each is skipped with its reason where it can't be."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import netns
import programs
import ray_here
import slurm_here

import dtk
from dtk.environment import scratch


def engine(name, module, make):
    """A fixture: what `make` makes in a folder of its own, or the module's reason why it can't be had."""

    @pytest.fixture(scope="session", name=name)
    def found(tmp_path_factory):
        why = module.reason_to_skip()
        if why:
            pytest.skip(why)
        with make(tmp_path_factory.mktemp(name)) as it:
            yield it

    return found


network = engine("network", netns, lambda folder: netns.Network(2))  # two hosts with addresses of their own
slurm = engine("slurm", slurm_here, slurm_here.Slurm)  # two nodes
ray = engine("ray", ray_here, lambda folder: ray_here.Ray(folder, 4))  # four nodes with a core each


@pytest.fixture(scope="session")
def baseline():
    """What each place is compared with."""
    return dtk.baseline(programs.digits)


@pytest.fixture
def nothing_left(request):
    """No file of a run is left behind on any host."""
    yield
    left = list((scratch() / "away").glob("*/*"))
    if "network" in request.fixturenames:
        hosts = request.getfixturevalue("network")
        left += [file for k in hosts.holders for file in hosts.files(k) if file.startswith("away/")]
    assert not left
