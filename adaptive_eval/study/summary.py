"""Summary of simulated runs for a forecast: costs, chances, and how close two models may be."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from scipy.optimize import isotonic_regression
from scipy.special import ndtri

from adaptive_eval import __version__
from adaptive_eval.config.prepare import PreparedRun
from adaptive_eval.core import Plan, Verdict
from adaptive_eval.core.evidence import Evidence
from adaptive_eval.core.judge import first_call
from adaptive_eval.core.rules import Correctable, Rule, tie_boundary
from adaptive_eval.core.settings import Margin
from adaptive_eval.core.types import NO_COST, Cost, PairVerdict
from adaptive_eval.exchange.recording import count_outcomes
from adaptive_eval.report.gate import FAIL, PASS, UNDECIDED
from adaptive_eval.study.fixed import fixed_held, fixed_seconds
from adaptive_eval.study.grading import paid_servers
from adaptive_eval.study.pilot import Pilot
from adaptive_eval.study.scenario import Scenario
from adaptive_eval.study.simulated import DECIDED, SimulatedRun, Simulations
from adaptive_eval.study.types import (
    FORMAT,
    Costs,
    Forecast,
    GradeCosts,
    Outlook,
    PartCosts,
    Range,
    SmallestDifferences,
    Undecided,
    median_range,
)
from scorio.moments import FloatArray, weighted
from scorio.sinf.compare import trial_variance

POWER = 0.80
"""The chance of calling a gap, or of certifying a tie."""


def smallest_differences(
    runs: Sequence[SimulatedRun], plan: Plan, chances: Sequence[FloatArray], stored: int = 0
) -> SmallestDifferences:
    """The smallest differences that these runs could detect; `chances` (L, M, K) of the worlds are for delta. So many
    trials are `stored` before they begin."""
    compared = [
        (gap, pair.verdict == Verdict.RESOLVED)
        for run in runs
        for pair, gap in zip(run.comparisons, run.gaps, strict=True)
    ]
    if not compared or not plan.objective.compares:
        return SmallestDifferences(None, None, None)
    gaps, called = np.array(compared, dtype=float).T
    trials = affordable_trials(plan, runs, stored)
    deltas = [smallest_certified_delta(plan, world, trials) for world in chances]
    return SmallestDifferences(smallest_gap(gaps, called), float(gaps.max()), float(np.median(deltas)))


def smallest_gap(gaps: FloatArray, called: FloatArray) -> float | None:
    """The gap from which at least 80% are called, by isotonic regression of calls on gaps; None if there is none.

    Larger gaps are called more often, so the rising step function closest to the calls is used (Barlow et al. 1972).
    """
    order = np.argsort(gaps, kind="stable")
    chance = isotonic_regression(called[order]).x
    first = int(np.searchsorted(chance, POWER))
    return float(gaps[order][first]) if first < len(order) else None


def affordable_trials(plan: Plan, runs: Sequence[SimulatedRun], stored: int) -> float:
    """Trials per question that the caps allow every model if they are spread evenly, at the mean cost of a trial in
    these runs. Time was taken by new trials alone, and is capped at what the `stored` ones have left of it."""
    budget, trials, begun = plan.budget, sum(run.trials for run in runs), stored * len(runs)
    costs: dict[str, tuple[float, int]] = {
        "trials": (float(trials), 0),
        "tokens": (sum(run.tokens for run in runs), 0),
        "usd": (sum(run.usd for run in runs), 0),
        "gpu_seconds": (sum(run.gpu_seconds for run in runs), 0),
        "wall_seconds": (sum(run.seconds for run in runs), begun),
        "held_gpu_seconds": (sum(run.gpu_seconds for run in runs), begun),
    }
    affordable = [
        (before + getattr(budget, cap) * len(runs) * (trials - before) / cost) / len(runs)
        for cap, (cost, before) in costs.items()
        if getattr(budget, cap) is not None and cost > 0.0
    ]
    each = min(affordable, default=np.inf) / (plan.bench.asked.sum() * plan.bench.questions)
    first = 0.0 if plan.source.by_question else plan.trials.min  # drawn questions: of a share of them
    return float(np.clip(each, first, plan.trials.max))


def smallest_certified_delta(plan: Plan, chances: FloatArray, trials: float) -> float:
    """The delta within which two equal models are certified as tied in 80% of runs, with so many trials per question.

    A tie is certified if |d| + b s <= delta, and d of two equals is about N(0, s^2), so delta = (b + 1.28) s; s is that
    of the median pair of the world (L, M, K), and b the boundary, after these trials of every model.
    """
    bench = plan.bench
    v = weighted(trial_variance(chances, bench.weights), bench.question_weights, 2)
    one_trial = v.mean(axis=1) / bench.questions
    if plan.objective.reference is None:
        first, second = np.triu_indices(len(one_trial), 1)
        one_trial = one_trial[first] + one_trial[second]
    if plan.source.by_question:  # plus the variance between questions
        together = np.cov(chances @ bench.weights) / bench.questions
        alone = np.diag(together)
        one_trial = one_trial + alone[first] + alone[second] - 2.0 * together[first, second]
    sigma = float(np.sqrt(np.median(one_trial) / trials))
    rule, equals, gated = _rule(plan), _equals(sigma, trials / plan.trials.max), plan.objective.margin is not None
    bound = float((rule.boundary(equals) if gated else tie_boundary(rule, equals))[0])
    # a gate is one-sided: an equal build passes unless it seems worse
    return (bound + float(ndtri(POWER if gated else (1.0 + POWER) / 2.0))) * sigma


def _rule(plan: Plan) -> Rule:
    """The rule at the error level of a first call."""
    rule = plan.deciding_rule
    if plan.judging.familywise and isinstance(rule, Correctable):
        return first_call(plan.objective, plan.bench.models, rule)
    return rule


def _equals(sigma: float, information: float) -> Evidence:
    """Evidence on two equal models."""
    zero = np.zeros(1)
    return Evidence(
        models=2,
        against_reference=False,
        first=np.array([0]),
        second=np.array([1]),
        difference=zero,
        sigma=np.array([sigma]),
        z=zero,
        information=np.array([information]),
    )


MAX_UNDECIDED = 10
HOUR = 3600.0


def summarise(
    prepared: PreparedRun,
    scenario: Scenario,
    pilot: Pilot | None,
    worlds: Sequence[FloatArray],
    simulated: Simulations,
    basis: Sequence[str],
    grade: Cost,
) -> Forecast:
    """Summarise the forecast; `grade` is the cost of grading one answer."""
    bench, worlds = prepared.plan.bench, worlds[: simulated.worlds]
    truth = np.array([bench.mean(world @ bench.weights) for world in worlds])
    within = [run.within(simulated.configured) for run in simulated.runs[simulated.configured]]
    equal = [run.within(simulated.configured) for run in simulated.equal]
    has_look = any(run.comparisons for run in within)
    plan = scenario.plan(simulated.configured)
    gaps = -np.diff(-np.sort(-truth, axis=1), axis=1).ravel()
    known_costs, margin = _known_costs(scenario, prepared), prepared.plan.objective.margin
    fixed = _fixed(scenario, worlds, prepared.plan.trials.max, known_costs)
    alone = fixed["seconds"]
    return Forecast(
        format=FORMAT,
        name=prepared.config.name,
        version=__version__,
        worlds=len(worlds),
        seed=scenario.seed,
        pilot=None if pilot is None else pilot.header.name,
        basis=tuple(basis),
        decisions=prepared.config.stated(),
        models=prepared.models,
        scores=tuple(median_range(column) for column in truth.T),
        gap=median_range(gaps) if len(gaps) else Range(0.0, 0.0, 0.0),
        equal=_outlook(equal, scenario, known_costs, margin) if equal else None,
        need=_outlook(simulated.runs[simulated.need], scenario, known_costs, margin),
        capped=None if simulated.capped is None else _outlook(within, scenario, known_costs, margin),
        spent=_spent(scenario, known_costs),
        grading=_grade_costs(within, grade, known_costs),
        fixed=fixed,
        times_as_long=float(np.nanmedian([run.seconds for run in within])) / alone if alone and has_look else None,
        undecided=_undecided(within, scenario.names),
        limits=smallest_differences(within, plan, worlds, _stored_trials(scenario)),
    )


def _outlook(
    runs: Sequence[SimulatedRun], scenario: Scenario, known_costs: Mapping[str, bool], margin: Margin | None
) -> Outlook:
    ended = Counter(run.reason for run in runs)
    return Outlook(
        costs=_costs(runs, scenario, known_costs),
        reached=float(np.mean([run.reached for run in runs])),
        decided=median_range([run.decided for run in runs]),
        comparisons=max(len(run.comparisons) for run in runs),
        ended={reason: times / len(runs) for reason, times in ended.most_common()},
        gate={} if margin is None or margin.baseline is None else _gate(runs, margin),
    )


def _gate(runs: Sequence[SimulatedRun], margin: Margin) -> dict[str, float]:
    """The share of each outcome of a gate, over all models and runs."""
    called = [
        UNDECIDED
        if comparison.verdict != Verdict.RESOLVED
        else FAIL
        if comparison.winner in (None, margin.baseline)
        else PASS
        for run in runs
        for comparison in run.comparisons
    ]
    return {outcome: called.count(outcome) / max(len(called), 1) for outcome in (PASS, FAIL, UNDECIDED)}


def _known_costs(scenario: Scenario, prepared: PreparedRun) -> dict[str, bool]:
    """Whether tokens, usd, gpu_hours and seconds are known from the configuration and the usage, by name."""
    usage = scenario.served.usage
    paid = {
        attribute: any(getattr(server, attribute) is not None for server in paid_servers(prepared.config))
        for attribute in ("price", "gpus")
    }
    reports = any(model.command is not None for model in prepared.config.asked)
    return {
        "tokens": usage.knows_tokens,
        "usd": (usage.knows_tokens and paid["price"]) or (bool(np.any(usage.usd)) and reports),
        "gpu_hours": usage.knows_seconds and paid["gpus"],
        "seconds": usage.knows_seconds,
    }


def _part_costs(
    known_costs: Mapping[str, bool], tokens: float, usd: float, gpu_seconds: float
) -> dict[str, float | None]:
    """Costs of a part of the run by their names in the format; None if unknown."""
    costs = {"tokens": tokens, "usd": usd, "gpu_hours": gpu_seconds / HOUR}
    return {name: cost if known_costs[name] else None for name, cost in costs.items()}


def _range(is_known: bool, values: Iterable[float]) -> Range | None:
    """The range of a cost over the runs for which it was computed: not every run was timed."""
    return median_range([value for value in values if not np.isnan(value)]) if is_known else None


def _costs(runs: Sequence[SimulatedRun], scenario: Scenario, known_costs: Mapping[str, bool]) -> Costs:
    return Costs(
        trials=median_range([run.trials for run in runs]),
        tokens=_range(known_costs["tokens"], (run.tokens for run in runs)),
        usd=_range(known_costs["usd"], (run.usd for run in runs)),
        gpu_hours=_range(known_costs["gpu_hours"], ((scenario.held_before + run.gpu_seconds) / HOUR for run in runs)),
        seconds=_range(known_costs["seconds"], (scenario.elapsed + run.seconds for run in runs)),
    )


def _spent(scenario: Scenario, known_costs: Mapping[str, bool]) -> PartCosts | None:
    recorded = scenario.served.recorded
    if recorded is None:
        return None
    counts = count_outcomes(recorded, scenario.bench.categories).sum(axis=1)
    tokens, usd, gpu_seconds = scenario.served.price(counts)
    costs = _part_costs(known_costs, tokens, usd, gpu_seconds + scenario.held_before)
    return PartCosts(_stored_trials(scenario), **costs, seconds=scenario.elapsed)


def _stored_trials(scenario: Scenario) -> int:
    recorded = scenario.served.recorded
    return 0 if recorded is None else int((recorded >= 0).sum())


def _grade_costs(runs: Sequence[SimulatedRun], grade: Cost, known_costs: Mapping[str, bool]) -> GradeCosts | None:
    """Cost of grading all answers of the runs; None if it costs nothing."""
    if grade == NO_COST:
        return None
    grade_costs = _part_costs(known_costs, grade.tokens, grade.usd, grade.gpu_seconds)
    ranges = {
        name: cost if cost is None else median_range([run.trials * cost for run in runs])
        for name, cost in grade_costs.items()
    }
    return GradeCosts(**ranges)


def _fixed(
    scenario: Scenario, worlds: Sequence[FloatArray], max_trials: int, known_costs: Mapping[str, bool]
) -> dict[str, float | None]:
    """The maximum of trials, `max_trials`, for every model, averaged over the worlds."""
    counts = max_trials * np.mean([world.sum(axis=1) for world in worlds], axis=0) * scenario.bench.asked[:, None]
    tokens, usd, gpu_seconds = scenario.served.price(counts)
    return {
        "trials": float(max_trials * scenario.bench.asked.sum() * scenario.bench.questions),
        **_part_costs(known_costs, tokens, usd, gpu_seconds + fixed_held(scenario, counts)),
        "seconds": fixed_seconds(scenario, counts),
    }


def _undecided(runs: Sequence[SimulatedRun], names: Sequence[str]) -> tuple[Undecided, ...]:
    """The comparisons most often left undecided."""
    by_pair: dict[frozenset[int | None], list[tuple[PairVerdict, float]]] = {}
    for run in runs:
        for pair, gap in zip(run.comparisons, run.gaps, strict=True):
            if pair.verdict not in DECIDED:
                by_pair.setdefault(frozenset((pair.first, pair.second)), []).append((pair, gap))
    likeliest = sorted(by_pair.values(), key=lambda ends: -len(ends))[:MAX_UNDECIDED]
    return tuple(_undecided_pair(ends, names, len(runs)) for ends in likeliest)


def _undecided_pair(ends: Sequence[tuple[PairVerdict, float]], names: Sequence[str], runs: int) -> Undecided:
    (first, second), _ = Counter((pair.first, pair.second) for pair, _ in ends).most_common(1)[0]
    needed, gap = np.median([(pair.trials_needed, gap) for pair, gap in ends], axis=0).tolist()
    return Undecided(
        first=names[first],
        second=None if second is None else names[second],
        chance=len(ends) / runs,
        gap=gap if np.isfinite(gap) else None,
        trials_needed=needed if np.isfinite(needed) else None,
    )
