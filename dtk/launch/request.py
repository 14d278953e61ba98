"""What is asked for, checked before any process starts: each refusal is one sentence that says what to ask for."""

from __future__ import annotations

import importlib
import inspect
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from dtk import environment, errors, limits
from dtk.compat.libraries import installed_keras_2, keras_2_chosen, why_not_keras_3
from dtk.errors import ClusterConfigError, one_of, seconds, whole_number
from dtk.language import N_, _, ngettext
from dtk.launch.place import chief_config
from dtk.launch.program import Program
from dtk.launch.warm import is_warm
from dtk.worker import ship

if TYPE_CHECKING:
    from dtk.faults import Fault

_NO_NETWORK = N_("faults: {fault}: a single worker has no network to lose; ask for two (on Colab with force=True)")
MOST_WORKERS = 1024  # on other machines
MOST_REPLICAS = 16  # in a worker; on Colab, in place of workers
# Bytes (PSS), from docs/evidence/facts.md: a parent that has imported TensorFlow, a worker that trained a small CNN.
_PARENT, _FORKED, _FRESH = 600e6, 250e6, 550e6


@dataclass(frozen=True)
class Options:
    """What `dtk.run` is rarely asked for, each by name: `dtk.run(train, restarts=1)`.

    Attributes:
        faults: what goes wrong, made by `dtk.faults`. Those that never came are named after the run.
        restarts: how often the whole cluster starts again, in the same run directory, after WorkerFailed or
            WorkerStalled. `fn` is called anew, and continues from what it saved there, if it looks. See `Run.attempts`.
        start: "warm" (workers are forked from a process that has imported TensorFlow), "cold" (fresh interpreters) or
            "auto" (warm where that is safe; cold for a program, whose own settings must come before its imports).
        force: starts them where dtk would not: several on Colab (docs/guide/colab.md), more than free memory allows, or
            with a Keras 3 below 3.12, which computes distributed training wrongly.
        argv: what follows a program on its command line.
        record: True records every Keras `fit`, as if `dtk.Recorder()` were among its callbacks.
        gpus_per_worker: how many of this machine's GPUs each worker sees, as its own; several take `replicas=` as many.
            An evaluator sees none. None: each sees all.
    """

    faults: Sequence[Fault] = ()
    restarts: int = 0
    start: str = "auto"
    force: bool = False
    argv: Sequence[str] = ()
    record: bool = False
    gpus_per_worker: int | None = None


def options(call: str, given: Mapping[str, Any], only: Sequence[str] = ()) -> Options:
    """The options that a call (of "run") was given by name; TypeError for one that it has not. only: those it has."""
    names = only or [each.name for each in fields(Options)]
    for name in given:
        if name not in names:
            raise TypeError(f"dtk.{call}() has no argument {name!r}; its options are {', '.join(names)}")
    return Options(**given)


def memory_needed(workers: int, forked: bool) -> float:
    """Bytes that so many workers take with TensorFlow and a small model, beyond what runs now."""
    return _PARENT * (not is_warm(forked)) * forked + workers * (_FORKED if forked else _FRESH)


def check_memory(workers: int, forked: bool, force: bool = False) -> None:
    """Enough memory by the limit that holds here: a worker that is killed for want of it says nothing of the cause."""
    if force:
        return
    needed, free = memory_needed(workers, forked), limits.memory()
    if free.value < needed:
        words = N_(
            "workers={workers}: they need about {needed:,.0f} MB, and {source} leaves {free:,.0f}; shut down other "
            "kernels, ask for fewer workers (or replicas=2 in one), or dtk.run(..., force=True) to try"
        )
        size = {"needed": needed / 1e6, "free": free.value / 1e6}
        raise ClusterConfigError(_(words, workers=workers, source=_(free.source), **size))


def check_sizes(workers: Any, replicas: Any = 1, here: bool = True) -> None:
    """Numbers of workers and of replicas in each that can be started together; here: on this machine."""
    cores = environment.cores()
    most_workers = max(16, 4 * cores) if here else MOST_WORKERS
    for name, value, most in (("workers", workers, most_workers), ("replicas", replicas, MOST_REPLICAS)):
        if whole_number(name, value) > most:
            words = N_("{name}={value}: this machine has {cores} cores, and dtk starts at most {most} here")
            raise ClusterConfigError(_(words, name=name, value=value, cores=cores, most=most))


