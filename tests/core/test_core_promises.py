"""The error guarantees, by simulation of worlds with a known truth. All seeds are fixed."""

import math

import numpy as np
import pytest
from core_runs import BINARY, allowed, play
from numpy.typing import NDArray
from thoroughness import sizes

from adaptive_eval.core import Anytime, Bench, Controller, Judging, Pace, Plan, Rule, Trials, Verdict
from adaptive_eval.core.evidence import Estimates, Evidence, Prior, estimate
from adaptive_eval.core.policies import Policy, Uniform, Weighted
from adaptive_eval.core.sequential import Sequential

QUESTIONS = 30
RUNS = 3000


def profile(name: str) -> NDArray[np.float64]:
    """Success probabilities of 30 questions, the same for both models."""
    rng = np.random.default_rng(8)
    return {
        "alike, 0.9": np.full(QUESTIONS, 0.9),
        "alike, 0.5": np.full(QUESTIONS, 0.5),
        "spread": rng.beta(0.6, 0.4, QUESTIONS),
        "near-deterministic": np.where(rng.random(QUESTIONS) < 0.5, 0.02, 0.98),
    }[name]


def carry_out(plan: Plan, p: NDArray[np.float64], seed: int) -> Controller:
    """A whole run of models that answer each question right with its chance."""
    rng = np.random.default_rng(seed)
    return play(Controller(plan), lambda ask: int(rng.random() < p[ask.question]))


@pytest.mark.parametrize("prior", ["uniform", "self"])
@pytest.mark.parametrize("name", ["alike, 0.9", "alike, 0.5", "spread", "near-deterministic"])
def test_80_trials_against_8_do_not_separate_identical_models(prior: Prior, name: str) -> None:
    """On the average scale, one look at z = 1.645 errs at most 5% each way, as with equal trials."""
    rng = np.random.default_rng(1)
    p = profile(name)
    many, few = (rng.binomial(n, p, (RUNS, QUESTIONS)) for n in (80, 8))
    scores, var = [], []
    for right, n in ((many, 80), (few, 8)):
        estimates = estimate(np.stack([n - right, right], axis=-1), BINARY, prior, np.array(80))
        scores.append(estimates.score)
        var.append(estimates.var)
    z = (scores[0] - scores[1]) / np.sqrt(var[0] + var[1])
    assert np.mean(np.abs(z) >= 1.645) <= allowed(0.10, RUNS)
    assert np.mean(z >= 1.645) <= allowed(0.05, RUNS)
    assert np.mean(z <= -1.645) <= allowed(0.05, RUNS)
    assert abs(np.mean(scores[0] - scores[1])) < 4.0 * float(np.std(scores[0] - scores[1])) / math.sqrt(RUNS)


def side_by_side(estimates: Estimates) -> Evidence:
    """Evidence on the independent pairs 0 and 1, 2 and 3, and so on."""
    names = ("score", "var", "noise", "noise_at_horizon")
    score, var, noise, at_end = (getattr(estimates, name).reshape(-1, 2) for name in names)
    difference, sigma, first = score[:, 0] - score[:, 1], np.sqrt(var.sum(axis=1)), np.arange(0, score.size, 2)
    information = at_end.sum(axis=1) / noise.sum(axis=1)
    return Evidence(score.size, False, first, first + 1, difference, sigma, difference / sigma, information)


@pytest.mark.parametrize(
    ("rule", "name", "prior"),
    [
        (Sequential(), "spread", "self"),
        pytest.param(Sequential(), "near-deterministic", "self", marks=pytest.mark.slow),
        pytest.param(Sequential(), "alike, 0.5", "uniform", marks=pytest.mark.slow),
        (Anytime(), "spread", "self"),
    ],
)
def test_looks_at_every_round_call_exact_ties_no_more_often_than_promised(rule: Rule, name: str, prior: Prior) -> None:
    """Pairs of copies, looked at after every trial from 4 to 80: at most 10% of them are ever called."""
    pairs = 300
    rng = np.random.default_rng(2)
    wins = np.cumsum(rng.random((80, 2 * pairs, QUESTIONS)) < profile(name), axis=0)
    called = np.zeros(pairs, dtype=bool)
    for n in range(4, 81):
        right = wins[n - 1]
        on = side_by_side(estimate(np.stack([n - right, right], axis=-1), BINARY, prior, np.array(80)))
        called |= np.abs(on.z) >= rule.boundary(on)
    assert called.mean() <= allowed(0.10, pairs)


@pytest.mark.release
@pytest.mark.parametrize("policy", [pytest.param(Uniform(), id="uniform"), pytest.param(Weighted(), id="weighted")])
@pytest.mark.parametrize("pace", [Pace(), Pace(1)], ids=["every round", "running ahead"])
def test_whole_runs_keep_the_promise_on_exact_ties(policy: Policy, pace: Pace) -> None:
    """Two copies on spread questions, all the way to the horizon: called in at most 10% of runs, and no lean.

    Fewer of them are among the default and the long tests: `tests/study/test_simulated.py`.
    """
    p = profile("spread")
    plan = Plan(Bench(2, QUESTIONS, BINARY), policy=policy, judging=Judging(futility=None), pace=pace)
    runs, called, lead = 250, 0, []
    for seed in range(runs):
        controller = carry_out(plan, p, seed)
        called += controller.looks[-1].count(Verdict.RESOLVED)
        lead.append(controller.looks[-1].scores[0] - controller.looks[-1].scores[1])
    assert called / runs <= allowed(0.10, runs)
    assert abs(np.mean(lead)) < 4.0 * float(np.std(lead)) / math.sqrt(runs)


@pytest.mark.parametrize("many", sizes(5, 30))
def test_a_family_of_ties_keeps_its_promise_together(many: int) -> None:
    """Eight copies under Holm: any call at all in at most 5% of runs, where single promises break in many."""
    runs, p = {True: 4 * many, False: many}, profile("spread")
    bench = Bench(8, QUESTIONS, BINARY)
    share = {}
    for familywise, number in runs.items():
        judging = Judging(futility=None, familywise=familywise)
        plan = Plan(bench, policy=Uniform(), judging=judging, trials=Trials(min=4, max=32))
        ended = [carry_out(plan, p, seed).last_look for seed in range(number)]
        share[familywise] = np.mean([look is not None and bool(look.memory.call.any()) for look in ended])
    assert share[True] <= allowed(0.05, runs[True])
    assert share[False] > max(share[True], 0.15)
