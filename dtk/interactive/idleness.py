"""A cluster that nobody uses ends by itself: its memory is other people's as well."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

from dtk.language import N_, _
from dtk.launch.warm import idle_seconds

__all__ = ["end_when_idle"]


def end_when_idle(
    stop: threading.Event, lock: threading.RLock, used: Callable[[], float], end: Callable[[str], None]
) -> None:
    """Calls `end` with the reason when so long no cell came as a warm parent may be idle; until `stop` is set.

    lock: held while a cell runs. used: when the last cell ended, by `time.monotonic`.
    """
    limit = idle_seconds()
    if math.isinf(limit):
        return

    def watch() -> None:
        while not stop.wait(min(limit, max(0.1, limit - (time.monotonic() - used())))):
            with lock:
                if time.monotonic() - used() >= limit:
                    words = N_("ended: no cell came for {limit:g} s (DTK_WARM_IDLE); dtk.cluster() makes a new one")
                    end(_(words, limit=limit))

    threading.Thread(target=watch, daemon=True, name="dtk-cluster").start()