def checked_gpus(asked: Any, workers: int, replicas: int, here: bool) -> tuple[str, ...]:
    """What each worker sees of this machine's GPUs, () for all; here: the workers are on this machine."""
    if asked is None:
        return ()
    whole_number("gpus_per_worker", asked)
    if not here:
        words = N_(
            "gpus_per_worker={asked} with on=: it divides the GPUs of this machine; elsewhere the place's own "
            "scheduler does"
        )
        raise ClusterConfigError(_(words, asked=asked))
    if 1 < asked != replicas:
        words = N_(
            "gpus_per_worker={asked} with replicas={replicas}: each of a worker's GPUs has one replica; pass "
            "replicas={asked}"
        )
        raise ClusterConfigError(_(words, asked=asked, replicas=replicas))
    seen, source = visible_gpus()
    if len(seen) < workers * asked:
        words = ngettext(
            "gpus_per_worker={asked} with workers={workers}: they need {n} GPU, and this machine shows {seen} (by "
            "{source})",
            "gpus_per_worker={asked} with workers={workers}: they need {n} GPUs, and this machine shows {seen} (by "
            "{source})",
            workers * asked,
            **{"asked": asked, "workers": workers, "seen": len(seen), "source": source},
        )
        raise ClusterConfigError(words)
    return tuple(",".join(seen[k * asked : (k + 1) * asked]) for k in range(workers))


def check_times(timeout: Any, stall_timeout: Any) -> None:
    """Seconds above 0, or None for no limit."""
    for name, value in (("timeout", timeout), ("stall_timeout", stall_timeout)):
        if value not in (None, math.inf):
            seconds(name, value)


def checked_seed(seed: Any) -> int | None:
    """A seed that Python, NumPy and TensorFlow all take."""
    return None if seed is None else whole_number("seed", seed, 0, 2**32 - 1)


def checked_faults(faults: Any, workers: int, fn: Any) -> tuple[Fault, ...]:
    """Faults that can come: on a worker that there is, in a start of the cluster that there may be."""
    if isinstance(faults, tuple) and not faults:
        return ()
    from dtk.faults import Fault  # which a run without faults does without

    if isinstance(faults, Fault) or not isinstance(faults, (list, tuple)):
        words = N_("faults={faults!r}: it takes a list, such as [dtk.faults.kill(worker=1, step=20)]")
        raise ClusterConfigError(_(words, faults=faults))
    for fault in faults:
        words = ""
        if not isinstance(fault, Fault):
            words = N_(
                "faults: {fault!r} is no fault; it takes what the functions of dtk.faults make, such as "
                "dtk.faults.kill(worker=1, step=20)"
            )
        elif fault.worker >= workers:
            words = N_("faults: {fault} with workers={workers}: worker {last} is the last")
        elif fault.kind == "drop_network" and workers == 1:
            words = _NO_NETWORK
        elif fault.kind == "nan" and uses_estimator(fn):
            words = N_(
                "faults: {fault} with an Estimator: an Estimator's variables can't be reached from outside; nan is for "
                "fit and for loops"
            )
        if words:
            raise ClusterConfigError(_(words, fault=fault, workers=workers, last=workers - 1))
    return tuple(faults)


def fork(start: str, fn: Any = None) -> bool:
    """Whether workers are forked, by what `start` asks for and this machine allows.

    A program expects to be the first to import TensorFlow: what it sets in its environment before must count.
    """
    one_of("start", start, ("auto", "warm", "cold"))
    if start == "auto":
        return environment.forks() and not isinstance(fn, Program)
    if start == "warm" and not environment.can_fork():
        words = N_("start='warm': workers are forked on Linux without a GPU only; use 'cold' or 'auto'")
        raise ClusterConfigError(_(words))
    return start == "warm"


