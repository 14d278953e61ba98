"""What several test files share."""

from __future__ import annotations

import sys
from pathlib import Path

import lanes
import pytest

import dtk

sys.path.insert(0, str(Path(__file__).parent))  # `import fabricate`: helpers that are no tests


def pytest_collection_modifyitems(items):
    """What does not hold with the versions that are installed is skipped, with the reason that `lanes` has for it."""
    for item in items:
        reason = lanes.reason_to_skip(item.path.name, item.name)
        if reason:
            item.add_marker(pytest.mark.skip(reason=f"lane {lanes.LANE}: {reason}"))


@pytest.fixture(params=["warm", "cold"])
def start(request):
    if request.param == "warm" and not dtk.environment.can_fork():
        pytest.skip("workers can't be forked here")
    return request.param
