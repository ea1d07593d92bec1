"""Calling and giving up computed together: the error guarantee by simulation, and known special cases."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri
from scipy.stats import binom

from scorio.sinf.optimal import MIN_INFORMATION, Stopping, optimal_stopping

PATHS = 10_000


def shares_called(rule: Stopping, looks: NDArray[np.float64], drift: float = 0.0, seed: int = 0) -> tuple[float, float]:
    """Shares of simulated paths called upwards and downwards, with looks only at these times."""
    rng, x = np.random.default_rng(seed), np.zeros(PATHS)
    undecided, before = np.ones(PATHS, bool), 0.0
    up = down = 0
    for t in looks:
        x += drift * (t - before) + np.sqrt(t - before) * rng.standard_normal(PATHS)
        before, at = t, np.full(PATHS, t)
        z = x / np.sqrt(t)
        called = undecided & (np.abs(z) >= rule.boundary(at))
        up, down = up + int((called & (z > 0)).sum()), down + int((called & (z < 0)).sum())
        undecided &= ~called & ~rule.gives_up(z, at)
    return up / PATHS, down / PATHS


def allowed(promise: float) -> float:
    return float(binom.ppf(0.999, PATHS, promise) / PATHS)


SCHEDULES = {
    "5 looks": np.linspace(0.2, 1.0, 5),
    "20 looks": np.linspace(0.05, 1.0, 20),
    "80 looks": np.linspace(0.05, 1.0, 80),
    "rounds that grow": np.append(0.05 * 1.3 ** np.arange(12), 1.0),
    "unequal rounds": np.sort(np.random.default_rng(3).uniform(0.05, 1.0, 15)),
    "at the end alone": np.array([1.0]),
    "early, then at the end": np.array([0.05, 1.0]),
}


@pytest.mark.parametrize("looks", SCHEDULES.values(), ids=SCHEDULES.keys())
@pytest.mark.parametrize("worth", [0.5, 2.0])
def test_ties_are_called_as_rarely_as_promised_at_any_schedule(looks: NDArray[np.float64], worth: float) -> None:
    up, down = shares_called(optimal_stopping(0.1, 0.05, worth), looks)
    assert up + down <= allowed(0.1)
    assert max(up, down) <= allowed(0.05)


def test_the_promise_is_used_and_one_look_is_the_fixed_test() -> None:
    up, down = shares_called(optimal_stopping(0.1, 0.05, 2.0, 0.5), SCHEDULES["80 looks"])
    assert 0.06 <= up + down <= allowed(0.1)
    rule = optimal_stopping(0.1, 1.0, 2.0)
    assert float(rule.boundary(np.ones(1))[0]) == pytest.approx(-ndtri(0.05))
    assert not np.isfinite(rule.boundary(np.array([0.9]))[0])


@pytest.mark.parametrize("drift", [0.2, 0.5, 1.0, 3.0])
def test_the_wrong_side_is_called_less_often_the_larger_the_difference(drift: float) -> None:
    rule, looks = optimal_stopping(0.1, 0.05, 2.0, 0.5), SCHEDULES["80 looks"]
    up, down = shares_called(rule, looks, drift)
    assert down <= min(allowed(0.05), shares_called(rule, looks, 0.0)[1] + 0.002) and up > down


def test_avoiding_looks_that_give_up_gains_no_more_than_accounted_for() -> None:
    """The worst case of the grid: from each look directly to the next one with the most remaining error."""
    rule, rng = optimal_stopping(0.1, 0.05, 2.0), np.random.default_rng(5)
    x = np.sqrt(0.05) * rng.standard_normal(PATHS)
    called, t = np.abs(x) / np.sqrt(0.05) >= rule.boundary(np.full(PATHS, 0.05)), np.full(PATHS, 0.05)
    undecided = ~called & ~rule.gives_up(x / np.sqrt(t), t)
    near = np.abs(x) < 0.3
    for then in np.linspace(0.1, 1.0, 37):  # those near the middle wait for the end alone
        goes = undecided & (~near | (then == 1.0))
        x = np.where(goes, x + np.sqrt(then - t) * rng.standard_normal(PATHS), x)
        t = np.where(goes, then, t)
        z = x / np.sqrt(t)
        now = goes & (np.abs(z) >= rule.boundary(t))
        called |= now
        undecided &= ~now & ~(goes & rule.gives_up(z, t))
        near = np.abs(z) < 1.0
    assert called.mean() <= allowed(0.1)
    seen = shares_called(rule, SCHEDULES["80 looks"])
    assert called.mean() > sum(seen), "to avoid looks does gain something, or this shows nothing"


def test_a_call_that_is_worth_much_is_hardly_ever_given_up_and_loses_no_power() -> None:
    dear, cheap = optimal_stopping(0.1, 0.05, 50.0, 0.5), optimal_stopping(0.1, 0.05, 1.0, 0.5)
    looks, middle = SCHEDULES["80 looks"], np.array([0.5])
    assert not dear.gives_up(np.zeros(1), middle)[0] and cheap.gives_up(np.zeros(1), middle)[0]
    power = [shares_called(rule, looks, 3.0)[0] for rule in (cheap, optimal_stopping(0.1, 0.05, 2.0, 0.5), dear)]
    assert power == sorted(power)
    assert power[2] >= ndtr(3.0 + ndtri(0.05)) - 0.06  # a fixed design of the same size, one-sided at 5%


@pytest.mark.parametrize(
    ("alpha", "start"),
    [
        (0.001, 0.4),
        pytest.param(0.9, 0.001, marks=pytest.mark.slow),
        pytest.param(0.02, 0.0125, marks=pytest.mark.slow),
        (0.3, 0.97),
    ],
)
def test_all_settings_are_computed(alpha: float, start: float) -> None:
    rule = optimal_stopping(alpha, start, 2.0)
    assert np.all(np.isfinite(rule.call)) and np.all(rule.give <= rule.call) and np.all(rule.give >= 0.0)
    assert rule.times[0] == pytest.approx(max(start, MIN_INFORMATION)) and rule.times[-1] == 1.0
    up, down = shares_called(rule, np.linspace(max(start, MIN_INFORMATION), 1.0, 20))
    assert up + down <= allowed(alpha)


def test_looks_that_are_known_to_come_every_round_use_the_promise_up() -> None:
    """Two models take turns, so that each trial of a question has two looks; every third look may be missing."""
    rule, turns = optimal_stopping(0.1, 0.05, 2.0, 0.0, 2.0 / 80.0, 0.5 / 80.0), np.linspace(0.05, 1.0, 153)
    assert 0.085 <= sum(shares_called(rule, turns)) <= allowed(0.1)
    rounds = sum(shares_called(rule, SCHEDULES["80 looks"]))
    assert 0.08 <= rounds <= allowed(0.1)
    assert sum(shares_called(rule, turns[np.arange(153) % 3 > 0])) <= allowed(0.1)
    careful = optimal_stopping(0.1, 0.05, 2.0, 0.5)
    assert sum(shares_called(careful, SCHEDULES["80 looks"])) < rounds
    for drift in (1.5, 3.0):  # and calls more that differ
        assert shares_called(rule, turns, drift)[0] > shares_called(careful, turns, drift)[0]


def test_the_remaining_error_bounds_future_calls() -> None:
    """From a point on the way, with looks as fine as the grid: never more than the grid's worst case."""
    rule, start = optimal_stopping(0.1, 0.05, 2.0, 0.5), np.array([0.3])
    for z in (0.5, 1.5, 2.2):
        rng, x = np.random.default_rng(1), np.full(PATHS, z * np.sqrt(0.3))
        undecided, called, before = np.ones(PATHS, bool), np.zeros(PATHS, bool), 0.3
        for t in np.linspace(0.3, 1.0, 60)[1:]:
            x += np.sqrt(t - before) * rng.standard_normal(PATHS)
            before, at = t, np.full(PATHS, t)
            called |= undecided & (np.abs(x) / np.sqrt(t) >= rule.boundary(at))
            undecided &= ~called & ~rule.gives_up(x / np.sqrt(t), at)
        remaining = float(rule.chance_left(np.array([z]), start)[0])
        assert called.mean() <= remaining + 0.01
        assert called.mean() > (0.3 if z < 1.0 else 0.5) * remaining, "who avoids looks gains most near giving up"
    assert rule.chance_left(np.array([0.05]), np.array([0.6]))[0] == pytest.approx(0.0, abs=1e-9), "given up"
