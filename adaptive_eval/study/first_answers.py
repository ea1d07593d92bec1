"""Answers that come before the run itself, in a forecast: greedy ones of every model, or those of the opponent.

What greedy answers say of the models is not known before, so simulated runs begin without it; what is asked first takes
of the caps.
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
from adaptive_eval.store import OpponentAnswered
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
    """The answers before the first round: of a run that is to begin, or of one that has `begun` and is itself the
    pilot."""
    if beginning.prepared.config.opponent is None:
        return _greedy_answers(beginning, scenario, worlds)
    return _opponent_answers(beginning, scenario, worlds, pilot, begun=begun)


def _greedy_answers(beginning: StartingPoint, scenario: Scenario, worlds: Sequence[FloatArray]) -> AnswersBefore:
    """Stored answers at their cost; the others cost what trials cost, in the mean over the worlds."""
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
    """Stored answers at their cost; the others are like those of the pilot's opponent, or of its models, or guessed."""
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
    used = (
        price_counts(counts, costs)
        if seen is None or seen.model != opponent.name
        else _scaled_opponent_cost(seen, number)
    )
    seconds = fixed_seconds(replace(scenario, served=alone), counts) or 0.0
    return AnswersBefore(number, *used, seconds, opponent=opponent.name)


def _scaled_opponent_cost(seen: OpponentAnswered, number: int) -> tuple[float, float, float]:
    """Tokens, USD and GPU seconds of so many answers of a pilot's opponent."""
    tokens, usd, gpu_seconds = (one * number / max(seen.trials, 1) for one in stored_cost(seen))
    return tokens, usd, gpu_seconds


def _opponent_usage(
    opponent: ModelConfig, prepared: PreparedRun, scenario: Scenario, worlds: Sequence[FloatArray], pilot: Pilot | None
) -> AnswerUsage:
    """Usage of an answer of the opponent: the mean of the pilot's models, else by its own settings."""
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
    return with_batch_times((opponent,), found, seconds)


def describe_first_answers(before: AnswersBefore) -> Iterator[str]:
    """Assumptions about these answers, in a sentence."""
    if before == NOTHING_BEFORE:
        return
    tokens = f", {before.tokens:,.0f} tokens" if before.tokens else ""
    time = f", {duration(before.to_come)}" if before.to_come else ""
    told = f"{before.trials:,} trials{tokens}{time}, which all figures of the run contain"
    if before.opponent is None:
        yield f"greedy answers come first: {told}; what they will say of the models is not known yet, and is left out"
    else:
        yield f"answers of {before.opponent}, with which all others are compared, come first: {told}"
