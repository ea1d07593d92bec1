"""The cost of a run, from its stored trials and events and the times for which servers were held."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import reduce
from typing import NamedTuple, Protocol, TypeVar

from adaptive_eval.core.account import trial_reserve
from adaptive_eval.core.types import NO_COST, Cost
from adaptive_eval.notes import events_of_kind
from adaptive_eval.notes.answers import AnswersLost
from adaptive_eval.notes.event import Event
from adaptive_eval.notes.grading import BaselineAsked, VerdictsAsked
from adaptive_eval.store.reader import RunReader
from adaptive_eval.store.records import GradingUse, HeldTime
from adaptive_eval.store.roster import Names

K = TypeVar("K", int, str)


class HasCost(Protocol):
    """An event or a row of sums with its cost."""

    @property
    def tokens(self) -> int: ...
    @property
    def usd(self) -> float: ...
    @property
    def gpu_seconds(self) -> float: ...


class HasSums(HasCost, Protocol):
    """Sums over trials."""

    @property
    def trials(self) -> int: ...


def stored_cost(spent: HasCost) -> Cost:
    """The cost of an event or of a row of sums."""
    return Cost(spent.tokens, spent.usd, spent.gpu_seconds)


def total_cost(spent: Iterable[HasCost]) -> Cost:
    """The sum of these costs."""
    return reduce(Cost.plus, map(stored_cost, spent), NO_COST)


def spent_on_baseline(events: Sequence[Event]) -> Cost:
    """Cost of a verifier's baseline: its label scores without content."""
    return total_cost(events_of_kind(events, BaselineAsked))


def spent_on_unused(events: Sequence[Event]) -> Cost:
    """Cost of the verdicts of an unfinished `regrade`, which change no grade."""
    spent = total_cost(events_of_kind(events, VerdictsAsked))
    return spent if spent.tokens else NO_COST  # without tokens, the rest is a rounding error


def lost_costs(reader: RunReader, worst: Mapping[str, Cost]) -> Mapping[str, Cost]:
    """The cost that counts for a lost answer, by model: the `worst` case, or the largest stored one if unbounded."""
    if not any(cost.is_unbounded for cost in worst.values()):
        return worst
    largest = reader.largest_costs()
    return {model: trial_reserve(cost, largest.get(model, NO_COST)) for model, cost in worst.items()}


def mean_cost(model: K, sums: Sequence[tuple[K, HasSums]], grading: Mapping[K, GradingUse]) -> Cost:
    """The mean cost of a model's answers, without that of their grades, or of all models' answers if it has none.

    `sums` and `grading` are by model; the sums include the grading.
    """
    known = [(name, one) for name, one in sums if name == model and one.trials] or sums
    trials = sum(one.trials for _, one in known) or 1
    uses = [grading[name] for name in {name for name, _ in known} if name in grading]
    total = reduce(
        lambda cost, use: cost.plus(use.cost.plus(use.in_vain).times(-1)), uses, total_cost(one for _, one in known)
    )
    # a difference of 0 has a rounding error
    return Cost(round(total.tokens / trials), round(total.usd / trials, 12), round(total.gpu_seconds / trials, 12))


def in_flight_cost(reader: RunReader, worst: Mapping[str, Cost]) -> Cost:
    """The cost of all requests in flight if they were lost."""
    counts = reader.in_flight()
    each = lost_costs(reader, worst).items()
    return reduce(Cost.plus, (cost.times(counts.get(model, 0)) for model, cost in each), NO_COST)


def total_spent(reader: RunReader) -> Cost:
    """Cost of everything that was asked for.

    That is: stored answers with their verdicts, lost answers, a verifier's baseline, and verdicts of an unfinished
    `regrade`.
    """
    events = reader.events()
    total = total_cost([*reader.sums(), *events_of_kind(events, AnswersLost)])
    return total.plus(spent_on_baseline(events)).plus(spent_on_unused(events))


def cost_by_model(events: Sequence[AnswersLost], models: Names) -> dict[int, Cost]:
    """Total cost of these events by position of the model, without models that are not in `models`."""
    totals: dict[int, Cost] = {}
    for event in events:
        if event.model in models:
            model, more = models.position(event.model), stored_cost(event)
            totals[model] = totals.get(model, Cost()).plus(more)
    return totals


class HeldServers(NamedTuple):
    """How long each model's servers were held, None if none was, and the models whose servers the run launches.

    A cap on GPU time counts the time for which launched servers were held. For other servers it counts the requests.
    """

    times: Sequence[HeldTime | None]
    launched: Collection[int]

    @property
    def counted(self) -> frozenset[int]:
        """Models for which the held time counts."""
        return frozenset(model for model, one in enumerate(self.times) if model in self.launched and one is not None)

    def gpu_seconds(self, requests: Sequence[float]) -> float:
        """GPU seconds that a cap counts; `requests` has those of each model's requests, including lost ones."""
        counted = self.counted
        each = enumerate(zip(self.times, requests, strict=True))
        return sum(one.gpu_seconds if one is not None and model in counted else spent for model, (one, spent) in each)
