"""Sites as actors of a Ray cluster.

Each is one actor, in a placement group that takes its resources on one node; the keeper of the run owns both
(`keeper.py`). Its name is derived from the run, and it survives when the head is killed: the next start of the run
finds it. Ray lets an actor wait silently and for ever for its resources; here the wait is limited, and missing
resources are reported. Nothing else of Ray is used, neither tasks nor its object store, except for the questions, which
are put there once for all sites. Messages have connections of their own (`messages.py`) where a node can be reached.

The cluster keeps the arguments of an actor's constructor, and a dashboard shows its environment. So it is constructed
with a number alone; keys are sent by a call to the actor, from process to process.
"""

import asyncio
import gc
import os
import pickle
import time
from collections.abc import Awaitable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from adaptive_eval import __version__
from adaptive_eval.base.errors import LaunchFailed, first_line
from adaptive_eval.sites.host import PlaceWait, SiteOrigin
from adaptive_eval.sites.keeper import HEAD_NODE, NAMESPACE, HeadWatch, SiteKeeper, end_with_head, send_heartbeats
from adaptive_eval.sites.messages import (
    BROKEN,
    SiteAddress,
    SiteBegun,
    SiteConnections,
    SiteFacts,
    SiteGone,
    SiteMaterial,
    SiteNews,
    SiteOrder,
    SiteSecrets,
    SiteSetup,
    listen,
)
from adaptive_eval.sites.nodes import missing_resources, short_error
from adaptive_eval.sites.opening import resource_words
from adaptive_eval.sites.worker import SiteWorker

FIND_SECONDS = 10.0
"""Timeout for a site that is found again to answer."""
TELL_SECONDS = 5.0
"""Wait for a place after which missing resources are reported."""
NAME_SECONDS = 30.0
"""Time for which the name of a killed actor may stay taken."""
KEEPER_SECONDS = 120.0
"""Timeout for a keeper to answer, even one that is just being started."""
POLL_SECONDS = 0.25
MEND = "install the same on all nodes"

Reply = TypeVar("Reply")


class RayWorker(SiteWorker):
    """A site in a process of its own, which ends with its head or its node."""

    def __init__(self, keep: float) -> None:
        """The site ends after `keep` seconds without a heartbeat of a head."""
        super().__init__()
        self._address: SiteAddress | None = None
        self._watch = HeadWatch(keep)
        end_with_head(self._watch)

    async def heartbeat(self, keep: float) -> None:
        """Record a heartbeat of the head, which the keeper passes on."""
        self._watch.heartbeat(keep)

    async def begin(self, setup: SiteSetup, site_secrets: SiteSecrets, material: SiteMaterial) -> SiteBegun:
        """Serve the model; modules that are loaded by then are excluded from garbage collection."""
        begun = await super().begin(setup, site_secrets, material)
        gc.freeze()
        gc.set_threshold(10_000)
        return begun

    async def exchange(self, message: bytes) -> bytes:
        """`sync` with both messages as bytes: Ray's own pickle takes several times the CPU for many small tuples."""
        head, *order = pickle.loads(message)
        try:
            news = await self.sync(head, SiteOrder(*order))
        except SiteGone as error:
            return pickle.dumps(str(error))
        return pickle.dumps((tuple(map(tuple, news.replies)), *news[1:]), 5)

    async def facts(self) -> SiteFacts:
        """Facts of the site: its node, its address, and the model that it serves."""
        import ray  # installed on every node, but not wherever this module is imported

        if self._address is None and os.environ.get("RAY_USE_TLS", "0").lower() not in ("1", "true"):
            _, self._address = await listen(ray.util.get_node_ip_address(), self.exchange)
        node_id = ray.get_runtime_context().get_node_id()
        return (await super().facts())._replace(node_id=node_id, address=self._address)


