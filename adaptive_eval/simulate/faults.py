"""Faults on demand, drawn per attempt, independent of the answer.

The fault of a request depends on (fault seed, request, attempt), so a retried request eventually succeeds, with the
answer that it would have had without the fault.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.simulate.answering import hashed_integers, unit_float


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """A period, in seconds since the server started."""

    start: float
    length: float

    def holds(self, now: float) -> bool:
        return self.start <= now < self.start + self.length


class Fault(StrEnum):
    """A fault of one request."""

    RATE_LIMITED = "rate_limited"
    SERVER_ERROR = "server_error"
    RESET = "reset"
    HANG = "hang"


@dataclass(frozen=True, slots=True)
class Faults:
    """Kinds and shares of a server's faults."""

    rate_limited: float = 0.0
    """Share of requests that are refused with 429 and a Retry-After."""
    server_error: float = 0.0
    """Share of requests that get a 500."""
    reset: float = 0.0
    """Share of requests whose connection is reset in the middle."""
    hang: float = 0.0
    """Share of requests that are never answered (a stream stops after its first piece)."""
    retry_after: float = 1.0
    """Retry-After of a 429 in seconds."""
    slow: float = 1.0
    """Factor on the time of every answer."""
    storm: tuple[TimeWindow, ...] = ()
    """Times when every request is refused with 429."""
    down: tuple[TimeWindow, ...] = ()
    """Times when the server does not listen and every connection is aborted."""
    stuck: tuple[TimeWindow, ...] = ()
    """Times when no request is answered and the health check returns 503."""
    ignore_n: bool = False
    """Whether to send one answer, ignoring `n`."""
    count_one: bool = False
    """Whether to act like llama-server, whose usage covers one of `n` answers, or each answer of a stream."""
    seed: int = 0

    def draw(self, request: object, attempt: int) -> Fault | None:
        """Draw the fault of an attempt (from 0) of a request."""
        at = unit_float(hashed_integers(1, "fault", self.seed, request, attempt)[0])
        for fault in Fault:
            at -= getattr(self, fault.value)
            if at < 0.0:
                return fault
        return None

    @property
    def any_drawn(self) -> bool:
        return self.rate_limited + self.server_error + self.reset + self.hang > 0.0


@dataclass(frozen=True, slots=True)
class BatchHabits:
    """The behaviour of batches at a simulated service."""

    seconds: float = 1.0
    """Seconds from the creation of a batch to its end."""
    errored: float = 0.0
    """Share of requests that fail."""
    left_out: float = 0.0
    """Share of requests that are missing from the results."""
    doubled: float = 0.0
    """Share of results that come twice."""
    strange: float = 0.0
    """Share of results that are followed by one with an unknown id."""
    expired: float = 0.0
    """Share of batches that expire when half of their requests are answered."""
    failed: float = 0.0
    """Share of batches that fail as a whole because too many are waiting (openai)."""
    refused: float = 0.0
    """Share of creations that are refused with 429."""
    lost: float = 0.0
    """Share of creations that succeed but whose reply is lost."""
    broken: float = 0.0
    """Share of other calls that get a 500."""
    seed: int = 0

    def meets(self, what: str, *about: object) -> bool:
        """Whether an event happens, determined by its id."""
        share: float = getattr(self, what)
        return share > 0.0 and unit_float(hashed_integers(1, "batch", self.seed, what, *about)[0]) < share


def parse_settings(what: str, defaults: Mapping[str, Any], settings: Iterable[str]) -> dict[str, Any]:
    """Parse `name=value` texts, each value with the type of its default; raises `ConfigError`.

    A switch needs no value; a time window is START:LENGTH in seconds, and may occur several times.
    """
    values: dict[str, Any] = {}
    for setting in settings:
        name, _, text = setting.partition("=")
        if name not in defaults:
            raise ConfigError(f"unknown {what} {name!r}; known are {', '.join(defaults)}")
        kind = type(defaults[name])
        try:
            if kind is bool:
                values[name] = {"": True, "true": True, "false": False}[text]
            elif kind is tuple:
                start, _, length = text.partition(":")
                values[name] = (*values.get(name, ()), TimeWindow(float(start), float(length)))
            else:
                values[name] = kind(text)
        except (ValueError, KeyError):
            form = {bool: "no value", tuple: "START:LENGTH in seconds"}.get(kind, "a number")
            raise ConfigError(f"{what} {name} needs {form}, but got {text!r}") from None
    return values


def require_shares(what: str, values: Mapping[str, float], unbounded: Collection[str] = ()) -> None:
    """Raise `ConfigError` if a value is below 0, or above 1 without being `unbounded`."""
    for name, value in values.items():
        limit = float("inf") if name in unbounded else 1.0
        if not 0.0 <= value <= limit:
            raise ConfigError(f"{what} {name} must be from 0 to {limit:g}, but got {value:g}")


def parse_faults(settings: Iterable[str]) -> Faults:
    """Parse faults from `name=value` texts."""
    faults = Faults(**parse_settings("fault", asdict(Faults()), settings))
    shares = [getattr(faults, fault.value) for fault in Fault]
    if min(shares) < 0.0 or sum(shares) >= 1.0:
        given = ", ".join(f"{fault.value}={share:g}" for fault, share in zip(Fault, shares, strict=True) if share)
        raise ConfigError(f"the shares of faults must not be negative and must sum to less than 1, but got {given}")
    return faults


def parse_habits(settings: Iterable[str]) -> BatchHabits:
    """Parse habits from `name=value` texts: a share, or a number."""
    values = parse_settings("batch", asdict(BatchHabits()), settings)
    require_shares("batch", values, unbounded=("seconds", "seed"))
    return BatchHabits(**values)
