"""Sites as actors of a Ray cluster.

Each site is one actor, in a placement group that reserves its resources on one node. The head of the run, which joined
the cluster, owns both: Ray ends them when that process ends, however it ends. Ray does not end the processes of a node
whose agent (raylet) was killed, so a site ends itself when its parent process is gone.

In Ray an actor can wait silently and forever for its resources; here the wait is limited, and missing resources are
reported. Nothing else of Ray is used: no tasks, and the object store only for the questions, once for all sites.
Messages use their own connections (`messages.py`) if a node can be reached.

The cluster stores the arguments of an actor's constructor, and a dashboard shows its environment. So the constructor
gets none; keys are sent by a call to the actor, from process to process.
"""

import asyncio
import gc
import os
import pickle
import secrets
import threading
import time
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from adaptive_eval import __version__
from adaptive_eval.base.errors import LaunchFailed
from adaptive_eval.sites.host import ReportMissing, SiteGroup
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
    SiteSetup,
    listen,
)
from adaptive_eval.sites.nodes import NAMESPACE, missing_resources, short_error
from adaptive_eval.sites.opening import format_resources
from adaptive_eval.sites.worker import SiteWorker

ANSWER_SECONDS = 10.0
"""Timeout for the answer of a site whose connection broke."""
REPORT_AFTER_SECONDS = 5.0
"""Waiting time for a place after which missing resources are reported."""
POLL_SECONDS = 0.25
WATCH_SECONDS = 0.5
MIN_RESOURCES = {"memory": 1}
"""Resources of a site that needs none: a group must reserve something, so a byte."""
SAME_VERSION_HINT = "install the same on all nodes"

Reply = TypeVar("Reply")
PlacedSite = tuple["RaySite", SiteFacts]


def end_with_parent() -> None:
    """Start a thread that ends this process when its parent is gone."""
    parent = os.getppid()

    def wait() -> None:
        while os.getppid() == parent:
            time.sleep(WATCH_SECONDS)
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


class RayWorker(SiteWorker):
    """A site in its own process, which ends with its node."""

    def __init__(self) -> None:
        super().__init__()
        self._address: SiteAddress | None = None
        end_with_parent()

    async def begin(self, setup: SiteSetup, site_data: SiteData) -> SiteBegun:
        """Serve the model; modules that are loaded by then are excluded from garbage collection."""
        result = await super().begin(setup, site_data)
        gc.freeze()
        gc.set_threshold(10_000)
        return result

    async def exchange(self, message: bytes) -> bytes:
        """`sync` with both messages as bytes: Ray's own pickle takes several times the CPU for many small values."""
        try:
            return pickle.dumps(await self.sync(pickle.loads(message)), 5)
        except SiteGone as error:
            return pickle.dumps(error)

    async def facts(self) -> SiteFacts:
        """Facts of the site: its node and its address."""
        import ray  # installed on every node, but not wherever this module is imported

        if self._address is None and os.environ.get("RAY_USE_TLS", "0").lower() not in ("1", "true"):
            _, self._address = await listen(ray.util.get_node_ip_address(), self.exchange)
        node_id = ray.get_runtime_context().get_node_id()
        return (await super().facts())._replace(node_id=node_id, address=self._address)


