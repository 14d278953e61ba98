"""What several test files share."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import dtk

sys.path.insert(0, str(Path(__file__).parent))  # `import fabricate`: helpers that are no tests


@pytest.fixture(params=["warm", "cold"])
def start(request):
    if request.param == "warm" and not dtk.environment.can_fork():
        pytest.skip("workers can't be forked here")
    return request.param
