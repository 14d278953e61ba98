"""A Ray cluster of several nodes on this machine: a `ray start` for each, on hosts of their own where there are."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

from dtk.launch.place import free_ports

# For machines that are busy with other things: Ray gives its own processes 10 to 60 s to begin, by default.
PATIENCE = {
    "RAY_raylet_start_wait_time_s": "45",
    "RAY_agent_register_timeout_ms": "180000",
    "RAY_worker_register_timeout_seconds": "180",
    "RAY_gcs_rpc_server_connect_timeout_s": "60",
    "RAY_gcs_server_port_wait_time_s": "180",
    # `ray start` gives up after 30 s, and asks again only where a question has run out of time, by default after 30 s.
    "RAY_gcs_server_request_timeout_seconds": "10",
    "RAY_py_gcs_connect_timeout_s": "5",
}
AGENTS = ("dashboard-agent-grpc", "dashboard-agent-listen", "metrics-export", "runtime-env-agent")
START_SECONDS, TRIES = 240, 5
OWN = ("raylet", "ray::IDLE", "ray::DashboardAgent", "ray::RuntimeEnvAgent", "ray.scripts.scripts", "log_monitor.py")


def reason_to_skip():
    """Why there can be none here; "" where there can."""
    return "" if importlib.util.find_spec("ray") else 'Ray is not installed: pip install "dtk-toolkit[ray]"'


class Ray:
    """While it lives, RAY_ADDRESS is set. Nodes are counted from 1 and have a core each; this process is at a head.

    head: its cores, for a worker there. network: a `netns.Network` with a host for each of them.
    """

    def __init__(self, folder: Path, count, head=0, network=None):
        self.folder, self.count, self.cores, self.network = folder, count, head, network
        self.running: dict[int, subprocess.Popen] = {}  # node -> `ray start`; 0: the head

    def __enter__(self):
        try:
            self._begin()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _begin(self):
        os.environ.update(PATIENCE)  # this process reads them, too
        port, client = free_ports(2)
        self.address = f"{self._address(0)}:{port}"
        head = ["--head", f"--port={port}", f"--ray-client-server-port={client}", "--include-dashboard=false"]
        self._start(0, *head, f"--num-cpus={self.cores}")
        for k in range(1, self.count + 1):
            self.add(k)
        os.environ["RAY_ADDRESS"] = self.address

    def add(self, k=None):
        """Starts node k, or a further one, and waits until it is there."""
        k = k or max(self.running) + 1
        self._start(k, f"--address={self.address}", "--num-cpus=1")

    def _start(self, k, *words):
        at = self.network.command(k).split() if self.network and k else []
        # A raylet waits 15 s for its agents to say their ports, no setting changes that, and ends: on a busy machine
        # the whole session has to go first.
        first = ["sh", "-c", 'echo -15 > /proc/self/autogroup 2>/dev/null; exec "$@"', "sh"]
        command = [*at, *first, sys.executable, "-m", "ray.scripts.scripts", "start", "--block", *words]
        command += [f"--node-ip-address={self._address(k)}", "--object-store-memory=150000000"]
        command += ["--min-worker-port=0", "--max-worker-port=0"]
        for _ in range(TRIES):
            ports = [f"--{name}-port={port}" for name, port in zip(AGENTS, free_ports(len(AGENTS)), strict=True)]
            log = self.folder / f"ray-{k}-{time.monotonic_ns()}.log"
            with log.open("wb") as file:
                self.running[k] = subprocess.Popen([*command, *ports], stdout=file, stderr=file, start_new_session=True)
            deadline = time.monotonic() + START_SECONDS
            while time.monotonic() < deadline and self.running[k].poll() is None:
                if "Ray runtime started" in log.read_text():
                    return
                time.sleep(0.2)
            self.kill(k)
        raise AssertionError(f"Ray's node {k} did not come up in {TRIES} tries:\n{log.read_text()}")

    def _address(self, k):
        return self.network.address(k or 254) if self.network else "127.0.0.1"

    def alive(self, k):
        """Whether node k is one of the cluster's, by the cluster's own word."""
        import ray

        there = [node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]]
        return self.running[k].poll() is None and self._address(k) in there

    def node_of(self, raylet):
        """The node whose raylet has this pid, which what runs there has in its environment."""
        return next(k for k, started in self.running.items() if raylet in _below(started.pid))

    def kill(self, k=None):
        """Kills node k, or the newest, with what runs there."""
        k = max(self.running) if k is None else k
        started = self.running.pop(k)
        for pid in _below(started.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self.network and k:
            self.network.kill(k)
        started.kill()
        started.wait()

    def __exit__(self, *_):
        import ray

        os.environ.pop("RAY_ADDRESS", None)
        ray.shutdown()
        for k in sorted(self.running, reverse=True):
            self.kill(k)
        for name in PATIENCE:
            os.environ.pop(name, None)


def _below(pid):
    with contextlib.suppress(psutil.NoSuchProcess):
        return [process.pid for process in psutil.Process(pid).children(recursive=True)]
    return []
