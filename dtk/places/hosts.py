"""Machines that a command reaches: `ssh`, or whatever else starts a program there and passes its pipes on."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence

from dtk import environment
from dtk.errors import ClusterConfigError
from dtk.language import N_, _
from dtk.places.engine import Engine
from dtk.places.machines import Heard, Lent, Pipes

__all__ = ["Hosts"]


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
        # BatchMode: a question for a password would wait for ever. The system itself tries an address for minutes.
        ssh = "ssh -o BatchMode=yes -o ConnectTimeout=20"
        self.hosts = dict(hosts) if isinstance(hosts, Mapping) else {host: f"{ssh} {host}" for host in hosts}
        self.python, self.storage = python, storage

    def lend(self, heard: Sequence[Heard], tick: Callable[[], None]) -> list[Lent]:
        if len(self.hosts) < len(heard):
            words = N_("{processes} processes on {hosts} hosts: give as many hosts, or ask for fewer workers")
            raise ClusterConfigError(_(words, processes=len(heard), hosts=len(self.hosts)))
        agent = [self.python, "-m", "dtk", "agent", *(["--storage", self.storage] if self.storage else [])]
        found = []
        for (host, command), takes in zip(self.hosts.items(), heard, strict=False):
            log = environment.scratch() / f"agent-{host}.log"
            found.append(Lent(host, Pipes([*shlex.split(command), *agent], takes, log), host))
        return found
