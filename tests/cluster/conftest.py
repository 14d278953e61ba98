"""Machines of several kinds, made on this one; each is skipped with its reason where it can't be."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import netns
import programs
import slurm_here

import dtk
from dtk.environment import scratch


@pytest.fixture(scope="session")
def network():
    """Two hosts with addresses of their own."""
    why = netns.reason_to_skip()
    if why:
        pytest.skip(why)
    with netns.Network(2) as found:
        yield found


@pytest.fixture(scope="session")
def slurm(tmp_path_factory):
    """A Slurm cluster of two nodes."""
    why = slurm_here.reason_to_skip()
    if why:
        pytest.skip(why)
    with slurm_here.Slurm(tmp_path_factory.mktemp("slurm")) as found:
        yield found


@pytest.fixture(scope="session")
def baseline():
    """What each place is compared with."""
    return dtk.baseline(programs.digits)


@pytest.fixture
def nothing_left():
    """No file of a run is left behind on any host."""
    yield
    left = list((scratch() / "away").glob("*/*"))
    assert not left