def of_each_job(
    fn: Any,
    seed: Any,
    keras: Any,
    start: str,
    timeout: float | None,
    record: bool,
    baseline_of: int = 0,
    force: bool = False,
) -> dict[str, Any]:
    """The fields of a RunJob that a cluster and a baseline (of so many workers) have, but for the call itself."""
    if environment.here() is not None:  # what it starts would import the file and start workers, and so without end
        raise ClusterConfigError(
            _("a worker can't start workers: it has imported a file that calls dtk.run or dtk.baseline as it is read"),
            remedy=_('put the call under `if __name__ == "__main__":`, or the function into a file of its own'),
        )
    return {
        "seed": checked_seed(seed),
        "keras": checked_keras(keras, fn, force),
        "fork": fork(start, fn),
        "timeout": timeout,
        "record": bool(record),
        "env": program_environment(fn, bool(record), baseline_of),
        "program": fn.name if isinstance(fn, Program) else "",
    }


def program_environment(fn: Any, record: bool, baseline_of: int = 0) -> dict[str, str | None]:
    """What a program's workers have in their environment beyond the kernel's; nothing for a function.

    baseline_of: workers of the cluster, where this is one device.
    """
    found: dict[str, str | None] = {}
    if not isinstance(fn, Program):
        return found
    if not (record or fn.uses("dtk")):
        # Marks and states take a worker's time, and without records nothing is made of them.
        found |= {name: os.environ.get(name, "0") for name in ("DTK_MARKS", "DTK_STATES")}
    if baseline_of and not fn.uses("estimator"):
        found["TF_CONFIG"] = chief_config(baseline_of)
    return found


_GIVE = N_("give args=(...) or kwargs={...}")


def pack(fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None, remedy: str = _GIVE) -> bytes:
    """The call as bytes, after a check that it can be made; NotShippable where it can't travel.

    remedy: where it can't be made with these arguments.
    """
    if not callable(fn):
        raise ClusterConfigError(_("fn is {fn!r}, not a function; pass the function itself, without ()", fn=fn))
    label = getattr(fn, "__name__", type(fn).__name__)
    if inspect.iscoroutinefunction(fn) or inspect.isgeneratorfunction(fn):
        words = N_("`{function}` is a coroutine or generator; write an ordinary function")
        raise ClusterConfigError(_(words, function=label))
    if ship.uses(fn, "datasets"):  # cloudpickle names what is loaded: so the same function is the same bytes
        importlib.import_module("dtk.datasets")
    given = tuple(args), dict(kwargs or {})
    filled = ship.fill_strategy(fn, *given, None) if ship.takes_strategy(fn) else given
    try:
        inspect.signature(fn).bind(*filled[0], **filled[1])
    except ValueError:
        pass  # a builtin that tells nothing of its parameters: the call itself will
    except TypeError as error:
        words = _("`{function}` can't be called so: {error}", function=label, error=error)
        raise ClusterConfigError(words, remedy=_(remedy)) from None
    return ship.pack(fn, *given)


def pack_evaluator(evaluator: Any, call: tuple[Any, Any, Any], mode: str) -> bytes | None:
    """What the evaluator calls, as bytes; None for no evaluator.

    call: function and arguments of the workers, which are the evaluator's where `evaluator` is True.
    """
    if evaluator is None or evaluator is False:
        return None
    if evaluator is not True and not callable(evaluator):
        words = N_(
            "evaluator={evaluator!r}: it takes True (the evaluator runs the workers' function), a function of its own, "
            "or None"
        )
        raise ClusterConfigError(_(words, evaluator=evaluator))
    if mode != "cluster":
        words = N_(
            "evaluator= with mode {mode}: an evaluator stands beside a cluster of workers; with replicas in one "
            "process, ask for replicas=1, or evaluate in the function itself"
        )
        raise ClusterConfigError(_(words, mode=mode))
    if evaluator is True:
        return pack(*call)
    remedy = N_("an evaluator gets no arguments but `strategy`: use defaults, or functools.partial")
    return pack(evaluator, (), None, remedy)


# ---- which Keras the workers use


