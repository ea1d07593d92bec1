"""The trials that a comparison still needs: where today's difference would meet the boundary, wherever that is."""

import numpy as np
import pytest

from adaptive_eval.core.evidence import Evidence
from adaptive_eval.core.judge import forecast, times_needed
from adaptive_eval.core.rules import Rule, ZScore
from adaptive_eval.core.sequential import Sequential
from scorio.sinf.boundary import WangTsiatis


def needed(z: float, information: float, rule: Rule, delta: float = 0.0) -> float:
    """Times today's trials; the difference is 0.02."""
    ones = np.ones(1)
    evidence = Evidence(
        models=2,
        against_reference=False,
        first=np.array([0]),
        second=np.array([1]),
        difference=0.02 * ones,
        sigma=0.02 / z * ones,
        z=z * ones,
        information=information * ones,
    )
    return float(times_needed(forecast(evidence, rule, delta, ones), evidence, rule)[0])


@pytest.mark.parametrize(("trials", "max_trials", "z"), [(5, 60, 1.87), (5, 80, 2.5), (10, 80, 2.0), (40, 80, 1.8)])
def test_before_the_horizon_the_boundary_is_higher(trials: int, max_trials: int, z: float) -> None:
    """z sqrt(n/N) = c (n/N_max)^(-1/4) has the root n = (c sqrt(N) N_max^(1/4) / z)^(4/3)."""
    start = 4 / max_trials
    c = WangTsiatis(0.25, start).critical(0.10)
    root = (c * trials**0.5 * max_trials**0.25 / z) ** (4 / 3)
    assert root < max_trials
    assert needed(z, trials / max_trials, Sequential(start=start)) * trials == pytest.approx(root, rel=0.01)


def test_beyond_the_horizon_the_boundary_stays() -> None:
    c = WangTsiatis(0.25, 0.05).critical(0.10)
    assert needed(0.5, 0.5, Sequential()) == pytest.approx((c / 0.5) ** 2, rel=0.01)


def test_a_constant_is_met_at_once() -> None:
    assert needed(0.9, 0.5, ZScore(1.645)) == pytest.approx((1.645 / 0.9) ** 2)


@pytest.mark.parametrize("delta", [0.021, 0.03, 0.06])
def test_a_tie_within_delta_counts_where_it_is_sooner(delta: float) -> None:
    """|d| + b s/sqrt(u) = delta has the root u = (b s/(delta - |d|))^2."""
    tie = (1.645 * (0.02 / 0.5) / (delta - 0.02)) ** 2
    assert needed(0.5, 0.5, ZScore(1.645), delta) == pytest.approx(min(tie, (1.645 / 0.5) ** 2))
    assert needed(0.5, 0.5, ZScore(1.645), 0.02) == pytest.approx((1.645 / 0.5) ** 2)


def test_a_tie_goes_by_the_boundary_of_its_information() -> None:
    c = WangTsiatis(0.25, 0.05).critical(0.10)
    assert needed(0.1, 0.5, Sequential(), 0.06) == pytest.approx((c * 0.2 / 0.04) ** 2, rel=0.01)
