"""`dtk doctor`: what works here, what doesn't, and what to do about it; only its last look imports TensorFlow."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterator
from typing import NamedTuple

from dtk import environment, limits
from dtk.compat import libraries
from dtk.errors import DtkError
from dtk.language import N_, _, columns
from dtk.launch import request
from dtk.runs import run

PACKAGES = ("tensorflow", "keras", "tf-keras", "tensorflow-datasets", "ipywidgets", "jupyterlab", "numpy", "dtk")
TESTED = ((2, 15), (2, 21))  # TensorFlow, from and to
DISK = 2e9  # bytes; below it a warning: checkpoints, logs and tensorflow-datasets want room


class Finding(NamedTuple):
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
    for look in (_versions, _start, _cores, _memory, _disk, _workers):
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
        words = N_("{version} was not tested; {first} to {last} were")
        yield Finding("note", "tensorflow", _(words, version=tensorflow, first=first, last=last))
    elif refused := libraries.why_not_keras_3():
        yield Finding("bad", "keras", *refused)


def _start() -> Iterator[Finding]:
    if request.fork("auto"):
        yield Finding("ok", N_("start"), _("warm: workers are forked, and train after about a second"))
    else:
        why = _("there is a GPU") if platform.system() == "Linux" else platform.system()
        why = "DTK_WARM=0" if environment.can_fork() else why
        yield Finding("note", "start", _("cold, some 10 s a run: {why}", why=why))


def _cores() -> Iterator[Finding]:
    limit = limits.cores()
    mark, remedy = ("ok", "") if limit.value > 1 else ("note", _("workers share one: right results, only slower"))
    yield Finding(mark, N_("cores"), str(limit), remedy)


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
    remedy = "" if free > DISK else _("free some, or set TMPDIR to a directory on another disk")
    yield Finding("ok" if free > DISK else "note", "runs", said, remedy)


def _workers() -> Iterator[Finding]:
    try:
        with environment.quiet():
            pids = run(os.getpid, workers=2, start="cold", force=True).results
    except DtkError as error:
        yield Finding("bad", N_("workers"), _("two did not start: {why}", why=error))
    else:
        yield Finding("ok", "workers", _("two started and ended ({n} processes)", n=len(set(pids))))
