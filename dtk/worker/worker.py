"""Inside a worker process: take its place, run the learner's function, write down what came of it."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import functools
import gc
import json
import os
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

import wrapt

from dtk import environment, limits
from dtk.compat import binding, causes, estimators, feeds, keras2, keras3, libraries, marks, saves, strategies
from dtk.compat.libraries import tf
from dtk.compat.states import watch
from dtk.environment import Here
from dtk.language import N_, _
from dtk.records import RunFolder, events
from dtk.worker import ship, states
from dtk.worker.hooks import EstimatorListener, Recorder
from dtk.worker.process import WorkerSpec, die_with
from dtk.worker.progress import progress, watch_updates, write_updates

_ABOVE = (__name__, "dtk.launch.program", "runpy")  # modules above the learner's own lines


def main(spec: WorkerSpec, parent: int, inherited: list[int]) -> None:
    """The whole life of a worker.

    spec: of `dtk.launch.launch`; its `clock` is `time.monotonic()` of the machine that the kernel is on. parent: the
    process that started this one, which ends with it. inherited: the parent's own descriptors, which are none of ours.
    """
    for descriptor in inherited:
        os.close(descriptor)
    os.setsid()  # a process group of its own: killing it takes the learner's child processes along
    die_with(parent)
    before = libraries.keras_2_chosen()  # by the kernel's environment, which this process still has
    here = _take_place(spec)
    here.journal.event(events.Starting(here.now()))
    try:
        _work(spec, here, before != libraries.keras_2_chosen())
    except BaseException as error:  # also SystemExit and KeyboardInterrupt: nothing may end a worker unrecorded
        code = _record_failure(here, error)
        flush()
        os._exit(code)  # an orderly exit can hang in TensorFlow's shutdown while a peer is gone
    flush()
    here.journal.event(events.Finished(here.now()))
    while True:  # stay until the run ends: a chief that leaves early breaks its peers' collectives
        signal.pause()


def _take_place(spec: WorkerSpec) -> Here:
    os.environ.clear()
    os.environ.update(spec["env"])
    if spec["core"] is not None:
        with contextlib.suppress(OSError):  # taken away meanwhile: then it runs where the system puts it
            os.sched_setaffinity(0, [spec["core"]])  # before a library makes threads, which take it over
    os.chdir(spec["cwd"])
    sys.path[:] = spec["sys_path"]
    sys.argv[:] = [""]
    run, number = RunFolder.of(Path(spec["dir"])), spec["worker"]
    role, replicas = ("worker", run.job["replicas"]) if number < run.workers else ("evaluator", 1)
    here = Here(run, number, run.workers, replicas, run.job["mode"], spec["clock"], role, spec["host"])
    environment.enter(here)
    here.folder.path.mkdir(mode=0o700, exist_ok=True)
    # Temporary files go with the run's directory: a worker is killed in the end and cleans up none of its own
    # (AutoGraph leaves one a function).
    Path(spec["env"]["TMPDIR"]).mkdir(mode=0o700, exist_ok=True)
    tempfile.tempdir = None  # a forked worker has its parent's
    _redirect(here.folder.path)
    return here


def _redirect(folder: Path) -> None:
    """File descriptors 1 and 2 go to the log, so that C++ output does too. A file never blocks its writer."""
    log = os.open(folder / "log.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    sys.stdin = open(os.devnull)  # noqa: SIM115  (the process's own stdin, open to its end)
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        text = open(descriptor, "w", 1, "utf-8", "backslashreplace", closefd=False)  # noqa: SIM115  (as above)
        setattr(sys, name, text)
        setattr(sys, f"__{name}__", text)
    faulthandler.enable(file=sys.stderr)  # a crash in C++ leaves the Python lines that led to it in the log
    stacks = open(folder / "stacks.txt", "w")  # noqa: SIM115  (the signal handler writes to it at any time)
    faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=True)


def _work(spec: WorkerSpec, here: Here, other_keras: bool) -> None:
    job = here.run.job
    _prepare_libraries(here, job)
    if os.environ.get("DTK_MARKS") != "0":
        marks.listen(functools.partial(_mark, here))
    watch_updates(here)
    if job["follow"]:
        from dtk.worker import follow  # which only followers need

        watch(follow.Follower(here, job["follow"]))
    elif job["states"] and not spec["again"]:
        states.listen(here)
    wrapt.register_post_import_hook(lambda _module: _imported(here, spec["listen"]), "tensorflow")
    ship.unpack_sources(json.loads((here.run.path / "sources.json").read_text()))
    call = "evaluator.pkl" if here.role == "evaluator" else "function.pkl"
    fn, args, kwargs = keras2.loads((here.run.path / call).read_bytes(), other_keras)
    if ship.takes_strategy(fn):
        strategy = strategy_of(here, spec["alone"])
        args, kwargs = ship.fill_strategy(fn, args, kwargs, strategy)
    here.journal.event(events.Running(here.now()))
    result = None
    with contextlib.suppress(states.Ended):  # a follower has seen enough
        result = fn(*args, **kwargs)
    states.finish()
    progress(here).finish()
    write_updates(here)
    here.folder.save_result(ship.pack_result(result))
    del fn, args, kwargs, result
    gc.collect()  # what the function has left: summary writers flush then


def _mark(here: Here, kind: str, began: float, ended: float, size: int) -> None:
    """Writes down when this worker waited for data, or took part in an all-reduce.

    TensorFlow's clock is the wall clock; the two are compared anew each time, as the wall clock may be set.
    """
    shift = time.time() - time.monotonic() + here.clock
    here.journal.mark(kind, began - shift, ended - shift, size)


def _imported(here: Here, host: str | None) -> None:
    narrow = binding.narrow(host or "127.0.0.1")
    here.journal.event(events.Imported(here.now(), open=host is not None and not narrow))


def _prepare_libraries(here: Here, job: dict[str, Any]) -> None:
    """Seeds and corrections, for each library at the moment it is imported; at once where it has been."""
    import random

    seed, replicas, follows = job["seed"], here.replicas, job["follow"]

    def of_tensorflow(tensorflow: Any) -> None:
        keras2.follow()
        if seed is not None:
            tensorflow.random.set_seed(seed)
        strategies.send_small_messages()
        if replicas > 1:
            split(replicas)

    if seed is not None:
        random.seed(seed)
        wrapt.register_post_import_hook(lambda numpy: numpy.random.seed(seed), "numpy")
        for name in ("keras", "tf_keras"):
            # Keras draws initial weights from a seed of its own: tf.random.set_seed alone does not fix them.
            wrapt.register_post_import_hook(lambda keras: keras.utils.set_random_seed(seed), name)
    wrapt.register_post_import_hook(of_tensorflow, "tensorflow")
    keras3.when_imported()  # after the seeds
    saves.when_imported()
    if follows:
        saves.hide(Path(follows["dir"]), here.run.path)
    strategies.leave_datasets_untuned()
    training = "tensorflow_estimator.python.estimator.training"
    wrapt.register_post_import_hook(lambda module: estimators.apply(EstimatorListener(here), replicas), training)
    if job["without"]:
        from dtk.compat import without  # which only some followers need

        without.apply(job["without"])
    if job["record"]:
        saves.in_each_fit(Recorder)
    # A program's baseline, and its follower, have a TF_CONFIG, in which it may read the number of workers.
    if here.role == "evaluator" or (here.mode != "cluster" and "TF_CONFIG" in os.environ):
        strategies.alone()
    if "counts" in follows:
        strategies.counts(follows["counts"])
    strategies.join_once()
    workers = follows.get("workers", 0)
    if workers > 1:
        feeds.read_by_worker(workers, follows.get("each", replicas // workers), joined="pipelines" in follows)
    if replicas > 1:
        strategies.several(replicas, follows=workers)


def strategy_of(here: Here, alone: bool = False) -> Any:
    """What the parameter `strategy` is filled with. alone: without the other workers, though here.mode has them."""
    if here.mode == "cluster" and not alone:
        return tf.distribute.MultiWorkerMirroredStrategy()
    if here.mode == "mirrored":
        return tf.distribute.MirroredStrategy(of_replicas(here.replicas))
    return tf.distribute.get_strategy()


def _record_failure(here: Here, error: BaseException) -> int:
    at = here.now()
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None and trace.tb_frame.f_globals.get("__name__") in _ABOVE:
        trace = trace.tb_next  # the learner's own lines are what helps; ours above them are not
    text = "".join(traceback.format_exception(type(error), error, trace))
    try:
        sys.stderr.write(text)
        kind, message = causes.message_of(error)
        if environment.isolated() and causes.wanted_a_network(error):
            words = N_(
                "{error} (this run is isolated: it has no network; fetch what it needs before, or unset DTK_ISOLATE)"
            )
            message = _(words, error=message)
        here.folder.save_error(kind, message, text, causes.by_a_peer(error))
        here.journal.event(events.Failed(at))
    except OSError:
        pass  # a full disk: the kernel sees the exit code and the disk
    code = error.code if isinstance(error, SystemExit) else 1
    return code if isinstance(code, int) else int(code is not None)


def flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            pass  # a full disk, or a stream the learner closed: the result is worth more than its last line
    ctypes.CDLL(None).fflush(None)  # what C code printed through stdio


# ---- the devices of several replicas in one worker: parts of its GPU where it has one, parts of its CPU otherwise

_LEFT_FREE = 1024  # MB of a GPU that stay outside of what TensorFlow divides: CUDA's own context, cuDNN's workspace
_LEAST = 512  # MB for a replica
_UNKNOWN = 2048  # MB for a replica where nothing tells what is free: every lesson fits, and so does a T4's memory


def split(replicas: int) -> None:
    """Makes as many logical CPUs, and as many GPUs of a single one; only possible before TensorFlow's first operation.

    A logical GPU needs a limit of its own, https://www.tensorflow.org/guide/gpu#using_multiple_logical_gpus.
    """
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * replicas)
    gpus = tf.config.list_physical_devices("GPU")
    if 0 < len(gpus) < replicas:
        part = tf.config.LogicalDeviceConfiguration(memory_limit=_megabytes(replicas))
        tf.config.set_logical_device_configuration(gpus[0], [part] * replicas)


def of_replicas(replicas: int) -> list[str]:
    """The names of the replicas' devices, after `split`; all of a kind, as MirroredStrategy wants them."""
    kind = "GPU" if len(tf.config.list_logical_devices("GPU")) >= replicas else "CPU"
    return [f"{kind}:{index}" for index in range(replicas)]


def _megabytes(replicas: int) -> int:
    """A replica's part of the memory that is free on the fullest GPU, in MB."""
    printed = limits.nvidia_smi("--query-gpu=memory.free", "--format=csv,noheader,nounits").split()
    if not printed or not all(map(str.isdecimal, printed)):
        return _UNKNOWN  # no such program, or an answer in other words
    return max(_LEAST, (min(map(int, printed)) - _LEFT_FREE) // replicas)
