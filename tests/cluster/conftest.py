"""Machines of several kinds, made on this one; each is skipped with its reason where it can't be."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import netns


@pytest.fixture(scope="session")
def network():
    """Two hosts with addresses of their own."""
    why = netns.reason_to_skip()
    if why:
        pytest.skip(why)
    with netns.Network(2) as found:
        yield found
