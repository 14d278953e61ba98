"""A Slurm cluster of two nodes on this machine: munged, slurmctld, two slurmd, on hosts of their own if there are."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

import psutil

from dtk.launch.place import free_ports

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "scontrol")
SBIN = "/usr/sbin"  # not on everybody's path
CONFIG = """
ClusterName=dtk
SlurmctldHost={name}({addresses[0]})
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
SlurmctldPort={ports[0]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
MpiDefault=none
ReturnToService=2
NodeName=n1 NodeHostname={hosts[1]} NodeAddr={addresses[1]} Port={ports[1]} CPUs={cores} State=UNKNOWN
NodeName=n2 NodeHostname={hosts[2]} NodeAddr={addresses[2]} Port={ports[2]} CPUs={cores} State=UNKNOWN
PartitionName=short Nodes=n1,n2 Default=YES MaxTime=10 State=UP
"""


def reason_to_skip():
    """Why there can be none here; "" where there can."""
    if os.geteuid() != 0:
        return "slurmd needs root here"
    missing = [name for name in PROGRAMS if shutil.which(name, path=f"{os.environ['PATH']}:{SBIN}") is None]
    return f"no {missing[0]}: apt-get install slurm-wlm munge" if missing else ""


class Slurm:
    """While it lives, SLURM_CONF is set, and Slurm's programs find the cluster.

    network: a `netns.Network` with a host for each node.
    """

    def __init__(self, folder: Path, network=None):
        self.folder, self.network, self.running = folder, network, []

    def __enter__(self):
        try:
            self._begin()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _begin(self):
        for name in ("state", "spool-n1", "spool-n2"):
            (self.folder / name).mkdir()
        os.chmod(self.folder, 0o755)
        config = self.folder / "slurm.conf"
        name, net = socket.gethostname(), self.network
        text = CONFIG.format(
            name=name,
            folder=self.folder,
            cores=os.cpu_count(),
            ports=free_ports(3),
            addresses=[net.address(k) for k in (254, 1, 2)] if net else ["127.0.0.1"] * 3,
            hosts=[name, "n1", "n2"] if net else [name] * 3,
        )
        config.write_text(text, encoding="utf-8")
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        self._start("munged", "--foreground", "--force", f"--key-file={key}", f"--socket={self.folder}/munge.socket",
                    f"--pid-file={self.folder}/munged.pid", f"--log-file={self.folder}/munged.log",
                    f"--seed-file={self.folder}/munged.seed")  # fmt: skip
        self._until(lambda: (self.folder / "munge.socket").exists(), "munged")
        os.environ["SLURM_CONF"] = str(config)
        self._start("slurmctld", "-D", "-i")
        for name in ("n1", "n2"):
            self.start(name)

    def start(self, node):
        """Starts a node's daemon, and waits until it is there."""
        at = self.network.command(int(node[1:])).split() if self.network else []
        self._start("slurmd", "-D", "-N", node, at=at)
        self._until(lambda: f"{node} idle" in self.states(), node, 180)  # after a cut, Slurm takes its time

    def kill(self, node):
        """As if the node's power were cut: its daemon, and what that has started, at once."""
        if self.network:
            self.network.kill(int(node[1:]))
            return
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("SLURMD_NODENAME") == node:  # what runs there
                    found += [process, *(above for above in process.parents()[:1] if above.name() == "slurmstepd")]
                elif process.cmdline()[1:] == ["-D", "-N", node]:
                    found.append(process)
        for process in found:
            with contextlib.suppress(psutil.Error):
                process.kill()

    def states(self):
        done = subprocess.run(["sinfo", "--noheader", "--Node", "--format=%N %t"], capture_output=True, text=True)
        return done.stdout.splitlines()

    def jobs(self):
        done = subprocess.run(["squeue", "--noheader", "--format=%i %T"], capture_output=True, text=True)
        return done.stdout.split("\n")[:-1]

    def _start(self, name, *words, at=()):
        program = shutil.which(name, path=f"{os.environ['PATH']}:{SBIN}")
        log = (self.folder / f"{name}-{len(self.running)}.out").open("wb")
        with log:
            self.running.append(
                subprocess.Popen([*at, program, *words], stdout=log, stderr=log, start_new_session=True)
            )

    def _until(self, there, what, seconds=40):
        deadline = time.monotonic() + seconds
        while not there():
            assert time.monotonic() < deadline, f"{what} did not come up: {self.folder}"
            time.sleep(0.2)

    def __exit__(self, *_):
        for process in reversed(self.running):
            process.terminate()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        os.environ.pop("SLURM_CONF", None)
