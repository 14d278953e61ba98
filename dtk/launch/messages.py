"""What kernel, parent process, guard and agents say to each other: a class for each message, one of them a line.

From the kernel to the parent, and to an agent on another machine:

    Start, Kill                              -> WorkerStarted or Refused, and Exited
    Query                                    -> Answer: a parent to "alive", an agent to what its methods have
    WriteStacks

A parent says once that it is Ready. An agent says by itself what workers write (FilePart), and how they are
(VitalSigns). A `Speaker` is a process that is spoken to in this way.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from dtk.worker.process import WorkerSpec


class Start(NamedTuple):
    """Start a worker. For agents: files of its run, in base64 by name; attempt: which start of the cluster this is."""

    key: str
    spec: WorkerSpec
    files: dict[str, str] | None = None
    attempt: int = 1


class Kill(NamedTuple):
    """Kill workers, by key."""

    keys: list[str]


class Ready(NamedTuple):
    """A parent has its imports behind it. problem: why it can't start workers; "" where it can."""

    problem: str = ""


class WorkerStarted(NamedTuple):
    """A worker has been started."""

    key: str
    pid: int


class Refused(NamedTuple):
    """The system refused a worker. number: of the OSError, or 0."""

    key: str
    number: int
    words: str


class Exited(NamedTuple):
    """A worker's process has ended. at: by that machine's `time.monotonic()`."""

    key: str
    code: int
    at: float


class WriteStacks(NamedTuple):
    """Have a worker write its stacks to its stacks.txt."""

    key: str


class Query(NamedTuple):
    """A question by its name, `what`, and what it is asked with. An agent gives no answer to "alive", number 0."""

    number: int
    what: str
    given: dict[str, Any] | None = None


class Answer(NamedTuple):
    """The answer to the question of that number. arrived: by the kernel's clock, which fills it in."""

    number: int
    found: dict[str, Any]
    arrived: float = 0.0


class FilePart(NamedTuple):
    """A part of a file that a worker has written into its run's directory: `data` in base64, `at` bytes of `of`."""

    run: str
    file: str
    at: int
    of: int
    data: str


class VitalSigns(NamedTuple):
    """Signs of life, four times a second, by key."""

    vitals: dict[str, list[Any]]


class Gone(NamedTuple):
    """The agent itself has ended, as its carrier says."""

    words: str


Message = (
    Start | Kill | Ready | WorkerStarted | Refused | Exited | WriteStacks | Query | Answer
    | FilePart | VitalSigns | Gone
)  # fmt: skip
_KINDS: dict[str, Any] = {kind.__name__: kind for kind in Message.__args__}


def as_line(message: Message) -> bytes:
    """The message as a line of JSON."""
    return json.dumps([type(message).__name__, *message]).encode() + b"\n"


def from_line(line: bytes | str) -> Message:
    """The message of a line. Raises ValueError for a line that is none."""
    found = json.loads(line)
    if not isinstance(found, list) or not found or found[0] not in _KINDS:
        raise ValueError(f"no message: {line!r}")
    message: Message = _KINDS[found[0]](*found[1:])
    return message


END_SECONDS = 4.0  # how long a process may take to end all that is below it


class Speaker:
    """A process that hears messages by its stdin, says them by its stdout, and ends when its stdin does.

    Raises OSError where its command can't be run. log: gets its stderr.
    """

    def __init__(self, command: Sequence[str], env: Mapping[str, str], log: Path):
        self._lock = threading.Lock()
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                env=env,
                start_new_session=True,  # an interrupt of the kernel's process group is not for it
            )
        self._in, self.out = cast(BinaryIO, self.process.stdin), cast(BinaryIO, self.process.stdout)

    def send(self, message: Message) -> None:
        """Does nothing where it is dead or closed."""
        with self._lock, contextlib.suppress(OSError, ValueError):
            self._in.write(as_line(message))
            self._in.flush()

    def close(self) -> None:
        """Ends it, and waits until it is gone."""
        with self._lock, contextlib.suppress(OSError, ValueError):
            self._in.close()
        try:
            self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()  # it can't reach its machine any more; or is a guard, whose parent and workers go along
            self.process.wait()


class Incoming:
    """Messages out of bytes, as they come; those of an unfinished line wait for the next."""

    def __init__(self) -> None:
        self._begun = b""

    def take(self, data: bytes) -> list[Message]:
        """The messages that are whole with these bytes."""
        *lines, self._begun = (self._begun + data).split(b"\n")
        return [from_line(line) for line in lines]
