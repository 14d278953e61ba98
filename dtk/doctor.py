"""`dtk doctor`: what works here, what doesn't, and what to do about it; only its last look imports TensorFlow."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dtk import environment, limits
from dtk.compat import estimators, libraries
from dtk.errors import DtkError
from dtk.extras import page
from dtk.language import N_, _, columns
from dtk.launch import request
from dtk.runs import run

__all__ = ["Finding", "examine"]

PACKAGES = ("tensorflow", "keras", "tf-keras", "tensorflow-datasets", "ipywidgets", "jupyterlab", "numpy", "dtk")
TESTED = ((2, 15), (2, 21))  # TensorFlow, from and to
DISK = 2e9  # bytes; below it a warning: checkpoints, logs and tensorflow-datasets want room


@dataclass(frozen=True)
class Finding:
    """mark: "ok", "note" (works, but know it) or "bad" (does not work). remedy: "" where there is nothing to do."""

    mark: str
    name: str
    said: str
    remedy: str = ""

    def __str__(self) -> str:
        name = _(self.name)
        line = f"{self.mark:5} {name}{' ' * (11 - columns(name))} {self.said}"
        return f"{line}\n{'':17} -> {self.remedy}" if self.remedy else line


def examine() -> Iterator[Finding]:
    """What it finds, one by one, as it finds it."""
    for look in (_versions, _start, _cores, _memory, _disk, _loopback, _workers, _isolation):
        yield from look()


def _versions() -> Iterator[Finding]:
    found = environment.versions(*PACKAGES)
    yield Finding("ok", N_("system"), f"{platform.system()} {platform.machine()}, Python {found.pop('Python')}")
    yield Finding("ok", N_("packages"), ", ".join(f"{name} {number}" for name, number in found.items() if number))
    tensorflow = found["tensorflow"]
    if tensorflow is None:
        yield Finding("bad", "tensorflow", _("is not installed"), "pip install tensorflow")
    elif not TESTED[0] <= tuple(int(part) for part in tensorflow.split(".")[:2]) <= TESTED[1]:
        first, last = (".".join(map(str, number)) for number in TESTED)
        said = _("{version} was not tested", version=tensorflow)
        yield Finding("note", "tensorflow", said, _("{first} to {last} were", first=first, last=last))
    else:
        refused = libraries.why_not_keras_3()
        if refused:
            yield Finding("bad", "keras", *refused)
        else:
            two = libraries.installed_keras_2()
            yield Finding("ok", "keras", "Keras 2" if two else _("Keras 3; Keras 2 by dtk.run(..., keras=2)"))
        revived = _("revived ({page})", page=page("explanation/estimator.md"))
        yield Finding("ok", "estimator", _("TensorFlow's own") if estimators.is_native() else revived)


def _start() -> Iterator[Finding]:
    if not environment.can_fork():
        why = _("this is {system}", system=platform.system())
        why = _("there is a GPU") if Path("/dev/nvidia0").exists() else why
        yield Finding("note", N_("start"), _("cold, some 10 s a run: {why}, where workers can't be forked", why=why))
    elif request.fork("auto"):
        yield Finding("ok", "start", _("warm: workers are forked, and train after about a second"))
    else:
        yield Finding("note", "start", _("cold, some 10 s a run: DTK_WARM=0"), _("unset DTK_WARM"))


def _cores() -> Iterator[Finding]:
    limit = limits.cores()
    if limit.value < 2:
        remedy = _("two workers share one: right results, and slower than one worker")
        yield Finding("note", N_("cores"), str(limit), remedy)
    else:
        yield Finding("ok", "cores", str(limit))


def _memory() -> Iterator[Finding]:
    free, needed = limits.memory(), request.memory_needed(2, request.fork("auto"))
    words = N_("{free:,.0f} MB free, by {source}; two workers need about {needed:,.0f}")
    said = _(words, free=free.value / 1e6, source=_(free.source), needed=needed / 1e6)
    enough = free.value >= needed
    remedy = "" if enough else _("shut down other kernels; one worker, or replicas=2 in one, needs less")
    yield Finding("ok" if enough else "bad", N_("memory"), said, remedy)


def _disk() -> Iterator[Finding]:
    try:
        place = environment.scratch()
    except DtkError as error:
        yield Finding("bad", N_("runs"), str(error))
        return
    free = shutil.disk_usage(place).free
    said = _("kept in {place}, readable by you only; {free:,.1f} GB free", place=place, free=free / 1e9)
    remedy = "" if free > DISK else _("set TMPDIR to a directory on another disk")
    yield Finding("ok" if free > DISK else "note", "runs", said, remedy)


def _loopback() -> Iterator[Finding]:
    try:
        with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname(), 2):
            yield Finding("ok", N_("loopback"), _("127.0.0.1 takes connections"))
    except OSError as error:
        remedy = _("workers can't talk to each other; use one worker, with replicas=2")
        yield Finding("bad", "loopback", _("127.0.0.1 takes no connections ({why})", why=error.strerror), remedy)


def _workers() -> Iterator[Finding]:
    try:
        with environment.quiet():
            pids = run(os.getpid, workers=2, start="cold", force=True).results
    except DtkError as error:
        yield Finding("bad", N_("workers"), _("two did not start: {why}", why=error))
        return
    yield Finding("ok", "workers", _("two started and ended ({n} processes)", n=len(set(pids))))
    if environment.on_colab():
        remedy = _("dtk.run(..., force=True) tries more")
        yield Finding("note", "colab", _("one worker stands in for several"), remedy)


def _isolation() -> Iterator[Finding]:
    try_it = "from dtk.worker import process; process.isolate()"
    done = subprocess.run([sys.executable, "-c", try_it], capture_output=True, text=True)
    if done.returncode:
        why = done.stderr.strip().rpartition("\n")[2]
        yield Finding("note", N_("isolation"), _("DTK_ISOLATE=1 is not possible here: {why}", why=why))
    else:
        said = _("DTK_ISOLATE=1 keeps other users of this machine out")
        yield Finding("ok", "isolation", said)