def checked_keras(keras: Any, fn: Any, force: bool = False) -> int | None:
    """Which Keras the workers use: tf_keras where `fn` uses dtk.estimator and TensorFlow's own Keras is Keras 3.

    force: with a Keras 3 that is refused, too, or the workers have a Keras of their own.
    """
    if keras not in (None, 2, 3):
        words = N_("keras={keras!r}: it takes 2 (tf_keras), 3, or None for TensorFlow's own choice")
        raise ClusterConfigError(_(words, keras=keras))
    older = installed_keras_2()
    if keras == 3 and older is not None:
        words = N_(
            "keras=3: the keras installed here is {older}, which belongs to TensorFlow 2.15 and before; leave keras= "
            "out, or install TensorFlow 2.16 or later"
        )
        raise ClusterConfigError(_(words, older=older))
    if older is not None:
        return None  # TensorFlow's own choice is Keras 2
    if uses_estimator(fn):  # TensorFlow's own was last in 2.15
        if keras == 3:
            words = _("keras=3 with dtk.estimator: a model_fn can't hold Keras 3 layers; leave keras= out")
            raise ClusterConfigError(words)
        errors.need("estimator", "dtk.estimator")
        return 2
    if keras == 2:
        errors.need("keras2", "keras=2")
    elif not force and (keras == 3 or not keras_2_chosen()) and (refused := why_not_keras_3()):
        raise ClusterConfigError(refused[0], remedy=refused[1])
    return keras


def uses_estimator(fn: Any) -> bool:
    """Whether the function or program uses dtk.estimator."""
    return fn.uses("estimator") if isinstance(fn, Program) else ship.uses(fn, "estimator")


# ---- which of this machine's GPUs each worker sees, so that none takes another's


_VARIABLE = "CUDA_VISIBLE_DEVICES"
_NONE = "-1"


def visible_gpus() -> tuple[list[str], str]:
    """The GPUs that this user may see, as CUDA names them, and what says so."""
    given = os.environ.get(_VARIABLE)
    if given is not None:
        named = [each.strip() for each in given.split(",")]
        valid = named.index(_NONE) if _NONE in named else len(named)  # CUDA looks at none behind an invalid one
        return [each for each in named[:valid] if each], f"{_VARIABLE}={given}"
    listed = limits.nvidia_smi("-L").splitlines()
    count = sum(line.startswith("GPU ") for line in listed)  # parts of one (MIG) are indented
    return [str(number) for number in range(count)], "nvidia-smi"


def gpu_environment(shares: Sequence[str], member: int) -> dict[str, str]:
    """What shows a member its share; an evaluator, whose number follows the workers', sees no GPU."""
    return {_VARIABLE: shares[member] if member < len(shares) else _NONE} if shares else {}


# ---- what is started on Colab, whose machine has two cores and at most one GPU


@dataclass(frozen=True)
class Layout:
    """What of a request is started. share: processes that the cores are divided among. said: lines for the learner."""

    workers: int
    replicas: int
    share: int
    faults: tuple[Fault, ...]
    said: tuple[str, ...] = ()


def layout(fn: Any, workers: int, replicas: int, faults: tuple[Fault, ...], beside: bool, force: Any) -> Layout:
    """The request itself, or, on Colab, one worker in place of several, with a replica for each of them.

    Several replicas are MirroredStrategy's, so they need a function that takes `strategy`, and no evaluator (`beside`)
    which needs a cluster to stand beside. A function that uses `dtk.ring` keeps its workers: they need no TensorFlow,
    and a ring of one has nothing to exchange. force: start what was asked for, also there.
    """
    if workers == 1 or force or not environment.on_colab() or ship.uses(fn, "ring"):
        return Layout(workers, replicas, workers, faults)
    for fault in faults:
        if fault.kind == "drop_network":
            raise ClusterConfigError(_(_NO_NETWORK, fault=fault))
    words = N_("{fault} needs two workers; here it comes to worker 0")
    said = [_(words, fault=fault) for fault in faults if fault.worker > 0]
    moved = tuple(dict.fromkeys(replace(fault, worker=0) for fault in faults))
    count = min(workers * replicas, MOST_REPLICAS) if ship.takes_strategy(fn) and not beside else 1
    here = N_("1 worker with {count} replicas")
    if count == 1:
        here = N_("1 worker with 1 replica (an evaluator is asked for, or the function takes no `strategy`)")
    line = N_(
        "on Colab, {here} instead of {workers} workers, which need a core each and, with a GPU, a GPU each; "
        "dtk.run(..., force=True) tries them"
    )
    line = _(line, here=_(here, count=count), workers=workers)
    # A single replica gets the core that a baseline has; the rest is a second worker's, or the evaluator's.
    return Layout(1, count, workers if count == 1 else 1, moved, (line, *said))
