"""Lifecycle of a site: a host that serves one of its models at a time.

The run decides which model a site serves and when, as for places of this machine. A site that is lost, with its raylet,
its node or for any other reason, has no place until a new one is found; meanwhile its requests go to the model's other
sites, or wait. A model that was lost at a site several times in a row without an answer is no longer served there.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from adaptive_eval.base.errors import EndpointError, LaunchFailed
from adaptive_eval.launch.endpoint import ServedEndpoint, ServedPlace
from adaptive_eval.launch.hosts import OnEvent, OnLost, PlaceLost, ServerHost
from adaptive_eval.launch.server import MAX_RESTARTS
from adaptive_eval.notes import (
    Event,
    ServerDied,
    ServerLaunched,
    ServerLaunching,
    ServerReleased,
    SiteAwaited,
    SiteLost,
    SitePlaced,
)
from adaptive_eval.sites.link import SiteLink
from adaptive_eval.sites.messages import SiteData, SiteFacts, SiteGone, SiteHandle, SiteSetup, SiteTimeouts

ReportMissing = Callable[[str, str], None]
"""Called once with the requested and the missing resources of a site that waits."""


class SitePlacing(Protocol):
    """Places sites."""

    async def place(self, name: str, group: "SiteGroup", report_missing: ReportMissing) -> tuple[SiteHandle, SiteFacts]:
        """Wait for a place with the group's resources for a site of that name, and return the site.

        Raises `LaunchFailed`, with the missing resources, if it takes longer than the group allows.
        """


@dataclass(frozen=True, slots=True)
class SiteService:
    """A model that may be served at a site."""

    setup: SiteSetup
    site_data: SiteData
    endpoint: ServedEndpoint
    place: ServedPlace
    """This site as a place of the endpoint."""

    @property
    def name(self) -> str:
        """The model's name."""
        return self.setup.model.name


class SiteGroup:
    """Sites of the same models: while one of them has a place, or had one recently, the others keep waiting."""

    def __init__(self, cluster: SitePlacing, resources: dict[str, float], timeouts: SiteTimeouts) -> None:
        """`timeouts.resources` limits the wait for a place if no site of the group has one."""
        self.cluster, self.resources, self.timeouts = cluster, resources, timeouts
        self._placed = 0
        self._last_gone_at = -float("inf")
        self._was_reported = False

    def count_placed(self) -> None:
        """Count a site that has got its place."""
        self._placed += 1
        self._was_reported = False

    def count_gone(self) -> None:
        """Count a site that has lost its place."""
        self._placed -= 1
        self._last_gone_at = time.monotonic()

    def may_wait_longer(self) -> bool:
        """Whether sites keep waiting for further places."""
        return self._placed > 0 or time.monotonic() - self._last_gone_at < self.timeouts.resources

    def should_report(self) -> bool:
        """Whether to report that a site waits: once, until a site has its place."""
        was_reported, self._was_reported = self._was_reported, True
        return not was_reported