class RaySite:
    """A site that is a Ray actor."""

    def __init__(self, cluster: "RayCluster", actor: Any, group: Any) -> None:
        """`group` is the placement group with its resources."""
        self._cluster, self._actor, self._group = cluster, actor, group
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

    async def begin(self, setup: SiteSetup, site_data: SiteData) -> SiteBegun:
        shared = self._cluster.share(site_data)
        return SiteBegun(*await self._cluster.call(self._actor.begin.remote(setup, shared)))

    async def sync(self, order: SiteOrder) -> SiteReport:
        """Send an order, and return the site's report."""
        report: SiteReport | SiteGone = pickle.loads(await self._exchange(pickle.dumps(order, 5)))
        if isinstance(report, SiteGone):
            raise report
        return report

    async def end(self, at_once: bool) -> None:
        await self._cluster.call(self._actor.end.remote(at_once))

    def kill(self) -> None:
        """Kill the site, whether it has its place or waits for it, and release its resources."""
        if self._connections is not None:
            self._connections.close()
        self._cluster.kill(self._actor, self._group)

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
    """The sites of a run on a cluster, which end with this process."""

    def __init__(self, ray: Any) -> None:
        self.ray = ray
        self._shared: dict[int, tuple[SiteData, Any]] = {}

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

    def kill(self, actor: Any, group: Any) -> None:
        """Kill an actor, and release its placement group."""
        with suppress(self.ray.exceptions.RayError):
            self.ray.kill(actor)
        with suppress(self.ray.exceptions.RayError):
            self.ray.util.remove_placement_group(group)

    async def place(self, name: str, group: SiteGroup, report_missing: ReportMissing) -> PlacedSite:
        """Place a new site; raises `LaunchFailed`."""
        until = time.monotonic() + group.timeouts.resources
        while True:
            try:
                return await self._new(name, group, report_missing)
            except SiteGone as error:  # for example, its node had just ended
                if time.monotonic() > until:
                    raise LaunchFailed(f"its site ended before it began: {error}") from None
            await asyncio.sleep(POLL_SECONDS)

    async def _new(self, name: str, group: SiteGroup, report_missing: ReportMissing) -> PlacedSite:
        """Create a site, and wait for its place; raises `LaunchFailed`, or `SiteGone` if it ended before."""
        try:
            site = self._create(name, group.resources)
        except self.ray.exceptions.RayError as error:
            raise SiteGone(short_error(error)) from None
        try:
            facts = await self._wait_for_place(site, group, report_missing)
            if facts.version != __version__:
                problem = f"{facts.node} has version {facts.version} of adaptive-eval, not {__version__}"
                raise LaunchFailed(f"{problem}; {SAME_VERSION_HINT}")
        except BaseException:
            site.kill()
            raise
        return site, facts

    def _create(self, name: str, resources: Mapping[str, float]) -> RaySite:
        """Create the actor of a site, which gets its place when these resources are free on one node.

        In the cluster its name is unique, since an actor that is ending keeps its own.
        """
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        name = f"{name}:{secrets.token_hex(4)}"
        needed = {word: amount for word, amount in resources.items() if amount}
        group = self.ray.util.placement_group([needed or MIN_RESOURCES], strategy="STRICT_PACK", name=name)
        options = {
            "name": name,
            "namespace": NAMESPACE,
            "max_restarts": 0,
            "max_task_retries": 0,
            "num_cpus": needed.get("CPU", 0),
            "num_gpus": needed.get("GPU", 0),
            "memory": needed.get("memory"),
            "resources": {word: amount for word, amount in needed.items() if word not in ("CPU", "GPU", "memory")},
            "scheduling_strategy": PlacementGroupSchedulingStrategy(group, 0),
        }
        try:
            return RaySite(self, self.ray.remote(RayWorker).options(**options).remote(), group)
        except BaseException:
            self.ray.util.remove_placement_group(group)
            raise

    async def _wait_for_place(self, site: RaySite, group: SiteGroup, report_missing: ReportMissing) -> SiteFacts:
        """Wait until the new site has its place, and return its facts."""
        facts, requested = asyncio.ensure_future(site.facts()), format_resources(group.resources)
        seconds = group.timeouts.resources
        is_reported, started = False, time.monotonic()
        try:
            while True:
                waited = time.monotonic() - started
                if waited >= seconds and not group.may_wait_longer():
                    missing = await asyncio.to_thread(missing_resources, self.ray, group.resources)
                    hint = "lower launch.resources, or give the cluster more"
                    raise LaunchFailed(
                        f"no place with {requested} was available within {seconds:g} s: {missing}; {hint}"
                    )
                if waited >= REPORT_AFTER_SECONDS and not is_reported:
                    report_missing(requested, await asyncio.to_thread(missing_resources, self.ray, group.resources))
                    is_reported = True
                await asyncio.wait([facts], timeout=POLL_SECONDS)
                if facts.done():
                    return facts.result()
        finally:
            facts.cancel()
            await asyncio.gather(facts, return_exceptions=True)
