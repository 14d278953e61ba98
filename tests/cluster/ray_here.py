"""A Ray cluster of several nodes on this machine."""

from __future__ import annotations

import importlib.util
import os


def reason_to_skip():
    """Why there can be none here; "" where there can."""
    return "" if importlib.util.find_spec("ray") else 'Ray is not installed: pip install "dtk[ray]"'


class Ray:
    """While it lives, RAY_ADDRESS is set. nodes: those beside the first, where this process is."""

    def __init__(self, count):
        self.count, self.nodes = count, []

    def __enter__(self):
        from ray.cluster_utils import Cluster

        self.cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        self.nodes = [self.cluster.add_node(num_cpus=1) for _ in range(self.count - 1)]
        os.environ["RAY_ADDRESS"] = self.cluster.address
        return self

    def add(self):
        self.nodes.append(self.cluster.add_node(num_cpus=1))

    def kill(self):
        """Kills the newest node, with what runs there."""
        self.cluster.remove_node(self.nodes.pop(), allow_graceful=False)

    def __exit__(self, *_):
        import ray

        os.environ.pop("RAY_ADDRESS", None)
        ray.shutdown()
        self.cluster.shutdown()
