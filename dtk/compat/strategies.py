"""What is set in a worker's TensorFlow: how its strategy joins the cluster, its messages, its datasets' threads.

TensorFlow 2.15 to 2.21.
"""

from __future__ import annotations

import functools
import operator
import os
import sys
import weakref
from collections.abc import Callable
from typing import Any

import wrapt

from dtk.compat.libraries import changed, contexts, replaces, tf
from dtk.errors import ClusterConfigError, DtkError
from dtk.language import N_, _

# What MultiWorkerMirroredStrategy is made of.
EXTENDED = "tensorflow.python.distribute.collective_all_reduce_strategy:CollectiveAllReduceExtended"


def alone() -> None:
    """From now on, MultiWorkerMirroredStrategy is a strategy of this one process, with no server, despite TF_CONFIG.

    An evaluator computes alone, and so does a program's baseline, which may read the number of workers in TF_CONFIG.
    In an evaluator TensorFlow's own can't be built, or can't be copied by RunConfig (docs/explanation/estimator.md).
    tests/test_estimator.py tells when this can go.
    """

    @replaces(EXTENDED, "_initialize_strategy")
    def initialize(original: Any, self: Any, cluster_resolver: Any, devices: Any = None) -> None:
        self._initialize_local(cluster_resolver, devices)


def join_once() -> None:
    """Have each further MultiWorkerMirroredStrategy of this process use the server and the keys of the first.

    TensorFlow starts the executor of collectives anew for each of them. What a peer has asked the old executor for by
    then is lost, so that both workers wait forever in the broadcast of the first variable; and the collective keys
    begin anew as well. tests/test_compat.py tells when this can go. A strategy over other workers than those of
    TF_CONFIG, as it is now, is refused: it would wait for them.
    """
    first: dict[str, Any] = {}
    ours = os.environ.get("TF_CONFIG")

    @replaces(EXTENDED, "_initialize_multi_worker")
    def initialize(original: Any, self: Any, cluster_resolver: Any) -> None:
        from tensorflow.python.distribute import cross_device_utils as utils

        cluster = cluster_resolver.cluster_spec().as_dict()
        # Estimator leaves the evaluator out of its strategy's cluster: some of TF_CONFIG's tasks are enough.
        if ours and any(f'"{at}"' not in ours for tasks in cluster.values() for at in tasks):
            words = N_(
                "the program makes a cluster of its own, of {tasks}; dtk has set TF_CONFIG for each worker: leave out "
                "the line that sets os.environ['TF_CONFIG'], and cluster_resolver= where there is one"
            )
            raise ClusterConfigError(_(words, tasks=", ".join(f"{task} {at}" for task, at in cluster.items())))
        if not (has_a_cluster() and first.get("cluster") == cluster):
            original(self, cluster_resolver)
            if getattr(self, "_std_server_started", False):
                first.update(cluster=cluster, keys=self._collective_keys, health=self._enable_check_health)
            return
        self._std_server_started, self._enable_check_health = True, first["health"]
        with changed(utils, CollectiveKeys=lambda **start: first["keys"]):
            original(self, cluster_resolver)


