"""One worker's IPython: runs a cell, and writes what it displays into files beside its log.

A baseline runs all cells of a session so, in one process.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import wrapt
from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.history import HistoryManager
from IPython.core.interactiveshell import InteractiveShell

from dtk import environment
from dtk.compat import causes
from dtk.compat.marks import TAKE
from dtk.errors import DtkError
from dtk.interactive import DISPLAYED
from dtk.interactive.barrier import Files, Stopped
from dtk.language import N_, _
from dtk.records import write_whole
from dtk.worker.worker import flush

_INLINE = "module://matplotlib_inline.backend_inline"  # figures go the way of `display`


def _nothing(*args: Any, **kwargs: Any) -> None:
    """Takes the place of what IPython does for its own terminal."""


class _Publisher(DisplayPublisher):
    folder: Path | None = None  # of the worker; without it nobody sees what is displayed
    clear_output = _nothing  # what other workers have shown stays

    def publish(self, data: Any, metadata: Any = None, *args: Any, **kwargs: Any) -> None:
        """Writes it into a file of its own, and a line that stands for it into the log."""
        if self.folder is None:
            return
        number = time.monotonic_ns()
        texts = {kind: base64.b64encode(v).decode() if isinstance(v, bytes) else v for kind, v in data.items()}
        item = {"data": texts, "metadata": metadata or {}}
        write_whole(self.folder / f"display-{number}.json", json.dumps(item, default=repr).encode())
        flush()
        os.write(1, f"\n{DISPLAYED.format(number=number)}\n".encode())


class _CellDisplayHook(DisplayHook):
    write_output_prompt = _nothing  # the label says whose it is

    def write_format_data(self, format_dict: Any, md_dict: Any = None) -> None:
        if {*format_dict} <= {"text/plain"}:
            print(*format_dict.values())
        else:
            self.shell.display_pub.publish(format_dict, md_dict)


class Shell(InteractiveShell):
    """IPython without a terminal and without files of its own: no history, no profile."""

    last: Any = None  # the last cell's value
    raised: BaseException | None = None  # what would only be shown, as %run does
    init_virtualenv = _nothing  # this process has its parent's paths; IPython would warn of others
    showsyntaxerror = _nothing  # it goes to the kernel, as the cell's end
    ask_exit = _nothing  # a worker stays until the kernel ends it

    def init_history(self) -> None:
        self.history_manager = HistoryManager(shell=self, parent=self, hist_file=":memory:", enabled=False)
        self.configurables.append(self.history_manager)

    def showtraceback(self, *args: Any, **kwargs: Any) -> None:
        # What is raised goes to the kernel, as the cell's end; %debug looks for it there.
        sys.last_type, sys.last_value, sys.last_traceback = sys.exc_info()
        self.raised = sys.exc_info()[1]


def make(folder: Path, names: dict[str, Any]) -> Shell:
    """This process's shell. folder: the worker's corner of the run's directory; names: in the namespace at first."""
    import __main__

    shell = Shell.instance(
        display_pub_class=_Publisher,
        displayhook_class=_CellDisplayHook,
        ipython_dir=str(folder / "tmp"),
        user_module=__main__,  # so that cloudpickle takes functions of cells by value, as in a notebook
    )
    shell.user_ns_hidden.update(shell.user_ns)  # what the process began with is not the learner's
    shell.user_ns.update(names)
    wrapt.register_post_import_hook(lambda matplotlib: matplotlib.use(_INLINE), "matplotlib")
    return shell


def run(shell: Shell, number: int, code: str, files: Files) -> dict[str, Any]:
    """The cell's end: {"status": "ok" or "error", and what was raised}; its last value is `shell.last`.

    files: names of the learner's own files, of which the cell is one from now on.
    """
    name = f"<cell {number}>"  # stands for a file's name in tracebacks
    files[name] = True
    shell.compile.get_code_name = lambda *_: name  # type: ignore[method-assign]
    shell.raised = None
    result = shell.run_cell(code, store_history=True)
    error = result.error_before_exec or result.error_in_exec or shell.raised
    shell.last = result.result if error is None else None
    return {"status": "ok"} if error is None else failure(error, files)


def failure(error: BaseException, files: Files) -> dict[str, Any]:
    """What was raised, as the kernel shows it: the learner's lines, not those above them."""
    trace = error.__traceback__
    place = files.place(reversed([*traceback.walk_tb(trace)]))
    while place[0] and trace is not None and not files[trace.tb_frame.f_code.co_filename]:
        trace = trace.tb_next
    kind, message = causes.message_of(error)
    return {
        "status": "error",
        "type": kind,
        "message": message,
        "by_a_peer": causes.by_a_peer(error),
        "op": hasattr(error, "experimental_payloads") or causes.by_a_peer(error),
        "stopped": isinstance(error, (KeyboardInterrupt, Stopped)),
        "traceback": "".join(traceback.format_exception(type(error), error, trace)),
        "place": place,
    }


# ---- the cells of a session once more, on one device


def replay(cells: Sequence[tuple[int, str, str, tuple[int, int] | None]], strategy: Any) -> None:
    """Runs the cells in a shell of their own, in a process of `dtk.baseline`. cells: (number, name, code, limit).

    limit: None for a cell that went through; else (recorded steps, batches taken) where it ended, with an error or
    interrupted, and ends here, too.
    """
    from dtk.worker import follow

    place = environment.here()
    assert place is not None, "dtk calls it in a worker"
    ours = make(place.folder.path, {"strategy": strategy})
    files, takes = Files(), Takes(place)
    for number, name, code, limit in cells:
        takes.limit = limit
        end = run(ours, number, code, files)
        if follow.ended():
            return  # it has seen enough, whatever the cell made of the exception
        if end["status"] == "error" and limit is None:
            words = N_("{cell} went through on the cluster, and raises here: {error}")
            raise DtkError(_(words, cell=name, error=f"{end['type']}: {end['message']}"))


class Takes:
    """Counts the batches that are taken from this process's iterators, and interrupts a cell at a limit.

    limit: (recorded steps, batches taken); None for none.
    """

    def __init__(self, place: environment.Here):
        from dtk.worker.progress import progress

        self.count = 0
        self.limit: tuple[int, int] | None = None
        self._progress = progress(place)
        self._mark, self._before_step = place.journal.mark, self._progress.before_step
        place.journal.mark = self._counted  # type: ignore[assignment, method-assign]
        self._progress.before_step = self._begins  # type: ignore[method-assign]

    def _counted(self, kind: str, *rest: Any) -> None:
        self._mark(kind, *rest)
        if kind == TAKE:
            self.count += 1
            self._stop()

    def _begins(self, *args: Any, **kwargs: Any) -> None:
        self._stop()
        self._before_step(*args, **kwargs)

    def _stop(self) -> None:
        if self.limit is not None and self._progress.steps >= self.limit[0] and self.count >= self.limit[1]:
            raise KeyboardInterrupt
