"""Answers given before the run itself, in a forecast: greedy ones of every model, or those of the opponent.

What greedy answers will show is unknown, so simulated runs start without it; their cost counts against the caps.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from adaptive_eval.config.opponent import opponent_trials
from adaptive_eval.config.prepare import PreparedRun, prompts_of
from adaptive_eval.config.run import ModelConfig
from adaptive_eval.core.plan import SpentBefore
from adaptive_eval.record.lines import duration
from adaptive_eval.record.starting_point import StartingPoint
from adaptive_eval.store.spending import stored_cost
from adaptive_eval.study.fixed import fixed_seconds
from adaptive_eval.study.pilot import (
    AnswerUsage,
    Pilot,
    batch_seconds,
    cost_table,
    guess,
    request_slots,
    with_batch_times,
)
from adaptive_eval.study.scenario import NOTHING_BEFORE, AnswersBefore, Scenario, ServiceCosts
from adaptive_eval.study.simulated import price_counts
from scorio.moments import FloatArray


def answers_before(
    beginning: StartingPoint, scenario: Scenario, worlds: Sequence[FloatArray], pilot: Pilot | None, *, begun: bool
) -> AnswersBefore:
    """The answers before the first round, of a run to begin or of one that has `begun` and is its own pilot."""
    if beginning.prepared.config.opponent is None:
        return _greedy_answers(beginning, scenario, worlds)
    return _opponent_answers(beginning, scenario, worlds, pilot, begun=begun)


def _greedy_answers(beginning: StartingPoint, scenario: Scenario, worlds: Sequence[FloatArray]) -> AnswersBefore:
    """Stored answers at their cost; the others cost as much as trials, on average over the worlds."""
    there = beginning.prepared.plan.spent_first
    trials, cost = there
    if beginning.with_prior is None:
        return AnswersBefore(trials, *cost, there=there)
    kept = set() if beginning.kept is None else set(beginning.kept.outcomes)
    lacking = scenario.bench.asked & np.array([name not in kept for name in scenario.names])
    counts = np.mean([world.sum(axis=1) for world in worlds], axis=0) * lacking[:, None]
    tokens, usd, gpu_seconds = price_counts(counts, scenario.served.costs)
    afresh = replace(scenario, served=scenario.served._replace(recorded=None))
    return AnswersBefore(
        trials + int(lacking.sum()) * scenario.bench.questions,
        cost.tokens + tokens,
        cost.usd + usd,
        cost.gpu_seconds + gpu_seconds,
        fixed_seconds(afresh, counts) or 0.0,
        there=there,
    )


def _opponent_answers(
    beginning: StartingPoint, scenario: Scenario, worlds: Sequence[FloatArray], pilot: Pilot | None, *, begun: bool
) -> AnswersBefore:
    """Stored answers at their cost; the others as for the pilot's opponent, else for its models, else by a guess."""
    prepared = beginning.prepared
    opponent, seen = prepared.config.opponent, None if pilot is None else pilot.opponent
    assert opponent is not None
    if begun and not beginning.lacks_opponent and seen is not None:
        there = SpentBefore(seen.trials, stored_cost(seen))
        return AnswersBefore(seen.trials, *there.cost, there=there, opponent=opponent.name)
    usage = _opponent_usage(opponent, prepared, scenario, worlds, pilot)
    number = opponent_trials(prepared.config) * len(prepared.questions)
    counts, costs = np.array([[float(number)]]), cost_table((opponent,), usage)
    alone = ServiceCosts(usage, costs, (request_slots(opponent, number),))
    tokens, usd, gpu_seconds = price_counts(counts, costs)
    if seen is not None and seen.model == opponent.name:
        tokens, usd, gpu_seconds = (one * number / max(seen.trials, 1) for one in stored_cost(seen))
    seconds = fixed_seconds(replace(scenario, served=alone), counts) or 0.0
    return AnswersBefore(number, tokens, usd, gpu_seconds, seconds, opponent=opponent.name)


def _opponent_usage(
    opponent: ModelConfig, prepared: PreparedRun, scenario: Scenario, worlds: Sequence[FloatArray], pilot: Pilot | None
) -> AnswerUsage:
    """Usage of an opponent's answer: the mean of the pilot's models, else a guess by its own settings."""
    alone = prepared.config.model_copy(update={"models": (opponent,)})
    found = guess((opponent,), prompts_of(alone, prepared.questions), np.ones(1))
    if pilot is not None:
        shares, used = np.mean([world.mean(axis=1) for world in worlds], axis=0), scenario.served.usage
        means = {
            name: np.array([[float((shares * getattr(used, name)).sum(axis=1).mean())]])
            for name in ("prompt_tokens", "completion_tokens", "seconds")
        }
        found = replace(found, **means)
    seconds, _ = batch_seconds((opponent,), {} if pilot is None else pilot.batches)
    return with_batch_times(found, seconds)


def describe_first_answers(before: AnswersBefore) -> Iterator[str]:
    """A sentence on the assumptions about these answers."""
    if before == NOTHING_BEFORE:
        return
    tokens = f", {before.tokens:,.0f} tokens" if before.tokens else ""
    time = f", {duration(before.to_come)}" if before.to_come else ""
    told = f"{before.trials:,} trials{tokens}{time}, which all figures of the run contain"
    if before.opponent is None:
        yield f"greedy answers come first: {told}; what they will say of the models is not known yet, and is left out"
    else:
        yield f"answers of {before.opponent}, with which all others are compared, come first: {told}"
