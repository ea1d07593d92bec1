"""Gates on all questions and on single benchmarks: their error guarantee, and a check by an independent oracle."""

from collections import Counter

import numpy as np
import pytest
from numpy.typing import NDArray
from test_core_gate import allowed, carry_out, outcome
from thoroughness import first_of, sizes

from adaptive_eval.core import Bench, Controller, Optimal, Plan, Trials, ZScore
from adaptive_eval.core.anytime import Anytime
from adaptive_eval.core.evidence import estimate
from adaptive_eval.core.judge import Judging
from adaptive_eval.core.objectives import Gate, Ranking
from adaptive_eval.core.sequential import Sequential
from adaptive_eval.core.settings import Margin, Pace
from adaptive_eval.core.stages import StageBefore

BINARY = np.array([0.0, 1.0])
SIZES = (10, 30)
BENCHMARK = np.repeat([0, 1], SIZES)
WEIGHT = np.array([1.0, 2.0])
DELTA, DELTAS = 0.05, (0.10, 0.08)


def bench(models: int = 2, deltas: tuple[float, ...] = DELTAS) -> Bench:
    shares = (WEIGHT / np.array(SIZES))[BENCHMARK]
    return Bench(
        models, len(BENCHMARK), BINARY, question_weights=shares, benchmark_of=BENCHMARK, gates=tuple(enumerate(deltas))
    )


def gate(*, deltas: tuple[float, ...] = DELTAS, models: int = 2, **changes: object) -> Plan:
    given = {"rule": Optimal(start=0.05), "trials": Trials(min=4, max=40)} | changes
    return Plan(bench(models, deltas), objective=Gate(Margin(0, DELTA, deltas)), **given)  # type: ignore[arg-type]


def chances(*means: tuple[float, float]) -> NDArray[np.float64]:
    """The chances of each model (L, M), from its mean on each benchmark."""
    spread = np.concatenate([np.linspace(-0.1, 0.1, size) for size in SIZES])
    return np.array([np.array(mean)[BENCHMARK] + spread for mean in means])


def shares(plan: Plan, true: NDArray[np.float64], runs: int) -> dict[str, float]:
    counts = Counter(outcome(carry_out(plan, true, seed)) for seed in range(runs))
    return {name: counts[name] / runs for name in ("PASS", "FAIL", "UNDECIDED")}


PRODUCTION = (0.8, 0.7)
EDGES = {
    "one benchmark": (0.7, 0.72),
    "the other": (0.9, 0.62),
    "all questions": (0.75, 0.65),
    "everything": (0.75, 0.65),
}
"""A build that is at the edge of one gate, or of all, and within the others."""


@pytest.mark.parametrize(
    ("edge", "runs"),
    [
        *(pytest.param(edge, 40, marks=pytest.mark.slow) for edge in ("one benchmark", "everything")),
        *(pytest.param(edge, 200, marks=pytest.mark.release) for edge in EDGES),
    ],
)
def test_at_the_edge_of_any_gate_hardly_any_run_passes_or_fails(edge: str, runs: int) -> None:
    deltas = (DELTA, DELTA) if edge == "everything" else DELTAS
    measured = shares(gate(deltas=deltas), chances(PRODUCTION, EDGES[edge]), runs)
    assert measured["PASS"] <= allowed(0.05, runs)
    assert measured["FAIL"] <= allowed(0.05, runs)


@pytest.mark.release
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"rule": Anytime(start=0.1)},
        {"pace": Pace(2)},
        {"trials": Trials(min=1, max=40)},
        {"judging": Judging(futility=None)},
    ],
    ids=["default", "anytime", "ahead", "from the first", "no futility"],
)
@pytest.mark.parametrize("edge", EDGES)
def test_the_edge_holds_at_every_schedule_of_looks(edge: str, changes: dict[str, object]) -> None:
    runs, deltas = 600, (DELTA, DELTA) if edge == "everything" else DELTAS
    measured = shares(gate(deltas=deltas, **changes), chances(PRODUCTION, EDGES[edge]), runs)
    assert measured["PASS"] <= allowed(0.05, runs)
    assert measured["FAIL"] <= allowed(0.05, runs)


@pytest.mark.parametrize("runs", sizes(6, 60))
def test_an_equal_build_passes_and_one_that_is_bad_on_a_benchmark_fails(runs: int) -> None:
    """Over all questions the bad build is even better."""
    wide = (0.2, 0.15)
    plan = gate(deltas=wide, trials=Trials(min=4, max=80))
    assert shares(plan, chances(PRODUCTION, PRODUCTION), runs)["PASS"] >= 0.7
    bad = chances(PRODUCTION, (0.4, 0.89))
    assert shares(plan, bad, runs)["FAIL"] == 1.0
    single = Plan(
        bench(deltas=()), objective=Gate(Margin(0, DELTA)), rule=Optimal(start=0.05), trials=Trials(min=4, max=80)
    )
    assert shares(single, bad, runs)["FAIL"] == 0.0


