"""Some of the trials of benchmarks/culprits.py and benchmarks/interrupts.py, which say how soon, too."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest
from starting import nightly

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))

import culprits
import interrupts

pytestmark = pytest.mark.trains

COLLECTIVE, CALLBACK, END = 12, 18, 24  # the first trial of each place
QUICK = [COLLECTIVE, COLLECTIVE + 3, CALLBACK + 30]  # an exception, killed, out of memory
MORE = [*(COLLECTIVE + way for way in (1, 2, 4, 5)), END + 3, END + 34]
NEW_PARENT = nightly([0])  # every parent of this process ends, and is started again


@pytest.mark.parametrize("number", [*QUICK, *nightly(*([number] for number in MORE))])
def test_the_culprit_is_named_and_never_its_peer(number):
    _how, _where, right, seconds, said = culprits.trial(number)
    assert right, (said, seconds)


@pytest.mark.parametrize("number", [*NEW_PARENT, 1, 2, 3])
def test_the_cell_is_back_after_an_interrupt(number):
    kind, at, seconds, left = interrupts.interrupt(number, random.Random(number))
    assert left == 0, (kind, at, seconds)
