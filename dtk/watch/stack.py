"""What a Python stack tells of a worker that says nothing: in a collective, connecting, or in the learner's own line.

Reads what `faulthandler` writes (worker.py registers it for SIGUSR1); no process is touched here. The files' names are
those of TensorFlow 2.15 and 2.21 and of Keras 2 and 3; where another version has others, a worker is called silent.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from dtk.language import _

__all__ = ["Activity", "Frame", "activity", "own_part", "threads"]

_FRAME = re.compile(r'^  File "(?P<file>[^"]*)", line (?P<line>\d+|\?\?\?) in (?P<function>.*)$')
_MADE = "__init__"  # the "file" of the frame that Python 3.12 and later put below a class's __init__, at line ???
_HEAD = re.compile(r"^(Current thread|Thread) 0x[0-9a-f]+")
_PACKAGE = os.path.dirname(os.path.dirname(__file__)) + os.sep

# Python code that does nothing but take part in a collective: a thread there waits for its peers.
_COLLECTIVE = re.compile(r"tensorflow/python/(distribute/cross_device_(ops|utils)|ops/(gen_)?collective_ops)\.py$")
_CONNECTING = "tensorflow/python/distribute/collective_all_reduce_strategy.py"
# Where Python hands over to TensorFlow's runtime; what goes on below it, no Python stack shows.
_RUNTIME = re.compile(r"tensorflow/python/(eager/(execute|context)|client/session|ops/gen_\w+_ops)\.py$")
# Python that an operation of a graph runs: `py_function`, `numpy_function`, a dataset's generator.
_CALLED_BACK = re.compile(r"tensorflow/python/ops/script_ops\.py$")
_SAVING = re.compile(r"(checkpoint|saved_model|saving|gfile|file_io|saver|summary)")
_TRAINERS = re.compile(r"(keras/src/backend/tensorflow/trainer|keras/src/engine/training)\.py$")
_CALLS = ("fit", "evaluate", "predict")


@dataclass(frozen=True)
class Frame:
    """One line of a stack."""

    file: str
    line: int
    function: str

    @property
    def library(self) -> bool:
        """Whether it is of an installed package, of Python itself or of dtk, and not of the learner."""
        python = re.search(r"/lib(64)?/python3[^/]*/|^<frozen|^<string>$", self.file)
        return bool(python or "site-packages" in self.file or self.file.startswith(_PACKAGE))


@dataclass(frozen=True)
class Activity:
    """Where a silent worker is.

    blocked: "collective" (certain: Python code of a collective is on a stack), "operation" (inside TensorFlow's
    runtime, where a `tf.function` with a collective waits, and nothing else that waits shows), "connecting" (making
    MultiWorkerMirroredStrategy) or "" (elsewhere). call: the innermost of Keras's fit, evaluate and predict, or "".
    line: the learner's innermost line, "line 17 in train", or "".
    """

    blocked: str = ""
    call: str = ""
    line: str = ""


def threads(text: str) -> list[list[Frame]]:
    """The stacks of a dump, each from the innermost frame outwards, the main thread's first."""
    found: list[tuple[bool, list[Frame]]] = []
    for line in text.splitlines():
        head, frame = _HEAD.match(line), _FRAME.match(line)
        if head:
            found.append((head[1] == "Current thread", []))
        elif frame and found and frame["file"] != _MADE:
            found[-1][1].append(Frame(frame["file"], int(frame["line"]), frame["function"]))
    return [frames for _, frames in sorted(found, key=lambda pair: not pair[0])]


def activity(text: str) -> Activity:
    """What a dump tells; an empty Activity where it is empty."""
    stacks = threads(text)
    if not stacks:
        return Activity()
    main = stacks[0]
    calls = [frame.function for frame in main if frame.function in _CALLS and _TRAINERS.search(frame.file)]
    own = next((frame for frame in main if not frame.library), None)
    line = _("line {number} in {function}", number=own.line, function=own.function) if own else ""
    return Activity(_blocked(stacks), calls[0] if calls else "", line)


def _blocked(stacks: list[list[Frame]]) -> str:
    main = stacks[0]
    if any(frame.file.endswith(_CONNECTING) and frame.function == "__init__" for frame in main):
        return "connecting"
    inner = [stack[0] for stack in stacks if stack]
    # A thread of its own runs a collective for each device, while the main one waits for that thread.
    handed_over = any(_RUNTIME.search(frame.file) for frame in inner)
    if handed_over and any(_COLLECTIVE.search(frame.file) for stack in stacks for frame in stack):
        return "collective"
    if not main or not _RUNTIME.search(main[0].file) or any(_SAVING.search(frame.file) for frame in main):
        return ""
    # Python in another thread, the learner's or called by the graph: TensorFlow waits for that.
    if any(not frame.library or _CALLED_BACK.search(frame.file) for stack in stacks[1:] for frame in stack):
        return ""
    return "" if any(frame.file.endswith("data/ops/iterator_ops.py") for frame in main) else "operation"


def own_part(text: str) -> str:
    """A dump without the frames below the learner's function, which are how dtk started the worker.

    And without threads of libraries that take no part: pools that wait for work, watchers.
    """
    parts = [_without_start(part) for part in _parts(text) if part.startswith("Current thread") or _tells(part)]
    return "\n".join(parts)


def _parts(text: str) -> list[str]:
    """A dump cut into its threads."""
    parts: list[list[str]] = [[]]
    for line in text.rstrip().splitlines():
        if _HEAD.match(line) and parts[-1]:
            parts.append([])
        parts[-1].append(line)
    return ["\n".join(part).rstrip() for part in parts]


def _tells(thread: str) -> bool:
    """Whether a thread is the learner's own, called by the graph, or inside of a collective."""
    frames = [frame for stack in threads(thread) for frame in stack]
    return any(
        not frame.library or _COLLECTIVE.search(frame.file) or _CALLED_BACK.search(frame.file) for frame in frames
    )


def _without_start(text: str) -> str:
    lines, skipping = [], False
    for line in text.splitlines():
        frame = _FRAME.match(line)
        if not frame:
            skipping = False
        elif frame["file"].startswith(os.path.join(_PACKAGE, "process", "worker.py")):
            skipping = True
        if not skipping and not (frame and frame["file"] == _MADE):
            lines.append(line)
    return "\n".join(lines)
