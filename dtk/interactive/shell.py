"""One worker's IPython: runs a cell, and writes what it shows into `shown.jsonl` beside its log."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

import wrapt
from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.history import HistoryManager
from IPython.core.interactiveshell import InteractiveShell

from dtk import environment
from dtk.compat import causes
from dtk.interactive.barrier import Files, Stopped
from dtk.language import _

__all__ = ["Shell", "failure", "flush", "make", "run", "sizes"]

_INLINE = "module://matplotlib_inline.backend_inline"  # figures go the way of `display`


class _Shown:
    """Appends what is displayed, each time with the length of the log by then, so that a reader has the order."""

    def __init__(self, path: Path):
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def add(self, data: dict[str, Any], metadata: dict[str, Any] | None, is_result: bool = False) -> None:
        flush()
        clean = {kind: _as_text(value) for kind, value in data.items()}
        line = {"at": os.fstat(1).st_size, "result": is_result, "data": clean, "metadata": metadata or {}}
        os.write(self._file, (json.dumps(line, default=repr) + "\n").encode())

    def size(self) -> int:
        return os.fstat(self._file).st_size


def _as_text(value: Any) -> Any:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def sizes() -> dict[str, int]:
    """How far a reader has to read to have all that was printed and displayed so far."""
    return {"log": os.fstat(1).st_size, "shown": _Publisher.shown.size()}


def flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # a full disk, or a stream that the learner closed
            stream.flush()


class _Publisher(DisplayPublisher):
    shown: Any = None

    def publish(self, data: Any, metadata: Any = None, *args: Any, **kwargs: Any) -> None:
        _Publisher.shown.add(data, metadata)

    def clear_output(self, wait: bool = False) -> None:
        pass  # what other workers have shown stays


class _Hook(DisplayHook):
    def write_output_prompt(self) -> None:
        pass  # the label says whose it is

    def write_format_data(self, format_dict: Any, md_dict: Any = None) -> None:
        _Publisher.shown.add(format_dict, md_dict, is_result=True)

    def finish_displayhook(self) -> None:
        self._is_active = False


class Shell(InteractiveShell):
    """IPython without a terminal and without files of its own: no history, no profile."""

    last: Any = None  # the last cell's value
    in_file = False  # whether it executes one, by %run
    raised: BaseException | None = None  # what %run has caught, and would only show

    def init_history(self) -> None:
        self.history_manager = HistoryManager(shell=self, parent=self, hist_file=":memory:", enabled=False)
        self.configurables.append(self.history_manager)

    def init_virtualenv(self) -> None:
        pass  # this process has its parent's paths; IPython would warn of others

    def showtraceback(self, *args: Any, **kwargs: Any) -> None:
        # What is raised goes to the kernel, as the cell's end; %debug looks for it there.
        sys.last_type, sys.last_value, sys.last_traceback = sys.exc_info()
        if self.in_file:
            self.raised = sys.exc_info()[1]

    def safe_execfile(self, *args: Any, **kwargs: Any) -> None:
        self.in_file = True
        try:
            super().safe_execfile(*args, **kwargs)
        finally:
            self.in_file = False

    def showsyntaxerror(self, *args: Any, **kwargs: Any) -> None:
        pass

    def ask_exit(self) -> None:
        environment.say(_("a worker stays; cluster.close() in the notebook ends it"))


def make(folder: Path, names: dict[str, Any]) -> Shell:
    """This process's shell. folder: the worker's corner of the run's directory; names: in the namespace from the
    beginning.
    """
    import __main__

    _Publisher.shown = _Shown(folder / "shown.jsonl")
    shell = Shell.instance(
        display_pub_class=_Publisher,
        displayhook_class=_Hook,
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
    files.add(name)
    shell.compile.get_code_name = lambda *_: name  # type: ignore[method-assign]
    shell.raised = None
    result = shell.run_cell(code, store_history=True)
    error = result.error_before_exec or result.error_in_exec or shell.raised
    shell.last = result.result if error is None else None
    return {"status": "ok"} if error is None else failure(error, files)


def failure(error: BaseException, files: Files) -> dict[str, Any]:
    """What was raised, as the kernel shows it: the learner's lines, not those above them."""
    lines = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    own = [(k, file, line) for k, (file, line) in enumerate(lines) if file in files]
    place = [*own[-1][1:], *own[0][1:]] if own else ["", 0, "", 0]
    trace = error.__traceback__
    for _frame in range(own[0][0] if own else 0):
        assert trace is not None, "as many as were walked"
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
