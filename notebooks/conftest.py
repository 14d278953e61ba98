"""How pytest's nbval compares the lessons: this environment's kernel, quiet runs, what may differ replaced."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def pytest_configure(config: pytest.Config) -> None:
    # Here, and not in a configuration file: `pytest --nbval` and `pytest --nbval notebooks` both come by.
    os.environ["DTK_LIVE"] = "off"  # kernels inherit it: a dashboard's frames are not part of a lesson's output
    if getattr(config.option, "nbval", False) or getattr(config.option, "nbval_lax", False):
        config.option.nbval_current_env = True  # this interpreter, whatever kernel the notebook names
        config.option.nbval_sanitize_with = str(Path(__file__).parent / "nbval_sanitize.cfg")
