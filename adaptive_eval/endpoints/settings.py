"""Times and limits without a configuration key, in one place."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EndpointSettings:
    """How an endpoint reacts to its servers; times are in seconds."""

    tick: float = 0.25
    """Interval at which replicas and requests in flight are checked."""
    longest_tick: float = 1.0
    """After a longer interval, this process did not run meanwhile: what came in the meantime may still be unread."""
    backoff: float = 0.25
    """Shortest pause of a request after a failure, and of a replica in trouble; it doubles each time."""
    longest_backoff: float = 2.0
    """Longest pause of a request."""
    longest_pause: float = 5.0
    """Longest pause of a replica in trouble, so that its return is soon noticed."""
    attempts: int = 5
    """Timeouts after which a request is given up, or failures that last longer than `concurrency.retry_for`."""
    longest_wait: float = 60.0
    """Longest wait that is granted to a server at a time (Retry-After): rate limits are per minute."""
    chance: float = 1e-6
    """Probability below which repeated failures of one request are not chance."""
    refusals: int = 6
    """Refusals of a request, or rounds of refusals of a replica, after which they are final; half as many for a replica
    that has never answered."""

    window_steps: int = 16
    """A window reaches its ceiling again after about this many windows full of answers."""

    probe_every: float = 5.0
    """A replica that has answered nothing for this long, though it has requests, is probed."""
    probe_again: float = 1.0
    """Interval between probes of a suspected or suspended replica."""
    probe_misses: int = 3
    """Consecutive probes without a sign of life after which a replica is suspended."""

    late_after: int = 16
    """Minimum number of answers before a request can be late."""
    late_factor: float = 2.0
    """A request is late at this many times the longest answer, or more if there are few answers (`late_share`)."""
    late_share: float = 1 / 1000
    """Maximum share of all answers that take longer than the limit."""
    min_late: float = 5.0
    """Shortest time after which a request is late."""
    late_stream: float = 120.0
    """Silence after which a stream is late before there are enough answers."""
    late_max_factor: float = 4.0
    """Multiple of the time of the longest possible answer at the slowest speed so far: no answer plausibly takes
    longer."""
    late_replaced: float = 1 / 50
    """Share of a model's answers that may be replaced because their requests are late by age alone."""
    late_free: int = 2
    """This many may be replaced, however few answers there are."""

    read_every: float = 1.0
    """Interval between readings of a server's load; while windows double, it is read at each tick."""
    read_rarely: float = 60.0
    """Longest interval, if readings fail."""
    first_window: int = 32
    """Answers in flight until a server's load is known; then the window doubles as long as nothing waits."""
    queue_share: float = 1 / 4
    """A server has too many requests if a larger share of its running sequences waits."""
    queue_left: float = 1 / 8
    """Share of sequences that should wait after a window was shrunk, so that no place is idle."""
    doubt: float = 300.0
    """Seconds for which a server's load is ignored if it does not follow the number of requests."""


DEFAULT = EndpointSettings()
