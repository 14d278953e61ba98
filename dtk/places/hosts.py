"""Machines that a command reaches, by `ssh` or whatever else passes on its pipes; and machines to practice on."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import sys
import tempfile
import threading
import time
import weakref
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from dtk import environment, faults
from dtk.errors import ClusterConfigError, whole_number
from dtk.faults import Fault
from dtk.language import N_, _
from dtk.launch.agent import ALIVE_SECONDS
from dtk.launch.messages import FilePart, Gone, Message, Query, Speaker, from_line
from dtk.places.engine import Engine, LentMachine, OnMessage, enough
from dtk.worker.process import signal_below

if TYPE_CHECKING:
    from dtk.launch.launch import RunJob
    from dtk.launch.place import Source
    from dtk.records import RunFolder

MOST = 16


class Pipes(Speaker):
    """An agent that a command starts, on this machine or another: `srun`, `ssh`, `ip netns exec`.

    command: with `python -m dtk agent` at its end. log: gets what the command and the agent print beside messages.
    """

    def __init__(self, command: Sequence[str], heard: OnMessage, log: Path):
        self._log = log
        try:
            super().__init__(command, {name: os.environ[name] for name in os.environ if name != "TF_CONFIG"}, log)
        except OSError as error:
            words = N_("{command}, which is to start dtk's agent on another machine, can't be run here ({why})")
            why = (error.strerror or str(error)).lower()
            raise ClusterConfigError(_(words, command=command[0], why=why)) from None
        threading.Thread(target=self._hear, args=(heard,), daemon=True).start()

    def _hear(self, heard: OnMessage) -> None:
        sent = time.monotonic()
        with contextlib.suppress(ValueError, OSError), self.out as said:
            for line in said:
                if time.monotonic() - sent > ALIVE_SECONDS:  # it speaks four times a second, and asks for as little
                    sent = time.monotonic()
                    self.send(Query(0, "alive"))
                with contextlib.suppress(ValueError):  # a line that the command itself prints
                    heard(from_line(line))
        words = _("ended with exit code {code}", code=self.process.wait())
        with contextlib.suppress(OSError):
            words = self._log.read_text(errors="replace").strip().rpartition("\n")[2].strip() or words
        heard(Gone(words))


class Hosts(Engine):
    """Machines that are reached by ssh, a worker on each, in their order.

        dtk.run(train, workers=2, on=dtk.places.Hosts(["10.0.0.1", "10.0.0.2"], python="/opt/venv/bin/python"))

    Args:
        hosts: names or addresses by which the workers reach each other, and by which ssh, without a password, reaches
            them from here. Or {name: command}, where something else than ssh runs a program there: its words follow.
        python: the interpreter there, with TensorFlow and this version of dtk.
        storage: a directory that all of them share; needed for `restarts`.
    """

    name = N_("other machines")

    def __init__(self, hosts: Sequence[str] | Mapping[str, str], python: str = "python3", storage: str = ""):
        super().__init__()
        if isinstance(hosts, str) or not hosts:
            words = N_("Hosts({given!r}): it takes a list of names, such as ['10.0.0.1', '10.0.0.2']")
            raise ClusterConfigError(_(words, given=hosts))
        # BatchMode: a question for a password would wait forever. The system itself tries an address for minutes.
        ssh = "ssh -o BatchMode=yes -o ConnectTimeout=20"
        self.hosts = dict(hosts) if isinstance(hosts, Mapping) else {host: f"{ssh} {host}" for host in hosts}
        self.python, self.storage = python, storage

    def lend(self, heard: Sequence[OnMessage], tick: Callable[[], None]) -> Iterator[LentMachine]:
        enough(len(self.hosts), len(heard))
        agent = [self.python, "-m", "dtk", "agent", *(["--storage", self.storage] if self.storage else [])]
        for (host, command), takes in zip(self.hosts.items(), heard, strict=False):
            log = environment.scratch() / f"agent-{host}.log"
            yield LentMachine(host, Pipes([*shlex.split(command), *agent], takes, log), host)


class Practice(Hosts):
    """Machines to practice on: they are lent, checked and lost as others are, but each is really this one.

        machines = dtk.places.Practice(3)
        dtk.run(train, workers=2, on=machines)

    Each is an agent with an address of its own, 127.0.0.1 and so on. They are called node-0, node-1, ..., and share a
    directory. `close()` ends them; so does the end of this process.

    Args:
        count: how many. Those beyond a run's workers are spare ones: a restart takes them in the place of lost ones.
    """

    name = N_("practice machines")

    def __init__(self, count: int = 2):
        self.count = whole_number("count", count, most=MOST)
        super().__init__(self._all(), python=sys.executable)
        self._traps = _Traps()
        self._ends = contextlib.ExitStack()  # of the machines; `given_back` is of those that are lent
        weakref.finalize(self, self._ends.close)

    def _all(self) -> dict[str, str]:
        return {f"127.0.0.{k + 1}": "env" for k in range(self.count)}

    def power_off(self, worker: int, step: int) -> Fault:
        """A fault for `dtk.run(..., faults=[...])`: the worker's machine loses its power, once.

        The worker first stands still, so that what it has recorded does not depend on chance; then every process of
        its machine is killed at once, the agent's included.

        Args:
            worker: its index.
            step: the step before which it happens, from 1.
        """
        return self._trap(worker, step, signal.SIGKILL)

    def fall_silent(self, worker: int, step: int) -> Fault:
        """A fault for `dtk.run(..., faults=[...])`: the worker's machine answers no more, as behind a cut cable, once.

        Every process of its machine is stopped (SIGSTOP): its connections stay open, and nothing comes through them.

        Args:
            worker: its index.
            step: the step before which it happens, from 1.
        """
        return self._trap(worker, step, signal.SIGSTOP)

    def _trap(self, worker: int, step: int, how: signal.Signals) -> Fault:
        fault = faults.stall(worker=worker, step=step)
        self._traps.waiting[worker] = how
        return fault

    # ---- what an engine does

    def open(self, job: RunJob, folder: RunFolder, tick: Callable[[], None]) -> Source:
        """Machines for the members of the run in `folder`; others in the place of lost ones."""
        self._clear()
        return super().open(job, folder, tick)

    def end(self, folder: RunFolder) -> None:
        """Brings back what the function wrote; lost machines are gone for good."""
        super().end(folder)
        self._traps.waiting.clear()
        self._clear()

    def close(self) -> None:
        """Ends the agents and the machines; the next run starts others."""
        super().close()
        self.hosts, self.storage = self._all(), ""
        self._ends.close()

    def lend(self, heard: Sequence[OnMessage], tick: Callable[[], None]) -> Iterator[LentMachine]:
        if not self.storage:
            self.storage = tempfile.mkdtemp(prefix="practice-", dir=environment.scratch())
            self._ends.callback(shutil.rmtree, self.storage, ignore_errors=True)
            self._ends.callback(self._traps.clear)
        self._traps.machines.clear()
        for each in super().lend([partial(self._traps.watch, *each) for each in enumerate(heard)], tick):
            each.name = f"node-{int(each.address.rpartition('.')[2]) - 1}"
            self._traps.machines.append(each)
            yield each

    def _clear(self) -> None:
        """Machines that were broken are gone for good, and those that are left are asked for anew."""
        if self._traps.broken:
            for member in self._traps.broken:
                del self.hosts[self._traps.machines[member].address]
            self._traps.clear()
            self._give_back()


@dataclass
class _Traps:
    """What breaks machines: apart from their place, which the threads that read must not hold.

    waiting: by worker, what its machine gets when it stands still. broken: the same, of those that got it. machines: by
    member of the run.
    """

    waiting: dict[int, signal.Signals] = field(default_factory=dict)
    broken: dict[int, signal.Signals] = field(default_factory=dict)
    machines: list[LentMachine] = field(default_factory=list)

    def watch(self, member: int, heard: OnMessage, message: Message) -> None:
        """Passes on what a machine's agent says, and breaks the machine where its worker stands still."""
        if isinstance(message, Gone) and member in self.broken:
            if self.broken[member] == signal.SIGSTOP:
                return  # a real machine that falls silent reports no end
            message = Gone(_("the connection to it has ended"))
        heard(message)
        events = f"worker-{member}/events.jsonl"
        stalls = isinstance(message, FilePart) and message.file == events and b'"stall"' in b64decode(message.data)
        if stalls and member in self.waiting:
            self.broken[member] = self.waiting.pop(member)
            # To its agent, and to all that this has started.
            signal_below(self.machines[member].facts["pid"], self.broken[member])

    def clear(self) -> None:
        """Kills the agents that are stopped and can't end by themselves."""
        for member, how in [*self.broken.items()]:  # the threads that read add to it
            if how == signal.SIGSTOP:
                signal_below(self.machines[member].facts["pid"])
        self.broken.clear()
