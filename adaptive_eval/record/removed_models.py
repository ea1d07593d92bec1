"""What a run has spent on models that its configuration names no more, and before any was asked.

Caps are on the whole run, and count it, too.
"""

from collections.abc import Container, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from adaptive_eval.config.planning import longest_prompts, lost_cost, worst_costs, worst_verdict
from adaptive_eval.config.prepare import prompts_of, setup_of
from adaptive_eval.core.types import NO_COST, Cost
from adaptive_eval.scheduler.ledger import cost_of, spent_on_baseline
from adaptive_eval.store import AnswersLost, Event, RunBegun, RunReader, ServerLaunched, events_of_kind


class RemovedModelsSpending(NamedTuple):
    """All of it."""

    trials: int = 0
    cost: Cost = NO_COST
    gpu_seconds: float = 0.0
    """What a cap on GPU time counts: for how long servers were held that the run started, of others the requests."""


def spent_on_removed_models(
    reader: RunReader, models: Container[str], events: Sequence[Event]
) -> RemovedModelsSpending:
    """What was spent on all models but these, and on a verifier's baseline; lost answers count at their worst.

    `events` are all that the run has.
    """
    baseline = spent_on_baseline(events)
    removed = [name for name in reader.ids("models", "name") if name not in models]
    if not removed:
        return RemovedModelsSpending(0, baseline, baseline.gpu_seconds)
    held = reader.held() or {}
    launched = {event.model for event in events_of_kind(events, ServerLaunched)}
    trials, total, gpu_seconds = 0, baseline, baseline.gpu_seconds
    for name in removed:
        stored = [one for one in reader.sums() if one.model == name]
        cost = NO_COST
        for more in [*(Cost(one.tokens, one.usd, one.gpu_seconds) for one in stored), *_lost(reader, events, name)]:
            cost = cost.plus(more)
        trials, total = trials + sum(one.trials for one in stored), total.plus(cost)
        gpu_seconds += held[name].gpu_seconds if name in launched and name in held else cost.gpu_seconds
    return RemovedModelsSpending(trials, total, gpu_seconds)


def _lost(reader: RunReader, events: Sequence[Event], model: str) -> Iterator[Cost]:
    """Its answers that are known to be lost, and those that were on their way when it was asked last."""
    yield from (cost_of(event) for event in events_of_kind(events, AnswersLost) if event.model == model)
    if count := reader.in_flight().get(model, 0):
        worst = _at_worst(reader, events, model)
        yield Cost(count * worst.tokens, count * worst.usd, count * worst.gpu_seconds)


def _at_worst(reader: RunReader, events: Sequence[Event], model: str) -> Cost:
    """What an answer may have cost by the last configuration that named the model."""
    header = reader.header()
    for body in reversed(reader.configurations()):
        config, questions, *_ = setup_of(replace(header, configuration=body))
        for one in config.models:
            if one.name == model:
                kept = [sizes[model] for sizes in _kept(events) if model in sizes]
                alone = config.model_copy(update={"models": [one]})
                size = kept[-1] if kept else longest_prompts(prompts_of(alone, questions))[0]
                (worst,) = worst_costs([one], [size], worst_verdict(config, questions))
                return lost_cost(one, worst)
    return NO_COST


def _kept(events: Sequence[Event]) -> Iterator[dict[str, int]]:
    """The longest prompts, by model, as every start has kept them."""
    return (dict(event.longest_prompts or {}) for event in events_of_kind(events, RunBegun))
