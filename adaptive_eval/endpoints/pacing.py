"""Rate limits on requests and tokens per minute: the generic cell rate algorithm.

A reservation takes the next free stretch of time, of length amount / rate, and returns the wait until then. In any
window of T seconds at most rate * T + one reservation pass.
"""

from collections.abc import Awaitable, Callable


class RateLimit:
    """One limit per minute, or none."""

    def __init__(self, per_minute: float | None, clock: Callable[[], float]) -> None:
        self._seconds_each = 60.0 / per_minute if per_minute else 0.0
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
        self._requests, self._tokens = RateLimit(requests_per_minute, clock), RateLimit(tokens_per_minute, clock)
        self.unlimited = not (requests_per_minute or tokens_per_minute)

    async def wait(self, tokens: float) -> float:
        """Wait until a request may be sent; returns the tokens it is expected to use, 0 without limits."""
        if self.unlimited:
            return 0.0
        if (delay := max(self._requests.reserve(1.0), self._tokens.reserve(tokens))) > 0.0:
            await self._sleep(delay)
        return tokens

    def correct(self, expected: float, used: float) -> None:
        """Replace a request's expected tokens by its actual ones."""
        self._tokens.correct(used - expected)
