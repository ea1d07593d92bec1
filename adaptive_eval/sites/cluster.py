"""Sites as actors of a Ray cluster.

Each site is one actor, in a placement group that reserves its resources on one node; the run's keeper owns both
(`keeper.py`). The actor's name is derived from the run. It survives if the head is killed, and the next start of the
run finds it. In Ray an actor can wait silently and forever for its resources; here the wait is limited, and missing
resources are reported. Nothing else of Ray is used: no tasks, and the object store only for the questions, once for all
sites. Messages use their own connections (`messages.py`) if a node can be reached.

The cluster stores the arguments of an actor's constructor, and a dashboard shows its environment. So the constructor
gets only a number; keys are sent by a call to the actor, from process to process.
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
    CONNECTION_ERRORS,
    SiteAddress,
    SiteBegun,
    SiteConnections,
    SiteData,
    SiteFacts,
    SiteGone,
    SiteOrder,
    SiteReport,
    SiteSecrets,
    SiteSetup,
    listen,
)
from adaptive_eval.sites.nodes import missing_resources, short_error
from adaptive_eval.sites.opening import format_resources
from adaptive_eval.sites.worker import SiteWorker

ANSWER_SECONDS = 10.0
"""Timeout for the answer of a site that was found again."""
REPORT_AFTER_SECONDS = 5.0
"""Waiting time for a place after which missing resources are reported."""
NAME_FREE_SECONDS = 30.0
"""Longest time until the name of a killed actor is free again."""
KEEPER_SECONDS = 120.0
"""Timeout for the answer of a keeper, including one that is starting."""
POLL_SECONDS = 0.25
SAME_VERSION_HINT = "install the same on all nodes"

Reply = TypeVar("Reply")


class RayWorker(SiteWorker):
    """A site in its own process, which ends with its head or its node."""

    def __init__(self, orphan_timeout: float) -> None:
        """The site ends after `orphan_timeout` seconds without a heartbeat of a head."""
        super().__init__()
        self._address: SiteAddress | None = None
        self._watch = HeadWatch(orphan_timeout)
        end_with_head(self._watch)

    async def heartbeat(self, orphan_timeout: float) -> None:
        """Record a heartbeat of the head, forwarded by the keeper."""
        self._watch.heartbeat(orphan_timeout)

    async def begin(self, setup: SiteSetup, site_secrets: SiteSecrets, site_data: SiteData) -> SiteBegun:
        """Serve the model; modules that are loaded by then are excluded from garbage collection."""
        result = await super().begin(setup, site_secrets, site_data)
        gc.freeze()
        gc.set_threshold(10_000)
        return result

    async def exchange(self, message: bytes) -> bytes:
        """`sync` with both messages as bytes: Ray's own pickle takes several times the CPU for many small tuples."""
        head, *order = pickle.loads(message)
        try:
            report = await self.sync(head, SiteOrder(*order))
        except SiteGone as error:
            return pickle.dumps(str(error))
        return pickle.dumps((tuple(map(tuple, report.replies)), *report[1:]), 5)

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
        """Facts of the site, once it has a place; messages use its address from now on, if it can be reached."""
        facts = SiteFacts(*await self._cluster.call(self._actor.facts.remote()))
        if self._connections is None and facts.address is not None:
            connections = SiteConnections(facts.address)
            with suppress(OSError):
                await connections.add()
                self._connections = connections
        return facts

    async def begin(self, setup: SiteSetup, site_secrets: SiteSecrets, site_data: SiteData) -> SiteBegun:
        shared = self._cluster.share(site_data)
        return SiteBegun(*await self._cluster.call(self._actor.begin.remote(setup, site_secrets, shared)))

    async def sync(self, head: str, order: SiteOrder) -> SiteReport:
        """Send an order, and return the site's report."""
        message = pickle.dumps((head, tuple(map(tuple, order.requests)), *order[1:]), 5)
        report = pickle.loads(await self._exchange(message))
        if isinstance(report, str):
            raise SiteGone(report)
        return SiteReport(*report)

    async def end(self, at_once: bool) -> None:
        await self._cluster.call(self._actor.end.remote(at_once))

    def kill(self) -> None:
        """Kill the site, whatever it is doing, and release its resources."""
        if self._connections is not None:
            self._connections.close()
        with suppress(self._cluster.ray.exceptions.RayError):
            self._cluster.ray.kill(self._actor)
        self._cluster.release_site(self._name, self._actor)

    async def _exchange(self, message: bytes) -> bytes:
        if self._connections is None:
            return await self._cluster.call(self._actor.exchange.remote(message))
        try:
            return await self._connections.exchange(message)
        except CONNECTION_ERRORS as error:
            async with asyncio.timeout(ANSWER_SECONDS):
                await self.facts()  # raises with Ray's reason
            raise SiteGone(f"its connection broke: {error}") from None


