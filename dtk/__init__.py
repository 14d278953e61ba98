"""dtk: synchronous data-parallel training with TensorFlow, on real worker processes, from a notebook.

    run = dtk.run(train, workers=2)      # a function from a cell, on a localhost cluster
    baseline = dtk.baseline(train)       # the same function, one process, one device
    dtk.verify(run, baseline)            # proves every step, or says what differs

This file is the table of contents. Names load when they are first used: `import dtk` is quick and starts nothing.
"""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dtk import datasets as datasets
    from dtk import environment as environment
    from dtk import estimator as estimator
    from dtk import faults as faults
    from dtk import model as model
    from dtk import places as places
    from dtk import plot as plot
    from dtk.compat.keras3 import correct_keras as correct_keras
    from dtk.course.ask import ask as ask
    from dtk.course.exercise import check as check
    from dtk.course.kept import answers as answers
    from dtk.course.kept import report as report
    from dtk.environment import is_chief as is_chief
    from dtk.environment import run_dir as run_dir
    from dtk.environment import training_ended as training_ended
    from dtk.errors import ClusterConfigError as ClusterConfigError
    from dtk.errors import DatasetUnavailable as DatasetUnavailable
    from dtk.errors import DtkError as DtkError
    from dtk.errors import NotShippable as NotShippable
    from dtk.errors import RunInterrupted as RunInterrupted
    from dtk.errors import RunTimeout as RunTimeout
    from dtk.errors import VerificationError as VerificationError
    from dtk.errors import WorkerFailed as WorkerFailed
    from dtk.errors import WorkerStalled as WorkerStalled
    from dtk.interactive.clusters import CellFailed as CellFailed
    from dtk.interactive.clusters import Cluster as Cluster
    from dtk.interactive.clusters import cluster as cluster
    from dtk.launch.request import Options as Options
    from dtk.launch.warm import warm as warm
    from dtk.places.export import export as export
    from dtk.proof.diagnose import diagnose as diagnose
    from dtk.proof.verify import verify as verify
    from dtk.runs import Run as Run
    from dtk.runs import baseline as baseline
    from dtk.runs import run as run
    from dtk.scaling.timing import step_parts as step_parts
    from dtk.scaling.timing import step_reductions as step_reductions
    from dtk.studies.shards import shards as shards
    from dtk.studies.study import Study as Study
    from dtk.studies.study import benchmark_allreduce as benchmark_allreduce
    from dtk.studies.study import study as study
    from dtk.worker.hooks import EstimatorRecorder as EstimatorRecorder
    from dtk.worker.hooks import Recorder as Recorder
    from dtk.worker.loop import record_step as record_step
    from dtk.worker.ring import ring as ring

# {name: where it is}; "dtk" for a module. Read from what stands above for type checkers, so that it is said once.
_HOMES: dict[str, str] = {
    name: home
    for home, name in re.findall(r"^    from (\S+) import (\w+) as", Path(__file__).read_text("utf-8"), re.MULTILINE)
}
_MODULES = {name for name, home in _HOMES.items() if home == "dtk"}

__all__ = sorted(_HOMES)
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'dtk' has no attribute {name!r}")
    if name in _MODULES:
        return importlib.import_module(f"dtk.{name}")  # which makes it a name of this module
    value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext dtk`: `%%workers` and `%%worker`, for which `import dtk` in a notebook is enough."""
    importlib.import_module("dtk.interactive").register_magics(shell)


# Also without a cluster, so that the magics can say that there is none.
if "IPython" in sys.modules and (_shell := sys.modules["IPython"].get_ipython()) is not None:
    load_ipython_extension(_shell)
