"""Figures and labs: records in, matplotlib Axes out.

Each function takes what `dtk.run` and `dtk.baseline` return, or the error of a run that failed, draws on `ax` or on
a new figure, and returns the Axes. Colors of text and lines follow matplotlib's current style, light or dark.
`axes` and `headline` are for figures of your own that are to look like these.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from dtk.language import N_, _
from dtk.view.canvas import axes as axes
from dtk.view.canvas import headline as headline
from dtk.view.fault_lab import fault_lab as fault_lab
from dtk.view.loss_scaling import loss_scaling as loss_scaling
from dtk.view.loss_scaling import loss_scaling_lab as loss_scaling_lab
from dtk.view.processes import fan as fan
from dtk.view.processes import processes as processes
from dtk.view.processes import wait_for as wait_for
from dtk.view.proof import difference as difference
from dtk.view.proof import proof as proof
from dtk.view.ring import ring as ring
from dtk.view.sharding import sharding as sharding
from dtk.view.throughput import efficiency as efficiency
from dtk.view.throughput import overlap as overlap
from dtk.view.throughput import step_time as step_time
from dtk.view.throughput import throughput as throughput
from dtk.view.timeline import restarts as restarts
from dtk.view.timeline import timeline as timeline
from dtk.view.what_if import what_if as what_if
from dtk.view.what_if import what_if_lab as what_if_lab

__all__ = sorted(name for name, value in globals().items() if getattr(value, "__module__", "").startswith("dtk.view."))

_TAKEN = {  # a class in the signature of a function -> what one of it is
    "Axes": N_("Axes of matplotlib"),
    "Callable[..., Any]": N_("a function"),
    "Cluster": "dtk.model.Cluster",
    "Job": "dtk.model.Job",
    "Proof": N_("what dtk.verify returned"),
    "Recorded": N_("a run from dtk.run or dtk.baseline, or the error of a run that failed"),
    "Sharding": N_("what dtk.shards returned"),
    "Study": N_("a study from dtk.study"),
}


def _checked(draw: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function so that it raises TypeError, with what it takes, where an argument is of another class."""
    signature = inspect.signature(draw)

    @functools.wraps(draw)
    def checked(*args: Any, **kwargs: Any) -> Any:
        for name, value in signature.bind_partial(*args, **kwargs).arguments.items():
            kinds = str(signature.parameters[name].annotation).split(" | ")
            known = [_(_TAKEN[kind]) for kind in kinds if kind in _TAKEN]
            several = signature.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL
            for each in (value if several else [value]) if known else []:
                has = {*(base.__name__ for base in type(each).__mro__), "Callable[..., Any]" if callable(each) else ""}
                if has.isdisjoint(kinds) and (each is not None or "None" not in kinds):
                    words = N_("dtk.plot.{function}: {name} is of type {kind}; it takes {known}")
                    facts = {"name": name, "kind": type(each).__name__, "known": _(" or ").join(known)}
                    raise TypeError(_(words, function=draw.__name__, **facts))
        return draw(*args, **kwargs)

    return checked


globals().update({name: _checked(globals()[name]) for name in __all__})
