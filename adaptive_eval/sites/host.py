"""A site from its place to its end, as the turns of a run see it: a host that serves one of its models at a time.

What it serves, and when, the turns decide, as they do for places of this machine. A site that is lost, with its raylet,
its node or for any other reason, is no place any more until another one is had; meanwhile its requests go to the
model's other sites, or wait. A model is not served any more at one where it was lost several times in a row without an
answer.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from adaptive_eval.errors import EndpointError, LaunchFailed
from adaptive_eval.launch.endpoint import ServedPlace
from adaptive_eval.launch.server import RESTARTS
from adaptive_eval.record.sites import place_words
from adaptive_eval.sites.endpoint import SitesEndpoint
from adaptive_eval.sites.link import SiteLink
from adaptive_eval.sites.messages import SiteFacts, SiteGone, SiteHandle, SiteMaterial, SiteSecrets, SiteSetup
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
from adaptive_eval.supply.hosts import OnEvent, OnLost, PlaceLost, ServerHost

OfServer = TypeVar("OfServer", ServerLaunching, ServerLaunched, ServerDied, ServerReleased)


@dataclass(frozen=True, slots=True)
class SiteOrigin:
    """A site that has a place."""

    handle: SiteHandle
    facts: SiteFacts
    found: bool
    """Whether it was there, from an earlier start of the run."""


class SitePlacing(Protocol):
    """A way to place sites."""

    def left_by(self, run: str) -> Collection[str]:
        """The names of the sites that an earlier start of a run has left; all of them begin with `run`."""

    async def place(self, name: str, resources: dict[str, float], awaited: "PlaceWait") -> SiteOrigin:
        """A place with these resources, in which nothing is served yet, or the site of that name if it is there.

        Raises `LaunchFailed` when it takes longer than `awaited` allows, and says what is missing.
        """


@dataclass(frozen=True, slots=True)
class PlaceWait:
    """How long a place is waited for, and who is told what it waits for."""

    seconds: float
    longer: Callable[[], bool]
    """Whether to go on waiting when the time is over."""
    tell: Callable[[str, str], None]
    """Hears what was asked for, and what of it is missing, once."""


@dataclass(frozen=True, slots=True)
class SiteService:
    """A model that may be served at a site."""

    setup: SiteSetup
    site_secrets: SiteSecrets
    material: SiteMaterial
    endpoint: SitesEndpoint
    served: ServedPlace
    """This site among those of the endpoint."""

    @property
    def name(self) -> str:
        """The model's name."""
        return self.site_secrets.model.name

    @property
    def launch_seconds(self) -> float:
        """How long its server may take."""
        launch = self.site_secrets.model.launch
        return 0.0 if launch is None else launch.timeout


@dataclass(frozen=True, slots=True)
class SitePlan:
    """Plan of one site."""

    site: str
    """What it is called in the run, such as "site 1"."""
    name: str
    """What it is called in the cluster."""
    resources: dict[str, float]
    services: Mapping[int, SiteService]
    """The models that may be served there, by their numbers in the run."""
    silence: float
    """Seconds after which a site that says nothing is taken for gone."""


class SiteGroup:
    """Sites of the same models: a further one is waited for as long as one of them is there, or was not long ago."""

    def __init__(self, wait: float) -> None:
        """`wait`: how many seconds a place is waited for where there is none."""
        self.wait = wait
        self._there = 0
        self._last = -float("inf")
        self._told = False

    def count_placed(self) -> None:
        """Count a site that has got its place."""
        self._there += 1
        self._told = False

    def count_gone(self) -> None:
        """Count a site that has lost its place."""
        self._there -= 1
        self._last = time.monotonic()

    def may_wait_longer(self) -> bool:
        """Whether a further place is still waited for."""
        return self._there > 0 or time.monotonic() - self._last < self.wait

    def should_tell(self) -> bool:
        """Whether it is to be told that one of them waits: once until one has its place."""
        told, self._told = self._told, True
        return not told


