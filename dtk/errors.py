"""What can go wrong, as a tree. Every message says what happened, with the numbers, and what to do.

DtkError
├── ClusterConfigError    the request can't be carried out (0 workers, an argument missing); nothing was started
├── NotShippable          the function, or something it uses, can't travel to another process
├── WorkerFailed          a worker raised, exited or was killed; carries logs and records
├── WorkerStalled         no worker made progress for `stall_timeout` seconds; carries every worker's stack
├── RunTimeout            the run took longer than `timeout` seconds
├── VerificationError     the cluster computed something else than the baseline
└── DatasetUnavailable    the data can't be had, or what lies in the cache is damaged

RunInterrupted is a KeyboardInterrupt and no DtkError, so that code which catches errors does not catch it.
"""

from __future__ import annotations

import copyreg
import importlib.util
import math
import os
import re
import sys
import traceback
from collections.abc import Collection, Mapping, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from dtk.language import N_, _, ngettext
from dtk.records.tables import Recorded

if TYPE_CHECKING:
    from dtk.proof.proof import Proof
    from dtk.records import RunFolder

# The message for a function, or a program, whose workers don't know of each other; to be filled with their number.
ALONE = N_(
    "no strategy joins the workers, so each of the {workers} trains alone, on everything; two lines make it one "
    "training: strategy = tf.distribute.MultiWorkerMirroredStrategy(), and `with strategy.scope():` around model and "
    "optimizer"
)
# As pyproject.toml has them; tests/test_project.py compares.
DISTRIBUTION, REPOSITORY = "dtk-toolkit", "https://github.com/dtk-toolkit/dtk"
_MODULES = {  # optional dependencies -> the modules that code imports of them
    "estimator": ("tensorflow_estimator", "tf_keras"),
    "keras2": ("tf_keras",),
    "lab": ("jupyterlab",),
    "ray": ("ray",),
    "tensorboard": ("tensorboard",),
}
_OF_A_NODE = re.compile(r"Detected at node .* defined at|\s+\[\[\{\{node .*")
_WIDTH = 100  # letters of a line in IPython
PACKAGE = os.path.dirname(__file__) + os.sep
_INSTALLED = re.compile(r"[/\\](?:site|dist)-packages[/\\](\w+)")
_PYTHON = re.compile(r"[/\\]lib(64)?[/\\]python3[^/\\]*[/\\]|^<frozen|^<string>$")


class _Sentence:
    """In IPython, shows the sentence alone: it helps a learner, frames inside dtk do not."""

    def _render_traceback_(self) -> list[str]:
        """What, then the remedy on lines of its own; a page would break long ones within words."""
        what, remedy = getattr(self, "what", "") or str(self), getattr(self, "remedy", "")
        lines = [*f"{type(self).__name__}: {what}".splitlines(), *([f"  {remedy}"] if remedy else [])]
        return [row for line in lines for row in wrap(line, _WIDTH, break_long_words=False, break_on_hyphens=False)]


def in_words(what: str, remedy: str = "") -> str:
    """The sentence of a failure or a diagnosis, made from its parts.

    >>> in_words("baseline: seed 0, cluster: seed 3", "pass the same seed to both")
    'baseline: seed 0, cluster: seed 3; pass the same seed to both'
    """
    return _("; ").join([what, remedy]) if remedy else what


class DtkError(_Sentence, Exception):
    """The root of everything that dtk raises on purpose. Its message is made from `what` and `remedy`.

    Attributes:
        what: what happened, with the numbers.
        remedy: what to do about it; "" where `what` says that as well.
        numbers: the numbers in `what` by name, where a reader needs them; units are in the class that sets them.
    """

    def __init__(self, what: str = "", *, remedy: str = "", numbers: Mapping[str, float] | None = None):
        super().__init__(in_words(what, remedy))
        self.what = what
        self.remedy = remedy
        self.numbers = dict(numbers or {})

    def __reduce__(self) -> tuple[Any, ...]:
        # The constructors of some subclasses need keywords, which Python's own way of pickling does not pass.
        made = copyreg.__newobj__  # type: ignore[attr-defined]  # typeshed lacks it
        return made, (type(self),), {**self.__dict__, "args": self.args}


class ClusterConfigError(DtkError, ValueError):
    """The request can't be carried out as it stands; no process was started."""


