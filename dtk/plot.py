"""Figures and labs: records in, matplotlib Axes out.

Each function takes what `dtk.run` and `dtk.baseline` return, or the error of a run that failed, draws on `ax` or on
a new figure, and returns the Axes. Colors of text and lines follow matplotlib's current style, light or dark.
`axes` and `headline` are for figures of your own that are to look like these.
"""

import functools
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


def _refusing(draw: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function so that it raises TypeError where an argument does not have what is to be drawn."""

    @functools.wraps(draw)
    def refusing(*args: Any, **kwargs: Any) -> Any:
        try:
            return draw(*args, **kwargs)
        except AttributeError as error:
            if not any(each is error.obj for each in (*args, *kwargs.values())):
                raise
            words = N_("dtk.plot.{name} can't draw what is of type {kind}; help(dtk.plot.{name}) says what it takes")
            raise TypeError(_(words, name=draw.__name__, kind=type(error.obj).__name__)) from None

    return refusing


globals().update({name: _refusing(globals()[name]) for name in __all__})
