"""What brings messages to an agent and back: the pipes of a program that was started elsewhere, or a Ray actor."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from dtk import environment
from dtk.errors import ClusterConfigError
from dtk.language import N_, _
from dtk.launch.agent import ALIVE_SECONDS
from dtk.launch.messages import Answer, Gone, Message, Query, as_line, from_line

__all__ = [
    "Carrier",
    "LentMachine",
    "OnMessage",
    "Pipes",
    "check_reach",
    "check_storage",
    "check_versions",
    "measure_clocks",
]

END_SECONDS = 4.0

# Called from a thread of the carrier's own with each message of the agent's, and at the last with Gone.
OnMessage = Callable[[Message], None]


class Carrier(Protocol):
    """Brings messages to one agent."""

    def send(self, message: Message) -> None:
        """Without waiting for an answer; does nothing where the agent is gone."""

    def close(self) -> None:
        """Ends the agent and whatever it has started."""


class Pipes:
    """An agent that a command starts, on this machine or another: `srun`, `ssh`, `ip netns exec`.

    command: with `python -m dtk agent` at its end. log: gets what the command and the agent print beside messages.
    """

    def __init__(self, command: Sequence[str], heard: OnMessage, log: Path):
        self._log, self._lock = log, threading.Lock()
        try:
            with log.open("wb") as file:
                self._process = subprocess.Popen(
                    list(command),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=file,
                    start_new_session=True,  # an interrupt of the kernel's process group is not for the agent
                    env={name: value for name, value in os.environ.items() if name != "TF_CONFIG"},
                )
        except OSError as error:
            words = N_("{command}, which is to start dtk's agent on another machine, can't be run here ({why})")
            why = (error.strerror or str(error)).lower()
            raise ClusterConfigError(_(words, command=command[0], why=why)) from None
        threading.Thread(target=self._hear, args=(heard,), daemon=True).start()

    def _hear(self, heard: OnMessage) -> None:
        assert self._process.stdout is not None
        sent = time.monotonic()
        with contextlib.suppress(ValueError, OSError), self._process.stdout as said:
            for line in said:
                if time.monotonic() - sent > ALIVE_SECONDS:  # it speaks four times a second, and asks for as little
                    sent = time.monotonic()
                    self.send(Query(0, "alive"))
                with contextlib.suppress(ValueError):  # a line that the command itself prints
                    heard(from_line(line))
        code = self._process.wait()
        heard(Gone(self._last_words() or _("ended with exit code {code}", code=code)))

    def _last_words(self) -> str:
        with contextlib.suppress(OSError):
            lines = [line for line in self._log.read_text(errors="replace").splitlines() if line.strip()]
            return lines[-1].strip() if lines else ""
        return ""

    def send(self, message: Message) -> None:
        assert self._process.stdin is not None
        with self._lock, contextlib.suppress(OSError, ValueError):
            self._process.stdin.write(as_line(message))
            self._process.stdin.flush()

    def close(self) -> None:
        assert self._process.stdin is not None
        with self._lock, contextlib.suppress(OSError, ValueError):
            self._process.stdin.close()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()  # of a command that can't reach its machine any more
            self._process.wait()


@dataclass
class LentMachine:
    """One machine, as an engine lends it for one worker.

    address: by which the other workers reach it. carrier: to its agent. name: of the machine, where the engine has one.
    """

    address: str
    carrier: Carrier
    name: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
    ahead: float = 0.0  # its monotonic clock minus this machine's, in seconds
    gone: str = ""
    port: int = 0

    @property
    def host(self) -> str:
        """How people call it."""
        return self.name or str(self.facts.get("host") or self.address)


# ---- machines that will not do are found before a worker starts: each in one sentence, with its name


_ROUNDS = 5  # of which the quickest tells how far two machines' clocks are apart
_MUST = ("tensorflow", "keras")  # the same on each machine, or they don't compute the same


def check_versions(lent: Sequence[LentMachine]) -> None:
    """Python that reads what this one pickles; TensorFlow, Keras and dtk the same on each."""
    own = environment.versions("tensorflow", "keras", "dtk", "cloudpickle")
    for worker, each in enumerate(lent):
        what = _other_versions(each, own, lent)
        if what:
            raise ClusterConfigError(_("worker {worker} on {host}: {what}", worker=worker, host=each.host, what=what))


def _other_versions(each: LentMachine, own: Mapping[str, Any], lent: Sequence[LentMachine]) -> str:
    """Why a machine can't take part, in words; "" where it can."""
    there = each.facts["versions"]
    if _minor(there["Python"]) != _minor(own["Python"]):
        words = N_("Python {there} there, {here} here; a pickled function fits one minor version only")
        return _(words, there=there["Python"], here=own["Python"])
    for package in ("tensorflow", "dtk"):
        if there[package] is None:
            return _("{package} is not installed there, for the Python that is started", package=package)
    if there["dtk"] != own["dtk"]:
        return _("dtk {there} there, {here} here; install the same", there=there["dtk"], here=own["dtk"])
    for package in _MUST:
        first = lent[0].facts["versions"][package]
        if there[package] != first:
            words = N_("{package} {there} there, {first} on {other}; install the same on every machine")
            return _(words, package=package, there=there[package], first=first, other=lent[0].host)
    return ""


def _minor(version: str | None) -> list[str]:
    return (version or "").split(".")[:2]


def check_reach(lent: Sequence[LentMachine], answers: Sequence[Answer]) -> None:
    """Each worker's port, from each other machine."""
    by_address = {f"{each.address}:{each.port}": worker for worker, each in enumerate(lent)}
    failed = {
        (worker, by_address[address]): words.lower()
        for worker, answer in enumerate(answers)
        for address, (_number, words) in answer.found["failed"].items()
    }
    if not failed:
        return
    (one, other), words = next(iter(failed.items()))
    names = [_("worker {worker} on {host}", worker=worker, host=lent[worker].host) for worker in (one, other)]
    known = {"one": names[0], "other": names[1], "address": lent[other].address, "why": words}
    back = failed.get((other, one))
    if back is None:
        what = _("{one} can't reach {other} at {address}, a port that is open there ({why})", **known)
    else:
        what = N_("{one} and {other} can't reach each other's ports, which are open there ({why}; {back})")
        what = _(what, back=back, **known)
    remedy = _("TensorFlow needs every port above 1023 open between workers, both ways")
    raise ClusterConfigError(what, remedy=remedy)


def check_storage(place: str, lent: Sequence[LentMachine], answers: Sequence[Answer]) -> None:
    """One directory that each machine sees."""
    for each, answer in zip(lent, answers, strict=True):
        if not answer.found["found"]:
            words = N_(
                "restarts= or evaluator= on {place}: {one} and {other} have no directory in common, where one would "
                "find what another has saved"
            )
            what = _(words, place=place, one=lent[0].host, other=each.host)
            if answer.found.get("words"):
                what = _("{what} ({why})", what=what, why=answer.found["words"])
            raise ClusterConfigError(what, remedy=_("pass storage=, a directory that all machines share"))


def measure_clocks(lent: Sequence[LentMachine], ask: Callable[[int], Answer]) -> None:
    """Finds how far each machine's clock is ahead of this one's. ask: an agent, by number, for its facts."""
    for k, each in enumerate(lent):
        best = float("inf")
        for _round in range(_ROUNDS):
            asked = time.monotonic()
            answer = ask(k)
            took = answer.arrived - asked
            if took < best:
                best, each.ahead = took, answer.found["at"] - (asked + answer.arrived) / 2
