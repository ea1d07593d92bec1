"""A Ray cluster of several raylets on this machine, small, and ended with all that it has started."""

import os
import signal
from collections.abc import Mapping
from typing import Any

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_DEDUP_LOGS"] = "0"

NODE = {"object_store_memory": 80 * 2**20, "include_dashboard": False}


class Raylets:
    """The cluster; its head node takes no site."""

    def __init__(self) -> None:
        # imported here: the room is collected where there is no Ray, too
        from ray.cluster_utils import Cluster

        self._cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **NODE})
        self.address: str = self._cluster.address

    def add(self, cpus: int = 8, resources: Mapping[str, float] | None = None) -> Any:
        """A further node, with resources of its own."""
        return self._cluster.add_node(num_cpus=cpus, resources=dict(resources or {}), **NODE)

    def kill(self, node: Any) -> None:
        """SIGKILL to the raylet of a node; all that it has started ends with it."""
        self._cluster.remove_node(node, allow_graceful=False)

    def kill_agent(self, node: Any) -> None:
        """SIGKILL to the raylet of a node, and to nothing that it has started."""
        (raylet,) = node.all_processes["raylet"]
        os.kill(raylet.process.pid, signal.SIGKILL)

    def close(self) -> None:
        self._cluster.shutdown()


def stop(pid: int) -> None:
    """Have a process hang."""
    os.kill(pid, signal.SIGSTOP)
