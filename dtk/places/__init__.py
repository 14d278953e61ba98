"""Where the workers of `dtk.run(fn, on=...)` are: other machines, which an engine of their own lends.

    dtk.run(train, workers=2, on="ray")
    dtk.run(train, workers=4, on=dtk.places.Slurm(partition="gpu", time="1:00:00"))

`hosts`, `slurm` and `ray` lend machines, `engine` checks them and starts workers through an agent on each
(`dtk.launch.agent`); `export`, with `templates`, writes what starts without a kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dtk.errors import ClusterConfigError
from dtk.language import N_, _
from dtk.launch.place import Place
from dtk.places.engine import Engine
from dtk.places.hosts import Hosts, Practice
from dtk.places.ray import Ray
from dtk.places.slurm import Slurm

__all__ = ["Hosts", "Practice", "Ray", "Slurm"]

_NAMED: dict[str, Engine] = {}  # by what `on` says: their agents stay for the next run
_KINDS: dict[str, Callable[[], Engine]] = {"ray": Ray, "slurm": Slurm}


def named(on: Any) -> Place:
    """The place that `dtk.run(..., on=on)` means."""
    if isinstance(on, Engine):
        return on
    if isinstance(on, str) and on in _KINDS:
        return _NAMED.setdefault(on, _KINDS[on]())
    names = ", ".join(f'"{name}"' for name in _KINDS)
    words = N_("on={on!r}: it takes {names}, or what a class of dtk.places makes, such as dtk.places.Ray(...)")
    raise ClusterConfigError(_(words, on=on, names=names))
