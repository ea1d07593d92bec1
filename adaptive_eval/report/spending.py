"""The cost of a run, from its stored trials and events and the times for which servers were held."""

from collections.abc import Collection, Iterable, Sequence
from functools import reduce
from typing import NamedTuple, Protocol

from adaptive_eval.base.roster import Names
from adaptive_eval.core.types import NO_COST, Cost
from adaptive_eval.machine.clocks import HeldTime
from adaptive_eval.notes.answers import AnswersLost


class HasCost(Protocol):
    """An event or a row of sums with its cost."""

    @property
    def tokens(self) -> int: ...
    @property
    def usd(self) -> float: ...
    @property
    def gpu_seconds(self) -> float: ...


def stored_cost(spent: HasCost) -> Cost:
    """The cost of an event or of a row of sums."""
    return Cost(spent.tokens, spent.usd, spent.gpu_seconds)


def total_cost(spent: Iterable[HasCost]) -> Cost:
    """The sum of these costs."""
    return reduce(Cost.plus, map(stored_cost, spent), NO_COST)


def cost_by_model(events: Sequence[AnswersLost], models: Names) -> dict[int, Cost]:
    """Total cost of these events by position of the model, without models that are not in `models`."""
    totals: dict[int, Cost] = {}
    for event in events:
        if event.model in models:
            model, more = models.position(event.model), stored_cost(event)
            totals[model] = totals.get(model, Cost()).plus(more)
    return totals


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