class ByHand:
    """The decision on one build, look by look, with each gate from the counts of its own questions."""

    def __init__(self, plan: Plan) -> None:
        assert plan.bench.question_weights is not None and isinstance(plan.rule, Sequential)
        self.most, self.g, alpha = plan.trials.max, plan.bench.question_weights, 1.0 - plan.rule.confidence
        self.passing = plan.rule.critical
        self.failing = Sequential(1.0 - alpha / 3, plan.rule.start).critical
        self.called = [0, 0, 0]

    def look(self, counts: NDArray[np.integer]) -> str:
        for at, (questions, delta) in enumerate(
            zip((BENCHMARK >= 0, BENCHMARK == 0, BENCHMARK == 1), (DELTA, *DELTAS), strict=True)
        ):
            part_counts = counts[:, questions]
            if not part_counts.sum(axis=-1).all():
                continue
            weighting = {"g": self.g, "groups": BENCHMARK} if at == 0 else {}
            horizon = np.array(self.most) if at == 0 else self.most * self.g[questions]
            estimates = estimate(part_counts, BINARY, "self", horizon, **weighting)  # type: ignore[arg-type]
            z = (estimates.score[1] - estimates.score[0] + delta) / np.sqrt(estimates.var.sum())
            t = estimates.noise_at_horizon.sum() / estimates.noise.sum()
            height = abs(z) * min(t, 1.0) ** 0.25
            if not self.called[at] and t >= 0.05 * (1 - 1e-9) and height >= (self.passing if z > 0 else self.failing):
                self.called[at] = int(np.sign(z))
        return "FAIL" if min(self.called) < 0 else "PASS" if min(self.called) > 0 else "UNDECIDED"


@pytest.mark.parametrize("build", first_of([(0.8, 0.7), (0.62, 0.75), (0.9, 0.5), (0.7, 0.66)], 1))
@pytest.mark.parametrize("seed", first_of(range(3), 1))
def test_every_look_decides_as_by_hand(build: tuple[float, float], seed: int) -> None:
    plan = gate(rule=Sequential(start=0.05), judging=Judging(futility=None), trials=Trials(min=4, max=60))
    rng, controller, oracle = np.random.default_rng(seed), Controller(plan), ByHand(plan)
    true = chances(PRODUCTION, build)
    while controller.finished is None:
        for asked in controller.ask_rounds():
            right = rng.binomial(asked.extra, true)
            for _ in controller.tell_round(asked, np.stack([asked.extra - right, right], axis=-1)):
                by_hand = oracle.look(controller.counts)
                look = controller.latest_look()
                assert look is not None
                (pair,) = look.comparisons
                decided = str(pair.verdict) == "resolved"
                assert (by_hand != "UNDECIDED") == decided
                result = controller.result()
                assert result is not None
                assert [decision.call for decision in result.gates] == oracle.called
    assert len(controller.looks) > 3


def test_each_model_has_its_own_decision_and_figures() -> None:
    plan = gate(models=3, deltas=(0.2, 0.15), trials=Trials(min=4, max=80))
    true = chances(PRODUCTION, (0.4, 0.89), PRODUCTION)
    controller = carry_out(plan, true, 1, keep_looks=True)
    result = controller.result()
    assert result is not None
    decisions = {(decision.model, decision.part): decision for decision in result.gates}
    assert sorted(decisions) == [(model, part) for model in (1, 2) for part in (0, 1, 2)]
    assert decisions[1, 1].call == -1 and all(decisions[2, part].call == 1 for part in (0, 1, 2))
    assert {comparison.verdict.first: comparison.verdict.second for comparison in result.comparisons} == {0: 1, 2: 0}
    scores = controller.counts[..., 1] / controller.counts.sum(axis=-1)
    for (model, part), decision in decisions.items():
        part_scores = scores[:, part - 1 == BENCHMARK].mean(axis=1) if part else plan.bench.mean(scores)
        assert (decision.model_score.score, decision.baseline.score) == pytest.approx(
            (part_scores[model], part_scores[0])
        )
        assert decision.model_score.lowest == decision.model_score.score == decision.model_score.highest


@pytest.mark.slow
def test_a_longer_horizon_takes_up_a_gate_that_was_open() -> None:
    """Calls stand, and each part keeps the error guarantee of the rule."""
    first = Trials(min=4, max=10)
    true = chances(PRODUCTION, PRODUCTION)
    short = carry_out(gate(rule=Sequential(start=0.4), trials=first), true, 3, keep_looks=True)
    assert outcome(short) == "UNDECIDED"
    before = StageBefore(short, (0, 1))
    longer = carry_out(gate(rule=Sequential(start=0.4), trials=Trials(min=4, max=200), before=before), true, 3)
    assert outcome(longer) == "PASS"
    assert longer.extensions[0].leaves_error


def test_a_recorded_baseline_is_known_from_the_start() -> None:
    counts = np.zeros((2, len(BENCHMARK), 2))
    counts[0] = [12, 28]
    plan = Plan(
        Bench(
            2, len(BENCHMARK), BINARY, prior_counts=counts, recorded=frozenset({0}), benchmark_of=BENCHMARK,
            question_weights=(WEIGHT / np.array(SIZES))[BENCHMARK], gates=((0, 0.3), (1, 0.25)),
        ),
        objective=Gate(Margin(0, 0.2, (0.3, 0.25))),
        trials=Trials(min=4, max=80),
    )  # fmt: skip
    controller = carry_out(plan, chances((0.7, 0.7), (0.7, 0.7)), 2)
    assert outcome(controller) == "PASS"
    assert controller.trials[0] == 0
    assert outcome(carry_out(plan, chances((0.7, 0.7), (0.2, 0.7)), 2)) == "FAIL"


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"rule": ZScore()}, "p-values"),
        ({"judging": Judging(familywise=True)}, "share their error"),
        ({"coupled": True}, "seeds"),
        ({"objective": Ranking()}, "parts of a gate"),
        ({"objective": Gate(Margin(0, DELTA))}, "parts of a gate"),
    ],
)
def test_gates_without_an_error_guarantee_are_refused(changes: dict[str, object], problem: str) -> None:
    given: dict[str, object] = {"objective": Gate(Margin(0, DELTA, DELTAS))} | changes
    with pytest.raises(ValueError, match=problem):
        Plan(bench(), **given)  # type: ignore[arg-type]
