"""The rule `published` and the settings of its paper: look by look what the paper's formulas give, written out here."""

import json
from collections.abc import Iterator, Sequence
from math import erf, sqrt
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from adaptive_eval.config.load import load_decisions
from adaptive_eval.config.planning import RunFacts, plan_on
from adaptive_eval.core import Bench, Controller, Look, Outcome, Plan, StageBefore, Verdict

RECORDED = Path(__file__).parents[3] / "shared" / "data"
"""Recorded outcomes, where they are; else there are seeded worlds alone."""


Outcomes = NDArray[np.integer]


class Round(NamedTuple):
    """What the paper's procedure finds at one look."""

    order: list[int]
    mu: list[float]
    ranks: list[int]
    z: list[float]
    """Of neighbours in the order."""
    trials: list[int]


def evaluate(rows: list[list[int]], w: list[float]) -> tuple[float, float]:
    """Algorithm 1 for R with the uniform prior: mu and sigma."""
    questions, trials, last = len(rows), len(rows[0]), len(w) - 1
    total = 1 + last + trials
    mu, inner = w[0], 0.0
    for row in rows:
        nu = [1 + row.count(k) for k in range(last + 1)]
        mean = sum(nu[j] / total * (w[j] - w[0]) for j in range(last + 1))
        mu += mean / questions
        inner += sum(nu[j] / total * (w[j] - w[0]) ** 2 for j in range(last + 1)) - mean**2
    return mu, sqrt(inner / (questions**2 * (total + 1)))


def paper(outcomes: Outcomes, w: list[float], plan: Plan, threshold: float, looks: Sequence[Look]) -> Iterator[Round]:
    """Sections 2.5 and 2.9, and the rule of the blog: further trials only where a neighbour's z is below the threshold.

    `outcomes` (L, M, N): what each trial gives. Where two mu are the same number, the order is that of `looks`.
    """
    models, cap = len(outcomes), plan.trials.max
    trials = [plan.trials.min] * models
    for look in looks:
        estimates = [evaluate(outcomes[i, :, : trials[i]].tolist(), w) for i in range(models)]
        order = sorted(look.order, key=lambda i: -round(estimates[i][0], 12))
        z = [
            (estimates[i][0] - estimates[j][0]) / sqrt(estimates[i][1] ** 2 + estimates[j][1] ** 2)
            for i, j in zip(order, order[1:], strict=False)
        ]
        ranks = [0] * models
        for place, model in enumerate(order):
            ranks[model] = 1 if place == 0 else ranks[order[place - 1]] + (z[place - 1] >= threshold)
        yield Round(order, [estimate[0] for estimate in estimates], ranks, z, list(trials))
        pairs = [pair for pair, gap in zip(zip(order, order[1:], strict=False), z, strict=True) if gap < threshold]
        more = {i for pair in pairs if min(trials[pair[0]], trials[pair[1]]) < cap for i in pair}
        grown = [min(n + (i in more), cap) for i, n in enumerate(trials)]
        if grown == trials:
            break
        trials = grown
    assert look is looks[-1]


TRIALS = {"policy": "unresolved_pairs", "optimize": "cost"}


def published(
    models: int,
    questions: int,
    w: list[float],
    before: Controller | None = None,
    confidence: float = 0.95,
    **trials: object,
) -> Plan:
    names = [f"m{number}" for number in range(models)]
    stopping = {"rule": "published", "confidence": confidence}
    settings = [f"stopping={json.dumps(stopping)}", f"trials={json.dumps({**TRIALS, **trials})}"]
    decisions = load_decisions(None, settings, names)
    facts = RunFacts(before=None if before is None else StageBefore(before, tuple(range(models))))
    return plan_on(Bench(models, questions, np.array(w)), decisions, names, facts)


def played(plan: Plan, outcomes: Outcomes) -> Controller:
    controller = Controller(plan)
    while controller.finished is None:
        controller.tell(Outcome(*ask[:3], int(outcomes[ask[:3]])) for ask in controller.ask(1 << 30))
    return controller


