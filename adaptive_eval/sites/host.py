"""A site from its place to its end, as the turns of a run see it: a host that serves one model.

A site that is lost, with its raylet, its node or for any other reason, is placed again, as soon as the cluster has room
for it; meanwhile its requests go to the model's other sites, or wait. It is given up where no other site serves the
model and no place is had in time, or where it was lost several times in a row without an answer.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from adaptive_eval.errors import LaunchFailed
from adaptive_eval.launch.server import RESTARTS, OnEvent
from adaptive_eval.sites.endpoint import SitesEndpoint
from adaptive_eval.sites.link import SiteLink, SitePace
from adaptive_eval.sites.messages import SiteConfidence, SiteGone, SiteHandle, SiteMaterial, SiteSetup
from adaptive_eval.store import (
    Event,
    ServerDied,
    ServerLaunched,
    ServerLaunching,
    ServerReleased,
    SiteAwaited,
    SiteLost,
    SitePlaced,
)

OfServer = TypeVar("OfServer", ServerLaunching, ServerLaunched, ServerDied, ServerReleased)


@dataclass(frozen=True, slots=True)
class SiteOrigin:
    """A site that has a place."""

    handle: SiteHandle
    node: str
    pid: int
    found: bool
    """It was there, from an earlier start of the run."""


class SitePlacing(Protocol):
    """Where sites are placed."""

    async def place(self, name: str, resources: dict[str, float], awaited: "Awaited") -> SiteOrigin:
        """A place with these resources, in which nothing is served yet, or the site of that name if it is there.

        Raises `LaunchFailed` when it takes longer than `awaited` allows, and says what is missing.
        """
        ...


@dataclass(frozen=True, slots=True)
class Awaited:
    """How long a place is waited for, and who is told what it waits for."""

    seconds: float
    longer: "Longer"
    tell: "TellMissing"


class Longer(Protocol):
    """Whether to go on waiting when the time is over."""

    def __call__(self) -> bool: ...


class TellMissing(Protocol):
    """Hears what a place lacks, once."""

    def __call__(self, asked: str, missing: str) -> None: ...


@dataclass(frozen=True, slots=True)
class SitePlan:
    """What one site is to be."""

    number: int
    """Of the model in the run."""
    site: str
    """What it is called in the run, such as "site 1"."""
    name: str
    """What it is called in the cluster."""
    resources: dict[str, float]
    setup: SiteSetup
    confided: SiteConfidence
    material: SiteMaterial
    pace: SitePace
    wait: float
    """Seconds that it may wait for its place."""

    @property
    def model(self) -> str:
        """The model's name."""
        return self.confided.model.name

    @property
    def begin_seconds(self) -> float:
        """How long its server may take, with some time for messages."""
        launch = self.confided.model.launch
        return (0.0 if launch is None else launch.timeout) + self.pace.silence