def several(replicas: int, follows: int = 0) -> None:
    """From now on, MultiWorkerMirroredStrategy has so many replicas in this process, also where that has no GPU.

    follows: the number of workers that this process follows, whose replicas it then has draw, and read, as they did.

    It takes all GPUs of a worker and, without any, one CPU, whatever logical devices there are: that is all that keeps
    it from several replicas on CPUs (TensorFlow 2.15 to 2.21; tests/test_replicas.py tells when this can go).
    """

    @replaces(EXTENDED, "_initialize_local_devices")
    def devices(original: Any, self: Any, cluster_resolver: Any, worker_device: str) -> tuple[tuple[str, ...], str]:
        found, kind = original(self, cluster_resolver, worker_device)
        if kind == "CPU":
            found = tuple(f"{worker_device}/device:CPU:{index}" for index in range(replicas))
        return found, kind

    if follows:
        each = replicas // follows
        _draw_as(follows, each)
        for owner in (EXTENDED, "tensorflow.python.distribute.mirrored_strategy:MirroredExtended"):
            replaces(owner, "_get_variable_creator_initial_value")(_begins_with)

        # A batch's parts go to the workers in turn, but to the replicas of one process one after the other.
        order = [replica % each * follows + replica // each for replica in range(replicas)]

        @replaces("tensorflow.python.distribute.input_util", "get_distributed_dataset")
        def dataset(original: Any, *args: Any, **kwargs: Any) -> Any:
            return original(*args, **kwargs, replica_order=order)


def _begins_with(original: Any, self: Any, replica_id: int, device: Any, primary_var: Any, **kwargs: Any) -> Any:
    """What a replica's copy of a variable begins with: inside of a function the first one's value, which is no copy.

    A copy can't be lifted out of the function. Then TensorFlow runs another graph of it in its first call than in all
    later ones, in a tf.cond in which collectives fail, and the later ones draw the same once more; a worker with one
    replica runs one graph.
    """
    value = kwargs["initial_value"]  # from the second replica on what this returned for the first one
    if not replica_id or not tf.inside_function() or not callable(value):
        value = original(self, replica_id, device, primary_var, **kwargs)
    return functools.cache(value) if callable(value) and not replica_id and tf.inside_function() else value


def _draw_as(workers: int, each: int) -> None:
    """Has the replicas of each worker draw by the seeds that they have in its own process.

    TensorFlow counts the operations of a graph that draw without a seed of their own, and one process has those of all
    workers in one graph. each: replicas of one worker. tests/test_states.py tells when the count has another name.
    """
    home = "tensorflow.python.framework.random_seed"
    places = weakref.WeakKeyDictionary[Any, list[int]]()  # by graph, how far each worker's replicas are

    @replaces(home, "get_seed")
    def get_seed(original: Any, op_seed: Any) -> Any:
        graph, context = tf.compat.v1.get_default_graph(), tf.distribute.get_replica_context()
        if tf.executing_eagerly() or op_seed is not None:
            return original(op_seed)
        counted, place = sys.modules[home]._graph_to_seed_dict, places.setdefault(graph, [0] * workers)
        own = tf.distribute.has_strategy() and context is not None
        who = [tf.get_static_value(context.replica_id_in_sync_group) // each] if own else range(workers)
        counted[graph] = max(place[worker] for worker in who)
        seeds = original(op_seed)
        for worker in who:
            place[worker] = counted[graph]
        return seeds


def _calculating(what: Callable[[int, Any], Any]) -> Any:
    return lambda told, other: what(int(told), other)


@functools.total_ordering
class Told:
    """A number of replicas that a program multiplies its batch or its rate by, and that divides nothing.

    A loss or a gradient is divided by the replicas that there are: one. So it counts as 1 in a true division, as a
    tensor, and wherever a function is traced. It is no int, of which TensorFlow makes tensors in its own way.
    """

    def __init__(self, replicas: int):
        self.replicas = replicas

    def __index__(self) -> int:
        return 1 if tf.inside_function() else self.replicas

    __hash__ = __index__

    __eq__ = _calculating(operator.eq)
    __lt__ = _calculating(operator.lt)
    __mul__ = __rmul__ = _calculating(operator.mul)
    __add__ = __radd__ = _calculating(operator.add)
    __sub__ = _calculating(operator.sub)
    __floordiv__ = _calculating(operator.floordiv)
    __rfloordiv__ = _calculating(lambda mine, other: other // mine)

    def __truediv__(self, other: Any) -> Any:
        return 1 / other

    def __rtruediv__(self, other: Any) -> Any:
        return other / 1

    def __repr__(self) -> str:
        return str(int(self))


def counts(replicas: int) -> None:
    """From now on, a program on one device reads that there are so many replicas; TensorFlow, Keras and dtk read 1.

    Of the strategy that it is given, and of each that it makes.
    """

    def tell(tensorflow: Any) -> None:
        from tensorflow.python.distribute.distribute_lib import StrategyBase

        def num_replicas_in_sync(self: Any) -> Any:
            reader = str(sys._getframe(1).f_globals.get("__name__", "")).split(".")[0]
            return 1 if reader in ("tensorflow", "keras", "tf_keras", "dtk") else Told(replicas)

        def as_one(value: Told, dtype: Any = None, name: Any = None, as_ref: bool = False) -> Any:
            return tensorflow.constant(1, dtype, name=name)

        StrategyBase.num_replicas_in_sync = property(num_replicas_in_sync)
        tensorflow.register_tensor_conversion_function(Told, as_one, priority=0)

    wrapt.register_post_import_hook(tell, "tensorflow")


def has_a_cluster() -> bool:
    """Whether a strategy over several workers was made here: only then does TensorFlow's context have a server.

    No public name tells; `tests/test_updates.py` does when this one goes.
    """
    return getattr(contexts.context(), "_collective_ops_server_def", None) is not None


# ---- small messages between workers: 64 KB at a time of what one sends to another, in place of TensorFlow's 4 MB
#
# A worker's part of an all-reduce is copied some eight times on its way through gRPC. Pieces that fit into a core's
# cache make that cheaper (docs/explanation/scaling.md has by how much); what is sent is the same, and so is every sum.
#
# The public way, `tf.compat.v1.enable_eager_execution(config=...)`, does nothing where eager execution is on from the
# beginning. So the context is made, which does not start it, and given the ConfigProto that it would have got that way.

MESSAGE_BYTES = 1 << 16


def send_small_messages() -> None:
    """Before TensorFlow's context starts; afterwards nothing is changed. `DTK_MESSAGE_BYTES` sets another size."""
    stated = os.environ.get("DTK_MESSAGE_BYTES") or str(MESSAGE_BYTES)
    if not stated.isdecimal():
        raise DtkError(f"DTK_MESSAGE_BYTES={stated}: it takes bytes, or 0 for TensorFlow's default")
    ours = contexts.context()
    if ours._context_handle is not None or ours._config is not None:
        return
    ours._config = tf.compat.v1.ConfigProto()
    ours._config.experimental.recv_buf_max_chunk = int(stated)
    # Threads that look for work for a while before they sleep take the core from those that have some.
    ours._config.experimental.disable_thread_spinning = os.environ.get("TF_NUM_INTRAOP_THREADS") == "1"


# ---- iterators of datasets end at once: tf.data's autotuning is off, unless the dataset's own options ask for it
#
# Python waits for the thread that tunes an iterator's pipeline when the iterator goes. That thread may miss the call
# that wakes it, and sleeps on for up to a minute: docs/explanation/compat.md has the race, and what was measured.
# Without it, parameters that are AUTOTUNE have their fixed default, and prefetching its own tuning. Touched is what
# every iterator's dataset goes through; TensorFlow's own debug mode switches autotuning off there, too.


def leave_datasets_untuned() -> None:
    """For every iterator that is made in this process from now on; TensorFlow may be imported or not."""

    @replaces("tensorflow.python.data.ops.dataset_ops:DatasetV2", "_apply_debug_options")
    def untuned(original: Any, self: Any) -> Any:
        found = original(self)
        if found.options().autotune != tf.data.experimental.AutotuneOptions():
            return found
        options = tf.data.Options()
        options.autotune.enabled = False
        return found.with_options(options)
