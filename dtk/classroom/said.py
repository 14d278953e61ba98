"""The sentences of a mark: what a student may read, and what only the teacher does.

Of a hidden case a student learns no value, nor the text of an exception that it raised, which could hold one.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from typing import Any

from dtk.classroom.boxed import Stopped
from dtk.classroom.results import Mark
from dtk.language import _

__all__ = ["mark", "stopped", "workers"]


def mark(
    name: str,
    answer: Mapping[str, Any],
    own: Mapping[str, Any] | None,
    errors: Mapping[str, Mapping[str, Any]],
    halted: Mapping[str, str],
) -> Mark:
    """A question's mark from the kernel's answer.

    own: what the exercise's cell raised. errors: what each cell so far raised. halted: the cells that were stopped.
    """
    how, detail, hint = str(answer["judged"]), str(answer["detail"]), str(answer["hint"])
    error = answer["error"] or {}
    if how == "passed":
        return Mark(name, "passed")
    if how == "changed":
        return Mark(name, how, _("dtk was changed while the answer was judged"), detail=", ".join(answer["changed"]))
    if own and how in ("failed", "empty"):
        return Mark(name, "raised", _cell(own), detail=_texts({"": own}))
    if how == "empty":
        return Mark(name, how, _("not solved yet"), detail=detail)
    if how == "wrong":
        if error:
            return Mark(name, "raised", _("in a hidden case it raises {kind}", kind=error["kind"]), detail=detail)
        return Mark(name, how, hint or _("not what is asked for"), hint, detail)
    words = _("it can't be judged: {kind}", kind=error.get("kind", ""))
    if errors:
        cell, first = next(iter(errors.items()))
        words = _("{words}; cell {cell}: {why}", words=words, cell=cell, why=_cell(first))
    elif halted:
        words = _("{words}; cells were run without {cells}", words=words, cells=", ".join(halted))
    return Mark(name, "failed", words, detail="; ".join(filter(None, (error.get("text", ""), _texts(errors)))))


def _cell(answer: Mapping[str, Any]) -> str:
    """Why a cell failed."""
    kind, line = answer["error"]["kind"], int(answer["error"]["line"])
    words = _("{kind} in line {line}", kind=kind, line=line) if line else kind
    return "; ".join([words, *workers(answer["waits"])])


def stopped(stop: Stopped, seconds: float, judging: bool) -> str:
    """Why something was stopped: "stopped after 120 s, in line 3; worker 1 waits in an all-reduce"."""
    if stop.why == "time":
        words = _("stopped after {seconds:.0f} s", seconds=seconds)
    elif stop.why == "memory":
        words = _("stopped: it took more memory than allowed")
    elif stop.why == "processes":
        words = _("stopped: it started more processes than allowed")
    elif stop.why == "disk":
        words = _("stopped: it filled the disk")
    elif stop.code is None:
        words = _("it broke the connection to the grader")
    else:
        words = _("it ended the kernel ({how})", how=_code(stop.code))
    if judging:
        words = _("{words}, while it was judged", words=words)
    elif stop.line:
        words = _("{words}, in line {line}", words=words, line=stop.line)
    return "; ".join([words, *workers(stop.answer["waits"] if stop.answer else ())])


def workers(waits: Sequence[Sequence[str]]) -> list[str]:
    """What workers of a run were doing that did not end; in which step differs from time to time, and is left out."""
    ways = {
        "collective": _("waits in an all-reduce"),
        "operation": _("waits inside TensorFlow"),
        "connecting": _("waits for the others to connect"),
        "stopped": _("is stopped by a signal"),
        "failed": _("failed"),
        "training": _("is busy"),
        "running": _("is busy"),
        "building": _("is busy"),
    }
    return [f"{name} {ways[what]}" for name, what, _place in waits if what in ways]


def _code(code: int) -> str:
    if code < 0:
        return _("by {signal}", signal=signal.Signals(-code).name)
    return _("exit code {code}", code=code)


def _texts(errors: Mapping[str, Mapping[str, Any]]) -> str:
    return "; ".join(f"{cell} {answer['error']['text']}".strip() for cell, answer in errors.items())
