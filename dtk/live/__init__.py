"""A run while it goes: a dashboard in a notebook, labelled lines elsewhere, nothing in CI.

Runs in the kernel. `show` chooses; `follow` keeps what the workers write in bounded memory; `dashboard` shows it in a
notebook, and `text` elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence

from dtk.watch.waiting import Line

__all__ = ["Live"]


class Live:
    """What `dtk.run` calls while it waits, from the thread that it was called in. This one shows nothing."""

    def update(self, states: Sequence[Line | str]) -> None:
        """Take each member's state ("starting", "running", "training", "finished", "failed", or a Line)."""

    def close(self, outcome: str, finished: bool = False) -> None:
        """Draw for the last time, with how the run ended ("finished in 3.2 s", "worker 1 raised ...").

        finished: whether it ended without an error.
        """
