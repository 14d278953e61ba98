"""What a name is where this worker stands, to be shown beside the other workers'; a debugger's command for it."""

from __future__ import annotations

import ast
import pdb
from collections.abc import Callable, Iterator
from typing import Any

from dtk.interactive.frames import Frame, NoName, frames, resolve
from dtk.interactive.inspection import is_plain, variables_of
from dtk.interactive.parts import digest, parts_of
from dtk.language import _

__all__ = ["add_command", "answer", "found"]

Message = dict[str, Any]
_SMALL = 6  # numbers that are shown themselves


def answer(life: Any, code: str) -> Message:
    """Where the worker stands, and the parts of the value there, by replica where each has its own thread.

    {"place", "cell", "held", "values": [{"label", "replica", "of", "shape", "digest", "text"}]}, or "none": why not.
    """
    stack = frames(life.gate.files)
    main = [frame for frame in stack if frame.replica is None]
    outer = main[-1] if main else stack[-1] if stack else None
    place = [stack[0].file, stack[0].line, outer.file, outer.line] if outer is not None else list(life.gate.place())
    said: Message = {"place": place, "cell": life.running, "held": sorted(life.gate.held.values())}
    if not code:
        return said
    try:
        values = [row for replica, value, of in found(life, code, stack) for row in _rows(replica, value, of)]
    except NoName as error:
        return {**said, "none": str(error)}
    return {**said, "values": values}


def found(life: Any, code: str, stack: list[Frame] | None = None) -> list[tuple[int | None, Any, str]]:
    """(replica, value, within what) by replica if the name is local to their threads, else one; NoName."""
    stack = frames(life.gate.files) if stack is None else stack
    by_replica = []
    for replica in sorted({frame.replica for frame in stack if frame.replica is not None}):
        own = [frame for frame in stack if frame.replica == replica]
        try:
            k, value = resolve(code, [frame.names for frame in own])
        except NoName:
            continue
        by_replica.append((replica if life.place.replicas > 1 else None, value, own[k].within))
    if by_replica:
        return by_replica
    rest = [frame for frame in stack if frame.replica is None]
    k, value = resolve(code, [*(frame.names for frame in rest), life.shell.user_ns])
    return [(None, value, rest[k].within if k < len(rest) else "")]


def _rows(replica: int | None, value: Any, of: str) -> Iterator[Message]:
    parts = [(label, variable.arrays()) for label, variable in variables_of(value)]
    if not parts and not is_plain(value):
        parts = [(label, arrays) for label, _, arrays in parts_of(value)]
    if not parts:
        text = " ".join(repr(value).split())[:60]
        yield {"label": "", "replica": replica, "of": of, "text": text}
    for label, arrays in parts:
        for k, array in enumerate(arrays):
            if len(arrays) > 1 and replica not in (None, k):
                continue  # another thread says it
            facts = {"shape": list(array.shape), "digest": digest(array), "text": _text(array)}
            yield {"label": label, "replica": replica if len(arrays) == 1 else k, "of": of, **facts}


def _text(array: Any) -> str:
    """
    >>> import numpy as np
    >>> _text(np.arange(3.0)), _text(np.arange(8.0))
    ('[0.0, 1.0, 2.0]', 'mean 3.5, 0 to 7')
    """
    if array.size <= _SMALL:
        return " ".join(repr(array.tolist()).split())
    if array.dtype.kind not in "iuf":
        return ""
    known = {"mean": float(array.mean()), "least": float(array.min()), "most": float(array.max())}
    return _("mean {mean:.6g}, {least:.6g} to {most:.6g}", **known)


def add_command(show: Callable[[str], None], on_interrupt: Callable[..., None]) -> None:
    """`replicas NAME` at the prompt of `breakpoint()` and `%debug`. show: asks the others, and shows all.

    on_interrupt: stays the handler of SIGINT; after `continue`, pdb would open its prompt again at an interrupt.
    """

    def do_replicas(self: Any, arg: str) -> None:
        """replicas NAME

        What a name is on all workers, beside each other: where this one stops, and where each of the others stands.
        Also NAME.attribute, NAME[0]. Without a name: where each worker stands.
        """
        try:
            ast.parse(arg.strip() or "0", mode="eval")
        except SyntaxError:
            self.default(f"replicas {arg}")  # a name of the learner's
            return
        show(arg.strip())

    pdb.Pdb.do_replicas = do_replicas  # type: ignore[attr-defined]
    pdb.Pdb.sigint_handler = lambda self, *_: on_interrupt()  # type: ignore[method-assign]
