"""A limit for each cell of a kernel whose grader has none of its own, or none that a cell could not hold up.

    python -m dtk.classroom.clock SECONDS -- COMMAND ...

runs a command in a box (`dtk.classroom.command`) whose IPython kernels have it: a cell gets a TimeoutError after so
many seconds, and another every two seconds while it goes on, as a grader may try several cases in one cell and catch
the first. One that goes on for 20 s more, in C or because it catches everything, ends its kernel. What a cell prints
beyond a megabyte is thrown away.

A submission can switch this off: then the limit of the whole box holds.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtk.language import _

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["CONNECTION", "load_ipython_extension", "main"]

CONNECTION = "DTK_CLASS_CONNECTION"  # a kernel's connection file, as text
_SECONDS = "DTK_CLASS_SECONDS"
_AGAIN, _MORE = 2.0, 20.0
_MOST_PRINTED = 1 << 20
_PROFILE = """c = get_config()
c.InteractiveShellApp.extensions = ["dtk.classroom.clock"]
c.HistoryManager.enabled = False
"""


def main() -> None:
    """In the box: prepares IPython's profile there, and becomes the command."""
    seconds, command = sys.argv[1], sys.argv[3:]
    home = Path(os.environ["HOME"])
    profile = home / ".ipython" / "profile_default" / "ipython_config.py"
    profile.parent.mkdir(parents=True)
    profile.write_text(_PROFILE)
    if connection := os.environ.pop(CONNECTION, None):
        (home / "kernel.json").write_text(connection)
    os.environ[_SECONDS] = seconds
    os.chdir(home.parent / "work")
    os.execvp(command[0], command)


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Called by IPython, in each kernel."""
    seconds = float(os.environ[_SECONDS])
    printed = [0]
    for stream in (sys.stdout, sys.stderr):
        _shorten(stream, stream.write, printed)

    def begin(_info: Any) -> None:
        printed[0] = 0
        signal.signal(signal.SIGALRM, lambda *_given: _stop(seconds))
        signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN)
        faulthandler.dump_traceback_later(seconds + _MORE, exit=True, file=2)

    def end(_result: Any) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()

    shell.events.register("pre_run_cell", begin)
    shell.events.register("post_run_cell", end)


def _stop(seconds: float) -> None:
    raise TimeoutError(_("stopped after {seconds:g} s", seconds=seconds))


def _shorten(stream: Any, write: Callable[[str], int], printed: list[int]) -> None:
    """Has a stream drop what is printed beyond the limit. printed: characters so far, of all streams of a cell."""

    def shortened(text: str) -> int:
        room = _MOST_PRINTED - printed[0]
        printed[0] += len(text)
        if room > 0:
            write(text[:room])
        return len(text)

    stream.write = shortened


if __name__ == "__main__":
    main()
