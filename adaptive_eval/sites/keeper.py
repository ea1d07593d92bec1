"""The keeper of a run's sites: one small actor beside the books of the cluster, to which all that they take belongs.

A site has its resources by a placement group. Groups and sites that an actor makes end with it, whatever it ends by. If
the head itself made them, they would end with the head; and what belongs to nobody is held for ever where a head is
killed before anyone could know of it. So the keeper makes them, on the head node of the cluster, without which no site
could live on either. It lives as long as it hears of a head, and for a while without: a head that comes back within
`keep` finds its sites, with their models loaded, and otherwise everything that they took is given back.

A head says that it lives from a thread of its own, from the moment it has joined the cluster: it may be reading what
millions of trials came to before it asks a site for anything. The keeper passes that on to its sites. Ray does not end
the processes of a node whose agent (raylet) was killed: a site ends by itself when its parent process is gone, or when
it has not heard of a head for `keep`.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, NamedTuple

from adaptive_eval import __version__

NAMESPACE = "adaptive-eval"
WATCH_SECONDS = 0.5
MOST_SECONDS, WORDS_IN_TIME = 5.0, 8
"""The head says that it lives as often as that, and at least so many times in `keep`."""
HEAD_NODE = {"node:__internal_head__": 0.001}
"""A resource that Ray gives the head node of a cluster, and no other."""
NOTHING = {"memory": 1}
"""A group must take something: a byte, for a site that takes nothing."""


class HeadWatch:
    """Whether there is still a head."""

    def __init__(self, keep: float, clock: Callable[[], float] = time.monotonic) -> None:
        """`keep`: so many seconds without a word of it are too many."""
        self._keep, self._clock = keep, clock
        self._last = clock()

    def heard(self, keep: float) -> None:
        """Note a sign of life of the head, with its patience."""
        self._keep, self._last = keep, self._clock()

    @property
    def over(self) -> bool:
        """Whether it has been silent for too long."""
        return self._clock() - self._last >= self._keep


def end_with_head(watch: HeadWatch, leave: Callable[[], None] | None = None) -> None:
    """Start a thread that ends this process when its head or its parent is gone."""
    parent = os.getppid()

    def wait() -> None:
        while not watch.over and os.getppid() == parent:
            time.sleep(WATCH_SECONDS)
        (leave or partial(os._exit, 1))()

    threading.Thread(target=wait, daemon=True).start()


class PlacedSite(NamedTuple):
    """A site as its keeper has it."""

    actor: Any
    group: Any


class SiteKeeper:
    """Actor beside the books of the cluster; one head at a time calls it."""

    def __init__(self, site: type, keep: float) -> None:
        """`site`: what is placed, made with `keep`."""
        import ray  # which is there on every node, and not where this module is only read

        self._site = ray.remote(site)
        self._placed: dict[str, PlacedSite] = {}
        self._keep, self._watch = keep, HeadWatch(keep)
        self._words = 0
        end_with_head(self._watch)

    def version(self) -> str:
        """Version of adaptive-eval."""
        return __version__

    def heard(self, keep: float) -> int:
        """Note a sign of life of the head; returns how many there were."""
        self._keep = keep
        self._watch.heard(keep)
        for placed in self._placed.values():
            placed.actor.heard.remote(keep)
        self._words += 1
        return self._words

    def words(self) -> int:
        """Number of signs of life of heads."""
        return self._words

    def place(self, name: str, resources: Mapping[str, float]) -> Any:
        """The actor of a new site, which has its place when these resources are free on one node.

        Raises `ValueError` as long as another actor of that name is there.
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
        self._placed[name] = PlacedSite(actor, group)
        return actor

    def give_back(self, name: str, actor: str | None = None) -> None:
        """End a site, whether it has its place or waits for it, and give back what it has taken.

        With `actor`, the id of one, only if that is still the site of this name.
        """
        import ray

        placed = self._placed.get(name)
        if placed is not None and actor in (None, placed.actor._actor_id.hex()):
            del self._placed[name]
            with suppress(ray.exceptions.RayError):
                ray.kill(placed.actor)
            _remove(placed.group)


def _remove(group: Any) -> None:
    from ray.util.placement_group import remove_placement_group

    remove_placement_group(group)


@contextmanager
def keep_saying(say: Callable[[], None], keep: float) -> Iterator[None]:
    """Report the head's sign of life from a thread of its own, as long as the block lasts."""
    over = threading.Event()

    def speak() -> None:
        while not over.wait(min(keep / WORDS_IN_TIME, MOST_SECONDS)):
            say()

    thread = threading.Thread(target=speak, name="adaptive-eval head", daemon=True)
    say()
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