class SiteHost(ServerHost):
    """One site: a host whose servers run on a node of the cluster, one at a time; others may get what it takes of its
    node."""

    def __init__(self, plan: SitePlan, cluster: SitePlacing, group: SiteGroup, *, kept: bool = False) -> None:
        """`kept`: it is there, from an earlier start of the run."""
        self.is_kept = kept
        self.found_model = None
        self._plan, self._cluster, self._group = plan, cluster, group
        self._handle: SiteHandle | None = None
        self._ending: SiteHandle | None = None
        """What it was, while that is being ended."""
        self._link: SiteLink | None = None
        self._node = ""
        self._serves: int | None = None
        """The model that it serves, or is to serve."""
        self._in_vain: Counter[int] = Counter()
        """How often it was lost in a row without an answer of each model."""
        self._tell: OnEvent = lambda event: None
        self._on_lost: OnLost = lambda error: None

    @property
    def models(self) -> Sequence[int]:
        return tuple(self._plan.services)

    @property
    def has_place(self) -> bool:
        """Whether the site has a place in the cluster."""
        return self._handle is not None

    @property
    def up(self) -> bool:
        """Whether the site has a place in the cluster: it is held from then on."""
        return self.has_place

    async def acquire(self, model: int, tell: OnEvent, lost: OnLost) -> None:
        """Have it placed; raises `LaunchFailed`. `lost` is called when it is gone again."""
        self._tell, self._on_lost, self._serves = tell, lost, model
        plan, began = self._plan, time.monotonic()
        try:
            awaited = PlaceWait(self._group.wait, self._group.may_wait_longer, self._await)
            origin = await self._cluster.place(plan.name, plan.resources, awaited)
        finally:
            self.is_kept = False
        self._handle, self._node = origin.handle, origin.facts.node
        self._group.count_placed()
        marks = {service.setup.mark: number for number, service in plan.services.items()}
        self.found_model = marks.get(origin.facts.serves)
        tell(self._placed(origin, time.monotonic() - began))

    async def load(self, model: int, tell: OnEvent) -> None:
        """Have it serve the model, in place of the one before; raises `LaunchFailed` and `PlaceLost`."""
        self._tell = tell
        await self._leave()
        self._serves = model
        service, handle = self._plan.services[model], self._handle
        if handle is None:
            raise PlaceLost("it is gone")
        seconds = service.launch_seconds + self._plan.silence
        if self.found_model != model:  # what the site has to say of it comes when it is over
            tell(ServerLaunching(service.name, log=str(service.setup.logs), on=self._plan.site))
        self.found_model = None
        setup = replace(service.setup, has_answered=service.endpoint.has_answered)
        try:
            async with asyncio.timeout(seconds):
                begun = await handle.begin(setup, service.site_secrets, service.material)
        except TimeoutError:
            raise self._lose_while_loading(model, f"it did not begin within {seconds:g} s") from None
        except SiteGone as error:
            raise self._lose_while_loading(model, str(error)) from None
        for event in begun.events:
            if not isinstance(event, ServerLaunching):
                self._hear(event)
        if begun.problem is not None:
            tell(ServerReleased(service.name, self._plan.site))
            if len(self.models) == 1:
                await self.unload(at_once=True)
            raise LaunchFailed(f"on {self._node}: {begun.problem}")
        where = place_words(self._plan.site, self._node)
        number, silence = service.endpoint.number, self._plan.silence
        self._link = SiteLink(handle, service.setup.head, number, where, silence, self._hear, self._lost)
        service.endpoint.expect_none()  # what was lost with another site is asked here
        service.served.begin(self._link)

    async def release(self, model: int, tell: OnEvent) -> None:
        """End the site, and give its place back."""
        served = self._link is not None
        if self.has_place:
            await self.unload()
            if served:
                tell(ServerReleased(self._plan.services[model].name, self._plan.site))

    def abandon(self, model: int, error: EndpointError) -> None:
        served = self._plan.services[model].served
        served.leave(comes_back=False)
        served.give_up(str(error))

    async def unload(self, *, at_once: bool = False) -> None:
        """End the site, wherever it is."""
        await self._leave()
        if (handle := self._give_up()) is None:
            return
        try:
            async with asyncio.timeout(self._plan.silence):
                await handle.end(at_once)
        except (SiteGone, TimeoutError):
            pass  # its server ends with it
        finally:
            handle.kill()

    def kill(self) -> None:
        """End it at once where it is being ended."""
        if self._ending is not None:
            self._ending.kill()

    async def _leave(self) -> None:
        """Ask nothing more of what it serves."""
        link, self._link = self._link, None
        if link is not None and self._serves is not None:
            self._plan.services[self._serves].served.leave(comes_back=False)
            await link.close()

    def _give_up(self) -> SiteHandle | None:
        """Forget the place; gives the site that was there."""
        handle, self._handle, self.found_model = self._handle, None, None
        if handle is not None:
            self._ending = handle
            self._group.count_gone()
        return handle

    def _lose_while_loading(self, model: int, reason: str) -> PlaceLost:
        """Record that the site was lost while it loaded a model; returns the error to raise."""
        self._in_vain[model] += 1
        self._tell_lost(model, reason)
        return PlaceLost(reason, self._hopeless(model, reason))

    def _lost(self, link: SiteLink, reason: str) -> None:
        """The site does not answer: what it had goes to another one, or waits."""
        model = self._serves
        if link is not self._link or model is None:
            return
        self._link = None
        self._in_vain[model] = 0 if link.answers else self._in_vain[model] + 1
        self._plan.services[model].served.leave(comes_back=True)
        self._tell_lost(model, reason)
        self._on_lost(self._hopeless(model, reason))

    def _tell_lost(self, model: int, reason: str) -> None:
        if (handle := self._give_up()) is not None:
            handle.kill()
        self._tell(SiteLost(self._plan.services[model].name, self._plan.site, self._node, reason))

    def _hopeless(self, model: int, reason: str) -> LaunchFailed | None:
        """Why the model is not to be served here any more, if it is not."""
        times = self._in_vain[model]
        lost = f"its {self._plan.site} was lost {times} times without an answer: {reason}"
        return LaunchFailed(lost) if times > RESTARTS else None

    def _placed(self, origin: SiteOrigin, seconds: float) -> SitePlaced:
        facts = origin.facts
        return SitePlaced(
            model=self._model_name,
            on=self._plan.site,
            node=facts.node,
            resources=self._plan.resources,
            seconds=seconds,
            found=origin.found,
            pid=facts.pid,
            node_id=facts.node_id or None,
            devices=facts.devices or None,
        )

    @property
    def _model_name(self) -> str:
        """Name of the model that it serves, or for which it was placed."""
        assert self._serves is not None
        return self._plan.services[self._serves].name

    def _await(self, asked: str, missing: str) -> None:
        if self._group.should_tell():
            self._tell(SiteAwaited(self._model_name, self._plan.site, asked, missing))

    def _hear(self, event: Event) -> None:
        """Pass on an event of the site's servers, with the site's name."""
        if isinstance(event, ServerLaunching | ServerLaunched | ServerDied | ServerReleased):
            event = replace(event, on=self._plan.site)
        self._tell(event)
