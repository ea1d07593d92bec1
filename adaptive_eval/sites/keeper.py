"""The keeper of a run's sites: one small actor on the cluster's head node, which owns all their resources.

A site has its resources by a placement group. Groups and sites that an actor makes end with it, however it ends. If the
head of the run made them, they would end with it; without an owner, they would be held for ever if a head is killed
before anyone knows of them. So the keeper makes them, on the head node of the cluster, without which no site could live
on either. It lives while there are heartbeats of a head, and for `keep` seconds longer: a head that comes back
within that time finds its sites, with their models loaded; otherwise all their resources are released.

A head sends heartbeats from a separate thread as soon as it has joined the cluster, since it may read millions of
trials before it asks a site for anything. The keeper passes them on to its sites. Ray does not end the processes of a
node whose agent (raylet) was killed: a site ends itself when its parent process is gone, or after `keep` seconds
without a heartbeat.
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
"""Longest interval between heartbeats of the head, and their least number within `keep`."""
HEAD_NODE = {"node:__internal_head__": 0.001}
"""A resource that Ray gives only to the head node of a cluster."""
NOTHING = {"memory": 1}
"""Resources of a site that takes none: a group must take something, so a byte."""


class HeadWatch:
    """Watches whether there is still a head."""

    def __init__(self, keep: float, clock: Callable[[], float] = time.monotonic) -> None:
        """The head counts as gone after `keep` seconds without a heartbeat."""
        self._keep, self._clock = keep, clock
        self._last = clock()

    def heartbeat(self, keep: float) -> None:
        """Record a heartbeat of the head, with its current `keep`."""
        self._keep, self._last = keep, self._clock()

    @property
    def over(self) -> bool:
        """Whether the head has been silent for too long."""
        return self._clock() - self._last >= self._keep


def end_with_head(watch: HeadWatch, leave: Callable[[], None] | None = None) -> None:
    """Start a thread that ends this process when its head or its parent is gone."""
    parent = os.getppid()

    def wait() -> None:
        while not watch.over and os.getppid() == parent:
            time.sleep(WATCH_SECONDS)
        (leave or partial(os._exit, 1))()

    threading.Thread(target=wait, daemon=True).start()


class SiteKeeper:
    """Actor on the cluster's head node; one head at a time calls it."""

    def __init__(self, site: type, keep: float) -> None:
        """`site` is the class of the sites, constructed with `keep`."""
        import ray  # installed on every node, but not wherever this module is imported

        self._site = ray.remote(site)
        self._placed: dict[str, tuple[Any, Any]] = {}
        """The actor and the placement group of each site."""
        self._keep, self._watch = keep, HeadWatch(keep)
        self._heartbeats = 0
        end_with_head(self._watch)

    def version(self) -> str:
        """Version of adaptive-eval."""
        return __version__

    def heartbeat(self, keep: float) -> int:
        """Record a heartbeat of the head, and return their number."""
        self._keep = keep
        self._watch.heartbeat(keep)
        for actor, _ in self._placed.values():
            actor.heartbeat.remote(keep)
        self._heartbeats += 1
        return self._heartbeats

    def heartbeats(self) -> int:
        """Number of heartbeats so far."""
        return self._heartbeats

    def place(self, name: str, resources: Mapping[str, float]) -> Any:
        """Make the actor of a new site, which gets its place when these resources are free on one node.

        Raises `ValueError` as long as there is another actor of that name.
        """
        from ray.util.placement_group import placement_group
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        self.give_back(name)
        taken = {word: amount for word, amount in resources.items() if amount}
        group = placement_group([taken or NOTHING], strategy="STRICT_PACK", name=name)
        own = {word: amount for word, amount in taken.items() if word not in ("CPU", "GPU", "memory")}
        options = {
            "name": name,
            "namespace": NAMESPACE,
            "max_restarts": 0,
            "max_task_retries": 0,
            "num_cpus": taken.get("CPU", 0),
            "num_gpus": taken.get("GPU", 0),
            "memory": taken.get("memory"),
            "resources": own,
            "scheduling_strategy": PlacementGroupSchedulingStrategy(group, 0),
        }
        try:
            actor = self._site.options(**options).remote(self._keep)
        except BaseException:
            _remove(group)
            raise
        self._placed[name] = actor, group
        return actor

    def give_back(self, name: str, actor: str | None = None) -> None:
        """Kill a site, whether it has its place or waits for it, and release its resources.

        With `actor`, an id, only if that is still the site of this name.
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
def send_heartbeats(say: Callable[[], None], keep: float) -> Iterator[None]:
    """Send heartbeats of the head from a separate thread, as long as the block lasts."""
    over = threading.Event()

    def speak() -> None:
        while not over.wait(min(keep / MIN_HEARTBEATS, MAX_INTERVAL)):
            say()

    thread = threading.Thread(target=speak, name="adaptive-eval head", daemon=True)
    say()
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