class RaySite:
    """A site that is a Ray actor."""

    def __init__(self, cluster: "RayCluster", name: str, actor: Any) -> None:
        self._cluster, self._name, self._actor = cluster, name, actor
        self._connections: SiteConnections | None = None
        """None: calls of Ray carry the messages."""

    async def facts(self) -> SiteFacts:
        """Facts of the site, once it has a place; messages go to its address from now on, if it can be reached."""
        facts = SiteFacts(*await self._cluster.call(self._actor.facts.remote()))
        if self._connections is None and facts.address is not None:
            connections = SiteConnections(facts.address)
            with suppress(OSError):
                await connections.add()
                self._connections = connections
        return facts

    async def begin(self, setup: SiteSetup, site_secrets: SiteSecrets, material: SiteMaterial) -> SiteBegun:
        shared = self._cluster.share(material)
        return SiteBegun(*await self._cluster.call(self._actor.begin.remote(setup, site_secrets, shared)))

    async def sync(self, head: str, order: SiteOrder) -> SiteNews:
        """Send an order, and return the site's news."""
        told = pickle.dumps((head, tuple(map(tuple, order.requests)), *order[1:]), 5)
        news = pickle.loads(await self._exchange(told))
        if isinstance(news, str):
            raise SiteGone(news)
        return SiteNews(*news)

    async def end(self, at_once: bool) -> None:
        await self._cluster.call(self._actor.end.remote(at_once))

    def kill(self) -> None:
        """Kill the site, whatever it is doing, and release its resources."""
        if self._connections is not None:
            self._connections.close()
        with suppress(self._cluster.ray.exceptions.RayError):
            self._cluster.ray.kill(self._actor)
        self._cluster.give_back(self._name, self._actor)

    async def _exchange(self, message: bytes) -> bytes:
        if self._connections is None:
            return await self._cluster.call(self._actor.exchange.remote(message))
        try:
            return await self._connections.exchange(message)
        except BROKEN as error:
            async with asyncio.timeout(FIND_SECONDS):
                await self.facts()  # Ray knows better why
            raise SiteGone(f"its connection broke: {error}") from None


