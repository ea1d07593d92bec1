"""The boundaries, and crossing them from a point: published constants, closed forms, and independent computations."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.interpolate import PchipInterpolator
from scipy.optimize import brentq
from scipy.special import ndtr
from scipy.stats import norm

from scorio.sinf import Mixture, WangTsiatis, critical_at_looks, crossing_at_looks
from scorio.sinf.boundary import MAX_CRITICAL, TABLED
from scorio.sinf.continuation import crossing_from, unseen_crossing
from scorio.sinf.crossing import STEPS, crossing_probability
from scorio.sinf.exchange import LookValues, exchange
from scorio.sinf.monotone import FallingCurve

FIVE_LOOKS = np.arange(1, 6) / 5
EVERY_ROUND = np.arange(4, 81) / 80


@pytest.mark.parametrize(
    ("alpha", "kappa", "looks", "published"),
    [
        (0.05, 0.0, FIVE_LOOKS, 2.413),
        (0.05, 0.5, FIVE_LOOKS, 2.040),
        pytest.param(0.10, 0.0, EVERY_ROUND, 2.511, marks=pytest.mark.slow),
        pytest.param(0.10, 0.25, EVERY_ROUND, 2.042, marks=pytest.mark.slow),
        pytest.param(0.10, 0.5, EVERY_ROUND, 1.898, marks=pytest.mark.slow),
    ],
)
def test_known_looks_give_the_published_constants(alpha: float, kappa: float, looks: np.ndarray, published: float):
    assert critical_at_looks(alpha, kappa, looks) == pytest.approx(published, abs=5e-4)


def test_the_default_constant_and_that_of_a_single_look():
    assert critical_at_looks(0.10, 0.25, np.array([1.0])) == pytest.approx(norm.ppf(0.95), abs=1e-8)
    assert critical_at_looks(0.05, 0.25, np.array([0.3]), sides=1) == pytest.approx(norm.ppf(0.95), abs=1e-8)
    assert WangTsiatis().critical(0.10) == pytest.approx(2.1137, abs=2e-4)


@pytest.mark.parametrize("sides", [1, 2])
def test_two_looks_agree_with_a_double_integral(sides: int):
    looks, bounds = np.array([0.3, 1.0]), np.array([2.2, 1.7])
    edge = bounds[0] * np.sqrt(looks[0])

    def stays(y: float) -> float:
        sd = np.sqrt(looks[1] - looks[0])
        low = norm.cdf(-bounds[1], y, sd) if sides == 2 else 0.0
        return float(norm.pdf(y, 0.0, np.sqrt(looks[0])) * (norm.cdf(bounds[1], y, sd) - low))

    inside, _ = quad(stays, -edge if sides == 2 else -8.0, edge, epsabs=1e-12)
    assert crossing_at_looks(bounds, looks, sides) == pytest.approx(1.0 - inside, abs=1e-10)


@pytest.mark.parametrize(
    ("kappa", "c", "sides"),
    [
        (0.25, 2.11, 2),
        pytest.param(0.0, 2.65, 2, marks=pytest.mark.slow),
        pytest.param(0.5, 1.96, 1, marks=pytest.mark.slow),
        pytest.param(0.25, 4.5, 2, marks=pytest.mark.slow),
    ],
)
def test_the_continuous_limit_is_where_ever_finer_looks_lead(kappa: float, c: float, sides: int):
    """Looks at h = log spacing miss crossings in proportion to sqrt(h): extrapolate a cubic in sqrt(h) to 0."""
    counts = np.array([25, 50, 100, 200])
    rates = []
    for count in counts:
        looks = np.exp(np.linspace(np.log(0.05), 0.0, count + 1))
        rates.append(crossing_at_looks(c * looks**-kappa, looks, sides))
    limit = np.polyfit(counts**-0.5, rates, 3)[-1]
    assert WangTsiatis(kappa).crossing(c, sides) == pytest.approx(limit, rel=6e-3)
    assert max(rates) < limit


@pytest.mark.parametrize("c", [1.0, 2.0, 3.0, 5.0, 7.0])
def test_a_flat_boundary_on_the_path_obeys_the_reflection_principle(c: float):
    """kappa = 1/2 from nearly 0 on: P(max W >= c) = 2 (1 - Phi(c)), and the theta series for max |W|."""
    shape = WangTsiatis(0.5, 1e-3)
    one_sided = 2.0 * norm.sf(c)
    both = 2.0 * sum((-1) ** k * 2.0 * norm.sf((2 * k + 1) * c) for k in range(20))
    assert shape.crossing(c, sides=1) == pytest.approx(one_sided, rel=1e-3)
    assert shape.crossing(c) == pytest.approx(both, rel=1e-3)


@pytest.mark.parametrize(("kappa", "start", "sides"), [(0.25, 0.1, 2), (0.05, 0.2, 1), (0.45, 0.5, 2)])
def test_eight_times_as_many_steps_change_nothing_that_counts(kappa: float, start: float, sides: int):
    c = np.arange(1.5, 7.0, 0.5)
    finer = crossing_probability(c, kappa, start, sides, 8 * STEPS)
    np.testing.assert_allclose(crossing_probability(c, kappa, start, sides), finer, rtol=3e-5)


@pytest.mark.parametrize(("kappa", "sides"), [(0.0, 1), (0.25, 1), (0.25, 2), (0.5, 2)])
def test_the_table_is_monotone_and_accurate_into_the_tail(kappa: float, sides: int):
    c = np.arange(0.03, 7.0, 0.31)
    direct = crossing_probability(c, kappa, 0.05, sides)
    table = np.array([WangTsiatis(kappa).crossing(x, sides) for x in c])
    assert direct[-1] < 1e-9
    np.testing.assert_allclose(table, direct, rtol=1e-3)
    fine = np.array([WangTsiatis(kappa).crossing(x, sides) for x in np.linspace(0.0, 13.0, 500)])
    assert np.all(np.diff(fine) <= 0.0)
    assert fine[-1] > 0.0


@given(
    z=st.floats(-8, 8),
    t=st.floats(0.001, 1.5),
    alpha=st.sampled_from([0.3, 0.1, 0.01, 1e-6]),
    kappa=st.sampled_from([0.0, 0.25, 0.5]),
    sides=st.sampled_from([1, 2]),
)
def test_a_p_value_below_alpha_is_a_crossing_at_alpha(z: float, t: float, alpha: float, kappa: float, sides: int):
    shape = WangTsiatis(kappa)
    height = abs(z) if sides == 2 else z
    bound = shape.at(t, shape.critical(alpha, sides))
    if abs(height - bound) > 1e-6:
        assert (shape.p_value(z, t, sides) <= alpha) == (height >= bound)


def test_the_boundary_before_the_start_and_beyond_the_horizon():
    shape = WangTsiatis(0.25, 0.05)
    t = np.array([0.0, 0.049, np.nextafter(0.05, 0.0), 0.5])  # a ratio of sums may miss the start by its last digit
    np.testing.assert_array_equal(np.isinf(shape.at(t, 2.0)), [True, True, False, False])
    assert shape.at(3.0, 2.0) == shape.at(1.0, 2.0) == 2.0
    assert shape.p_value(9.0, 0.04) == 1.0
    assert shape.p_value(-9.0, 0.5, sides=1) == 1.0
    assert shape.p_value(np.inf, 0.5) < 1e-30


@pytest.mark.parametrize("sides", [1, 2])
@pytest.mark.parametrize("t", [0.1, 1.0])
def test_the_e_value_is_the_mixture_of_likelihood_ratios(sides: int, t: float):
    """Drifts N(0, tau^2), folded upwards for one side: the integral of exp(theta W - theta^2 t/2)."""
    mixture, z = Mixture(0.1, 0.5), 1.7
    r = brentq(lambda x: x - np.log1p(x) - 2 * np.log(10), 1.0, 20.0, xtol=1e-13)
    tau = np.sqrt(r / 0.5)

    def integrand(theta: float) -> float:
        return float(np.exp(theta * z * np.sqrt(t) - theta**2 * t / 2) * norm.pdf(theta, 0.0, tau) * (3 - sides))

    expected, _ = quad(integrand, 0.0 if sides == 1 else -60.0, 60.0, points=[0.0, z / np.sqrt(t)])
    assert mixture.e_value(z, t, sides) == pytest.approx(expected, rel=1e-7)


def test_the_mixture_boundary_is_where_the_e_value_reaches_one_over_alpha():
    mixture, t = Mixture(0.1, 0.5), np.array([0.01, 0.2, 1.0, 30.0])
    np.testing.assert_allclose(mixture.e_value(mixture.at(t), t), 10.0, rtol=1e-12)
    np.testing.assert_allclose(mixture.p_value(-mixture.at(t), t), 0.1, rtol=1e-12)
    assert mixture.p_value(0.0, 1.0) == 1.0
    assert mixture.at(0.0) == np.inf
    assert mixture.e_value(100.0, 1.0) == np.inf
    assert mixture.p_value(100.0, 1.0) == 0.0


def test_the_one_sided_mixture_is_precise_far_on_the_other_side():
    z, mixture = np.array([-0.5, -5.0, -50.0, -np.inf]), Mixture(0.1, 0.5)
    e = mixture.e_value(z, 1.0, sides=1)
    assert np.all(np.diff(e) < 0.0)
    assert e[-1] == 0.0
    r = mixture.r(1.0)
    x = 50.0 * np.sqrt(r / (1 + r))
    tail = np.sqrt(2 / np.pi) / x * (1 - 1 / x**2 + 3 / x**4)  # 2 exp(x^2/2) Phi(-x), the asymptotic series
    assert e[2] == pytest.approx(tail / np.sqrt(1 + r), rel=1e-8)
    np.testing.assert_array_equal(mixture.p_value(z, 1.0, sides=1), 1.0)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: WangTsiatis(0.7), r"kappa must lie in \[0, 0.5\].*0.7"),
        (lambda: WangTsiatis(0.25, 0.0), r"start must lie strictly between 0 and 1, got 0.0"),
        (lambda: WangTsiatis().critical(0.95, sides=1), r"alpha must lie strictly between .* got 0.95"),
        (lambda: WangTsiatis().crossing(2.0, sides=3), r"sides must be 1 or 2, got 3"),
        (lambda: crossing_at_looks([2.0, 2.0], [0.5]), r"bounds must hold one number above 0 for each of 1 looks"),
        (lambda: crossing_at_looks([2.0, 2.0], [0.5, 0.4]), r"looks must be a vector of rising numbers.*\[0.5, 0.4\]"),
        (lambda: critical_at_looks(0.0, 0.25, [0.5]), r"alpha must lie strictly between 0 and 1, got 0.0"),
        (lambda: critical_at_looks(0.6, 0.25, [0.5], sides=1), r"alpha must lie below 0.496.* got 0.6"),
        (lambda: Mixture(1.0), r"alpha must lie strictly between 0 and 1, got 1.0"),
        (lambda: Mixture(0.1, 0.0), r"optimum must be above 0, got 0.0"),
    ],
)
def test_bad_settings_are_refused(make, words: str):
    with pytest.raises(ValueError, match=words):
        make()


OFTEN_TRIED = {(0.25, 0.05): [], **dict.fromkeys([(0.0, 1e-6), (0.25, 0.7), (0.5, 1.0 - 1e-9)], pytest.mark.slow)}
"""The usual one, and each exponent and each extreme start once; the other pairs before a release."""


@pytest.mark.parametrize(
    ("kappa", "start"),
    [
        pytest.param(kappa, start, marks=OFTEN_TRIED.get((kappa, start), pytest.mark.release))
        for kappa in (0.0, 0.25, 0.5)
        for start in (1e-6, 0.05, 0.7, 1.0 - 1e-9)
    ],
)
def test_a_constant_is_the_one_of_the_whole_table(kappa: float, start: float):
    for sides in (1, 2):
        logs = np.log(np.minimum.accumulate(crossing_probability(TABLED, kappa, start, sides)))
        table = PchipInterpolator(TABLED, logs)
        for alpha in (1e-25, 1e-6, 0.01, 0.1, 0.3, 0.9 * np.exp(logs[0])):
            expected = brentq(lambda c, alpha=alpha, table=table: float(table(c)) - np.log(alpha), 0.0, MAX_CRITICAL)
            assert WangTsiatis(kappa, start).critical(float(alpha), sides) == pytest.approx(expected, abs=1e-9)


@given(st.lists(st.just(0.0) | st.floats(1e-300, 5.0), min_size=2, max_size=12), st.integers(0, 2**32 - 1))
def test_a_falling_curve_is_that_of_scipy(falls: list[float], seed: int):
    points = 0.3 * np.arange(len(falls) + 1)
    values = -np.concatenate(([0.0], np.cumsum(falls)))
    curve, reference = FallingCurve.through(points, values), PchipInterpolator(points, values)
    at = np.random.default_rng(seed).uniform(0.0, points[-1], 50)
    np.testing.assert_allclose(curve(at), reference(at), atol=1e-9)
    assert np.all(np.diff(curve(np.sort(at))) <= 1e-9)
    for value in curve(at[:5]):
        assert curve(curve.place(float(value))) == pytest.approx(value, abs=1e-9)


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
    z = np.cumsum(rng.normal(size=(runs, 40)), axis=1) / np.sqrt(np.arange(1, 41))
    c = WangTsiatis(0.25, 0.5).critical(ALPHA)
    first = np.abs(z[:, 4:last]) >= c * (np.arange(5, last + 1) / 10.0) ** -0.25
    called = first.any(axis=1)
    looks = [LookValues(z[~called, n - 1], np.full((~called).sum(), n / 10.0)) for n in range(5, last + 1)]
    horizon = np.where(greedy & (np.abs(looks[-1].z) > 1.0), 12, 40)
    bound = exchange(looks, last / horizon, 0.25, 0.5, 2).new_height(np.full(len(horizon), c))
    going = z[~called]
    later = np.zeros(len(going), bool)
    for n in range(last + 1, 41):
        later |= (n <= horizon) & (np.abs(going[:, n - 1]) >= bound * (n / horizon) ** -0.25)
    total = called.mean() + later.sum() / runs
    assert total <= ALPHA + 3.0 * np.sqrt(ALPHA * (1.0 - ALPHA) / runs)
    assert later.sum() > 0, "and something is still found"
