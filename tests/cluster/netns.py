"""Hosts of one's own on this machine: network namespaces with addresses of their own, joined by a bridge."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from dataclasses import dataclass, field

BRIDGE, NET = "dtkbr", "10.77.0"


def reason_to_skip():
    """Why there can be none here; "" where there can."""
    if os.geteuid() != 0:
        return "network namespaces need root here"
    if shutil.which("ip") is None:
        return "no ip(8): apt-get install iproute2"
    made = subprocess.run(["ip", "netns", "add", "dtkprobe"], capture_output=True, text=True)
    subprocess.run(["ip", "netns", "del", "dtkprobe"], capture_output=True)
    return "" if made.returncode == 0 else f"no network namespace can be made: {made.stderr.strip()}"


def ip(*words):
    subprocess.run(["ip", *map(str, words)], check=True, capture_output=True)


@dataclass
class Network:
    """So many hosts, by number from 1, at 10.77.0.1 and so on; this process reaches them through the bridge."""

    count: int
    commands: dict[str, str] = field(default_factory=dict)

    def __enter__(self):
        self.__exit__()
        ip("link", "add", BRIDGE, "type", "bridge")
        ip("addr", "add", f"{NET}.254/24", "dev", BRIDGE)
        ip("link", "set", BRIDGE, "up")
        for k in range(1, self.count + 1):
            ip("netns", "add", f"dtk{k}")
            ip("link", "add", f"dtkv{k}", "type", "veth", "peer", "name", "eth0", "netns", f"dtk{k}")
            ip("link", "set", f"dtkv{k}", "master", BRIDGE, "up")
            ip("-n", f"dtk{k}", "addr", "add", f"{NET}.{k}/24", "dev", "eth0")
            ip("-n", f"dtk{k}", "link", "set", "eth0", "up")
            ip("-n", f"dtk{k}", "link", "set", "lo", "up")
            self.commands[self.address(k)] = self.command(k)
        return self

    def __exit__(self, *_):
        for k in range(1, self.count + 1):
            if f"dtk{k}" in subprocess.run(["ip", "netns"], capture_output=True, text=True).stdout.split():
                self.kill(k)
                ip("netns", "del", f"dtk{k}")
            subprocess.run(["ip", "link", "del", f"dtkv{k}"], capture_output=True)  # goes later with its namespace
        subprocess.run(["ip", "link", "del", BRIDGE], capture_output=True)

    @staticmethod
    def address(k):
        return f"{NET}.{k}"

    @staticmethod
    def command(k, *env):
        """What runs a program on host k, with more in its environment."""
        return " ".join(["ip netns exec", f"dtk{k}", "env", *env])

    def processes(self, k):
        """The pids that run on host k."""
        said = subprocess.run(["ip", "netns", "pids", f"dtk{k}"], capture_output=True, text=True, check=True).stdout
        return [int(pid) for pid in said.split()]

    def kill(self, k):
        """As if its power were cut: every process at once."""
        for pid in self.processes(k):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def cut(self, k):
        """Takes the cable of host k out."""
        ip("link", "set", f"dtkv{k}", "down")

    def mend(self, k):
        ip("link", "set", f"dtkv{k}", "up")

    def block(self, k, other):
        """Host k can't reach the other any more."""
        ip("-n", f"dtk{k}", "route", "add", "unreachable", f"{self.address(other)}/32")

    def unblock(self, k, other):
        ip("-n", f"dtk{k}", "route", "del", "unreachable", f"{self.address(other)}/32")