class RayCluster:
    """The sites of a run on a cluster, which its keeper owns."""

    def __init__(self, ray: Any, run: str, keep: float) -> None:
        """`run` is the name of its keeper; after `keep` seconds without a head everything is released."""
        self.ray, self._run, self._keep = ray, run, keep
        self._shared: dict[int, tuple[SiteMaterial, Any]] = {}
        self._own = False
        """Whether this head has taken the run over."""
        self._keeper: Any | None = None
        """The keeper, once it has answered."""
        self._asking = asyncio.Lock()

    async def call(self, call: Awaitable[Reply]) -> Reply:
        """Await an actor call; raises `SiteGone` if Ray reports a failure."""
        try:
            return await call
        except self.ray.exceptions.RayError as error:
            raise SiteGone(short_error(error)) from None

    def share(self, material: SiteMaterial) -> Any:
        """Put the material into Ray's object store, once, and return its reference."""
        if id(material) not in self._shared:
            self._shared[id(material)] = material, self.ray.put(material)
        return self._shared[id(material)][1]

    def sites_left_by(self, run: str) -> Collection[str]:
        self._own = True
        names: set[str] = set()
        for one in self.ray._private.state.actors().values():
            if one["Name"].startswith(run) and one["State"] == "ALIVE":
                names.add(one["Name"])
            elif one["Name"].startswith(run) and one["State"] != "DEAD" and (site := self._find_site(one["Name"])):
                site.kill()
        return names

    def send_heartbeat(self) -> None:
        """Send a heartbeat to the keeper, if there is one."""
        with suppress(self.ray.exceptions.RayError):
            if (keeper := self._actor(self._run)) is not None:
                keeper.heartbeat.remote(self._keep)

    def give_back(self, name: str, actor: Any) -> None:
        """Let the keeper release this site's resources."""
        if (keeper := self._actor(self._run)) is not None:
            with suppress(self.ray.exceptions.RayError):
                keeper.give_back.remote(name, actor._actor_id.hex())

    def end(self) -> None:
        """Kill the keeper, and with it all remaining sites, unless another head has the run."""
        if self._own and (keeper := self._actor(self._run)) is not None:
            with suppress(self.ray.exceptions.RayError):
                self.ray.kill(keeper)

    async def place(self, name: str, resources: dict[str, float], awaited: PlaceWait) -> SiteOrigin:
        """Find the site of that name if it is alive, or place a new one; raises `LaunchFailed`."""
        if (site := self._find_site(name)) is not None:
            if (facts := await self._facts_if_alive(site)) is not None:
                return SiteOrigin(site, facts, found=True)
            site.kill()
        until = time.monotonic() + awaited.seconds
        while True:
            try:
                return await self._new(name, resources, awaited)
            except SiteGone as error:  # for example, its node had just ended
                if time.monotonic() > until:
                    raise LaunchFailed(f"its site ended before it began: {error}") from None
            await asyncio.sleep(POLL_SECONDS)

    async def _facts_if_alive(self, site: RaySite) -> SiteFacts | None:
        """Facts of an earlier head's site; None if it does not answer or runs another version."""
        try:
            async with asyncio.timeout(FIND_SECONDS):
                facts = await site.facts()
                return facts if facts.version == __version__ else None
        except (SiteGone, TimeoutError):
            return None
        except BaseException:
            site.kill()
            raise

    async def _new(self, name: str, resources: Mapping[str, float], awaited: PlaceWait) -> SiteOrigin:
        """Make a new site, and wait for its place; raises `LaunchFailed`, or `SiteGone` if it ended before."""
        site = await self._new_actor(name, resources)
        try:
            facts = await self._wait_for_place(site, resources, awaited)
            if facts.version != __version__:
                wrong = f"{facts.node} has version {facts.version} of adaptive-eval, not {__version__}"
                raise LaunchFailed(f"{wrong}; {MEND}")
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
        """The keeper of the run, or a new one if none of this version answers; raises `SiteGone`."""
        async with self._asking:
            if self._keeper is not None:
                return self._keeper
            known = self._actor(self._run)
            keeper = self._new_keeper() if known is None else known
            if (version := await self._version(keeper)) != __version__:
                self.ray.kill(keeper)  # and its sites, which are of the other version as well
                if known is not None:
                    raise SiteGone(f"its keeper {'hangs' if version is None else f'has version {version}'}")
                where = "the head node of the cluster"
                raise LaunchFailed(
                    f"the keeper of the run's sites, on {where}, said nothing in {KEEPER_SECONDS:g} s"
                    if version is None
                    else f"{where} has version {version} of adaptive-eval, not {__version__}; {MEND}"
                )
            self._keeper = keeper
            return keeper

    async def _version(self, keeper: Any) -> str | None:
        """The keeper's version of adaptive-eval; None if it does not answer."""
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
        """Make a new actor of that name, once no other actor has it."""
        until = time.monotonic() + NAME_SECONDS
        while True:
            keeper = await self._live_keeper()
            try:
                return RaySite(self, name, await self.call(keeper.place.remote(name, dict(resources))))
            except SiteGone:
                self._keeper = None
                raise
            except asyncio.CancelledError:  # the actor may exist already, unknown to this process
                keeper.give_back.remote(name)
                raise
            except ValueError as error:  # the name is still taken by an actor that is ending
                if time.monotonic() > until:
                    raise LaunchFailed(f"its site cannot be placed: {first_line(str(error))}") from None
            await asyncio.sleep(POLL_SECONDS)

    async def _wait_for_place(self, site: RaySite, resources: Mapping[str, float], awaited: PlaceWait) -> SiteFacts:
        """Wait until the new site has its place, and return its facts."""
        facts, asked = asyncio.ensure_future(site.facts()), resource_words(resources)
        told, began = False, time.monotonic()
        try:
            while True:
                waited = time.monotonic() - began
                if waited >= awaited.seconds and not awaited.longer():
                    missing = await asyncio.to_thread(missing_resources, self.ray, resources)
                    mend = "raise sites.resource_timeout, ask for less in launch.resources, or give the cluster more"
                    raise LaunchFailed(f"no place with {asked} was had in {awaited.seconds:g} s: {missing}; {mend}")
                if waited >= TELL_SECONDS and not told:
                    awaited.tell(asked, await asyncio.to_thread(missing_resources, self.ray, resources))
                    told = True
                await asyncio.wait([facts], timeout=POLL_SECONDS)
                if facts.done():
                    return facts.result()
        finally:
            facts.cancel()
            await asyncio.gather(facts, return_exceptions=True)


@contextmanager
def sites_of_run(ray: Any, run: str, keep: float) -> Iterator[RayCluster]:
    """Open the cluster for a run whose keeper has the name `run`; sites that are left at the end are ended."""
    cluster = RayCluster(ray, run, keep)
    try:
        with send_heartbeats(cluster.send_heartbeat, keep):
            yield cluster
    finally:
        cluster.end()