def whole_number(name: str, value: Any, least: int = 1, most: float = math.inf) -> int:
    """The value of an argument; raises ClusterConfigError where it is no whole number from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        words = N_("{name}={value!r}: it takes a whole number of at least {least}")
        if most < math.inf:
            words = N_("{name}={value!r}: it takes a whole number from {least} to {most}")
        raise ClusterConfigError(_(words, name=name, value=value, least=least, most=most))
    return value


def one_of(name: str, value: Any, known: Collection[str]) -> None:
    """Raises ClusterConfigError where the value of an argument is none of these."""
    if value not in known:
        words = N_("{name}={value!r}: it takes one of {names}")
        raise ClusterConfigError(_(words, name=name, value=value, names=", ".join(known)))


def seconds(name: str, value: Any) -> float:
    """The value of an argument in seconds; raises ClusterConfigError where it is no finite number above 0."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise ClusterConfigError(_("{name}={value!r}: it takes seconds above 0", name=name, value=value))
    return float(value)


def command(extra: str) -> str:
    """The command that installs an optional dependency.

    >>> command("keras2")
    'pip install "dtk-toolkit[keras2]"'
    """
    return f'pip install "{DISTRIBUTION}[{extra}]"'


def need(extra: str, who: str) -> None:
    """who: what the user asked for, such as "keras=2". Raises ClusterConfigError where a module is not installed."""
    missing = [name for name in _MODULES[extra] if importlib.util.find_spec(name) is None]
    if missing:
        words = _("{who} needs {modules}, not installed here", who=who, modules=", ".join(missing))
        raise ClusterConfigError(words, remedy=command(extra))


def page(place: str) -> str:
    """The address of a file of this version's documentation.

    >>> page("guide/clusters.md").partition("/docs/")[2]
    'guide/clusters.md'
    """
    return f"{REPOSITORY}/blob/v{sys.modules[__package__].__version__}/docs/{place}"


class NotShippable(DtkError, TypeError):
    """The function, or something that it captures, can't travel to a worker process."""


class VerificationError(DtkError, AssertionError):
    """A check of `dtk.verify` failed.

    Attributes:
        step: the first step at which the runs differ, counted from 1; None where no step is known.
        reason: which check failed, in a word or two (the list is at `dtk.proof.verify`); "uneven batch" where one
            explains the whole difference.
        loss: the name of the loss, where a step has several; None elsewhere.
        proof: the `Proof` of what was looked at; None outside of `dtk.verify`.
    """

    proof: Proof | None = None

    def __init__(
        self, what: str, step: int | None = None, reason: str | None = None, loss: str | None = None, **parts: Any
    ):
        super().__init__(what, **parts)
        self.step = step
        self.reason = reason
        self.loss = loss

    def of_loss(self, name: str) -> VerificationError:
        """The same failure, said of the loss of this name: one of several that a step has."""
        what = _("{name}: {words}", name=name, words=self.what)
        return VerificationError(what, self.step, self.reason, name, remedy=self.remedy, numbers=self.numbers)

    def _render_traceback_(self) -> list[str]:
        lines = super()._render_traceback_()
        # Not part of the message, and not where there are no run and baseline in the right places.
        known = self.reason not in (None, "arguments")
        return [*lines, _("dtk.diagnose(run, baseline) looks for the mistake.")] if known else lines


class DatasetUnavailable(DtkError, OSError):
    """The data can't be had, or what lies in the cache is incomplete; the message has the remedy."""


class RunInterrupted(_Sentence, Recorded, KeyboardInterrupt):
    """Ctrl+C, or Interrupt in a notebook, while a run was under way. Its workers are stopped."""

    def __init__(self, message: str, folder: Any = None):
        super().__init__(message)
        self.folder = folder


class _RunError(Recorded, DtkError):
    """An error of a run that had started.

    Attributes:
        detail: text for people: the traceback, the stacks, the consequences at the other workers.
    """

    def __init__(self, what: str, folder: Any = None, detail: str = "", **parts: Any):
        super().__init__(what, **parts)
        self.folder = folder
        self.detail = detail
        if detail:  # as a cause, which Python prints; so does `concurrent.futures` for its workers
            self.__cause__ = Exception(f"\n\n{detail}")

    def _render_traceback_(self) -> list[str]:
        lines = super()._render_traceback_()
        return [*folded(self.detail.rstrip().splitlines()), "", *lines] if self.detail else lines