class RayCluster:
    """The sites of a run on a cluster, which its keeper owns."""

    def __init__(self, ray: Any, run: str, orphan_timeout: float) -> None:
        """`run` is the name of its keeper; after `orphan_timeout` seconds without a head everything is released."""
        self.ray, self._run, self._orphan_timeout = ray, run, orphan_timeout
        self._shared: dict[int, tuple[SiteData, Any]] = {}
        self._is_owner = False
        """Whether this head has taken over the run."""
        self._keeper: Any | None = None
        """The keeper, once it has answered."""
        self._keeper_lock = asyncio.Lock()

    async def call(self, call: Awaitable[Reply]) -> Reply:
        """Await an actor call; raises `SiteGone` if Ray reports a failure."""
        try:
            return await call
        except self.ray.exceptions.RayError as error:
            raise SiteGone(short_error(error)) from None

    def share(self, site_data: SiteData) -> Any:
        """Put the material into Ray's object store, once, and return its reference."""
        if id(site_data) not in self._shared:
            self._shared[id(site_data)] = site_data, self.ray.put(site_data)
        return self._shared[id(site_data)][1]

    def sites_left_by(self, run: str) -> Collection[str]:
        self._is_owner = True
        names: set[str] = set()
        for actor in self.ray._private.state.actors().values():
            if actor["Name"].startswith(run) and actor["State"] == "ALIVE":
                names.add(actor["Name"])
            elif (
                actor["Name"].startswith(run) and actor["State"] != "DEAD" and (site := self._find_site(actor["Name"]))
            ):
                site.kill()
        return names

    def send_heartbeat(self) -> None:
        """Send a heartbeat to the keeper, if there is one."""
        with suppress(self.ray.exceptions.RayError):
            if (keeper := self._actor(self._run)) is not None:
                keeper.heartbeat.remote(self._orphan_timeout)

    def release_site(self, name: str, actor: Any) -> None:
        """Let the keeper release this site's resources."""
        if (keeper := self._actor(self._run)) is not None:
            with suppress(self.ray.exceptions.RayError):
                keeper.release_site.remote(name, actor._actor_id.hex())

    def end(self) -> None:
        """Kill the keeper, and with it all remaining sites, unless another head has taken over the run."""
        if self._is_owner and (keeper := self._actor(self._run)) is not None:
            with suppress(self.ray.exceptions.RayError):
                self.ray.kill(keeper)

    async def place(self, name: str, resources: dict[str, float], wait_limit: PlaceWait) -> SiteOrigin:
        """Find the site of that name if it is alive, or place a new one; raises `LaunchFailed`."""
        if (site := self._find_site(name)) is not None:
            if (facts := await self._facts_if_alive(site)) is not None:
                return SiteOrigin(site, facts, is_reused=True)
            site.kill()
        until = time.monotonic() + wait_limit.seconds
        while True:
            try:
                return await self._new(name, resources, wait_limit)
            except SiteGone as error:  # for example, its node had just ended
                if time.monotonic() > until:
                    raise LaunchFailed(f"its site ended before it began: {error}") from None
            await asyncio.sleep(POLL_SECONDS)

    async def _facts_if_alive(self, site: RaySite) -> SiteFacts | None:
        """Facts of an earlier head's site; None if it does not answer or runs another version."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                facts = await site.facts()
                return facts if facts.version == __version__ else None
        except (SiteGone, TimeoutError):
            return None
        except BaseException:
            site.kill()
            raise

    async def _new(self, name: str, resources: Mapping[str, float], wait_limit: PlaceWait) -> SiteOrigin:
        """Create a site, and wait for its place; raises `LaunchFailed`, or `SiteGone` if it ended before."""
        site = await self._new_actor(name, resources)
        try:
            facts = await self._wait_for_place(site, resources, wait_limit)
            if facts.version != __version__:
                problem = f"{facts.node} has version {facts.version} of adaptive-eval, not {__version__}"
                raise LaunchFailed(f"{problem}; {SAME_VERSION_HINT}")
        except BaseException:
            site.kill()
            raise
        return SiteOrigin(site, facts, is_reused=False)

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
        async with self._keeper_lock:
            if self._keeper is not None:
                return self._keeper
            existing = self._actor(self._run)
            keeper = self._new_keeper() if existing is None else existing
            if (version := await self._version(keeper)) != __version__:
                self.ray.kill(keeper)  # and its sites, which are of the other version as well
                if existing is not None:
                    raise SiteGone(f"its keeper {'hangs' if version is None else f'has version {version}'}")
                where = "the head node of the cluster"
                raise LaunchFailed(
                    f"the keeper of the run's sites, on {where}, did not answer within {KEEPER_SECONDS:g} s"
                    if version is None
                    else f"{where} has version {version} of adaptive-eval, not {__version__}; {SAME_VERSION_HINT}"
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
            actor_class = self.ray.remote(SiteKeeper).options(**options, resources=HEAD_NODE)
            return actor_class.remote(RayWorker, self._orphan_timeout)
        except ValueError as error:
            raise SiteGone(f"the name of its keeper is taken: {first_line(str(error))}") from None

    async def _new_actor(self, name: str, resources: Mapping[str, float]) -> RaySite:
        """Create an actor of that name, once no other actor has it."""
        until = time.monotonic() + NAME_FREE_SECONDS
        while True:
            keeper = await self._live_keeper()
            try:
                return RaySite(self, name, await self.call(keeper.place.remote(name, dict(resources))))
            except SiteGone:
                self._keeper = None
                raise
            except asyncio.CancelledError:  # the actor may exist already, unknown to this process
                keeper.release_site.remote(name)
                raise
            except ValueError as error:  # the name is still taken by an actor that is ending
                if time.monotonic() > until:
                    raise LaunchFailed(f"its site cannot be placed: {first_line(str(error))}") from None
            await asyncio.sleep(POLL_SECONDS)

    async def _wait_for_place(self, site: RaySite, resources: Mapping[str, float], wait_limit: PlaceWait) -> SiteFacts:
        """Wait until the new site has its place, and return its facts."""
        facts, requested = asyncio.ensure_future(site.facts()), format_resources(resources)
        is_reported, started = False, time.monotonic()
        try:
            while True:
                waited = time.monotonic() - started
                if waited >= wait_limit.seconds and not wait_limit.may_extend():
                    missing = await asyncio.to_thread(missing_resources, self.ray, resources)
                    hint = "lower launch.resources, or give the cluster more"
                    raise LaunchFailed(
                        f"no place with {requested} was available within {wait_limit.seconds:g} s: {missing}; {hint}"
                    )
                if waited >= REPORT_AFTER_SECONDS and not is_reported:
                    wait_limit.report_missing(
                        requested, await asyncio.to_thread(missing_resources, self.ray, resources)
                    )
                    is_reported = True
                await asyncio.wait([facts], timeout=POLL_SECONDS)
                if facts.done():
                    return facts.result()
        finally:
            facts.cancel()
            await asyncio.gather(facts, return_exceptions=True)


@contextmanager
def sites_of_run(ray: Any, run: str, orphan_timeout: float) -> Iterator[RayCluster]:
    """Open the cluster for a run whose keeper has the name `run`; remaining sites are ended at exit."""
    cluster = RayCluster(ray, run, orphan_timeout)
    try:
        with send_heartbeats(cluster.send_heartbeat, orphan_timeout):
            yield cluster
    finally:
        cluster.end()
