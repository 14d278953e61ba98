"""A cluster that stays: `%%workers`, by `dtk.cluster`.

In the kernel: `clusters` is its public face and words what comes back, `processes` starts, connects and replaces
processes, `session` sends, waits and shows, `repair` makes a cluster usable again.
In each worker: `worker_loop` runs the learner's cells, one after another, by `shell`, and does what else is asked for.
In both: `barrier` comes before each collective, and finds who waits for whom; `inspection` reads what the namespaces
hold. Here is what is called before any of these is loaded: the magics, in a notebook, and a worker's entry.
"""

from __future__ import annotations

from functools import partial
from typing import Any

DISPLAYED = "<display {number}>"  # stands in a worker's log for what `display-{number}.json` beside it holds


def register_magics(shell: Any) -> None:
    """Adds `%%workers` and `%%worker 1` to IPython: a notebook's cell for the workers of the cluster that is open."""
    for name in ("workers", "worker"):
        shell.register_magic_function(partial(_run_magic, f"%%{name}"), "cell", name)


def _run_magic(magic: str, line: str, cell: str) -> None:
    from dtk.interactive import clusters

    clusters.run_magic(magic, line, cell)


def serve(idle: float) -> None:
    """The function of a worker that stays, as another one has the learner's. idle: seconds without a cell, at most."""
    from dtk import environment
    from dtk.interactive.worker_loop import WorkerLoop

    place = environment.here()
    assert place is not None, "a worker has its place before its function is called"
    WorkerLoop(place).run(idle)