class SiteHost(ServerHost):
    """One site: a host whose servers run on a node of the cluster, one at a time."""

    def __init__(self, site: str, name: str, services: Mapping[int, SiteService], group: SiteGroup) -> None:
        """`site` is its name in the run, such as "site 1", and `name` that in the cluster; `services` are the models
        that may be served there, by number."""
        self._site, self._name, self._services, self._group = site, name, services, group
        self._handle: SiteHandle | None = None
        self._ending: SiteHandle | None = None
        """The site while it is being ended."""
        self._link: SiteLink | None = None
        self._node = ""
        self._serves: int | None = None
        """The model that it serves, or is about to serve."""
        self._losses: Counter[int] = Counter()
        """Consecutive losses without an answer, by model."""
        self._on_event: OnEvent = lambda event: None
        self._on_lost: OnLost = lambda error: None

    @property
    def models(self) -> Sequence[int]:
        return tuple(self._services)

    @property
    def has_place(self) -> bool:
        """Whether the site has a place in the cluster."""
        return self._handle is not None

    @property
    def up(self) -> bool:
        """Whether the site has a place in the cluster, which counts as held time."""
        return self.has_place

    async def acquire(self, model: int, on_event: OnEvent, on_lost: OnLost) -> None:
        """Wait for its place; raises `LaunchFailed`. `on_lost` is called when the place is lost."""
        self._on_event, self._on_lost, self._serves = on_event, on_lost, model
        group, started = self._group, time.monotonic()
        self._handle, facts = await group.cluster.place(self._name, group, self._announce_waiting)
        self._node = facts.node
        group.count_placed()
        placed = SitePlaced(
            model=self._model_name,
            on=self._site,
            node=facts.node,
            resources=group.resources,
            seconds=time.monotonic() - started,
            pid=facts.pid,
            node_id=facts.node_id or None,
            devices=facts.devices or None,
        )
        on_event(placed)

    async def load(self, model: int, on_event: OnEvent) -> None:
        """Serve a model instead of the previous one; raises `LaunchFailed` or `PlaceLost`."""
        self._on_event = on_event
        await self._close_link()
        self._serves = model
        service, handle = self._services[model], self._handle
        if handle is None:
            raise PlaceLost("it is gone")
        launch = service.setup.model.launch
        seconds = (0.0 if launch is None else launch.timeout) + self._group.timeouts.heartbeat
        # the site reports its own events only after loading
        on_event(ServerLaunching(service.name, log=str(service.setup.logs), on=self._site))
        setup = replace(service.setup, has_answered=service.endpoint.has_answered)
        try:
            async with asyncio.timeout(seconds):
                result = await handle.begin(setup, service.site_data)
        except TimeoutError:
            raise self._lose_while_loading(model, f"it did not begin within {seconds:g} s") from None
        except SiteGone as error:
            raise self._lose_while_loading(model, str(error)) from None
        for event in result.events:
            if not isinstance(event, ServerLaunching):
                self._forward_event(event)
        if result.problem is not None:
            on_event(ServerReleased(service.name, self._site))
            if len(self.models) == 1:
                await self.unload(at_once=True)
            raise LaunchFailed(f"on {self._node}: {result.problem}")
        replica = f"{self._site} on {self._node}"
        silence = self._group.timeouts.heartbeat
        self._link = SiteLink(handle, replica, silence, self._forward_event, self._on_gone)
        service.endpoint.expect_none()  # requests lost with another site are repeated here
        service.place.begin(self._link)

    async def release(self, model: int, on_event: OnEvent) -> None:
        """End the site, and release its place."""
        was_served = self._link is not None
        if self.has_place:
            await self.unload()
            if was_served:
                on_event(ServerReleased(self._services[model].name, self._site))

    def abandon(self, model: int, error: EndpointError) -> None:
        place = self._services[model].place
        place.unregister(comes_back=False)
        place.give_up(str(error))

    async def unload(self, *, at_once: bool = False) -> None:
        """End the site in any state."""
        await self._close_link()
        if (handle := self._forget_place()) is None:
            return
        try:
            async with asyncio.timeout(self._group.timeouts.heartbeat):
                await handle.end(at_once)
        except (SiteGone, TimeoutError):
            pass  # its server ends with it
        finally:
            handle.kill()

    def kill(self) -> None:
        """Kill the site if it is being ended."""
        if self._ending is not None:
            self._ending.kill()

    async def _close_link(self) -> None:
        """Stop sending requests to the model that it serves."""
        link, self._link = self._link, None
        if link is not None and self._serves is not None:
            self._services[self._serves].place.unregister(comes_back=False)
            await link.close()

    def _forget_place(self) -> SiteHandle | None:
        """Forget the place, and return its site."""
        handle, self._handle = self._handle, None
        if handle is not None:
            self._ending = handle
            self._group.count_gone()
        return handle

    def _lose_while_loading(self, model: int, reason: str) -> PlaceLost:
        """Record that the site was lost while it loaded a model, and return the error to raise."""
        self._losses[model] += 1
        self._report_lost(model, reason)
        return PlaceLost(reason, self._loss_error(model, reason))

    def _on_gone(self, link: SiteLink, reason: str) -> None:
        """Handle a site that does not answer: its requests go to another one, or wait."""
        model = self._serves
        if link is not self._link or model is None:
            return
        self._link = None
        self._losses[model] = 0 if link.answers else self._losses[model] + 1
        self._services[model].place.unregister(comes_back=True)
        self._report_lost(model, reason)
        self._on_lost(self._loss_error(model, reason))

    def _report_lost(self, model: int, reason: str) -> None:
        if (handle := self._forget_place()) is not None:
            handle.kill()
        self._on_event(SiteLost(self._services[model].name, self._site, self._node, reason))

    def _loss_error(self, model: int, reason: str) -> LaunchFailed | None:
        """Error that ends serving the model here; None if it was not lost too often."""
        times = self._losses[model]
        message = f"its {self._site} was lost {times} times without an answer: {reason}"
        return LaunchFailed(message) if times > MAX_RESTARTS else None

    @property
    def _model_name(self) -> str:
        """Name of the model that it serves, or was placed for."""
        assert self._serves is not None
        return self._services[self._serves].name

    def _announce_waiting(self, requested: str, missing: str) -> None:
        if self._group.should_report():
            self._on_event(SiteAwaited(self._model_name, self._site, requested, missing))

    def _forward_event(self, event: Event) -> None:
        """Pass on an event of the site's servers, with the site's name."""
        if isinstance(event, ServerLaunching | ServerLaunched | ServerDied | ServerReleased):
            event = replace(event, on=self._site)
        self._on_event(event)
