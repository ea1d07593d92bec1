"""Faults: their shares, their independence of the answer, and how they are asked for."""

from collections import Counter

import pytest

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.simulate.faults import Decline, Fault, Faults, TimeWindow, parse_faults


def test_faults_have_their_shares_at_every_attempt() -> None:
    faults = Faults(rate_limited=0.1, server_error=0.2, reset=0.05, hang=0.02)
    for attempt in (0, 3):
        drawn = Counter(faults.draw(("m", seed), attempt) for seed in range(20_000))
        for fault, share in (
            (Fault.RATE_LIMITED, 0.1),
            (Fault.SERVER_ERROR, 0.2),
            (Fault.RESET, 0.05),
            (Fault.HANG, 0.02),
        ):
            assert drawn[fault] / 20_000 == pytest.approx(share, abs=5 * (share * (1 - share) / 20_000) ** 0.5)


def test_the_next_attempt_draws_anew_and_the_same_one_again() -> None:
    faults = Faults(server_error=0.5)
    requests = [("m", seed) for seed in range(400)]
    first = [faults.draw(request, 0) for request in requests]
    second = [faults.draw(request, 1) for request in requests]
    assert first == [faults.draw(request, 0) for request in requests]
    both = sum(a is not None and b is not None for a, b in zip(first, second, strict=True))
    assert both == pytest.approx(100, abs=45)
    assert [Faults(server_error=0.5, seed=1).draw(request, 0) for request in requests] != first


def test_faults_are_asked_for_by_name() -> None:
    asked = ["reset=0.05", "down=10:5", "down=30:2.5", "ignore_n", "slow=3", "seed=4"]
    assert parse_faults(asked) == Faults(
        reset=0.05, down=(TimeWindow(10.0, 5.0), TimeWindow(30.0, 2.5)), ignore_n=True, slow=3.0, seed=4
    )
    assert parse_faults([]) == Faults()


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ("rest=0.1", "unknown fault"),
        ("reset=often", "a number"),
        ("down=10", "START:LENGTH"),
        ("ignore_n=maybe", "no value"),
        ("hang=1.5", "less than 1"),
        ("hang=-0.1", "not be negative"),
    ],
)
def test_bad_faults_are_refused(setting: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        parse_faults([setting])


def test_answers_go_bad_after_a_number_of_them() -> None:
    faults = parse_faults(["decline=empty:60"])
    assert faults.declines_as(59) is None and faults.declines_as(60) is faults.declines_as(999) is Decline.EMPTY
    assert Faults().declines_as(10**6) is None
    for wrong in ("empty", "empty:soon", "better:60", ":60"):
        with pytest.raises(ConfigError, match="fault decline needs KIND:NUMBER, with KIND one of context, empty, "):
            parse_faults([f"decline={wrong}"])
