"""Sites as actors of a Ray cluster.

Each is one actor that takes its resources on one node. It has a name that follows from the run, and lives on where the
head is killed: the next start of the run finds it. An actor waits for its resources without a word, for ever; here it
waits for so long, and what is missing is told. Nothing else of Ray is used, neither tasks nor its store of objects, but
for the questions, which are put there once for all sites.

What an actor is made with stays in the books of the cluster, and variables of its environment are shown on a dashboard.
So it is made with a number alone; keys travel in a call to the actor, from process to process.
"""

import asyncio
import signal
import socket
import time
from collections.abc import Awaitable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from adaptive_eval import __version__
from adaptive_eval.errors import ConfigError, LaunchFailed, first_line
from adaptive_eval.imports import load_extra
from adaptive_eval.running.no_pauses import collect_less
from adaptive_eval.sites.host import PlaceWait, SiteOrigin
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
from adaptive_eval.sites.rehearsing import ClusterRoom
from adaptive_eval.sites.worker import SiteWorker

NAMESPACE = "adaptive-eval"
FOUND_SECONDS = 10.0
"""A site that is found again and lives says so in less."""
TOLD_AFTER = 5.0
"""Seconds without a place after which it is told what is missing."""
NAME_SECONDS = 30.0
"""So long the name of an actor that was killed may stay taken."""
POLL_SECONDS = 0.25
CONNECT_SECONDS = 10.0
SLIGHT = 1e-9
"""Ray counts in ten-thousandths."""
MANY = 1024

Told = TypeVar("Told")


class RayWorker(SiteWorker):
    """A site that knows its node of the cluster, and has a process of its own."""

    async def begin(self, setup: SiteSetup, site_secrets: SiteSecrets, material: SiteMaterial) -> SiteBegun:
        """Serve the model; what Ray and the program have loaded is looked through for cycles no more."""
        begun = await super().begin(setup, site_secrets, material)
        collect_less()
        return begun

    async def facts(self) -> SiteFacts:
        """Where it is, and what it runs."""
        import ray  # which is there on every node, and not where this module is only read

        return (await super().facts())._replace(node_id=ray.get_runtime_context().get_node_id())


class RaySite:
    """A site that is a Ray actor."""

    def __init__(self, cluster: "RayCluster", actor: Any) -> None:
        self._cluster, self._actor = cluster, actor

    async def facts(self) -> SiteFacts:
        """Where it is, as soon as it has a place."""
        return SiteFacts(*await self._told(self._actor.facts.remote()))

    async def begin(self, setup: SiteSetup, site_secrets: SiteSecrets, material: SiteMaterial) -> SiteBegun:
        """Serve the model, unless it is served like this already."""
        shared = self._cluster.shared(material)
        return SiteBegun(*await self._told(self._actor.begin.remote(setup, site_secrets, shared)))

    async def order(self, head: str, order: SiteOrder) -> None:
        """Tell the site what to do."""
        await self._told(self._actor.order.remote(head, order))

    async def news(self, head: str) -> SiteNews:
        """What the site has to tell."""
        return SiteNews(*await self._told(self._actor.news.remote(head)))

    async def end(self, at_once: bool) -> None:
        """Stop the site's server."""
        await self._told(self._actor.end.remote(at_once))

    def kill(self) -> None:
        """End the site, whatever it is doing."""
        with suppress(self._cluster.ray.exceptions.RayError):
            self._cluster.ray.kill(self._actor)

    async def _told(self, call: Awaitable[Told]) -> Told:
        try:
            return await call
        except self._cluster.ray.exceptions.RayError as error:
            raise SiteGone(_in_short(error)) from None