def shell() -> Any:
    """This process's IPython; None without one."""
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython else None


def cell_of(file: str) -> str:
    """The cell that a file's name in a traceback stands for, by its prompt: "In [5]"; "" for none of this notebook."""
    known = getattr(getattr(shell(), "compile", None), "_filename_map", {})
    return f"In [{known[file]}]" if file in known else ""


def cell_here() -> str:
    """The notebook's cell that runs, by its prompt; "" without one."""
    frames = traceback.walk_stack(None)
    return [*filter(None, (cell_of(frame.f_code.co_filename) for frame, _line in frames)), ""][-2:][0]


def folded(lines: list[str]) -> list[str]:
    """A traceback's text with the frames of libraries folded: the learner's own lines are what helps.

    Those of this notebook are named as IPython names them: `Cell In[5], line 3`. A graph's nodes are left out.
    """
    shown: list[str] = []
    inside: list[str] = []  # the libraries of the frames that are being folded
    for line in [*lines, "-"]:
        frame = re.match(r'  File "([^"]*)"', line)
        library = library_of(frame[1]) if frame else ""
        if frame and (cell := cell_of(frame[1])):
            line = f"  Cell {cell.replace(' ', '')}{line[frame.end() :]}"
        if library:
            inside.append(library)
        elif inside and (not line or line.startswith("    ")):
            continue  # such a frame's own line
        elif not _OF_A_NODE.match(line):
            if inside:
                names = ", ".join(dict.fromkeys(inside))
                said = ngettext("{n} frame inside {library}", "{n} frames inside {library}", len(inside), library=names)
                shown.append(f"  ... {said}")
            inside = []
            shown.append(line)
    return shown[:-1]


def library_of(file: str) -> str:
    """The installed package of a file, "dtk" in a checkout of it, "python" for Python's own; "" for the learner's."""
    if installed := _INSTALLED.search(file):
        return installed[1]
    return "dtk" if file.startswith(PACKAGE) else "python" if _PYTHON.search(file) else ""


class WorkerFailed(_RunError):
    """A worker, or the evaluator, raised, exited or was killed. The others were stopped.

    Attributes:
        worker: index of the worker that failed first; "evaluator" where it was that.
        host: the name of its machine; None where all ran on this one.
        exitcode: its exit code; negative: the number of the signal that ended it.
        traceback: its own traceback as text, with the learner's lines; "" if it had none.
        reason: "raised", "exited" (also by a signal: `exitcode`) or "lost": it only lost its connection to the
            others, or the others to it; or its machine can't be reached any more; "unknown": TensorFlow's words don't
            tell whether it is that, or raised by itself.
    """

    def __init__(
        self,
        what: str,
        *,
        worker: int | str,
        host: str | None = None,
        exitcode: int | None = None,
        traceback: str = "",
        folder: RunFolder | None = None,
        detail: str = "",
        reason: str = "raised",
    ):
        super().__init__(what, folder, detail or traceback)
        self.worker = worker
        self.host = host
        self.exitcode = exitcode
        self.traceback = traceback
        self.reason = reason


class WorkerStalled(_RunError):
    """No worker made progress for `stall_timeout` seconds; or sooner, where it is certain that none can go on.

    `detail` has each worker's state and Python stack; `dtk.plot.wait_for(error)` draws who waits for whom.

    Attributes:
        reason: "uneven" (a worker has ended, others wait for it), "missing" (one has no server), "cut" (one can't reach
            another's machine any more), "stopped" (by a signal), "order" (each in another collective), "silent" (one is
            elsewhere and silent), "unknown" or "".
        waits: for each worker that waits, by index, the workers that it waits for.
        numbers: {"seconds": without progress}, where the run waited for `stall_timeout`.
    """

    def __init__(
        self,
        what: str,
        folder: RunFolder | None = None,
        detail: str = "",
        reason: str = "",
        edges: Sequence[tuple[int, int]] = (),
        **parts: Any,
    ):
        super().__init__(what, folder, detail, **parts)
        self.reason = reason
        self.waits = {who: [whom for one, whom in edges if one == who] for who, _ in edges}


class RunTimeout(_RunError):
    """The run took longer than the `timeout` that it was given.

    Attributes:
        numbers: {"timeout": in seconds}.
    """
