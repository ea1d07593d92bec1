"""Events of models and their servers during a run: started, lost, back, set aside, released."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from adaptive_eval.core.types import Cause
from adaptive_eval.notes.event import Event, optional_field


@dataclass(frozen=True, slots=True)
class ModelSetAside(Event, kind="set_aside"):
    """The run continues without a model."""

    model: str
    reason: str = ""
    cause: Cause = Cause.SERVER


@dataclass(frozen=True, slots=True)
class ReplicaLost(Event, kind="replica_lost"):
    """One of the servers of a model, or of a judge, has been failing for a while."""

    model: str
    """Empty for a judge."""
    replica: str
    reason: str | None = optional_field()
    judge: str | None = optional_field()
    """As in `OnlyFailures`."""


@dataclass(frozen=True, slots=True)
class ReplicaBack(Event, kind="replica_back"):
    """A lost server answers again."""

    model: str
    """Empty for a judge."""
    replica: str
    judge: str | None = optional_field()
    """As in `OnlyFailures`."""


@dataclass(frozen=True, slots=True)
class OnlyFailures(Event, kind="retrying"):
    """All requests to a model, or to a judge, have failed for a while; they are retried."""

    model: str
    """Empty for a judge."""
    seconds: int = 0
    errors: Mapping[str, int] = field(default_factory=dict)
    """Number of errors so far, by kind."""
    last: str | None = optional_field()
    """The message of the last error, if possible from the server."""
    judge: str | None = optional_field()
    """The name of the judge, or verifier, on its server."""


@dataclass(frozen=True, slots=True)
class ServersNoticed(Event, kind="noticed"):
    """A notice about a model's servers for readers of the results."""

    model: str
    """Empty for the servers of a judge."""
    notice: str = ""
    """The kind of notice."""
    text: str = ""


@dataclass(frozen=True, slots=True)
class PlaceAwaited(Event, kind="waiting"):
    """Servers cannot be started yet, since another run occupies their place."""

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
    """The place that it shares with other models, if any."""


@dataclass(frozen=True, slots=True)
class ServerLaunching(_Launch, kind="launching"):
    """The server of a model is starting."""

    waited: float | None = optional_field()
    """Seconds for which other runs occupied this place."""
    wakes: bool | None = optional_field()
    """Whether it was asleep."""


@dataclass(frozen=True, slots=True)
class ServerLaunched(_Launch, kind="launched"):
    """The server of a model is ready."""

    seconds: float = 0.0
    """Seconds from its start; the server whose place it takes had ended before."""


@dataclass(frozen=True, slots=True)
class ServerDied(Event, kind="server_died"):
    """A running server has died or hangs, and is restarted."""

    model: str
    reason: str = ""
    restart: int = 0
    of: int = 0
    on: str | None = optional_field()
    """The place that it shares with others."""


@dataclass(frozen=True, slots=True)
class ServerReleased(Event, kind="released"):
    """A server was stopped during the run, and its place is free."""

    model: str
    on: str | None = optional_field()
    """The place that it shared with other models, one of which is served next."""


@dataclass(frozen=True, slots=True)
class SiteAwaited(Event, kind="site_awaited"):
    """A site of a model has no place in the cluster yet."""

    model: str
    on: str = ""
    """The site, such as "site 1"."""
    asked: str = ""
    """The resources that it needs."""
    missing: str = ""
    """Why they are not available."""


@dataclass(frozen=True, slots=True)
class SitePlaced(Event, kind="site_placed"):
    """A site of a model has its place in the cluster; its server starts next."""

    model: str
    on: str = ""
    node: str = ""
    resources: Mapping[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    """How long that took."""
    pid: int | None = optional_field()
    """The id of its process on the node."""
    node_id: str | None = optional_field()
    """The cluster's id of the node; `node` is the name of the machine."""
    devices: str | None = optional_field()
    """The GPUs of the machine that it owns, as CUDA_VISIBLE_DEVICES names them."""


@dataclass(frozen=True, slots=True)
class SiteLost(Event, kind="site_lost"):
    """A site of a model is lost: its requests are repeated, and it is placed again."""

    model: str
    on: str = ""
    node: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ServerRests(Event, kind="server_rests"):
    """The server of a parked model is stopped until trials of other models make it needed again."""

    model: str


@dataclass(frozen=True, slots=True)
class ModelSettled(Event, kind="settled"):
    """No comparison can need a model again with the current settings: its server may be stopped."""

    model: str
    launched: bool = False
    """Whether the run launched its server, and so stops it."""
