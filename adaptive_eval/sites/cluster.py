"""Sites as actors of a Ray cluster.

Each is one actor, in a placement group that takes its resources on one node; the keeper of the run has both
(`keeper.py`). It has a name that follows from the run, and lives on where the head is killed: the next start of the run
finds it. An actor waits for its resources without a word, for ever; here it waits for so long, and what is missing is
told. Nothing else of Ray is used, neither tasks nor its store of objects, but for the questions, which are put there
once for all sites.

What an actor is made with stays in the books of the cluster, and variables of its environment are shown on a dashboard.
So it is made with a number alone; keys travel in a call to the actor, from process to process.
"""

import asyncio
import pickle
import time
from collections.abc import Awaitable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from adaptive_eval import __version__
from adaptive_eval.errors import LaunchFailed, first_line
from adaptive_eval.running.garbage import collect_less
from adaptive_eval.sites.host import PlaceWait, SiteOrigin
from adaptive_eval.sites.keeper import HEAD_NODE, NAMESPACE, HeadWatch, SiteKeeper, end_with_head, keep_saying
from adaptive_eval.sites.messages import (
    SiteBegun,
    SiteFacts,
    SiteGone,
    SiteMaterial,
    SiteNews,
    SiteOrder,
    SiteSecrets,
    SiteSetup,
)
from adaptive_eval.sites.nodes import RayNodes, error_in_short
from adaptive_eval.sites.opening import resource_words
from adaptive_eval.sites.worker import SiteWorker

FOUND_SECONDS = 10.0
"""A site that is found again and lives says so in less."""
TOLD_AFTER = 5.0
"""Seconds without a place after which it is told what is missing."""
NAME_SECONDS = 30.0
"""So long the name of an actor that was killed may stay taken."""
KEEPER_SECONDS = 120.0
"""A keeper that lives has said so by then, even one that is just being started."""
POLL_SECONDS = 0.25
SAME = "install the same on all nodes"

Told = TypeVar("Told")


class RayWorker(SiteWorker):
    """A site that knows its node of the cluster, and has a process of its own, which ends with its head or its node."""

    def __init__(self, keep: float) -> None:
        """`keep`: after so many seconds without a word of a head it ends."""
        super().__init__()
        self._watch = HeadWatch(keep)
        end_with_head(self._watch)

    async def heard(self, keep: float) -> None:
        """Note that the head lives, as the keeper says."""
        self._watch.heard(keep)

    async def begin(self, setup: SiteSetup, site_secrets: SiteSecrets, material: SiteMaterial) -> SiteBegun:
        """Serve the model; what Ray and the program have loaded is looked through for cycles no more."""
        begun = await super().begin(setup, site_secrets, material)
        collect_less()
        return begun

    async def exchange(self, head: str, order: bytes) -> bytes:
        """A message and its answer as bytes: Ray's own pickle takes several times the CPU for so many small tuples."""
        news = await self.news(head, SiteOrder(*pickle.loads(order)))
        return pickle.dumps((tuple(map(tuple, news.replies)), *news[1:]), 5)

    async def facts(self) -> SiteFacts:
        """Facts of the site: its node, and what it runs."""
        import ray  # which is there on every node, and not where this module is only read

        return (await super().facts())._replace(node_id=ray.get_runtime_context().get_node_id())


class RaySite:
    """A site that is a Ray actor."""

    def __init__(self, cluster: "RayCluster", name: str, actor: Any) -> None:
        self._cluster, self._name, self._actor = cluster, name, actor

    async def facts(self) -> SiteFacts:
        """Facts of the site, as soon as it has a place."""
        return SiteFacts(*await self._call(self._actor.facts.remote()))

    async def begin(self, setup: SiteSetup, site_secrets: SiteSecrets, material: SiteMaterial) -> SiteBegun:
        shared = self._cluster.shared(material)
        return SiteBegun(*await self._call(self._actor.begin.remote(setup, site_secrets, shared)))

    async def news(self, head: str, order: SiteOrder) -> SiteNews:
        """Tell the site what to do, and hear its news."""
        told = pickle.dumps((tuple(map(tuple, order.requests)), *order[1:]), 5)
        return SiteNews(*pickle.loads(await self._call(self._actor.exchange.remote(head, told))))

    async def end(self, at_once: bool) -> None:
        await self._call(self._actor.end.remote(at_once))

    def kill(self) -> None:
        """End the site, whatever it is doing, and give back what it has taken."""
        with suppress(self._cluster.ray.exceptions.RayError):
            self._cluster.ray.kill(self._actor)
        self._cluster.give_back(self._name, self._actor)

    async def _call(self, call: Awaitable[Told]) -> Told:
        return await self._cluster.call(call)


