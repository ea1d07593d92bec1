"""Crossing from a point, and exchanging the remaining error: exact formulas and random paths."""

import numpy as np
import pytest
from scipy.special import ndtr

from scorio.sinf.boundary import WangTsiatis
from scorio.sinf.continuation import crossing_from, unseen_crossing
from scorio.sinf.crossing import crossing_probability
from scorio.sinf.exchange import LookValues, exchange

ALPHA = 0.10


@pytest.mark.parametrize(("t", "w"), [(0.1, 0.2), (0.5, 0.3), (0.9, -0.5)])
def test_a_level_boundary_is_crossed_as_the_reflection_principle_says(t: float, w: float) -> None:
    c = np.array([1.0, 2.0, 3.0])
    exact = 2.0 * (1.0 - ndtr((c - w) / np.sqrt(1.0 - t)))
    assert crossing_from(c[None], np.array([w]), np.array([t]), 0.5, 1)[0] == pytest.approx(exact, rel=0.03)


@pytest.mark.parametrize("sides", [1, 2])
@pytest.mark.parametrize("kappa", [0.0, 0.25])
def test_the_chances_from_all_points_make_up_the_chance_of_the_whole_way(kappa: float, sides: int) -> None:
    """P(cross on [t, 1]) is the mean over W(t) of what may still happen."""
    start, c = 0.3, 2.0
    w = np.linspace(-5.0, 5.0, 2001) * np.sqrt(start)
    weights = np.exp(-0.5 * w * w / start)
    chances = crossing_from(np.full((len(w), 1), c), w, np.full(len(w), start), kappa, sides)
    mean = np.average(chances[:, 0], weights=weights)
    assert mean == pytest.approx(crossing_probability(np.array([c]), kappa, start, sides)[0], rel=5e-3)


def test_on_the_boundary_it_is_certain_and_at_the_end_it_is_over() -> None:
    at, below, over = (np.array([w]) for w in (2.0, -2.0, 1.9))
    met, near = crossing_from(np.array([[1.0, 2.5]]), at, np.array([0.5]), 0.25, 2)[0]
    assert met == 1.0 and 0.5 < near < 1.0
    assert crossing_from(np.array([[1.0]]), np.array([np.inf]), np.array([0.5]), 0.25, 2) == 1.0
    assert crossing_from(np.array([[1.0]]), below, np.array([0.5]), 0.25, 1) < 0.01
    assert crossing_from(np.array([[2.0]]), over, np.array([1.0]), 0.25, 2) == 0.0


def test_what_may_have_happened_unseen_is_never_more_than_bridges_do() -> None:
    """Random bridges between two looks, on a fine grid."""
    rng, steps, runs = np.random.default_rng(3), 2000, 4000
    t0, t1, w0, w1, c = 0.4, 0.7, 0.9, 1.2, 2.0
    times = np.linspace(t0, t1, steps + 1)
    walk = np.cumsum(rng.normal(size=(runs, steps)) * np.sqrt((t1 - t0) / steps), axis=1)
    share = (times[1:] - t0) / (t1 - t0)
    bridge = w0 + walk + share * (w1 - w0 - walk[:, -1:])
    met = np.mean((bridge >= c * times[1:] ** 0.25).any(axis=1))
    bound = unseen_crossing(np.array(c), (np.array(w0), np.array(w1)), (np.array(t0), np.array(t1)), 0.25)
    assert 0.5 * met < float(bound) <= met + 4.0 * np.sqrt(met / runs)


def test_an_exchange_returns_what_it_is_given() -> None:
    looks = [
        LookValues(np.array([0.4, 1.5, -1.1]), np.full(3, 0.5)),
        LookValues(np.array([0.8, 1.6, -0.4]), np.full(3, 0.7)),
    ]
    for sides in (1, 2):
        swap = exchange(looks, np.full(3, 0.2), 0.25, 0.4, sides)
        height = swap.new_height(np.full(3, 2.1))
        assert swap.old_height(height) == pytest.approx(np.full(3, 2.1), rel=1e-3)
        assert np.all(np.diff(swap.old_height(height - 0.3) - swap.old_height(height)) < 1.0)
        assert np.all(swap.chance_left(np.full(3, 2.1)) > 0.0)


def test_at_the_horizon_nothing_is_left_but_what_went_unseen() -> None:
    near, far = np.array([1.8]), np.array([0.1])
    seen = [LookValues(np.array([1.7]), np.array([0.8])), LookValues(near, np.array([1.0]))]
    assert 0.1 < exchange(seen, np.array([0.5]), 0.25, 0.5, 2).chance_left(np.array([2.0]))[0] < 0.8
    seen = [LookValues(far, np.array([0.8])), LookValues(far, np.array([1.0]))]
    spent = exchange(seen, np.array([0.5]), 0.25, 0.5, 2)
    assert spent.chance_left(np.array([2.0]))[0] == 0.0
    assert np.isinf(spent.new_height(np.array([2.0]))[0])


@pytest.mark.slow
@pytest.mark.parametrize("runs", [300, pytest.param(3000, marks=pytest.mark.release)])
@pytest.mark.parametrize("last", [6, pytest.param(10, marks=pytest.mark.slow)])
@pytest.mark.parametrize("greedy", [pytest.param(False, marks=pytest.mark.slow), True])
def test_choosing_the_horizon_by_the_data_calls_ties_no_more_often(last: int, greedy: bool, runs: int) -> None:
    """Looks at 5, 6, .. of 10 until `last`; then 40, or (greedy) 12 instead where z is high already."""
    rng = np.random.default_rng(11)
    path = np.cumsum(rng.normal(size=(runs, 40)), axis=1)
    z = path / np.sqrt(np.arange(1, 41))
    c = WangTsiatis(0.25, 0.5).critical(ALPHA)
    first = np.abs(z[:, 4:last]) >= c * (np.arange(5, last + 1) / 10.0) ** -0.25
    called = first.any(axis=1)
    looks = [LookValues(z[~called, n - 1], np.full((~called).sum(), n / 10.0)) for n in range(5, last + 1)]
    horizon = np.where(greedy & (np.abs(looks[-1].z) > 1.0), 12, 40)
    swap = exchange(looks, last / horizon, 0.25, 0.5, 2)
    bound = swap.new_height(np.full(len(horizon), c))
    going = z[~called]
    later = np.zeros(len(going), bool)
    for n in range(last + 1, 41):
        later |= (n <= horizon) & (np.abs(going[:, n - 1]) >= bound * (n / horizon) ** -0.25)
    total = called.mean() + later.sum() / runs
    assert total <= ALPHA + 3.0 * np.sqrt(ALPHA * (1.0 - ALPHA) / runs)
    assert later.sum() > 0, "and something is still found"
