"""A Ray cluster on this machine, of several nodes, that starts also where the machine has much else to do."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from dtk.errors import ClusterConfigError
from dtk.language import _
from dtk.launch.place import free_ports

__all__ = ["RayNodes"]

ATTEMPTS = 3
# A node's main process gives two helpers of its own, which Python starts, 15 s to write down the ports that they chose,
# and ends where they don't (Ray 2.60, https://github.com/ray-project/ray/issues/65983). Where it is told the ports, it
# waits for no file. These four are they.
_PORTS = ("metrics_agent_port", "metrics_export_port", "dashboard_agent_listen_port", "runtime_env_agent_port")
_PATIENT = {
    "RAY_agent_register_timeout_ms": "300000",  # 30,000 by itself
    "RAY_worker_register_timeout_seconds": "300",  # 60
    "RAY_gcs_server_request_timeout_seconds": "300",  # 60
    "RAY_raylet_start_wait_time_s": "300",  # 30
    "RAY_USAGE_STATS_ENABLED": "0",  # and nothing is sent anywhere
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # or it warns of what it will do one day
}


class RayNodes:
    """The cluster's nodes; each has one CPU and a resource of its own name. The first is the head."""

    def __init__(self, names: Sequence[str]):
        self.names = list(names)
        self._ends = contextlib.ExitStack()

    def start(self) -> str:
        """Starts the nodes, and returns the cluster's address, to which this process is connected."""
        with _patient():
            from ray.cluster_utils import Cluster

            # Short: Ray's sockets are below it, and a socket's path has at most 107 characters.
            folder = tempfile.mkdtemp(prefix="dtk-ray-", dir="/tmp")
            self._ends.callback(shutil.rmtree, folder, ignore_errors=True)
            cluster = Cluster()
            self._ends.callback(cluster.shutdown)
            for number, name in enumerate(self.names):
                _add(cluster, name, {"include_dashboard": False, "temp_dir": folder} if number == 0 else {})
            import ray
            from ray._private import worker

            # A node's death is printed by a thread of Ray's, whatever `log_to_driver` says; here dtk names it.
            self._ends.callback(setattr, worker, "print_to_stdstream", worker.print_to_stdstream)
            worker.print_to_stdstream = lambda *said, **how: None
            self._ends.callback(ray.shutdown)
            ray.init(cluster.address, log_to_driver=False, logging_level="error")
        return str(cluster.address)

    def end(self) -> None:
        with contextlib.suppress(Exception):  # a node that was broken before has no process left to be asked
            self._ends.close()


def _add(cluster: Any, name: str, more: dict[str, Any]) -> None:
    last: Exception | None = None
    for _attempt in range(ATTEMPTS):
        ports = dict(zip(_PORTS, free_ports(len(_PORTS)), strict=True))
        try:
            cluster.add_node(num_cpus=1, resources={name: 1}, object_store_memory=80 << 20, **ports, **more)
            return
        except Exception as error:  # Ray raises plain Exception where a node does not come up
            last = error
    words = (str(last).strip().splitlines() or [type(last).__name__])[-1]
    raise ClusterConfigError(_("Ray could not start {name} on this machine: {why}", name=name, why=words))


@contextlib.contextmanager
def _patient() -> Iterator[None]:
    """Ray waits longer than by itself, and says less."""
    before = {name: os.environ.get(name) for name in _PATIENT}
    level = logging.root.manager.disable
    os.environ.update({name: value for name, value in _PATIENT.items() if before[name] is None})
    logging.disable(logging.WARNING)  # Ray sets the levels of its loggers anew when it is imported
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
