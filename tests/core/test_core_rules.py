"""The boundaries of each rule on given evidence, computed independently."""

import math

import numpy as np
import pytest
from core_evidence import evidence
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import norm
from thoroughness import examples

from adaptive_eval.core.anytime import Anytime
from adaptive_eval.core.evidence import Evidence
from adaptive_eval.core.near_best import NearBest
from adaptive_eval.core.registry import RULES, make
from adaptive_eval.core.rules import Correctable, Precision, Rule, ZScore
from adaptive_eval.core.sequential import Sequential
from adaptive_eval.testing.rules import check_boundary, check_p_values


def test_the_published_boundary_is_a_constant() -> None:
    on = evidence(3, [0.0, 1.7, -9.0], [0.01, 0.5, 1.0])
    assert ZScore().boundary(on).tolist() == [1.645] * 3
    assert ZScore(2.5).boundary(on).tolist() == [2.5] * 3


@pytest.mark.parametrize(("kappa", "at_looks"), [(0.0, 2.511), (0.25, 2.042), (0.5, 1.898)])
def test_sequential_holds_at_every_look_of_a_fine_schedule(kappa: float, at_looks: float) -> None:
    """The constants of 77 equal looks, by recursive quadrature, bound those of any looks, and not by much."""
    constant = float(Sequential(kappa=kappa).boundary(evidence(2, [0.0], [1.0]))[0])
    assert at_looks < constant < at_looks + 0.15
    rising = Sequential(kappa=kappa).boundary(evidence(3, [0.0] * 3, [0.05, 0.3, 1.3]))
    np.testing.assert_allclose(rising, [constant * t**-kappa for t in (0.05, 0.3, 1.0)], rtol=1e-8)


def test_sequential_calls_nothing_before_its_start() -> None:
    on = evidence(3, [9.0] * 3, [0.0, 0.0499, 0.05])
    assert np.isinf(Sequential().boundary(on)).tolist() == [True, True, False]
    assert Sequential().p_value(on, 1).tolist()[:2] == [1.0, 1.0]
    assert Sequential().p_value(on, 1)[2] < 1e-4


def test_with_one_look_sequential_is_the_plain_test() -> None:
    on = evidence(2, [1.7], [1.0])
    assert Sequential(start=1.0).boundary(on)[0] == pytest.approx(norm.ppf(0.95), abs=1e-3)
    assert Sequential(start=1.0).p_value(on, 1)[0] == pytest.approx(norm.sf(1.7), abs=1e-4)


def test_anytime_is_the_normal_mixture() -> None:
    """sqrt((1 + 1/r)(ln(1 + r) + 2 ln(1/alpha))), r proportional to t, with its least value at the optimum."""
    alpha = 0.10
    tightest = brentq(lambda r: r - math.log1p(r) - 2.0 * math.log(1.0 / alpha), 1e-6, 100.0)
    times = [0.05, 0.2, 0.5, 1.0]
    expected = []
    for t in times:
        r = tightest * t / 0.5
        expected.append(math.sqrt((1.0 + 1.0 / r) * (math.log1p(r) + 2.0 * math.log(1.0 / alpha))))
    boundaries = Anytime().boundary(evidence(4, [0.0] * 6, [*times, 0.499, 0.501]))
    np.testing.assert_allclose(boundaries[:4], expected, rtol=1e-9)
    assert boundaries.min() == boundaries[2]
    assert np.isinf(Anytime().boundary(evidence(2, [9.0], [0.049]))).all()


def test_near_best_tests_whether_the_model_ahead_is_worse_by_the_margin() -> None:
    """The boundary on |z| is the one on (|d| + margin)/s minus margin/s, whichever model is ahead."""
    rule, sigma = NearBest(0.02), 0.01 / math.sqrt(2.0)
    for z in (-0.4, 0.0, 0.4, 1.0):
        on = evidence(2, [z], [0.3], [sigma, sigma])
        strict = rule.strict_boundary(on)[0]
        assert rule.boundary(on)[0] == pytest.approx(strict - 2.0)
        assert (abs(z) >= rule.boundary(on)[0]) == (abs(z) * 0.01 + 0.02 >= strict * 0.01)


def test_near_best_calls_either_of_two_models_whose_difference_is_known_to_be_small() -> None:
    on = evidence(2, [0.0], [0.3], [0.001, 0.001])
    assert NearBest(0.02).boundary(on).tolist() == [0.0]
    assert NearBest(1e-9).boundary(evidence(2, [2.0], [0.3], [0.2, 0.2]))[0] > 2.4
    unknown = evidence(2, [0.0], [0.0], [math.inf, 0.2])
    assert NearBest().boundary(unknown).tolist() == [math.inf]


@pytest.mark.parametrize(("sigma", "reached"), [(0.0256, False), (0.0255, True), (0.001, True), (math.inf, False)])
def test_precision_looks_at_the_width_alone(sigma: float, reached: bool) -> None:
    """1.96 sigma against 0.05."""
    on = evidence(1, [4e7], [0.3], [sigma], reference=True)
    assert (on.z >= Precision(0.05).boundary(on)).tolist() == [reached]


@st.composite
def any_evidence(draw: st.DrawFn) -> Evidence:
    """Pairs with no information up to more than complete information; some models have no trial."""
    models, reference = draw(st.integers(1, 4)), draw(st.booleans())
    pairs = models if reference else models * (models - 1) // 2
    z = draw(st.lists(st.floats(-12.0, 12.0), min_size=pairs, max_size=pairs))
    information = draw(st.lists(st.floats(0.0, 1.5), min_size=pairs, max_size=pairs))
    sigma = st.one_of(st.floats(1e-4, 0.5), st.just(float("inf")))
    return evidence(models, z, information, draw(st.lists(sigma, min_size=models, max_size=models)), reference)


EVERY: list[Rule] = [Sequential(0.8, 0.2, 0.5), Precision(0.05)]
EVERY += dict.fromkeys(make(entry.make, {}, {"confidence": 0.9, "start": 0.1}) for entry in RULES.values())


@pytest.mark.parametrize("rule", EVERY, ids=lambda rule: type(rule).__name__)
@settings(max_examples=examples(30), deadline=None)
@given(on=any_evidence(), share=st.integers(2, 40_000))
def test_any_evidence_passes_the_published_checks_at_any_level(rule: Rule, on: Evidence, share: int) -> None:
    check_boundary(rule, on)
    if not isinstance(rule, Correctable):
        return
    check_p_values(rule, on)
    stricter = rule.at_level((1.0 - rule.confidence) / share)
    assert 1.0 - stricter.confidence == pytest.approx((1.0 - rule.confidence) / share)
    finite = np.isfinite(rule.boundary(on))
    assert np.all(stricter.boundary(on)[finite] > rule.boundary(on)[finite])
    np.testing.assert_allclose(stricter.p_value(on, 1), rule.p_value(on, 1), rtol=1e-9)
