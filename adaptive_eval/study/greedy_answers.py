"""The cost of a run's greedy answers in a forecast. Their outcomes are unknown, and not simulated."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from adaptive_eval.record.lines import duration
from adaptive_eval.record.starting_point import StartingPoint
from adaptive_eval.study.fixed import fixed_held, fixed_seconds
from adaptive_eval.study.scenario import NOTHING_BEFORE, AnswersBefore, Scenario
from scorio.moments import FloatArray


def greedy_answers(beginning: StartingPoint, scenario: Scenario, worlds: Sequence[FloatArray]) -> AnswersBefore:
    """Stored answers at their cost; the others cost as much as trials, on average over the worlds."""
    there = beginning.prepared.plan.spent_first
    trials, cost = there
    if beginning.with_prior is None:
        return AnswersBefore(trials, *cost, there=there)
    kept = set() if beginning.kept is None else set(beginning.kept.outcomes)
    lacking = scenario.bench.asked & np.array([name not in kept for name in scenario.names])
    counts = np.mean([world.sum(axis=1) for world in worlds], axis=0) * lacking[:, None]
    tokens, usd, gpu_seconds = scenario.served.price(counts)
    afresh = replace(scenario, served=scenario.served._replace(recorded=None))
    return AnswersBefore(
        trials + int(lacking.sum()) * scenario.bench.questions,
        cost.tokens + tokens,
        cost.usd + usd,
        cost.gpu_seconds + gpu_seconds + fixed_held(scenario, counts),
        fixed_seconds(afresh, counts) or 0.0,
        there=there,
    )


def describe_greedy_answers(before: AnswersBefore) -> Iterator[str]:
    """A sentence on the assumed cost of these answers."""
    if before == NOTHING_BEFORE:
        return
    tokens = f", {before.tokens:,.0f} tokens" if before.tokens else ""
    time = f", {duration(before.to_come)}" if before.to_come else ""
    told = f"{before.trials:,} trials{tokens}{time}, which all figures of the run contain"
    yield f"greedy answers come first: {told}; their outcomes are unknown, and not simulated"