def require_same(plan: Plan, outcomes: Outcomes, w: list[float], threshold: float = 1.6448536) -> Controller:
    """Every look is that of the paper; returns the controller."""
    controller = played(plan, outcomes)
    expected = list(paper(outcomes, w, plan, threshold, controller.looks))
    assert len(controller.looks) == len(expected)
    for look, other in zip(controller.looks, expected, strict=True):
        assert list(look.order) == other.order
        assert list(look.tiers) == other.ranks
        assert [n // plan.bench.questions for n in look.trials] == other.trials
        assert [pair.z for pair in look.comparisons] == pytest.approx(other.z)
        assert [pair.verdict is Verdict.RESOLVED for pair in look.comparisons] == [z >= threshold for z in other.z]
        assert [pair.rho for pair in look.comparisons] == pytest.approx([0.5 * (1 + erf(z / sqrt(2))) for z in other.z])
    return controller


@pytest.mark.parametrize("seed", range(3))
def test_every_look_is_that_of_the_paper(seed: int) -> None:
    rng = np.random.default_rng(seed)
    w = [[0.0, 1.0], [0.0, 0.5, 1.0], [0.0, 0.0, 0.25, 1.0]][seed % 3]
    skill = np.linspace(0.35, 0.65, 5)[:, None, None] + rng.uniform(-0.25, 0.25, (5, 12, 1))
    noise = rng.random((5, 12, 24))
    outcomes = np.where(noise < skill, len(w) - 1, (noise * 1e4).astype(int) % (len(w) - 1))
    controller = require_same(published(5, 12, w, min=2, max=24), outcomes, w)
    result = controller.result()
    assert result is not None
    last = controller.looks[-1]
    by_model = {row.model: row for row in result.models}
    estimates = [evaluate(outcomes[i, :, : n // 12].tolist(), w) for i, n in enumerate(last.trials)]
    assert [by_model[i].bayes for i in range(5)] == pytest.approx([mu for mu, _ in estimates])
    assert [by_model[i].bayes_sigma for i in range(5)] == pytest.approx([sigma for _, sigma in estimates])
    for row in result.comparisons:
        assert row.verdict.second is not None
        assert row.difference == pytest.approx(estimates[row.verdict.first][0] - estimates[row.verdict.second][0])


@pytest.mark.skipif(not RECORDED.is_dir(), reason="there are no recorded outcomes beside the repository")
@pytest.mark.parametrize("name", ["aime2024", "matharena"])
def test_on_recorded_outcomes_too(name: str) -> None:
    if name == "matharena":
        with np.load(RECORDED / "matharena_aime2025_II.npz") as data:
            outcomes = data["R"].astype(int)
    else:
        with np.load(RECORDED / "aime2024_counts.npz") as data:
            shares = data["correct"] / data["count"]
        best = np.argsort(-shares.mean(axis=1))[:12]
        outcomes = (np.random.default_rng(1).random((12, 30, 80)) < shares[best][:, :, None]).astype(int)
    models, questions, trials = outcomes.shape
    plan = published(models, questions, [0.0, 1.0], min=min(4, trials), max=trials)
    require_same(plan, outcomes, [0.0, 1.0])


def test_another_confidence_may_be_given() -> None:
    rng = np.random.default_rng(3)
    outcomes = (rng.random((3, 8, 16)) < np.array([0.4, 0.5, 0.6])[:, None, None]).astype(int)
    plan = published(3, 8, [0.0, 1.0], confidence=0.975, min=2, max=16)
    require_same(plan, outcomes, [0.0, 1.0], 1.959964)


def test_a_call_that_does_not_last_is_open_again_and_gets_trials() -> None:
    """Two models that are apart at first and equal later, beside a third pair that keeps the run going."""
    outcomes = np.zeros((4, 6, 20), int)
    outcomes[0, :, :3] = 1
    outcomes[1, :, 3:9] = 1
    outcomes[2, :, ::2] = outcomes[3, :, 1::2] = 1
    controller = require_same(published(4, 6, [0.0, 1.0], min=2, max=20), outcomes, [0.0, 1.0])
    verdicts = [
        {frozenset((pair.first, pair.second)): pair.verdict for pair in look.comparisons} for look in controller.looks
    ]
    seen = [look.get(frozenset((0, 2))) or look.get(frozenset((0, 3))) for look in verdicts]
    assert Verdict.RESOLVED in seen
    assert any(a is Verdict.RESOLVED and b is Verdict.OPEN for a, b in zip(seen, seen[1:], strict=False))


def test_a_raised_horizon_goes_on_as_if_it_had_always_been_so() -> None:
    rng = np.random.default_rng(8)
    outcomes = (rng.random((3, 10, 24)) < np.array([0.48, 0.5, 0.52])[:, None, None]).astype(int)
    short = published(3, 10, [0.0, 1.0], min=2, max=8)
    extended = published(3, 10, [0.0, 1.0], played(short, outcomes), min=2, max=24)
    undisturbed = require_same(published(3, 10, [0.0, 1.0], min=2, max=24), outcomes, [0.0, 1.0])
    resumed = played(extended, outcomes)
    assert resumed.looks[-1].tiers == undisturbed.looks[-1].tiers
    assert resumed.looks[-1].scores == undisturbed.looks[-1].scores
    assert resumed.trials.tolist() == undisturbed.trials.tolist()


def test_the_rule_by_itself_is_of_the_uniform_prior() -> None:
    assert load_decisions(None, ["stopping=published"], ["a", "b"]).stopping.prior == "uniform"
    assert load_decisions(None, [], ["a", "b"]).stopping.prior == "self"
