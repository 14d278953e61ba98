"""One process at a time, of all that know a file."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from dtk.errors import DatasetUnavailable

__all__ = ["alone"]

LOCK_SECONDS = 900.0  # a download of some 30 MB by someone else takes no longer


@contextlib.contextmanager
def alone(lock: Path) -> Iterator[None]:
    """One process at a time; the lock goes with its process, however that ends, so a file left behind is harmless."""
    try:
        import fcntl

        lock.parent.mkdir(parents=True, exist_ok=True)
        file = lock.open("w")
    except (ImportError, OSError):
        yield  # no such locks on this system, or a cache that can't be written: then nothing can collide either
        return
    deadline = time.monotonic() + LOCK_SECONDS
    with file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    words = f"another process has held {lock} for {LOCK_SECONDS:.0f} s; end it and load again"
                    raise DatasetUnavailable(words) from None
                time.sleep(0.05)  # flock has no time-out of its own
            except OSError:
                break  # a file system without locks
        yield
