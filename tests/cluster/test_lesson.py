"""The first lesson's network on MNIST, untouched on each place: what this machine trains, to 1e-4."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from lessons import cells_of

import dtk

pytestmark = [pytest.mark.slow, pytest.mark.trains, pytest.mark.timeout(900)]
PLACES = {
    "network": lambda hosts, folder: dtk.places.Hosts(hosts.commands, python=sys.executable),
    "slurm": lambda _, folder: dtk.places.Slurm(partition="short", storage=str(folder)),
    "ray": lambda _, folder: dtk.places.Ray(),
}


@pytest.fixture(scope="module")
def train():
    """As its cell has it, but for the data: the lesson reads the digits that come with dtk."""
    if not Path(os.environ.get("TFDS_DATA_DIR", ""), "mnist").exists():
        pytest.skip("no MNIST in TFDS_DATA_DIR")
    cell = next(cell.source for cell in cells_of("00_start_here") if cell.source.startswith("def train(strategy"))
    space = {"__name__": "lesson", "dtk": dtk}
    exec(cell.replace(', source="embedded"', ""), space)
    return space["train"]


@pytest.fixture(scope="module")
def here(train):
    """(baseline, two workers on this machine)"""
    return dtk.baseline(train), dtk.run(train, workers=2)


@pytest.mark.parametrize("name", PLACES)
def test_the_lesson_s_network_on_each_place(request, name, train, here, tmp_path):
    place = PLACES[name](request.getfixturevalue(name), tmp_path)
    baseline, local = here
    run = dtk.run(train, workers=2, on=place, timeout=300)
    place.close()
    dtk.verify(run, baseline, rtol=1e-4, atol=1e-4)
    assert (run.dir / "function.pkl").read_bytes() == (local.dir / "function.pkl").read_bytes()
    assert run.records.examples.sum() == 40 * 128, "MNIST, and no less of it"
    assert run.results[0] == pytest.approx(local.results[0], abs=1e-3)
