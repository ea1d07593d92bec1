"""Cost of a run by what is stored: the events that tell of spending, their sums, and the time servers were held."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import reduce
from typing import NamedTuple, Protocol

from adaptive_eval.core.account import reserved_for
from adaptive_eval.core.types import NO_COST, Cost
from adaptive_eval.store.events import events_of_kind
from adaptive_eval.store.events.answers import AnswersLost, AnswersUnwanted
from adaptive_eval.store.events.beginnings import OpponentAnswered, PriorTaken
from adaptive_eval.store.events.event import Event
from adaptive_eval.store.events.grading import BaselineAsked, VerdictsAsked
from adaptive_eval.store.reader import RunReader
from adaptive_eval.store.records import HeldTime
from adaptive_eval.store.roster import Names


class HasCost(Protocol):
    """An event, or a row of sums, with what was spent on it."""

    @property
    def tokens(self) -> int: ...
    @property
    def usd(self) -> float: ...
    @property
    def gpu_seconds(self) -> float: ...


def stored_cost(spent: HasCost) -> Cost:
    """The cost of an event, or of a row of sums."""
    return Cost(spent.tokens, spent.usd, spent.gpu_seconds)


def total_cost(spent: Iterable[HasCost]) -> Cost:
    """The sum of these costs."""
    return reduce(Cost.plus, map(stored_cost, spent), NO_COST)


def spent_on_baseline(events: Sequence[Event]) -> Cost:
    """Cost of a verifier's label scores without content."""
    return total_cost(events_of_kind(events, BaselineAsked))


def spent_on_unused(events: Sequence[Event]) -> Cost:
    """Cost of the verdicts of an unfinished `regrade`, which change no grade."""
    spent = total_cost(events_of_kind(events, VerdictsAsked))
    return spent if spent.tokens else NO_COST  # else what rounding has left of all that was taken back


def spent_on_greedy(events: Sequence[Event]) -> PriorTaken | None:
    """The event with the cost of the greedy answers that became R0; None if there were none."""
    taken = [one for one in events_of_kind(events, PriorTaken) if one.greedy]
    return taken[-1] if taken else None


def spent_on_opponent(events: Sequence[Event]) -> OpponentAnswered | None:
    """The event with the cost of the opponent's answers; None if this run did not ask for them."""
    found = events_of_kind(events, OpponentAnswered)
    return found[-1] if found else None


def never_stored(events: Sequence[Event]) -> list[AnswersLost | AnswersUnwanted]:
    """Events of answers that cost something, or may have, and are not among the trials."""
    return [event for event in events if isinstance(event, AnswersLost | AnswersUnwanted)]


def lost_costs(reader: RunReader, worst: Mapping[str, Cost]) -> Mapping[str, Cost]:
    """The cost that counts for a lost answer of each model: the `worst` that it may be, or the largest stored one if
    nothing bounds that."""
    if not any(cost.is_unbounded for cost in worst.values()):
        return worst
    largest = reader.largest_costs()
    return {model: reserved_for(cost, largest.get(model, NO_COST)) for model, cost in worst.items()}


def entered_cost(reader: RunReader, worst: Mapping[str, Cost]) -> Cost:
    """The cost of all that is entered as sent, as if it was lost."""
    counts = reader.in_flight()
    each = lost_costs(reader, worst).items()
    return reduce(Cost.plus, (cost.times(counts.get(model, 0)) for model, cost in each), NO_COST)


def spent_in_all(reader: RunReader) -> Cost:
    """Cost of everything that was asked for.

    That is: stored answers with their verdicts, answers that were lost or not wanted, a verifier's baseline, what was
    asked first (greedy answers, the opponent's), and verdicts of an unfinished `regrade`.
    """
    events = reader.events()
    first = [one for one in (spent_on_greedy(events), spent_on_opponent(events)) if one is not None]
    total = total_cost([*reader.sums(), *never_stored(events), *first])
    return total.plus(spent_on_baseline(events)).plus(spent_on_unused(events))


def cost_by_model(events: Sequence[AnswersLost | AnswersUnwanted], models: Names) -> dict[int, Cost]:
    """Total cost of such events, by the position of the model; events of other models are left out."""
    totals: dict[int, Cost] = {}
    for event in events:
        if event.model in models:
            model, more = models.position_of(event.model), stored_cost(event)
            totals[model] = totals.get(model, Cost()).plus(more)
    return totals


class HeldServers(NamedTuple):
    """Time for which each model's servers were held, if known, and the models whose servers the run starts itself.

    A cap on GPU time counts the time for which servers of the latter were held. For all other servers it counts the
    requests, and so it does where the time is unknown, as in a run of an earlier version.
    """

    times: Sequence[HeldTime | None]
    launched: Collection[int]

    @property
    def counted(self) -> frozenset[int]:
        """Models for which the time counts that their servers were held."""
        return frozenset(model for model, one in enumerate(self.times) if model in self.launched and one is not None)

    def gpu_seconds(self, requests: Sequence[float]) -> float:
        """GPU seconds of these models under a cap; `requests` has those of each model's requests, lost ones too."""
        counted = self.counted
        each = enumerate(zip(self.times, requests, strict=True))
        return sum(one.gpu_seconds if one is not None and model in counted else spent for model, (one, spent) in each)
