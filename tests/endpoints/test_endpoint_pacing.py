"""Limits per minute, under a clock of their own."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_eval.endpoints.pacing import RateLimit, RateLimits


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_requests_are_spaced_evenly() -> None:
    clock = Clock()
    pace = RateLimit(120.0, clock)
    assert [pace.reserve(1.0) for _ in range(3)] == pytest.approx([0.0, 0.5, 1.0])
    clock.now += 60.0
    assert pace.reserve(1.0) == 0.0


@given(
    rate=st.floats(1.0, 6000.0),
    steps=st.lists(st.tuples(st.floats(0.0, 30.0), st.floats(0.0, 50.0)), min_size=1, max_size=40),
)
def test_no_window_holds_more_than_its_share(rate: float, steps: list[tuple[float, float]]) -> None:
    clock = Clock()
    pace = RateLimit(rate, clock)
    passed: list[tuple[float, float]] = []
    for pause, amount in steps:
        clock.now += pause
        passed.append((clock.now + pace.reserve(amount), amount))
    largest = max(amount for _, amount in passed)
    for i, (start, _) in enumerate(passed):
        for j in range(i, len(passed)):
            used = sum(amount for _, amount in passed[i : j + 1])
            allowed = rate / 60.0 * (passed[j][0] - start) + largest
            assert used <= allowed * (1 + 1e-9) + 1e-6


class Waits(list[float]):
    """The waits that were asked for; none of them takes time."""

    async def sleep(self, seconds: float) -> None:
        self.append(seconds)

    def after(self, pacer: RateLimits, tokens: float) -> float:
        """Seconds that a request of so many tokens waits."""
        self.clear()
        assert asyncio.run(pacer.wait(tokens)) == (0.0 if pacer.unlimited else tokens)
        return sum(self)


def test_what_was_expected_is_corrected_by_what_was_used() -> None:
    waits = Waits()
    pacer = RateLimits(None, 60.0, Clock(), waits.sleep)
    assert waits.after(pacer, 10.0) == 0.0
    pacer.correct(expected=10.0, used=40.0)
    assert waits.after(pacer, 1.0) == pytest.approx(40.0)
    pacer.correct(expected=1.0, used=0.0)
    assert waits.after(pacer, 1.0) == pytest.approx(40.0)


def test_the_later_of_both_limits_holds() -> None:
    clock, waits = Clock(), Waits()
    pacer = RateLimits(60.0, 600.0, clock, waits.sleep)
    assert not pacer.unlimited
    waits.after(pacer, 50.0)
    assert waits.after(pacer, 1.0) == pytest.approx(5.0)
    clock.now += 100.0
    waits.after(pacer, 1.0)
    assert waits.after(pacer, 1.0) == pytest.approx(1.0)


def test_without_limits_nothing_waits() -> None:
    waits = Waits()
    pacer = RateLimits(None, None, Clock(), waits.sleep)
    assert pacer.unlimited
    assert waits.after(pacer, 1e9) == 0.0
