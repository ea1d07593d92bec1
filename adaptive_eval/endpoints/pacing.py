"""Rate limits on requests and tokens per minute: the generic cell rate algorithm.

A reservation takes the next free stretch of time, of length amount / rate, and returns the wait until then. In any
window of T seconds at most rate * T + one reservation pass.
"""

from collections.abc import Awaitable, Callable


class RateLimit:
    """One limit per minute."""

    def __init__(self, per_minute: float, clock: Callable[[], float]) -> None:
        self._seconds_each = 60.0 / per_minute
        self._clock = clock
        self._free_at = -float("inf")

    def reserve(self, amount: float) -> float:
        """Reserve an amount and return the seconds to wait for it."""
        now = self._clock()
        start = max(self._free_at, now)
        self._free_at = start + amount * self._seconds_each
        return max(0.0, start - now)

    def correct(self, by: float) -> None:
        """Correct past reservations by the difference to actual use."""
        self._free_at += by * self._seconds_each


class RateLimits:
    """One model's limits on requests and on tokens; a request waits for the later of the two."""

    def __init__(
        self,
        requests_per_minute: float | None,
        tokens_per_minute: float | None,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._sleep = sleep
        self._requests = RateLimit(requests_per_minute, clock) if requests_per_minute else None
        self._tokens = RateLimit(tokens_per_minute, clock) if tokens_per_minute else None

    @property
    def unlimited(self) -> bool:
        return self._requests is None and self._tokens is None

    async def wait(self, tokens: float) -> float:
        """Wait until a request may be sent; returns the tokens it is expected to use, 0 without limits."""
        if self.unlimited:
            return 0.0
        delays = [0.0]
        if self._requests is not None:
            delays.append(self._requests.reserve(1.0))
        if self._tokens is not None:
            delays.append(self._tokens.reserve(tokens))
        if (delay := max(delays)) > 0.0:
            await self._sleep(delay)
        return tokens

    def correct(self, expected: float, used: float) -> None:
        """Replace a request's expected tokens by its actual ones."""
        if self._tokens is not None:
            self._tokens.correct(used - expected)
