"""Tab and Shift-Tab in a cell of `%%workers`: the names are the workers', so one of them is asked.

A kernel completes and inspects by its `do_complete` and `do_inspect`, which alone are given the whole cell, with its
first line; IPython's own hooks see a word of it (Colab's IPython 7) or a name.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any

from dtk.interactive.output import shell
from dtk.interactive.peers import Peer
from dtk.language import _

__all__ = ["Hints"]

SECONDS = 0.3  # that a page may wait for more names than the notebook's own
_HEAD = re.compile(r"\s*%%workers?\b([^\n]*)\n")
_KINDS = "_jupyter_types_experimental"  # the part of an answer that has each name's kind


class Hints:
    """peers: the cluster's workers, by number. lock: held while a cell runs; meanwhile nobody is asked."""

    def __init__(self, peers: Callable[[], list[Peer]], lock: threading.RLock):
        self._peers, self._lock = peers, lock
        self._kernel: Any = None
        self._open = True
        kernel = getattr(shell(), "kernel", None)
        if hasattr(kernel, "do_complete"):
            self._kernel = kernel
            self._complete, self._inspect = self._kernel.do_complete, self._kernel.do_inspect
            self._kernel.do_complete, self._kernel.do_inspect = self.complete, self.inspect

    def end(self) -> None:
        """The kernel answers as before."""
        self._open = False
        for name, ours in (("do_complete", self.complete), ("do_inspect", self.inspect)):
            if self._kernel is not None and vars(self._kernel).get(name) == ours:  # else another one calls ours
                delattr(self._kernel, name)

    def complete(self, code: str, cursor_pos: int | None = None) -> Any:
        """The workers' names, and for a name without a dot the kernel's own answer as well."""
        at = len(code) if cursor_pos is None else cursor_pos
        said = self._ask("complete", code, at) or {"found": ()}
        alone = bool(said["found"]) and said["known"]
        own = {} if alone else self._complete(code, cursor_pos)
        if not said["found"] or not isinstance(own, dict):
            return own
        place = {"start": said["from"], "end": at, "signature": ""}
        found = {name: {**place, "text": name, "type": kind} for name, kind in said["found"]}
        if own and own["cursor_start"] == said["from"]:
            typed = {each["text"]: each for each in own["metadata"].get(_KINDS, ())}
            found = {**{name: typed.get(name, {**place, "text": name, "type": ""}) for name in own["matches"]}, **found}
        names = [*dict.fromkeys([name for name, _ in said["found"]] + [*found])]
        return {
            "status": "ok",
            "matches": names,
            "cursor_start": said["from"],
            "cursor_end": at,
            "metadata": {_KINDS: [found[name] for name in names]},
        }

    def inspect(self, code: str, cursor_pos: int, detail_level: int = 0, omit_sections: Any = ()) -> Any:
        """What the worker says of the name; the kernel's own answer where it knows none."""
        said = self._ask("describe", code, cursor_pos, detail=detail_level)
        if not said or not said.get("text"):
            return self._inspect(code, cursor_pos, detail_level, omit_sections)
        text = "\n".join((_("On worker {worker}", worker=said["worker"]), said["text"]))
        return {"status": "ok", "found": True, "data": {"text/plain": text}, "metadata": {}}

    def _ask(self, what: str, code: str, at: int, **more: Any) -> dict[str, Any] | None:
        """The answer of the first worker that the cell goes to, with `from` counted in the whole cell."""
        head = _HEAD.match(code)
        if head is None or at < head.end() or not self._open or not self._lock.acquire(blocking=False):
            return None
        try:
            peers = self._peers()
            peer = peers[_first(head[1])]
            said = peer.ask(what, seconds=SECONDS, code=code[head.end() :], at=at - head.end(), **more)
        except Exception:  # help is missing then, and no cell has failed
            return None
        finally:
            self._lock.release()
        if said is None or said.get("status") == "error":
            return None
        return {**said, "worker": peer.number, "from": said.get("from", 0) + head.end()}


def _first(line: str) -> int:
    """The first worker of a magic's line; a name in braces is the notebook's."""
    space = getattr(shell(), "user_ns", {})
    words = re.sub(r"[{$](\w+)}?", lambda found: str(space.get(found[1], "")), line).replace(",", " ").split()
    return min(map(int, words), default=0)
