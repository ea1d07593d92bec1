"""Sites of a run on a cluster, followed event by event: where each is, which model it serves and since when.

Events tell everything, so a reader of the run knows as much as the process that runs it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from adaptive_eval.notes import (
    Event,
    RunBegun,
    RunFinished,
    RunStopped,
    ServerDied,
    ServerLaunched,
    ServerReleased,
    SiteAwaited,
    SiteLost,
    SitePlaced,
)


class SiteState(StrEnum):
    """The states of a site."""

    WAITING = "waiting"
    """The cluster has no place for it yet."""
    LOADING = "loading"
    """The site has a place, and its server is starting there."""
    SERVING = "serving"
    LOST = "lost"
    """The site is gone, and is placed again unless it is given up."""
    ENDED = "ended"
    """Its place was given back, or the run ended."""


@dataclass(frozen=True, slots=True)
class SiteRow:
    """Current state of one site."""

    model: str
    site: str
    state: str
    """A `SiteState`."""
    since: float
    """Seconds since 1970 at which the state began; for a serving site, when its model was loaded."""
    host: str | None = None
    """The machine on which it has, or last had, its place."""
    node: str | None = None
    """The cluster's id of that node."""
    gpus: float = 0.0
    devices: str | None = None
    """GPUs of the machine that it has, if any."""
    placed: int = 0
    """Number of times that it was given a place."""
    moves: int = 0
    """Number of times that its new place was on another node."""
    losses: int = 0
    why: str | None = None
    """The resource missing for a place, or the reason of the last loss."""


def replica_address(site: str, host: str) -> str:
    """Name of the replica that answers from a site are stored with."""
    return f"{site} on {host}"


OWN_SITE_PREFIX = "site "
"""Prefix of sites that serve one model, whose names other models may have too. Names of shared places are unique."""


def _site_key(model: str, site: str) -> tuple[str, str]:
    """Key of a site; a shared place has the same for all models."""
    return (model if site.startswith(OWN_SITE_PREFIX) else "", site)


class SiteBook:
    """Follows the sites of a run, event by event."""

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self._rows: dict[tuple[str, str], SiteRow] = {}
        for event in events:
            self.on_event(event)

    @property
    def rows(self) -> tuple[SiteRow, ...]:
        """Sites in the order of their first event."""
        return tuple(self._rows.values())

    def on_event(self, event: Event, now: float = 0.0) -> None:
        """Apply an event; `now` is the time of events that are not stored yet."""
        at = event.at or now
        match event:
            case SiteAwaited():
                self._set_state(
                    _site_key(event.model, event.on), SiteState.WAITING, at, model=event.model, why=event.missing
                )
            case SitePlaced():
                self._place(event, at)
            case ServerLaunched(on=str(on)) if (key := _site_key(event.model, on)) in self._rows:
                self._set_state(key, SiteState.SERVING, at, model=event.model)
            case ServerDied(on=str(on)) if (key := _site_key(event.model, on)) in self._rows:
                self._set_state(key, SiteState.LOADING, at)
            case ServerReleased(on=str(on)) if (key := _site_key(event.model, on)) in self._rows:
                self._set_state(key, SiteState.ENDED, at)
            case SiteLost():
                key = _site_key(event.model, event.on)
                self._set_state(key, SiteState.LOST, at, losses=self._row(key, at).losses + 1, why=event.reason)
            case RunBegun() | RunFinished() | RunStopped():
                for key, row in self._rows.items():
                    if row.state != SiteState.ENDED:
                        self._set_state(key, SiteState.ENDED, at)

    def _row(self, key: tuple[str, str], at: float) -> SiteRow:
        return self._rows.get(key) or SiteRow(*key, SiteState.WAITING, at)

    def _place(self, event: SitePlaced, at: float) -> None:
        key, node = _site_key(event.model, event.on), (event.node, event.node_id)
        before = self._row(key, at)
        self._set_state(
            key,
            SiteState.LOADING,
            at,
            model=event.model,
            host=event.node,
            node=event.node_id,
            gpus=event.resources.get("GPU", 0.0),
            devices=event.devices,
            placed=before.placed + 1,
            moves=before.moves + (before.placed > 0 and (before.host, before.node) != node),
        )

    def _set_state(self, key: tuple[str, str], state: SiteState, at: float, **changes: object) -> None:
        changed = {"state": str(state), "since": at, **changes}
        self._rows[key] = replace(self._row(key, at), **changed)  # type: ignore[arg-type]


def site_rows(events: Iterable[Event]) -> tuple[SiteRow, ...]:
    """Sites after these events."""
    return SiteBook(events).rows