def _in_short(error: Exception) -> str:
    """Ray's errors are pages; the first line, and the one that says why."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    why = next((line for line in lines[1:] if line.startswith(("The actor is dead because", "The actor died"))), "")
    cause = getattr(error, "cause", None)
    return str(cause) if isinstance(cause, SiteGone) else " ".join(filter(None, [first_line(lines[0]), why]))[:400]


class RayCluster:
    """A Ray cluster that this process has joined."""

    def __init__(self, ray: Any, keep: float) -> None:
        """`keep`: seconds without a word of its head after which a site ends."""
        self.ray, self._keep = ray, keep
        self._actor = ray.remote(RayWorker)
        self._shared: dict[int, tuple[SiteMaterial, Any]] = {}

    def shared(self, material: SiteMaterial) -> Any:
        """The material, put where every node can fetch it."""
        if id(material) not in self._shared:
            self._shared[id(material)] = material, self.ray.put(material)
        return self._shared[id(material)][1]

    def left_by(self, run: str) -> Collection[str]:
        """The names of the sites that an earlier start of a run has left; those that wait for a place wait no more."""
        names: set[str] = set()
        for one in self.ray._private.state.actors().values():
            if one["Name"].startswith(run) and one["State"] == "ALIVE":
                names.add(one["Name"])
            elif one["Name"].startswith(run) and one["State"] != "DEAD" and (site := self._known(one["Name"])):
                site.kill()
        return names

    async def place(self, name: str, resources: dict[str, float], awaited: PlaceWait) -> SiteOrigin:
        """The site of that name if it is there and lives, else a new one; raises `LaunchFailed`."""
        if (site := self._known(name)) is not None:
            if (facts := await self._found(site)) is not None:
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

    async def _found(self, site: RaySite) -> SiteFacts | None:
        """What a site says that was there before; None where it says nothing, or runs another version."""
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
        site = await self._made(name, resources)
        try:
            facts = await self._had(site, resources, awaited)
            if facts.version != __version__:
                mend = "install the same on all nodes"
                wrong = f"{facts.node} has version {facts.version} of adaptive-eval, not {__version__}"
                raise LaunchFailed(f"{wrong}; {mend}")
        except BaseException:
            site.kill()
            raise
        return SiteOrigin(site, facts, found=False)

    def _known(self, name: str) -> RaySite | None:
        try:
            return RaySite(self, self.ray.get_actor(name, namespace=NAMESPACE))
        except ValueError:
            return None

    async def _made(self, name: str, resources: Mapping[str, float]) -> RaySite:
        """A new actor of that name, as soon as no other has it."""
        others = {word: amount for word, amount in resources.items() if word not in ("CPU", "GPU", "memory") and amount}
        options = {
            "name": name,
            "namespace": NAMESPACE,
            "lifetime": "detached",
            "max_restarts": 0,
            "max_task_retries": 0,
            "num_cpus": resources.get("CPU", 0),
            "num_gpus": resources.get("GPU", 0),
            "memory": resources.get("memory") or None,
            "resources": others,
        }
        until = time.monotonic() + NAME_SECONDS
        while True:
            try:
                return RaySite(self, self._actor.options(**options).remote(self._keep))
            except ValueError as error:  # the name is taken, by one that is on its way out
                if time.monotonic() > until:
                    raise LaunchFailed(f"its site cannot be placed: {first_line(str(error))}") from None
            await asyncio.sleep(POLL_SECONDS)

    async def _had(self, site: RaySite, resources: Mapping[str, float], awaited: PlaceWait) -> SiteFacts:
        """What the new site says when it has its place."""
        facts = asyncio.ensure_future(site.facts())
        told, began = False, time.monotonic()
        try:
            while True:
                waited = time.monotonic() - began
                if waited >= awaited.seconds and not awaited.longer():
                    asked, missing = _words(resources), await asyncio.to_thread(self.missing, resources)
                    mend = "raise sites.wait, ask for less in launch.resources, or give the cluster more"
                    raise LaunchFailed(f"no place with {asked} was had in {awaited.seconds:g} s: {missing}; {mend}")
                if waited >= TOLD_AFTER and not told:
                    awaited.tell(_words(resources), await asyncio.to_thread(self.missing, resources))
                    told = True
                await asyncio.wait([facts], timeout=POLL_SECONDS)
                if facts.done():
                    return facts.result()
        finally:
            facts.cancel()
            await asyncio.gather(facts, return_exceptions=True)

    def room(self, resources: Mapping[str, float]) -> ClusterRoom:
        """For how many sites with these resources there is room, each on one node."""
        nodes = [node for node in self.ray.nodes() if node["Alive"]]
        free = self.ray._private.state.available_resources_per_node()
        return ClusterRoom(
            now=sum(_times(resources, free.get(node["NodeID"], {})) for node in nodes),
            ever=sum(_times(resources, node["Resources"]) for node in nodes),
        )

    def missing(self, resources: Mapping[str, float]) -> str:
        """Why these resources are not to be had on any one node now."""
        nodes = [node for node in self.ray.nodes() if node["Alive"]]
        totals = [node["Resources"] for node in nodes]
        able = [node for node, has in zip(nodes, totals, strict=True) if _fits(resources, has)]
        if not nodes:
            return "the cluster has no node"
        if not able:
            most = {word: max(has.get(word, 0.0) for has in totals) for word in resources}
            return f"none of the {len(nodes)} nodes of the cluster has so much; the most that one has is {_words(most)}"
        free = self.ray._private.state.available_resources_per_node()
        left = [free.get(node["NodeID"], {}) for node in able]
        most = {word: max(has.get(word, 0.0) for has in left) for word in resources}
        taken = "others have it now" if not any(_fits(resources, has) for has in left) else "it is being placed"
        able_to = f"{len(able)} of {len(nodes)} nodes could give it, but {taken}"
        return f"{able_to}; the most that is free on one is {_words(most)}"


def _times(asked: Mapping[str, float], has: Mapping[str, float]) -> int:
    """How often that is there; what takes nothing always has room."""
    return min((int(has.get(word, 0.0) / amount + SLIGHT) for word, amount in asked.items() if amount), default=MANY)


def _fits(asked: Mapping[str, float], has: Mapping[str, float]) -> bool:
    return all(has.get(word, 0.0) >= amount for word, amount in asked.items())


def _words(resources: Mapping[str, float]) -> str:
    return ", ".join(f"{word} {amount:g}" for word, amount in resources.items()) or "nothing"


def _require_listener(address: str, mend: str) -> None:
    """Raise where nobody listens there: Ray would try for minutes."""
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not port.isdigit() or not 0 < int(port) < 2**16:
        raise ConfigError(f"--ray must be auto or the HOST:PORT of a cluster's head node, but got {address!r}")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS).close()
    except OSError as error:
        raise ConfigError(f"--ray {address}: there is no Ray cluster to be joined ({error}); {mend}") from None


@contextmanager
def joined_cluster(address: str, keep: float) -> Iterator[RayCluster]:
    """The cluster at an address, or with `auto` the one of this machine; to be called in the main thread.

    Raises `ConfigError` where there is none, or Ray is not installed.
    """
    ray = load_extra("ray", "ray", "Sites on a Ray cluster")
    mend = "start one with `ray start --head`, and run on one of its nodes"
    if address != "auto":
        _require_listener(address, mend)
    heard = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, RuntimeError, ValueError) as error:
        wrong = f"--ray {address}: there is no Ray cluster to be joined ({_in_short(error)})"
        raise ConfigError(f"{wrong}; {mend}") from None
    finally:
        for number, handler in heard.items():  # a run has its own
            signal.signal(number, handler)
    try:
        yield RayCluster(ray, keep)
    finally:
        ray.shutdown()
