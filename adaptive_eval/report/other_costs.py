"""Spending of a run besides the stored answers of its current models, and in words.

That is spending on models that the configuration no longer names, on answers that never came or were discarded after an
alarm, on a verifier before any answer, and on verdicts of an unfinished `regrade`.
Caps apply to the whole run, and count it too.
"""

from collections.abc import Container, Iterator, Sequence
from dataclasses import replace
from functools import reduce

from adaptive_eval.config.planning import core_caps, lost_cost
from adaptive_eval.config.prepare import stored_setup
from adaptive_eval.core.plan import SpentBefore
from adaptive_eval.core.types import NO_COST, Cost
from adaptive_eval.report.lines import safe_name
from adaptive_eval.report.old.history import stored_worst_costs
from adaptive_eval.report.results import OtherCostRow
from adaptive_eval.store import (
    AnswersLost,
    Event,
    RunReader,
    ServerLaunched,
    ServerLaunching,
    events_of_kind,
)
from adaptive_eval.store.roster import Names
from adaptive_eval.store.spending import (
    HeldServers,
    cost_by_model,
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


def spent_before(removed: Sequence[OtherCostRow]) -> SpentBefore:
    """Number of stored answers and the total cost of these rows."""
    return SpentBefore(sum(row.trials for row in removed), total_cost(removed))


def other_costs(
    removed: Sequence[OtherCostRow], models: Names, as_held: Container[int], events: Sequence[Event]
) -> tuple[OtherCostRow, ...]:
    """Spending that caps count besides the stored answers of these models; time of models that count `as_held` is not
    added again."""
    lost, rows = events_of_kind(events, AnswersLost), []
    failed = [event for event in lost if event.failed]
    discarded = [event for event in lost if event.discarded]
    never = [event for event in lost if not event.failed and not event.discarded]
    answers = [event for event in never if event.answers or not event.verdicts]
    verdicts = [event for event in lost if not event.answers and event.verdicts]
    for what, some in (("lost", answers), ("failed", failed), ("discarded", discarded), ("lost_verdicts", verdicts)):
        for model, cost in sorted(cost_by_model(some, models).items()):
            name, counted = models[model], 0.0 if model in as_held else cost.gpu_seconds
            asked = sum(event.answers for event in some if event.model == name)
            rows.append(OtherCostRow(what, name, 0, *cost, counted, asked))
    return (*removed, *rows)


def counted_gpu_seconds(servers: HeldServers, stored: Sequence[float], beside: Sequence[OtherCostRow]) -> float:
    """GPU seconds under a cap: of held servers or of stored answers, plus all other spending."""
    return servers.gpu_seconds(stored) + sum(row.counted_gpu_seconds for row in beside)


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


LONGEST_NAME = 32
PURPOSES = {
    "left": "{}, which the run has no more",
    "lost": "answers of {} that never came",
    "failed": "answers of {} that failed in a task",
    "discarded": "answers of {} that were discarded after an alarm",
    "lost_verdicts": "verdicts on answers of {} that never came",
    "regrade": "verdicts of a regrade that did not come to its end",
    "baseline": "the verifier before any answer",
}
"""What each kind of spending was for; {} are the models."""
SUMMED_KINDS = ("lost", "failed", "discarded", "lost_verdicts")
"""Kinds of spending that are summed over all models."""
SUMMED_FIELDS = ("trials", "answers", "tokens", "usd", "gpu_seconds", "counted_gpu_seconds")


def summarize_other_costs(rows: Sequence[OtherCostRow]) -> tuple[OtherCostRow, ...]:
    """Rows for people: `what` is the purpose in words, and each of `SUMMED_KINDS` is summed into one row."""
    groups: dict[str | int, list[OtherCostRow]] = {}
    for number, row in enumerate(rows):
        groups.setdefault(row.what if row.what in SUMMED_KINDS else number, []).append(row)
    return tuple(map(_sum_group, groups.values()))


def _sum_group(group: Sequence[OtherCostRow]) -> OtherCostRow:
    first, *others = group
    subject = f"{len(group)} models" if others else safe_name(first.model or "", LONGEST_NAME)
    sums = {name: sum(getattr(row, name) for row in group) for name in SUMMED_FIELDS}
    return replace(
        first,
        what=PURPOSES.get(first.what, PURPOSES["baseline"]).format(subject),
        model=None if others else first.model,
        **sums,
    )
