"""Spending of a run besides the stored answers of its current models, and in words.

That is spending on models that the configuration no longer names, on answers that never came or were discarded after an
alarm, on a verifier before any answer, and on verdicts of an unfinished `regrade`.
Caps apply to the whole run, and count it too.
"""

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import NamedTuple

from adaptive_eval.base.roster import Names
from adaptive_eval.core.types import NO_COST, Cost
from adaptive_eval.machine.charges import NO_MODEL
from adaptive_eval.machine.clocks import HeldTime
from adaptive_eval.machine.trial import RESERVED
from adaptive_eval.notes import AnswersLost, Event, ServerLaunched, ServerLaunching, events_of_kind
from adaptive_eval.report.lines import safe_name
from adaptive_eval.report.reader import RunReader
from adaptive_eval.report.records import Spending
from adaptive_eval.report.results import OtherCostRow
from adaptive_eval.store.read import AccountLine

HasCost = AnswersLost | Spending | Cost
"""An event, or sums, with its cost."""


def stored_cost(spent: HasCost) -> Cost:
    """The cost of an event or of a row of sums."""
    return Cost(spent.tokens, spent.usd, spent.gpu_seconds)


def total_cost(spent: Iterable[HasCost]) -> Cost:
    """The sum of these costs."""
    return reduce(Cost.plus, map(stored_cost, spent), NO_COST)


class HeldServers(NamedTuple):
    """Time for which each model held servers, None if it held none, and the models whose servers the run launches.

    A cap on GPU time counts the time for which launched servers were held. For other servers it counts the requests.
    """

    times: Sequence[HeldTime | None]
    launched: Collection[int]

    @property
    def counted(self) -> frozenset[int]:
        """Models for which the held time counts."""
        return frozenset(model for model, time in enumerate(self.times) if model in self.launched and time is not None)

    def gpu_seconds(self, requests: Sequence[float]) -> float:
        """GPU seconds that a cap counts; `requests` has those of each model's requests, including lost ones."""
        counted = self.counted
        models = enumerate(zip(self.times, requests, strict=True))
        return sum(
            time.gpu_seconds if time is not None and model in counted else spent for model, (time, spent) in models
        )


def extra_costs(
    reader: RunReader, models: Names, servers: HeldServers, events: Sequence[Event]
) -> tuple[OtherCostRow, ...]:
    """Spending that caps count besides the stored answers of these models."""
    names = reader.model_names
    removed = {number: name for number, name in names.items() if name not in models}
    launched = {event.model for event in events if isinstance(event, ServerLaunching | ServerLaunched)}
    rows = removed_model_costs(reader.log.account(removed), removed, reader.held_times(), launched)
    return other_costs(rows, models, servers.counted, events)


def removed_model_costs(
    account: Sequence[AccountLine],
    names: Mapping[int, str],
    held: Mapping[str, HeldTime],
    launched: Container[str],
) -> tuple[OtherCostRow, ...]:
    """Spending on models that the configuration no longer names, and what belongs to no model."""
    rows = []
    for number, name in sorted(names.items()):
        lines = [line for line in account if line.model == number]
        if not lines and name not in held:
            continue
        answers = [line for line in lines if line.state is not None and line.state is not RESERVED]
        cost = reduce(Cost.plus, (line.cost.plus(line.verdicts) for line in lines), NO_COST)
        if number == NO_MODEL:
            costs = {line.kind: line.cost.plus(line.verdicts) for line in lines}
            rows += [OtherCostRow(kind, None, 0, *cost, cost.gpu_seconds) for kind, cost in costs.items() if any(cost)]
            continue
        time, trials = held.get(name), sum(line.number for line in answers)
        counted = time.gpu_seconds if name in launched and time is not None else cost.gpu_seconds
        lost = sum(line.number for line in lines if line.state is None)
        rows.append(
            OtherCostRow("left", name, trials, *cost, counted, lost, *((None, None) if time is None else time[:2]))
        )
    return tuple(rows)


def other_costs(
    removed: Sequence[OtherCostRow], models: Names, as_held: Container[int], events: Sequence[Event]
) -> tuple[OtherCostRow, ...]:
    """Spending that caps count besides the stored answers of these models; time of models that count `as_held` is not
    added again."""
    lost, rows = events_of_kind(events, AnswersLost), []
    failed = [event for event in lost if event.failed and event.answers]  # for verdicts see `verdicts_in_vain`
    discarded = [event for event in lost if event.discarded]
    never = [event for event in lost if not event.failed and not event.discarded]
    answers = [event for event in never if event.answers or not event.verdicts]
    verdicts = [event for event in never if not event.answers and event.verdicts]
    for what, losses in (("lost", answers), ("failed", failed), ("discarded", discarded), ("lost_verdicts", verdicts)):
        for model, name in enumerate(models):
            if of_model := [event for event in losses if event.model == name]:
                cost, asked = total_cost(of_model), sum(event.answers for event in of_model)
                rows.append(OtherCostRow(what, name, 0, *cost, 0.0 if model in as_held else cost.gpu_seconds, asked))
    return (*removed, *rows)


def verdicts_in_vain(events: Sequence[Event]) -> list[AnswersLost]:
    """Verdicts that stored answers had before others: they are in the cost of these answers, and not besides it."""
    return [event for event in events_of_kind(events, AnswersLost) if event.failed and not event.answers]


def counted_gpu_seconds(servers: HeldServers, stored: Sequence[float], beside: Sequence[OtherCostRow]) -> float:
    """GPU seconds under a cap: of held servers or of stored answers, plus all other spending."""
    return servers.gpu_seconds(stored) + sum(row.counted_gpu_seconds for row in beside)


LONGEST_NAME = 32
PURPOSES = {
    "left": "{}, no longer in the run",
    "lost": "lost answers of {}",
    "failed": "failed attempts at answers of {}",
    "discarded": "answers of {} that were discarded after an alarm",
    "lost_verdicts": "lost verdicts on answers of {}",
    "regrade": "verdicts of an unfinished regrade",
    "baseline": "calibrating the verifier",
}
"""The purpose of each kind of spending; {} are the models."""
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