class SiteHost:
    """One site of a model: a `ServerHost` whose server runs on a node of the cluster."""

    def __init__(self, plan: SitePlan, cluster: SitePlacing, endpoint: SitesEndpoint) -> None:
        self._plan, self._cluster, self._endpoint = plan, cluster, endpoint
        self._handle: SiteHandle | None = None
        self._link: SiteLink | None = None
        self._node = ""
        self._task: asyncio.Task[None] | None = None
        """Brings a lost site back."""
        self._in_vain = 0
        """How often it was lost in a row without an answer."""
        self._tell: OnEvent = lambda event: None

    @property
    def models(self) -> Sequence[int]:
        """The one that is served here."""
        return (self._plan.number,)

    @property
    def up(self) -> bool:
        """It has a place."""
        return self._handle is not None

    async def load(self, model: int, tell: OnEvent) -> None:
        """Place the site and have it serve the model; raises `LaunchFailed`."""
        self._tell = tell
        self._endpoint.expect(1)
        try:
            await self._bring_up()
        finally:
            self._endpoint.expect(-1)

    async def release(self, model: int, tell: OnEvent) -> None:
        """End the site, and give its place back."""
        if self.up:
            await self.unload()
            tell(ServerReleased(self._plan.model, self._plan.site))

    async def unload(self, *, at_once: bool = False) -> None:
        """End the site, wherever it is."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        link, self._link = self._link, None
        if link is not None:
            self._endpoint.left(self._plan.site)
            await link.close()
        handle, self._handle = self._handle, None
        if handle is not None:
            try:
                async with asyncio.timeout(self._plan.pace.silence):
                    await handle.end(at_once)
            except (SiteGone, TimeoutError):
                pass  # its server ends with it
            finally:
                handle.kill()

    def kill(self) -> None:
        """End it at once where it is being ended."""
        if self._handle is not None:
            self._handle.kill()

    async def _bring_up(self) -> None:
        """Have it placed and begun, again where it is lost meanwhile; raises `LaunchFailed`: then it is not there."""
        while True:
            try:
                await self._place_and_begin()
                return
            except SiteGone as error:
                self._in_vain += 1
                self._tell(SiteLost(self._plan.model, self._plan.site, self._node, str(error)))
                self._require_hope(str(error))

    def _require_hope(self, reason: str) -> None:
        if self._in_vain > RESTARTS:
            raise LaunchFailed(f"its {self._plan.site} was lost {self._in_vain} times without an answer: {reason}")

    async def _place_and_begin(self) -> None:
        plan, began = self._plan, time.monotonic()
        awaited = Awaited(plan.wait, lambda: self._endpoint.sites_up > 0, self._await)
        origin = await self._cluster.place(plan.name, plan.resources, awaited)
        self._handle, self._node = origin.handle, origin.node
        seconds = time.monotonic() - began
        self._tell(SitePlaced(plan.model, plan.site, origin.node, plan.resources, seconds, origin.found, origin.pid))
        try:
            await self._begun(origin.handle)
        except BaseException:
            self._handle = None
            origin.handle.kill()
            raise

    async def _begun(self, handle: SiteHandle) -> None:
        plan = self._plan
        try:
            async with asyncio.timeout(plan.begin_seconds):
                begun = await handle.begin(plan.setup, plan.confided, plan.material)
        except TimeoutError:
            raise LaunchFailed(f"its site on {self._node} did not begin within {plan.begin_seconds:g} s") from None
        for event in begun.events:
            self._hear(event)
        if begun.problem is not None:
            raise LaunchFailed(f"on {self._node}: {begun.problem}")
        self._link = SiteLink(handle, plan.setup.head, plan.pace, self._hear, self._lost)
        self._endpoint.joined(plan.site, self._link)

    def _await(self, asked: str, missing: str) -> None:
        self._tell(SiteAwaited(self._plan.model, self._plan.site, asked, missing))

    def _hear(self, event: Event) -> None:
        """What the site tells of its server, with the site's name."""
        if isinstance(event, ServerLaunching | ServerLaunched | ServerDied | ServerReleased):
            event = replace(event, on=self._plan.site)
        self._tell(event)

    def _lost(self, link: SiteLink, reason: str) -> None:
        """It does not answer: what it had goes elsewhere, and it is placed again."""
        if link is not self._link or self._handle is None:
            return
        plan, handle = self._plan, self._handle
        self._link = self._handle = None
        self._in_vain = 0 if link.answered else self._in_vain + 1
        self._endpoint.expect(1)
        self._endpoint.left(plan.site)
        handle.kill()
        self._tell(SiteLost(plan.model, plan.site, self._node, reason))
        self._task = asyncio.create_task(self._come_back(reason))

    async def _come_back(self, reason: str) -> None:
        plan = self._plan
        try:
            while True:
                self._require_hope(reason)
                try:
                    await self._bring_up()
                    return
                except LaunchFailed as error:
                    if not self._endpoint.sites_up:
                        raise
                    self._in_vain, reason = self._in_vain + 1, str(error)
        except LaunchFailed as error:
            self._endpoint.given_up(plan.site, str(error))
        except Exception as error:  # who waits for the site is told, whatever went wrong
            self._endpoint.given_up(plan.site, f"its {plan.site} cannot be brought back: {error!r}")
        finally:
            self._endpoint.expect(-1)
