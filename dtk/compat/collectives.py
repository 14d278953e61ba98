"""TensorFlow's collectives in a cluster that stays: counted as they are called, stopped, and usable again afterwards.

TensorFlow 2.15 to 2.21, MultiWorkerMirroredStrategy. Nothing of what is used here has a public name:

- Each collective has an instance key, the next of a Python counter (`CollectiveKeys`), also inside of a `tf.function`,
  which asks for the keys of all its collectives when it is called. So a hook there sees each of them before it runs.
- `abort_collective_ops` ends all waits; its documentation says that the context must then be reset. A new executor of
  collectives is enough (`enable_collective_ops` with the same definition), with keys that no collective has used.
- The coordination service refuses a process that takes the place of another. It is off, and so is the thread that asks
  for the peers' health: a wait for a lost peer ends by itself.

`tests/test_clusters.py` fails where one of these is gone or is no longer needed.
"""

from __future__ import annotations

import itertools
import logging
import re
import threading
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from dtk.compat.libraries import changed, contexts, replaces, tf
from dtk.compat.strategies import EXTENDED, has_a_cluster

_tables: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()  # of the strategies made here: their number
_numbers = itertools.count()
_KEYS = "tensorflow.python.distribute.cross_device_utils:CollectiveKeys"


def let_peers_come_back() -> None:
    """Before a strategy is made: no coordination service, and no thread that asks for the peers' health."""
    from tensorflow.python.distribute.collective_all_reduce_strategy import CollectiveAllReduceExtended

    contexts.context().configure_coordination_service(service_type="")
    CollectiveAllReduceExtended._enable_check_health = False


def watch_keys(arrive: Callable[[str, int], None], took: Callable[[str, int], None]) -> None:
    """arrive: called before a collective gets its key, may wait or raise; took: after. Both with counter and number."""

    @replaces(_KEYS, "__init__")
    def begin(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        _tables[self] = next(_numbers)

    @replaces(_KEYS, "get_instance_key")
    def get_instance_key(original: Any, self: Any, group_key: int, device: str) -> Any:
        name = _name(self, group_key, device)
        arrive(name, self._instance_key_table.get(group_key, {}).get(device, 0))
        key = original(self, group_key, device)
        took(name, key)
        return key


def watch_waits(within: set[int]) -> None:
    """Keeps the threads that are in an eager collective in `within`, by their numbers.

    TensorFlow calls some of them in a thread of a pool: an interrupt ends the main thread's wait for it, and the thread
    stays in a collective, of which an `enable` would take the executor away, and with it the process.
    """
    from tensorflow.python.ops import gen_collective_ops as module

    for name, function in list(vars(module).items()):
        if name.startswith("collective_") and not name.endswith("_fallback") and callable(function):

            @replaces(module, name)
            def call(original: Any, *args: Any, **kwargs: Any) -> Any:
                within.add(threading.get_ident())
                try:
                    return original(*args, **kwargs)
                finally:
                    within.discard(threading.get_ident())


def _name(table: Any, group: int, device: str) -> str:
    """The same on every worker: which strategy, which group, which of the worker's devices."""
    return f"{_tables.get(table, 0)}.{group}.{re.sub('task:[0-9]+', 'task', device).rpartition('/')[2]}"


def keys() -> dict[str, int]:
    """The next number of each counter, by its name, which is the same on every worker."""
    return {
        _name(table, group, device): number
        for table in list(_tables)
        for group, of_group in list(table._instance_key_table.items())
        for device, number in list(of_group.items())
    }


def set_keys(number: int) -> None:
    """All counters go on from this number; groups that come later begin as ever, as they do on every worker."""
    for table in list(_tables):
        with table._lock:
            for of_group in table._instance_key_table.values():
                for device in of_group:
                    of_group[device] = number


def abort(why: str) -> None:
    """From any thread: every collective that waits ends with an error, and so does every further one until `enable`."""
    contexts.context().abort_collective_ops(tf.errors.ABORTED, why)


def enable() -> None:
    """Collectives work again after an abort, or with a peer that was replaced."""
    if has_a_cluster():
        with changed(logging.getLogger("absl"), disabled=True):  # it warns that this may be wrong after the start
            contexts.context().enable_collective_ops(contexts.context()._collective_ops_server_def)


def broadcast_locally(local: Mapping[str, bool]) -> None:
    """While local["on"], a new variable begins with this worker's own value, in place of the chief's, sent to all."""

    @replaces(EXTENDED, "_get_variable_creator_initial_value")
    def initial(original: Any, self: Any, replica_id: int, device: Any, primary_var: Any, **kwargs: Any) -> Any:
        if not local["on"] or replica_id:
            return original(self, replica_id, device, primary_var, **kwargs)

        def own_value() -> Any:
            with tf.device(device):
                value = kwargs["initial_value"]
                value = value() if callable(value) else value
                return tf.convert_to_tensor(getattr(value, "wrapped_value", value), dtype=kwargs.get("dtype"))

        return own_value
