"""How the workers of a test start: `start`, of conftest.py, is both ways, and this is for what both share."""

from __future__ import annotations

import pytest

# What comes after the start is the same: a new process for each worker proves it once more, in `make test-thorough`.
mostly_warm = pytest.mark.parametrize("start", ["warm", pytest.param("cold", marks=pytest.mark.slow)], indirect=True)


def nightly(*given):
    """Parameters of cases that have their like among the others, for `make test-thorough`."""
    return [pytest.param(*each, marks=pytest.mark.slow) for each in given]
