"""Where am I: which worker of which run this process is, what the machine offers, where dtk may write."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from dtk import limits
from dtk.errors import DtkError, shell
from dtk.language import _
from dtk.records import Journal, RunFolder, WorkerFolder
from dtk.records.events import Finished, of_kind


@dataclass(frozen=True)
class Here:
    """This process's place in a run.

    mode: "cluster" (MultiWorkerMirroredStrategy), "mirrored" (several replicas in one process), "single"
    (a baseline) or "apart" (several processes at once, each a baseline of its own). clock:
    `time.monotonic()` at the call of `dtk.run`. role: "worker" or "evaluator"; the evaluator's number is
    `workers`, one more than the last worker's. host: the name of its machine; "" where all are on one.
    """

    run: RunFolder
    worker: int
    workers: int
    replicas: int
    mode: str
    clock: float
    role: str = "worker"
    host: str = ""

    def now(self) -> float:
        """Seconds since the call of `dtk.run`; the same clock in every worker of the run."""
        return time.monotonic() - self.clock

    def meet(self, arrived: Callable[[WorkerFolder], Any], seconds: float) -> None:
        """Waits, for so long at most, until each worker of the run has arrived."""
        deadline = time.monotonic() + seconds
        for peer in self.run.each:
            while not arrived(peer) and time.monotonic() < deadline:
                time.sleep(0.002)  # another process's file: nothing to wait on that works on every system

    @property
    def folder(self) -> WorkerFolder:
        return self.run.evaluator if self.role == "evaluator" else self.run.worker(self.worker)

    @cached_property
    def journal(self) -> Journal:
        return Journal(self.folder)


_here: Here | None = None
_seen_ended = False  # an earlier call of training_ended found the training ended


def enter(place: Here | None) -> None:
    """Says which worker this process is; called once, by the worker's own start-up."""
    global _here, _seen_ended
    _here, _seen_ended = place, False


def here() -> Here | None:
    """This process's place in a run; None in the kernel and in programs that dtk did not start."""
    return _here


def is_chief() -> bool:
    """Whether this process writes what is written once (checkpoints, progress).

    Returns:
        True in worker 0, in a baseline, and where dtk started nothing; False in other workers and the evaluator.
    """
    return _here is None or _here.worker == 0


def training_ended() -> bool:
    """Whether every worker's function has returned, so that an evaluator has nothing more to wait for.

        for path in tf.train.checkpoints_iterator(directory, timeout=1, timeout_fn=dtk.training_ended):

    The first time that all have returned it still says False, after 0.2 s: a loop that looks for a checkpoint and then
    asks looks once more, and misses none.

    Returns:
        True from the second time on; also in a baseline and outside of a run.
    """
    global _seen_ended
    if _here is None or _here.mode in ("single", "apart") or _seen_ended:
        return True
    # Machines that have an evaluator among them share the run's directory.
    _seen_ended = all(of_kind(worker.events, Finished) for worker in _here.run.each)
    if not _seen_ended:
        time.sleep(0.2)
    return False


def run_dir() -> Path:
    """The run's own directory, the same for all its workers; for use inside a function that `dtk.run` runs.

    Returns:
        The path. Fresh for every run, kept over its restarts.

    Raises:
        RuntimeError: outside of a run there is none; use `run.dir`.
    """
    if _here is None:
        raise RuntimeError(_("dtk.run_dir() is for use inside a function that dtk.run runs; outside, use run.dir"))
    return _here.run.path


def isolated() -> bool:
    """Whether runs have a network of their own, with loopback alone: DTK_ISOLATE=1, also in their workers."""
    return os.environ.get("DTK_ISOLATE", "0") not in ("", "0")


_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "ftp_proxy", "grpc_proxy")


def for_workers(env: Mapping[str, str]) -> dict[str, str]:
    """An environment without TF_CONFIG and proxies; these are in DTK_PROXIES, for downloads, which do need them."""
    # gRPC would send the workers' own traffic to a proxy, and both would hang without a word.
    proxies = {name: value for name, value in env.items() if name.lower() in _PROXIES}
    kept = {name: value for name, value in env.items() if name not in proxies and name != "TF_CONFIG"}
    return {**kept, "DTK_PROXIES": json.dumps(proxies), "DTK_SCRATCH": str(scratch())}


