"""The processes of a run: started, looked at, and killed however the run ends."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from dtk.cluster.warm import ParentProcess
from dtk.cluster.watch import Watch
from dtk.records import RunFolder, WorkerFolder

__all__ = ["Members"]

KILL_SECONDS = 2.0


class Members:
    """The processes of one attempt: the workers, then the evaluator where there is one.

    Leaving the `with` block kills them and waits until they are gone.
    """

    def __init__(self, source: ParentProcess, folder: RunFolder, specs: list[dict[str, Any]], clock: float):
        self.source, self.folder, self.specs = source, folder, specs
        self.keys = [f"{folder.path.name}-{time.monotonic_ns()}-{member.path.name}" for member in folder.members]
        self.watch = Watch(folder, clock)

    def __enter__(self) -> Members:
        try:
            for key, spec in zip(self.keys, self.specs, strict=True):
                self.source.start(key, spec)
        except BaseException:  # interrupted half-way: those that did start must go
            self.close()
            raise
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self.source.kill(self.keys)
        deadline = time.monotonic() + KILL_SECONDS
        while any(key not in self.source.exited for key in self.keys) and self.source.lives():
            if time.monotonic() > deadline:
                self.source.close()  # takes all its workers with it; the next run starts a new parent
                break
            self.source.poll(0.05)
        self.source.forget(self.keys)

    def look(self, seconds: float) -> None:
        """Takes in what happened, waiting up to `seconds` for the end of a process."""
        self.source.poll(seconds)
        exits = {k: self.source.exited[key] for k, key in enumerate(self.keys) if key in self.source.exited}
        if not self.source.lives():
            now = time.monotonic()  # killed from outside; the system kills its workers along with it
            exits = {k: exits.get(k, (-signal.SIGKILL, now)) for k in range(len(self.keys))}
        self.watch.look(exits)

    def pids(self, members: Sequence[WorkerFolder]) -> list[int]:
        """Processes of these members that live."""
        started, exited = self.source.started, self.source.exited
        keys = [self.keys[member.worker] for member in members]
        return [started[key] for key in keys if key in started and key not in exited]

    def stacks(self) -> str:
        """Each living worker's Python stack, also of one that is deep inside a collective."""
        for pid in self.pids(self.folder.members):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGUSR1)
        self.look(0.0)
        time.sleep(0.3)  # the handlers write to files; there is no event to wait for
        texts = []
        for member, state in zip(self.folder.members, self.watch.states(), strict=True):
            file = member.path / "stacks.txt"
            stack = file.read_text(errors="replace").rstrip() if file.exists() else ""
            texts.append(f"{member.name} is {state}:\n{stack or '  (no stack: it is not running)'}")
        return "\n\n".join(texts)
