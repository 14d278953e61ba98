"""Workers on the nodes of a Slurm cluster: in the allocation that this process is in, or in one of its own."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from dtk import environment
from dtk.errors import ClusterConfigError
from dtk.language import N_, _
from dtk.launch.outside import node_address, slurm_says
from dtk.places.engine import Engine, LentMachine, OnMessage, enough
from dtk.places.hosts import Pipes
from dtk.records import RunFolder

ALIVE_SECONDS = 20.0  # between two signs of life to an allocation, which ends after six that did not come
_OVER = ("FAILED", "CANCELLED", "TIMEOUT", "COMPLETED", "NODE_FAIL", "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY")
# Ends with the kernel that asked for it: that touches FILE as long as it lives.
_HOLD = """#!/bin/sh
while [ -e {file} ] && [ $(($(date +%s) - $(stat -c %Y {file}))) -lt 120 ]; do sleep 5; done
"""


class Slurm(Engine):
    """Slurm's nodes, a worker on each: by srun in the allocation that this process is in (salloc, sbatch), or else in
    one that sbatch gets, which ends with the run.

        dtk.run(train, workers=4, on=dtk.places.Slurm(partition="gpu", time="1:00:00"))

    Args:
        partition, nodes, time: of an allocation of its own, as sbatch takes them; nodes: by default as many as workers.
        options: more words for sbatch, such as ["--gres=gpu:1"].
        python: the interpreter on the nodes, with TensorFlow and this version of dtk; by default this one's path.
        storage: a directory that all nodes share, for the runs' directories; by default `.dtk` in the home directory.
    """

    name = "slurm"

    def __init__(
        self,
        partition: str | None = None,
        nodes: int | None = None,
        time: str | None = None,
        options: Sequence[str] = (),
        python: str | None = None,
        storage: str = "~/.dtk",
    ):
        super().__init__()
        self.partition, self.nodes, self.time, self.options = partition, nodes, time, list(options)
        self.python, self.storage = python or sys.executable, Path(storage).expanduser()
        self._job = ""  # an allocation that is ours

    def lend(self, heard: Sequence[OnMessage], tick: Callable[[], None]) -> Iterator[LentMachine]:
        self.storage.mkdir(mode=0o700, parents=True, exist_ok=True)
        job = os.environ.get("SLURM_JOB_ID") or self._allocated(len(heard), tick)
        nodes = slurm_says(["squeue", "--noheader", f"--jobs={job}", "--format=%N"]).strip()
        names = slurm_says(["scontrol", "show", "hostnames", nodes]).split()
        enough(len(names), len(heard))
        # --overlap: beside whatever else runs in the allocation. --cpu-bind: all of the node's cores that it has.
        step = f"srun --jobid={job} --nodes=1 --ntasks=1 --overlap --cpu-bind=none --unbuffered".split()
        agent = [self.python, "-m", "dtk", "agent", "--storage", str(self.storage)]
        for name, takes in zip(names, heard, strict=False):
            command, log = [*step, f"--nodelist={name}", *agent], environment.scratch() / f"agent-{name}.log"
            yield LentMachine(node_address(name), Pipes(command, takes, log), name)

    # ---- an allocation of its own

    def _allocated(self, count: int, tick: Callable[[], None]) -> str:
        nodes = self.nodes or count
        enough(nodes, count)
        alive = self.storage / f"alive-{os.uname().nodename}-{os.getpid()}-{time.monotonic_ns()}"
        alive.touch()
        self.given_back.callback(alive.unlink, missing_ok=True)
        threading.Thread(target=_keep_alive, args=(alive,), daemon=True).start()
        wanted = [f"--nodes={nodes}", "--ntasks-per-node=1", "--job-name=dtk", *self.options]
        wanted += [f"--partition={self.partition}"] * (self.partition is not None)
        wanted += [f"--time={self.time}"] * (self.time is not None)
        wanted += ["--output=/dev/null", "--parsable"]
        script = _HOLD.format(file=shlex.quote(str(alive)))
        self._job = slurm_says(["sbatch", *wanted], script).strip().partition(";")[0]
        self.given_back.callback(subprocess.run, ["scancel", self._job], capture_output=True, timeout=30)
        self._wait(tick)
        return self._job

    def _wait(self, tick: Callable[[], None]) -> None:
        """Until it has its nodes, however long the queue is; interrupted, it is canceled."""
        said = ""
        while True:
            queued = slurm_says(["squeue", "--noheader", f"--jobs={self._job}", "--format=%T %r"])
            state, _space, why = queued.strip().partition(" ")
            if state == "RUNNING":
                return
            if not state or state in _OVER:
                words = N_("Slurm's job {job} ended before it began ({state})")
                raise ClusterConfigError(_(words, job=self._job, state=state or "?"))
            if why != said:
                said = why
                environment.say(_("Slurm's job {job} waits for its nodes: {why}", job=self._job, why=why))
            for _look in range(10):
                tick()
                time.sleep(0.1)

    def end(self, folder: RunFolder) -> None:
        """Brings the run's directory back; an allocation of its own is given back."""
        super().end(folder)
        if self._job and self._run is None:
            self._job = ""
            self.close()


def _keep_alive(file: Path) -> None:
    while True:
        try:
            os.utime(file)
        except FileNotFoundError:  # it was taken away: nobody is to be kept alive any more
            return
        time.sleep(ALIVE_SECONDS)