def cores() -> int:
    """Cores that this user may use (`dtk.limits.cores`); at least 1."""
    return int(limits.cores().value)


def can_fork() -> bool:
    """Whether workers may be forked from a process that has imported TensorFlow.

    Shown to be safe on Linux without a GPU only; elsewhere dtk starts each worker in a fresh interpreter.
    """
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    return sys.platform == "linux" and (hidden or not Path("/dev/nvidia0").exists())


def forks() -> bool:
    """Whether `dtk.run` forks its workers from a warm parent: where it can (`can_fork`), and DTK_WARM is not 0."""
    return can_fork() and os.environ.get("DTK_WARM") != "0"


def versions(*packages: str) -> dict[str, str | None]:
    """{name: version} of Python and of these packages, as they are installed; None for one that is not.

    None of them is imported.
    """
    import platform
    from importlib import metadata

    found: dict[str, str | None] = {"Python": platform.python_version()}
    for package in packages:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = None
    if __package__ in found:  # the one that runs, also from a folder that was not installed
        found[__package__] = sys.modules[__package__].__version__
    return found


_quiet = False


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Runs inside show nothing while they go: for those that record nothing there would be to see."""
    global _quiet
    before, _quiet = _quiet, True
    try:
        yield
    finally:
        _quiet = before


_said: set[str] = set()


def say(words: str, once: bool = False) -> None:
    """Prints a line that begins with "dtk: "; nothing inside of `quiet`. once: nor if this process has printed it."""
    if not _quiet and not (once and words in _said):
        _said.add(words)
        print(_("dtk: ") + words, flush=True)


def live_mode() -> str:
    """How a run shows itself while it goes: "widgets" in a notebook, "text" elsewhere, "off" in CI.

    `DTK_LIVE` (widgets, text or off) decides where it is set.
    """
    if _quiet:
        return "off"
    asked = os.environ.get("DTK_LIVE", "").lower()
    if asked in ("widgets", "text", "off"):
        return asked
    return "off" if os.environ.get("CI") else "widgets" if in_notebook() else "text"


def in_notebook() -> bool:
    """Whether this is the kernel of a page that shows pictures; a terminal's IPython is none."""
    return hasattr(shell(), "kernel")


def on_colab() -> bool:
    """Whether this is the kernel of a notebook on Colab, where `dtk.run` starts one worker.

    Workers, and programs that a cell starts there, are not. `DTK_COLAB` (1 or 0) decides for a kernel where it is set.
    """
    if _here is not None:
        return False
    asked = os.environ.get("DTK_COLAB")
    if asked in ("0", "1"):
        return asked == "1"
    try:
        return in_notebook() and importlib.util.find_spec("google.colab") is not None
    except (ImportError, ValueError):
        return False  # nothing called google, or something that is no package


@limits.refused_by_the_machine()
def scratch(*parts: str) -> Path:
    """This user's directory for runs and logs, mode 0700, under the system's temporary directory; or one inside it.

    Raises:
        DtkError: it can't be made, or is not this user's alone: a link, another user's, or open to others' writing.
    """
    try:  # a worker has a TMPDIR of its own, but shares its kernel's scratch
        path = Path(os.environ.get("DTK_SCRATCH") or Path(tempfile.gettempdir()) / f"dtk-{os.getuid()}")
    except FileNotFoundError as error:
        raise DtkError(f"{error.strerror}; set TMPDIR to a directory of your own") from None
    _own(path)
    for part in parts:
        path = path / part
        _own(path)
    return path


def _own(path: Path) -> None:
    """Makes the directory where there is none."""
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    state = path.lstat()  # whose directory this is can't be changed by others, as /tmp is sticky
    if not stat.S_ISDIR(state.st_mode):
        found = "a symbolic link" if path.is_symlink() else "no directory"
    elif state.st_uid != os.getuid():
        found = "another user's"
    elif state.st_mode & 0o022:
        found = f"open to others' writing ({stat.filemode(state.st_mode)})"
    else:
        if state.st_mode & 0o077:
            path.chmod(0o700)
        return
    raise DtkError(f"{path} is {found}; remove it, or set TMPDIR to a directory of your own")
