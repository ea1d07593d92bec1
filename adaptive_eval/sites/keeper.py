"""The keeper of a run's sites: one small actor on the cluster's head node, which owns all their resources.

A site has its resources by a placement group. Groups and sites that an actor makes end with it, however it ends. If the
head of the run made them, they would end with it; without an owner, they would be held for ever if a head is killed
before anyone knows of them. So the keeper makes them, on the head node of the cluster, without which no site could live
on either. It lives while there are heartbeats of a head, and for `orphan_timeout` seconds longer: a head that comes
back within that time finds its sites, with their models loaded; otherwise all their resources are released.

A head sends heartbeats from a separate thread as soon as it has joined the cluster, since it may read millions of
trials before it asks a site for anything. The keeper passes them on to its sites. Ray does not end the processes of a
node whose agent (raylet) was killed: a site ends itself when its parent process is gone, or after `orphan_timeout`
seconds without a heartbeat.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from adaptive_eval import __version__

NAMESPACE = "adaptive-eval"
WATCH_SECONDS = 0.5
MAX_INTERVAL, MIN_HEARTBEATS = 5.0, 8
"""Longest interval between heartbeats of the head, and their least number within `orphan_timeout`."""
HEAD_NODE = {"node:__internal_head__": 0.001}
"""A resource that Ray gives only to the head node of a cluster."""
MIN_RESOURCES = {"memory": 1}
"""Resources of a site that needs none: a group must reserve something, so a byte."""


class HeadWatch:
    """Watches whether the head is alive."""

    def __init__(self, orphan_timeout: float, clock: Callable[[], float] = time.monotonic) -> None:
        """The head counts as gone after `orphan_timeout` seconds without a heartbeat."""
        self._orphan_timeout, self._clock = orphan_timeout, clock
        self._last = clock()

    def heartbeat(self, orphan_timeout: float) -> None:
        """Record a heartbeat of the head, with its current `orphan_timeout`."""
        self._orphan_timeout, self._last = orphan_timeout, self._clock()

    @property
    def is_over(self) -> bool:
        """Whether the head has been silent for too long."""
        return self._clock() - self._last >= self._orphan_timeout


def end_with_head(watch: HeadWatch, exit_process: Callable[[], None] | None = None) -> None:
    """Start a thread that ends this process when its head or its parent is gone."""
    parent = os.getppid()

    def wait() -> None:
        while not watch.is_over and os.getppid() == parent:
            time.sleep(WATCH_SECONDS)
        (exit_process or partial(os._exit, 1))()

    threading.Thread(target=wait, daemon=True).start()


class SiteKeeper:
    """Actor on the cluster's head node; one head at a time calls it."""

    def __init__(self, site: type, orphan_timeout: float) -> None:
        """`site` is the class of the sites, constructed with `orphan_timeout`."""
        import ray  # installed on every node, but not wherever this module is imported

        self._site = ray.remote(site)
        self._placed: dict[str, tuple[Any, Any]] = {}
        """The actor and the placement group of each site."""
        self._orphan_timeout, self._watch = orphan_timeout, HeadWatch(orphan_timeout)
        end_with_head(self._watch)

    def version(self) -> str:
        """Version of adaptive-eval."""
        return __version__

    def heartbeat(self, orphan_timeout: float) -> None:
        """Record a heartbeat of the head."""
        self._orphan_timeout = orphan_timeout
        self._watch.heartbeat(orphan_timeout)
        for actor, _ in self._placed.values():
            actor.heartbeat.remote(orphan_timeout)

    def place(self, name: str, resources: Mapping[str, float]) -> Any:
        """Create the actor of a new site, which gets its place when these resources are free on one node.

        Raises `ValueError` while another actor has that name.
        """
        from ray.util.placement_group import placement_group
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        self.release_site(name)
        needed = {word: amount for word, amount in resources.items() if amount}
        group = placement_group([needed or MIN_RESOURCES], strategy="STRICT_PACK", name=name)
        custom = {word: amount for word, amount in needed.items() if word not in ("CPU", "GPU", "memory")}
        options = {
            "name": name,
            "namespace": NAMESPACE,
            "max_restarts": 0,
            "max_task_retries": 0,
            "num_cpus": needed.get("CPU", 0),
            "num_gpus": needed.get("GPU", 0),
            "memory": needed.get("memory"),
            "resources": custom,
            "scheduling_strategy": PlacementGroupSchedulingStrategy(group, 0),
        }
        try:
            actor = self._site.options(**options).remote(self._orphan_timeout)
        except BaseException:
            _remove(group)
            raise
        self._placed[name] = actor, group
        return actor

    def release_site(self, name: str, actor: str | None = None) -> None:
        """Kill a site, whether it has its place or waits for it, and release its resources.

        If `actor`, an id, is given: only if the site of this name still has that id.
        """
        import ray

        placed, group = self._placed.get(name, (None, None))
        if placed is not None and actor in (None, placed._actor_id.hex()):
            del self._placed[name]
            with suppress(ray.exceptions.RayError):
                ray.kill(placed)
            _remove(group)


def _remove(group: Any) -> None:
    from ray.util.placement_group import remove_placement_group

    remove_placement_group(group)


@contextmanager
def send_heartbeats(send: Callable[[], None], orphan_timeout: float) -> Iterator[None]:
    """Send heartbeats of the head from a separate thread until the block ends."""
    stopped = threading.Event()

    def send_until_over() -> None:
        while not stopped.wait(min(orphan_timeout / MIN_HEARTBEATS, MAX_INTERVAL)):
            send()

    thread = threading.Thread(target=send_until_over, name="adaptive-eval head", daemon=True)
    send()
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()
