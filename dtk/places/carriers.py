"""What brings messages to an agent and back: the pipes of a program that was started elsewhere, or a Ray actor."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from dtk.errors import ClusterConfigError
from dtk.language import N_, _
from dtk.launch.piped import ALIVE_SECONDS

__all__ = ["Carrier", "Heard", "Lent", "Pipes"]

END_SECONDS = 4.0

# Called from a thread of the carrier's own with each message of the agent's, and at the last with {"gone": words}.
Heard = Callable[[dict[str, Any]], None]


class Carrier(Protocol):
    """Brings messages to one agent."""

    def send(self, message: dict[str, Any]) -> None:
        """Without waiting for an answer; does nothing where the agent is gone."""

    def close(self) -> None:
        """Ends the agent and whatever it has started."""


class Pipes:
    """An agent that a command starts, on this machine or another: `srun`, `ssh`, `ip netns exec`.

    command: with `python -m dtk agent` at its end. log: gets what the command and the agent print beside messages.
    """

    def __init__(self, command: Sequence[str], heard: Heard, log: Path):
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

    def _hear(self, heard: Heard) -> None:
        assert self._process.stdout is not None
        sent = time.monotonic()
        with contextlib.suppress(ValueError, OSError), self._process.stdout as said:
            for line in said:
                if time.monotonic() - sent > ALIVE_SECONDS:  # it speaks four times a second, and asks for as little
                    sent = time.monotonic()
                    self.send({"alive": 0})
                with contextlib.suppress(ValueError):  # a line that the command itself prints
                    heard(json.loads(line))
        code = self._process.wait()
        heard({"gone": self._last_words() or _("ended with exit code {code}", code=code)})

    def _last_words(self) -> str:
        with contextlib.suppress(OSError):
            lines = [line for line in self._log.read_text(errors="replace").splitlines() if line.strip()]
            return lines[-1].strip() if lines else ""
        return ""

    def send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        with self._lock, contextlib.suppress(OSError, ValueError):
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
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
class Lent:
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
