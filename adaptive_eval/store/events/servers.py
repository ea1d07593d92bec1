"""Events of models and their servers during a run: started, lost, back, set aside, released."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from adaptive_eval.core.types import Cause
from adaptive_eval.store.events.event import Event, optional_field


@dataclass(frozen=True, slots=True)
class ModelSetAside(Event):
    """The run goes on without a model."""

    KIND: ClassVar[str] = "set_aside"
    model: str
    reason: str = ""
    cause: Cause = Cause.SERVER


@dataclass(frozen=True, slots=True)
class ReplicaLost(Event):
    """One of a model's servers has been failing for a while."""

    KIND: ClassVar[str] = "replica_lost"
    model: str
    replica: str
    reason: str | None = optional_field()


@dataclass(frozen=True, slots=True)
class ReplicaBack(Event):
    """A lost server answers again."""

    KIND: ClassVar[str] = "replica_back"
    model: str
    replica: str


@dataclass(frozen=True, slots=True)
class OnlyFailures(Event):
    """All requests to a model have failed for a while; they are retried."""

    KIND: ClassVar[str] = "retrying"
    model: str
    seconds: int = 0
    errors: Mapping[str, int] = field(default_factory=dict)
    """Number of errors so far, by kind."""
    last: str | None = optional_field()
    """The message of the last error, if possible that of the server."""


@dataclass(frozen=True, slots=True)
class ServersNoticed(Event):
    """A notice about a model's servers for readers of the results."""

    KIND: ClassVar[str] = "noticed"
    model: str
    """Empty for the servers of a judge."""
    notice: str = ""
    """The kind of notice."""
    text: str = ""


@dataclass(frozen=True, slots=True)
class PlaceAwaited(Event):
    """Servers cannot be started yet, since another run occupies their place."""

    KIND: ClassVar[str] = "waiting"
    on: str
    by: str = ""
    """The holder of the place."""


@dataclass(frozen=True, slots=True)
class _Launch(Event):
    """The start of a server."""

    model: str
    command: tuple[str, ...] = ()
    version: str | None = None
    """Version of the server's software, if it reports one and was up before."""
    log: str = ""
    """The file with its output."""
    on: str | None = optional_field()
    """The place that it shares with other models."""


@dataclass(frozen=True, slots=True)
class ServerLaunching(_Launch):
    """The server of a model is starting."""

    KIND: ClassVar[str] = "launching"
    waited: float | None = optional_field()
    """Seconds for which other runs occupied this place."""


@dataclass(frozen=True, slots=True)
class ServerLaunched(_Launch):
    """The server of a model is ready."""

    KIND: ClassVar[str] = "launched"
    seconds: float = 0.0
    """Seconds from its start; the server whose place it takes had ended before."""
    without_head: float | None = optional_field()
    """Seconds for which a site kept it while there was no head."""


@dataclass(frozen=True, slots=True)
class ServerDied(Event):
    """A server that was up has died or hangs, and is restarted."""

    KIND: ClassVar[str] = "server_died"
    model: str
    reason: str = ""
    restart: int = 0
    of: int = 0
    on: str | None = optional_field()
    """The place that it shares with others."""


@dataclass(frozen=True, slots=True)
class ServerReleased(Event):
    """A server was stopped during the run, and its place is free."""

    KIND: ClassVar[str] = "released"
    model: str
    on: str | None = optional_field()
    """The place that it shared with other models, one of which is served next."""


@dataclass(frozen=True, slots=True)
class SiteAwaited(Event):
    """A site of a model has no place in the cluster yet."""

    KIND: ClassVar[str] = "site_awaited"
    model: str
    on: str = ""
    """The site, such as "site 1"."""
    asked: str = ""
    """The resources that it needs."""
    missing: str = ""
    """Why they are not available."""


@dataclass(frozen=True, slots=True)
class SitePlaced(Event):
    """A site of a model has its place in the cluster; its server starts next."""

    KIND: ClassVar[str] = "site_placed"
    model: str
    on: str = ""
    node: str = ""
    resources: Mapping[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    """How long that took."""
    found: bool = False
    """Whether the site was left by an earlier start of the run."""
    pid: int | None = optional_field()
    """The id of its process on the node."""
    node_id: str | None = optional_field()
    """The cluster's id of the node; `node` is the name of the machine."""
    devices: str | None = optional_field()
    """The GPUs of the machine that it owns, as CUDA_VISIBLE_DEVICES names them."""


@dataclass(frozen=True, slots=True)
class SiteLost(Event):
    """A site of a model is lost: its requests are repeated, and it is placed again."""

    KIND: ClassVar[str] = "site_lost"
    model: str
    on: str = ""
    node: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ServerRests(Event):
    """The server of an idle model is stopped until trials of other models make it needed again."""

    KIND: ClassVar[str] = "server_rests"
    model: str
    batches_of: tuple[str, ...] | None = optional_field()
    """The models whose batches must come back first, if the run waits for these."""


@dataclass(frozen=True, slots=True)
class ModelSettled(Event):
    """No comparison can need a model again with the current settings: its server may be stopped."""

    KIND: ClassVar[str] = "settled"
    model: str
    launched: bool = False
    """Whether the run launched its server, and so stops it."""


@dataclass(frozen=True, slots=True)
class SettledCommandEnded(Event):
    """The user's command for a settled model has ended, successfully or not."""

    KIND: ClassVar[str] = "settled_command"
    model: str
    problem: str | None = optional_field()
    """What went wrong."""
