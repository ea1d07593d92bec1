"""What becomes of models and their servers while a run goes on: started, lost, back, set aside, let go."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from adaptive_eval.core.types import Cause
from adaptive_eval.store.events.event import Event, where_known


@dataclass(frozen=True, slots=True)
class ModelSetAside(Event):
    """The run goes on without a model."""

    KIND: ClassVar[str] = "set_aside"
    model: str
    reason: str = ""
    cause: Cause = Cause.SERVER


@dataclass(frozen=True, slots=True)
class ReplicaLost(Event):
    """One of a model's servers fails for a while."""

    KIND: ClassVar[str] = "replica_lost"
    model: str
    replica: str
    reason: str | None = where_known()


@dataclass(frozen=True, slots=True)
class ReplicaBack(Event):
    """A server that failed for a while answers again."""

    KIND: ClassVar[str] = "replica_back"
    model: str
    replica: str


@dataclass(frozen=True, slots=True)
class OnlyFailures(Event):
    """All requests to a model have failed for a while; they are repeated."""

    KIND: ClassVar[str] = "retrying"
    model: str
    seconds: int = 0
    errors: Mapping[str, int] = field(default_factory=dict)
    """By kind, so far."""
    last: str | None = where_known()
    """What the last of them said, in the words of the server where it spoke."""


@dataclass(frozen=True, slots=True)
class ServersNoticed(Event):
    """A notice about a model's servers for readers of the results."""

    KIND: ClassVar[str] = "noticed"
    model: str
    """"" where it is those of a judge."""
    notice: str = ""
    """Its kind."""
    text: str = ""


@dataclass(frozen=True, slots=True)
class PlaceAwaited(Event):
    """Servers cannot be started yet: another run has their place."""

    KIND: ClassVar[str] = "waiting"
    on: str
    by: str = ""
    """Who has it."""


@dataclass(frozen=True, slots=True)
class _Launch(Event):
    """A server that is started, or was."""

    model: str
    command: tuple[str, ...] = ()
    version: str | None = None
    """Version of the server's software, if it tells one and was up before."""
    log: str = ""
    """The file with its output."""
    on: str | None = where_known()
    """The place that it shares with others."""


@dataclass(frozen=True, slots=True)
class ServerLaunching(_Launch):
    """The server of a model is started."""

    KIND: ClassVar[str] = "launching"
    waited: float | None = where_known()
    """Seconds that other runs had this place."""


@dataclass(frozen=True, slots=True)
class ServerLaunched(_Launch):
    """The server of a model is ready."""

    KIND: ClassVar[str] = "launched"
    seconds: float = 0.0
    """From its start to this moment; the server that it takes the place from had ended before."""
    without_head: float | None = where_known()
    """Seconds for which a site has held it while there was no head."""


@dataclass(frozen=True, slots=True)
class ServerDied(Event):
    """A server that was up has ended by itself, or hangs, and is started again."""

    KIND: ClassVar[str] = "server_died"
    model: str
    reason: str = ""
    restart: int = 0
    of: int = 0
    on: str | None = where_known()
    """The place that it shares with others."""


@dataclass(frozen=True, slots=True)
class ServerReleased(Event):
    """A server that was up was stopped, and its place is free, while the run goes on."""

    KIND: ClassVar[str] = "released"
    model: str
    on: str | None = where_known()
    """The place that it shared with others, one of which comes up next."""


@dataclass(frozen=True, slots=True)
class SiteAwaited(Event):
    """A site of a model has no place in the cluster yet."""

    KIND: ClassVar[str] = "site_awaited"
    model: str
    on: str = ""
    """The site, such as "site 1"."""
    asked: str = ""
    """The resources that it takes."""
    missing: str = ""
    """Why they are not to be had."""


@dataclass(frozen=True, slots=True)
class SitePlaced(Event):
    """A site of a model has its place in the cluster; its server comes next."""

    KIND: ClassVar[str] = "site_placed"
    model: str
    on: str = ""
    node: str = ""
    resources: Mapping[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    """How long that took."""
    found: bool = False
    """Whether the site was there, from an earlier start of the run."""
    pid: int | None = where_known()
    """Of its process on the node."""
    node_id: str | None = where_known()
    """What the cluster calls the node; `node` is the name of the machine."""
    devices: str | None = where_known()
    """Which GPUs of the machine are its own, as CUDA_VISIBLE_DEVICES names them."""


@dataclass(frozen=True, slots=True)
class SiteLost(Event):
    """A site of a model is gone: what it was asked is asked again, and it is placed anew."""

    KIND: ClassVar[str] = "site_lost"
    model: str
    on: str = ""
    node: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ServerRests(Event):
    """The server of an idle model is stopped until trials of other models make it wanted again."""

    KIND: ClassVar[str] = "server_rests"
    model: str
    batches_of: tuple[str, ...] | None = where_known()
    """The models whose batches have to come back first, where it is these that are waited for."""


@dataclass(frozen=True, slots=True)
class ModelSettled(Event):
    """No comparison can want a model again while the run goes on as it is: what serves it may go."""

    KIND: ClassVar[str] = "settled"
    model: str
    launched: bool = False
    """The run has started its server, and stops it."""


@dataclass(frozen=True, slots=True)
class SettledCommandEnded(Event):
    """The command that somebody wants to be run when a model is settled has ended, well or badly."""

    KIND: ClassVar[str] = "settled_command"
    model: str
    problem: str | None = where_known()
    """What went wrong."""
