"""What several test files share."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import lanes
import pytest

import dtk

sys.path.insert(0, str(Path(__file__).parent))  # `import fabricate`: helpers that are no tests
sys.path.insert(0, str(Path(__file__).parent.parent / "tools"))  # `import lint_notebooks`


# About a third of all the time that the tests take. They run by `make test-thorough`, and where a file is named.
THOROUGH = {
    "test_colab_lessons.py",  # all lessons, as Colab runs them; `make test-colab` names it
    "test_exercises.py",  # trains for the lessons' exercises what the lessons themselves train
    "test_hostile.py",  # full disks, no ports, no descriptors: real processes each, warm and cold
    "test_mistakes.py",  # 43 mistakes trained for real; test_diagnose*.py has them in made-up numbers
    "test_owning_ends.py",  # Jupyter servers and kernels, started and killed
    "test_owning_load.py",  # many runs, much output, several kernels
}


def pytest_configure(config):
    # Among the runs of nobody else: tests look for the newest run, and for what is left of it.
    place = tempfile.TemporaryDirectory(prefix="dtk-tests-", ignore_cleanup_errors=True)
    os.environ["TMPDIR"] = tempfile.tempdir = place.name
    config.add_cleanup(place.cleanup)


def pytest_collection_modifyitems(config, items):
    """What does not hold with the versions that are installed is skipped, with the reason that `lanes` has for it."""
    for item in items:
        reason = lanes.reason_to_skip(item.path.name, item.name)
        if reason:
            item.add_marker(pytest.mark.skip(reason=f"lane {lanes.LANE}: {reason}"))
        named = any(item.path.name in argument for argument in config.args)
        if item.path.name in THOROUGH and not named and not os.environ.get("DTK_THOROUGH"):
            item.add_marker(pytest.mark.skip(reason="make test-thorough runs it"))


@pytest.fixture(params=["warm", "cold"])
def start(request):
    if request.param == "warm" and not dtk.environment.can_fork():
        pytest.skip("workers can't be forked here")
    return request.param
