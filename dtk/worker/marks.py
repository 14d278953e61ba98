"""In a worker: writes down when it waited for data and when it took part in an all-reduce, as `marks.jsonl`.

One line each: ["take" or "reduce", begin, end, bytes], times in seconds since the call of `dtk.run`.
"""

from __future__ import annotations

import os
import time
from typing import Any

import wrapt

from dtk.compat.steps import marks
from dtk.environment import Here

__all__ = ["listen"]

_ITERATORS = {
    "tensorflow.python.distribute.input_lib": "DistributedIteratorBase",
    "tensorflow.python.data.ops.iterator_ops": "OwnedIterator",
}


def listen(place: Here) -> None:
    """From now on; TensorFlow may be imported or not. `DTK_MARKS=0` does without."""
    if os.environ.get("DTK_MARKS") == "0":
        return

    def report(kind: str, began: float, ended: float, size: int) -> None:
        # TensorFlow's clock is the wall clock; the two are compared anew each time, as the wall clock may be set.
        shift = time.time() - time.monotonic() + place.clock
        place.journal.mark(kind, began - shift, ended - shift, size)

    def reductions(module: Any) -> None:
        marks.watch_reductions(module, report)

    wrapt.register_post_import_hook(reductions, "tensorflow.python.distribute.cross_device_utils")
    for name, kind in _ITERATORS.items():
        wrapt.register_post_import_hook(_watcher(kind, report), name)


def _watcher(kind: str, report: marks.Report) -> Any:
    return lambda module: marks.watch_iterators(getattr(module, kind), report)
