"""The times and bounds that no configuration key names, in one place."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EndpointSettings:
    """How an endpoint reacts to its servers; times are in seconds."""

    tick: float = 0.25
    """Interval at which replicas and requests in flight are looked at."""
    backoff: float = 0.25
    """Least pause of a request after a failure, and of a replica in trouble; it doubles each time."""
    longest_backoff: float = 2.0
    """Of a request."""
    longest_pause: float = 5.0
    """Of a replica in trouble, so that its return is soon noticed."""
    longest_wait: float = 60.0
    """The longest that a server may ask for at a time (Retry-After): rate limits are per minute."""
    chance: float = 1e-6
    """Probability at which failures of one request are no chance any more."""
    refusals: int = 6
    """Refusals of a request, or rounds of refusals of a replica, that are believed; half as many of a replica that has
    never answered."""

    window_steps: int = 16
    """A window recovers its ceiling after about this many windows full of answers."""

    probe_every: float = 5.0
    """A replica that has answered nothing for this long, though it has requests, is probed."""
    probe_again: float = 1.0
    """Interval of the probes of a replica in doubt, or set aside."""
    probe_misses: int = 3
    """Probes in a row without a sign of life after which a replica is set aside."""

    late_after: int = 16
    """Answers that must be known before one can be late."""
    late_factor: float = 2.0
    """A request is late at this many times the longest answer, or at more as fewer are known (`late_share`)."""
    late_share: float = 1 / 1000
    """Most of all answers that take longer than the limit."""
    late_least: float = 5.0
    late_stream: float = 120.0
    """Silence of a stream that is late before answers are known."""
    late_hopeless: float = 4.0
    """Times what the longest possible answer takes at the slowest known pace: no honest answer takes as long."""
    late_replaced: float = 1 / 50
    """Share of a model's answers that may be replaced because they are late by age alone."""
    late_free: int = 2
    """As many may be replaced however few answers there are."""
    late_many: float = 1 / 8
    """Late requests are sent a second time though no place is free if they take a larger share of all places."""

    read_every: float = 1.0
    """Interval of the readings of a server's load; while windows double it is read at each tick."""
    read_rarely: float = 60.0
    """The longest interval, if readings fail."""
    first_window: int = 32
    """Answers in flight until a server's load is known; then a window doubles as long as nothing waits."""
    queue_share: float = 1 / 4
    """A server has too many requests if a larger share of its running sequences waits."""
    queue_left: float = 1 / 8
    """Share that should wait after a window was shrunk, so that no place is idle."""
    doubt: float = 300.0
    """For how long a server's load is not believed if it does not follow the number of requests."""


DEFAULT = EndpointSettings()
