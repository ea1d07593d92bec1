"""Spending of a run of the old store on models that it has left behind, and on what belongs to no model."""

from collections.abc import Container, Iterator, Sequence
from dataclasses import replace
from functools import reduce

from adaptive_eval.config.planning import core_caps, lost_cost
from adaptive_eval.config.prepare import stored_setup
from adaptive_eval.core.plan import SpentBefore
from adaptive_eval.core.types import NO_COST, Cost
from adaptive_eval.report.old.history import stored_worst_costs
from adaptive_eval.report.results import OtherCostRow
from adaptive_eval.store import AnswersLost, Event, RunReader, ServerLaunched, ServerLaunching, events_of_kind
from adaptive_eval.store.spending import (
    lost_costs,
    mean_cost,
    spent_on_baseline,
    spent_on_unused,
    stored_cost,
    total_cost,
)


def spent_on_removed_models(
    reader: RunReader, models: Container[str], events: Sequence[Event]
) -> tuple[OtherCostRow, ...]:
    """Spending on all other models than these, and what belongs to no model; `events` are all of the run."""
    rows = list(_rows_without_model(events))
    removed = [name for name in reader.ids("models", "name") if name not in models]
    if removed:
        sums, held = reader.sums(), reader.held_times()
        launched = {event.model for event in events if isinstance(event, ServerLaunching | ServerLaunched)}
        for name in removed:
            stored = [one for one in sums if one.model == name]
            cost = reduce(Cost.plus, _lost_costs(reader, events, name), total_cost(stored))
            time = held.get(name)
            counted = time.gpu_seconds if name in launched and time is not None else cost.gpu_seconds
            lost = sum(one.answers for one in events_of_kind(events, AnswersLost) if one.model == name)
            lost += reader.in_flight().get(name, 0)
            trials, server = sum(one.trials for one in stored), (None, None) if time is None else time[:2]
            rows.append(OtherCostRow("left", name, trials, *cost, counted, lost, *server))
    return tuple(rows)


def _rows_without_model(events: Sequence[Event]) -> Iterator[OtherCostRow]:
    """Spending that belongs to no model."""
    for what, spent in (("baseline", spent_on_baseline(events)), ("regrade", spent_on_unused(events))):
        if spent != NO_COST:
            yield OtherCostRow(what, None, 0, *spent, spent.gpu_seconds)


def _lost_costs(reader: RunReader, events: Sequence[Event], model: str) -> Iterator[Cost]:
    """Costs of a model's answers that were lost, or in flight at the end."""
    yield from (stored_cost(event) for event in events_of_kind(events, AnswersLost) if event.model == model)
    if count := reader.in_flight().get(model, 0):
        yield _lost_cost(reader, events, model).times(count)


def _lost_cost(reader: RunReader, events: Sequence[Event], model: str) -> Cost:
    """The cost of a lost answer: at its worst if a cap counted it, else the mean of those that came."""
    header = reader.header()
    for body in reversed(reader.configurations()):
        setup = stored_setup(replace(header, configuration=body))
        for number, one in enumerate(setup.config.models):
            if one.name == model and core_caps(setup.config.budget).bought:
                return lost_costs(reader, {model: lost_cost(one, stored_worst_costs(setup, events)[number])})[model]
            if one.name == model:
                return mean_cost(model, [(row.model, row) for row in reader.sums()], reader.grading_uses())
    return NO_COST


def spent_before(removed: Sequence[OtherCostRow]) -> SpentBefore:
    """Number of stored answers and the total cost of these rows."""
    return SpentBefore(sum(row.trials for row in removed), total_cost(removed))
