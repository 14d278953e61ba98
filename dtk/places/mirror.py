"""A run's directory here and on another machine: what goes there before a start, and what comes back."""

from __future__ import annotations

import base64
from pathlib import Path

from dtk.launch.agent import MODULES
from dtk.launch.news import write
from dtk.worker import local_modules as beside

__all__ = ["files", "known", "write"]

_SENT = ("function.pkl", "sources.json", "evaluator.pkl", "faults.json")


def files(run: Path) -> dict[str, str]:
    """What workers need to begin, in base64 by name; with the modules beside the notebook."""
    found = {name: (run / name).read_bytes() for name in _SENT if (run / name).exists()}
    pickles = [data for name, data in found.items() if name.endswith(".pkl")]
    found |= {f"{MODULES}/{name}": source for name, source in beside.modules(beside.named(*pickles)).items()}
    return {name: base64.b64encode(data).decode() for name, data in found.items()}


def known(run: Path) -> list[str]:
    """Names at the top of the run's directory that need not come back."""
    return sorted({path.name for path in run.iterdir()} | {*_SENT, MODULES, ".dataset", ".shared"})
