"""Hosts of one's own on this machine: namespaces with an address, a name and files of their own, joined by a bridge."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from dtk.environment import scratch

PROGRAMS = ("ip", "unshare", "nsenter", "hostname")


def reason_to_skip():
    """Why there can be none here; "" where there can."""
    if os.geteuid() != 0:
        return "network namespaces need root here"
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        return f"no {missing[0]}: apt-get install iproute2 util-linux hostname"
    probe = f"dtkprobe{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True)
    subprocess.run(["ip", "netns", "del", probe], capture_output=True)
    return "" if made.returncode == 0 else f"no network namespace can be made: {made.stderr.strip()}"


def ip(*words):
    return subprocess.run(["ip", *map(str, words)], check=True, capture_output=True, text=True).stdout


@dataclass
class Network:
    """So many hosts, by number from 1: n1 at 10.77.X.1 and so on; this process reaches them through the bridge.

    number: X, which no other network on this machine has. Each host has dtk's scratch directory to itself; all other
    files are those of this machine, as long as nothing covers them.
    """

    count: int
    number: int = 0
    holders: dict[int, subprocess.Popen] = field(default_factory=dict)  # keep the namespaces

    def __enter__(self):
        _remove_left()
        self.number = next(number for number in range(1, 250) if _made(number))
        ip("link", "set", f"dtkbr{self.number}", "alias", os.getpid())
        ip("addr", "add", f"{self.address(254)}/24", "dev", f"dtkbr{self.number}")
        ip("link", "set", f"dtkbr{self.number}", "up")
        for k in range(1, self.count + 1):
            name, veth = self.netns(k), f"dtkv{self.number}-{k}"
            ip("netns", "add", name)
            ip("link", "add", veth, "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("link", "set", veth, "master", f"dtkbr{self.number}", "up")
            ip("-n", name, "addr", "add", f"{self.address(k)}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "link", "set", "lo", "up")
            self.holders[k] = self._held(k)
        return self

    def _held(self, k):
        script = (
            f"hostname n{k}; mount -t tmpfs dtk {scratch()}; chmod 700 {scratch()}; echo ready; exec sleep infinity"
        )
        # Not `ip netns exec`, which mounts a /sys without cgroups: Slurm looks there.
        at = f"--net=/run/netns/{self.netns(k)}"
        command = ["nsenter", at, "unshare", "--mount", "--uts", "sh", "-ec", script]
        holder = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
        assert holder.stdout.readline() == b"ready\n", f"host {k} did not come up"
        return holder

    def __exit__(self, *_):
        for holder in self.holders.values():
            holder.stdout.close()
        _remove(self.number)
        for holder in self.holders.values():
            holder.wait(10)

    def netns(self, k):
        return f"dtk{self.number}-{k}"

    def address(self, k):
        """Of host k; 254: of this process."""
        return f"10.77.{self.number}.{k}"

    @property
    def commands(self):
        """{address: what runs a program there} of all hosts."""
        return {self.address(k): self.command(k) for k in self.holders}

    def command(self, k, *env):
        """What runs a program on host k, with more in its environment."""
        return " ".join([f"nsenter --target {self.holders[k].pid} --net --mount --uts env", *env])

    # ---- what is there

    def processes(self, k):
        """The processes that run on host k."""
        found = _processes(self.netns(k))
        return [process for process in found if process.pid != self.holders[k].pid]

    def files(self, k):
        """The files in dtk's scratch directory of host k."""
        root = Path(f"/proc/{self.holders[k].pid}/root")
        folder = root / str(scratch()).lstrip("/")
        return [str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()]

    # ---- what goes wrong

    def kill(self, k):
        """As if its power were cut: every process at once."""
        _kill(lambda: self.processes(k))

    def cut(self, k):
        """Takes the cable of host k out."""
        ip("link", "set", f"dtkv{self.number}-{k}", "down")

    def join(self, k):
        """Puts it in again."""
        ip("link", "set", f"dtkv{self.number}-{k}", "up")

    def block(self, k, other):
        """Host k can't reach the other any more."""
        ip("-n", self.netns(k), "route", "add", "unreachable", f"{self.address(other)}/32")

    def unblock(self, k, other):
        ip("-n", self.netns(k), "route", "del", "unreachable", f"{self.address(other)}/32")

    def cover(self, k, path, by):
        """Host k, and what runs there, finds the file or the directory `by` in the place of `path`."""
        self._in(k, "mount", "--bind", by, path)

    def uncover(self, k, path):
        self._in(k, "umount", path)

    def _in(self, k, *words):
        subprocess.run([*self.command(k).split(), *map(str, words)], check=True, capture_output=True)


def _made(number):
    return (
        subprocess.run(["ip", "link", "add", f"dtkbr{number}", "type", "bridge"], capture_output=True).returncode == 0
    )


def _processes(netns):
    done = subprocess.run(["ip", "netns", "pids", netns], capture_output=True, text=True)
    found = []
    for pid in done.stdout.split():
        try:
            process = psutil.Process(int(pid))
            if process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.NoSuchProcess:
            pass
    return found


def _kill(processes):
    deadline = time.monotonic() + 10
    while found := processes():  # they may start others meanwhile
        assert time.monotonic() < deadline, f"{found} could not be killed"
        for process in found:
            try:
                process.send_signal(signal.SIGKILL)
            except psutil.NoSuchProcess:
                pass
        psutil.wait_procs(found, 1)


def _remove(number):
    for netns in [line.split()[0] for line in ip("netns").splitlines() if line.startswith(f"dtk{number}-")]:
        _kill(lambda netns=netns: _processes(netns))
        ip("netns", "del", netns)
        # It goes with its namespace, but later.
        subprocess.run(["ip", "link", "del", netns.replace("dtk", "dtkv")], capture_output=True)
    subprocess.run(["ip", "link", "del", f"dtkbr{number}"], capture_output=True)


def _remove_left():
    """Removes networks whose process was killed."""
    for alias in Path("/sys/class/net").glob("dtkbr*/ifalias"):
        owner = alias.read_text().strip()
        if owner.isdigit() and not psutil.pid_exists(int(owner)):
            _remove(int(alias.parent.name.removeprefix("dtkbr")))
