"""A plugin of coverage.py's: a worker writes down which lines it ran before it waits for the end of its run.

That end is SIGKILL, which leaves no time to write anything. What a worker ran that was killed before, in a stall or
after another worker's failure, is not counted. To see which lines of dtk/ the tests run (for a part, name files in
place of `--nbval tests dtk notebooks`):

    rm -rf out/coverage && mkdir -p out/coverage
    PYTHONPATH=$PWD/tools .venv/bin/python -m coverage run -m pytest --nbval tests dtk notebooks
    PYTHONPATH=tools .venv/bin/python -m coverage combine --quiet
    PYTHONPATH=tools .venv/bin/python -m coverage report
"""

from __future__ import annotations

import signal

import coverage
from coverage.plugin_support import Plugins
from coverage.types import TConfigurable


def coverage_init(registry: Plugins, options: TConfigurable) -> None:
    """Called by coverage.py in each process that it measures; forked workers inherit what it does."""
    pause = signal.pause

    def save_and_pause() -> None:
        measured = coverage.Coverage.current()
        if measured is not None:
            measured.save()
        pause()

    signal.pause = save_and_pause