class RayCluster:
    """The sites of a run on a cluster, which its keeper has."""

    def __init__(self, nodes: RayNodes, run: str, keep: float) -> None:
        """`run`: what its keeper is called; `keep`: after so many seconds without a head all is given back."""
        self.ray = nodes.ray
        self._nodes, self._run, self._keep = nodes, run, keep
        self._shared: dict[int, tuple[SiteMaterial, Any]] = {}
        self._own = False
        """Whether this head is the one that has the run."""
        self._keeper: Any | None = None
        """Once it has answered."""
        self._asking = asyncio.Lock()

    async def call(self, call: Awaitable[Told]) -> Told:
        """Await an actor call; raises `SiteGone` if Ray reports a failure."""
        try:
            return await call
        except self.ray.exceptions.RayError as error:
            raise SiteGone(error_in_short(error)) from None

    def shared(self, material: SiteMaterial) -> Any:
        """The material, put where every node can fetch it."""
        if id(material) not in self._shared:
            self._shared[id(material)] = material, self.ray.put(material)
        return self._shared[id(material)][1]

    def left_by(self, run: str) -> Collection[str]:
        self._own = True
        names: set[str] = set()
        for one in self.ray._private.state.actors().values():
            if one["Name"].startswith(run) and one["State"] == "ALIVE":
                names.add(one["Name"])
            elif one["Name"].startswith(run) and one["State"] != "DEAD" and (site := self._find_site(one["Name"])):
                site.kill()
        return names

    def say_head_lives(self) -> None:
        """Tell the keeper, if there is one."""
        if (keeper := self._actor(self._run)) is not None:
            with suppress(self.ray.exceptions.RayError):
                keeper.heard.remote(self._keep)

    def give_back(self, name: str, actor: Any) -> None:
        """Have the keeper give back what this site had."""
        if (keeper := self._actor(self._run)) is not None:
            with suppress(self.ray.exceptions.RayError):
                keeper.give_back.remote(name, actor._actor_id.hex())

    def end(self) -> None:
        """End the keeper, and what is left of the run with it, unless another head has the run."""
        if self._own and (keeper := self._actor(self._run)) is not None:
            with suppress(self.ray.exceptions.RayError):
                self.ray.kill(keeper)

    async def place(self, name: str, resources: dict[str, float], awaited: PlaceWait) -> SiteOrigin:
        """The site of that name if it is there and lives, else a new one; raises `LaunchFailed`."""
        if (site := self._find_site(name)) is not None:
            if (facts := await self._facts_if_alive(site)) is not None:
                return SiteOrigin(site, facts, found=True)
            site.kill()
        until = time.monotonic() + awaited.seconds
        while True:
            try:
                return await self._new(name, resources, awaited)
            except SiteGone as error:  # such as one that was sent to a node which had just ended
                if time.monotonic() > until:
                    raise LaunchFailed(f"its site ended before it began: {error}") from None
            await asyncio.sleep(POLL_SECONDS)

    async def _facts_if_alive(self, site: RaySite) -> SiteFacts | None:
        """Facts of a site of an earlier head; None if it does not answer or runs another version."""
        try:
            async with asyncio.timeout(FOUND_SECONDS):
                facts = await site.facts()
                return facts if facts.version == __version__ else None
        except (SiteGone, TimeoutError):
            return None
        except BaseException:
            site.kill()
            raise

    async def _new(self, name: str, resources: Mapping[str, float], awaited: PlaceWait) -> SiteOrigin:
        """A new site, when it has its place; raises `LaunchFailed`, and `SiteGone` where it ended before."""
        site = await self._new_actor(name, resources)
        try:
            facts = await self._wait_for_place(site, resources, awaited)
            if facts.version != __version__:
                wrong = f"{facts.node} has version {facts.version} of adaptive-eval, not {__version__}"
                raise LaunchFailed(f"{wrong}; {SAME}")
        except BaseException:
            site.kill()
            raise
        return SiteOrigin(site, facts, found=False)

    def _find_site(self, name: str) -> RaySite | None:
        actor = self._actor(name)
        return None if actor is None else RaySite(self, name, actor)

    def _actor(self, name: str) -> Any | None:
        try:
            return self.ray.get_actor(name, namespace=NAMESPACE)
        except ValueError:
            return None

    async def _live_keeper(self) -> Any:
        """The keeper of the run, or a new one where there is none of this version; raises `SiteGone`."""
        async with self._asking:
            if self._keeper is not None:
                return self._keeper
            known = self._actor(self._run)
            keeper = self._new_keeper() if known is None else known
            if (version := await self._version(keeper)) != __version__:
                self.ray.kill(keeper)  # and with it its sites, which are of another version as well
                if known is not None:
                    raise SiteGone(f"its keeper {'hangs' if version is None else f'has version {version}'}")
                where = "the head node of the cluster"
                raise LaunchFailed(
                    f"the keeper of the run's sites, on {where}, said nothing in {KEEPER_SECONDS:g} s"
                    if version is None
                    else f"{where} has version {version} of adaptive-eval, not {__version__}; {SAME}"
                )
            self._keeper = keeper
            return keeper

    async def _version(self, keeper: Any) -> str | None:
        """Version of adaptive-eval where the keeper runs; None if it does not answer."""
        with suppress(TimeoutError):
            async with asyncio.timeout(KEEPER_SECONDS):
                return str(await self.call(keeper.version.remote()))
        return None

    def _new_keeper(self) -> Any:
        options = {"name": self._run, "namespace": NAMESPACE, "lifetime": "detached", "num_cpus": 0}
        try:
            made = self.ray.remote(SiteKeeper).options(**options, resources=HEAD_NODE)
            return made.remote(RayWorker, self._keep)
        except ValueError as error:
            raise SiteGone(f"the name of its keeper is taken: {first_line(str(error))}") from None

    async def _new_actor(self, name: str, resources: Mapping[str, float]) -> RaySite:
        """A new actor of that name, as soon as no other has it."""
        until = time.monotonic() + NAME_SECONDS
        while True:
            keeper = await self._live_keeper()
            try:
                return RaySite(self, name, await self.call(keeper.place.remote(name, dict(resources))))
            except SiteGone:
                self._keeper = None
                raise
            except asyncio.CancelledError:  # nobody wants it any more, and nobody here has heard of it yet
                keeper.give_back.remote(name)
                raise
            except ValueError as error:  # the name is taken, by one that is on its way out
                if time.monotonic() > until:
                    raise LaunchFailed(f"its site cannot be placed: {first_line(str(error))}") from None
            await asyncio.sleep(POLL_SECONDS)

    async def _wait_for_place(self, site: RaySite, resources: Mapping[str, float], awaited: PlaceWait) -> SiteFacts:
        """Facts of the new site when it has its place."""
        facts = asyncio.ensure_future(site.facts())
        told, began = False, time.monotonic()
        try:
            while True:
                waited = time.monotonic() - began
                if waited >= awaited.seconds and not awaited.longer():
                    asked, missing = resource_words(resources), await asyncio.to_thread(self._nodes.missing, resources)
                    mend = "raise sites.wait, ask for less in launch.resources, or give the cluster more"
                    raise LaunchFailed(f"no place with {asked} was had in {awaited.seconds:g} s: {missing}; {mend}")
                if waited >= TOLD_AFTER and not told:
                    awaited.tell(resource_words(resources), await asyncio.to_thread(self._nodes.missing, resources))
                    told = True
                await asyncio.wait([facts], timeout=POLL_SECONDS)
                if facts.done():
                    return facts.result()
        finally:
            facts.cancel()
            await asyncio.gather(facts, return_exceptions=True)


@contextmanager
def sites_of_run(nodes: RayNodes, run: str, keep: float) -> Iterator[RayCluster]:
    """Sites for the run whose keeper is called so; what is left of them at the end is ended."""
    cluster = RayCluster(nodes, run, keep)
    try:
        with keep_saying(cluster.say_head_lives, keep):
            yield cluster
    finally:
        cluster.end()
