"""Caps hold through kills: a request is sent when it is written down that it will be, and what it may cost at worst.

Where a cap on tokens, USD or GPU time is set, the trials of a request are entered in the store, with the next group
commit, before it is sent, and crossed out by the commit that has their answers. What a later start finds entered was
generated and lost, as far as anybody knows: it is spent at its worst, and an event says so. An answer that is lost on
the way while the run goes on (a reset, a stream that stops, a time-out, a dead replica) is spent at its worst, too, as
soon as it is noticed. A refusal or an error that a server reports costs nothing: nobody is charged for it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Protocol

from adaptive_eval.core.types import NO_COST, Cost
from adaptive_eval.endpoints.types import EndpointStats
from adaptive_eval.scheduler.types import BEAT_SECONDS, Decider, Lane
from adaptive_eval.scheduler.waiting import TrialGroup
from adaptive_eval.store import (
    AnswersLost,
    AnswersUnwanted,
    BaselineAsked,
    Event,
    OpponentAnswered,
    PriorTaken,
    RunBegun,
    RunFinished,
    RunReader,
    RunStopped,
    SentRequest,
    Store,
    VerdictsAsked,
    events_of_kind,
)
from adaptive_eval.store.roster import Names

UNSAID_SECONDS = BEAT_SECONDS + 1.0
NOTHING_LEFT: Mapping[str, int] = {}


class Ledger:
    """What is entered, and what was lost."""

    def __init__(self, lanes: Sequence[Lane]) -> None:
        self._lanes = lanes
        self._lost = [0] * len(lanes)
        """Answers that each model's servers owed and lost, by its endpoint."""

    def entry(self, model: int, group: TrialGroup) -> SentRequest:
        """What is entered when a request is sent."""
        return SentRequest(self._lanes[model].name, group.size)

    def restore(self, store: Store, left: Mapping[str, int] = NOTHING_LEFT) -> Iterator[AnswersLost]:
        """Write down as lost what earlier starts had entered and have no answers for.

        `left` is what batch services have of each model: it is not lost, and is entered anew when it is asked for.
        """
        counts = store.reader.in_flight()
        for lane in self._lanes:
            if count := counts.get(lane.name, 0):
                event = self._event(lane, max(0, count - left.get(lane.name, 0)), killed=True)
                store.lose(event)
                if event.answers:
                    yield event

    def noticed(self, model: int, stats: EndpointStats) -> AnswersLost | None:
        """What the endpoint has lost since it was asked last."""
        lost, self._lost[model] = stats.lost - self._lost[model], stats.lost
        return self._event(self._lanes[model], lost, killed=False) if lost > 0 else None

    def entered(self, reader: RunReader) -> Cost:
        """What is entered now, at its worst."""
        counts = reader.in_flight()
        return reduce(Cost.plus, (lane.lost.times(counts.get(lane.name, 0)) for lane in self._lanes), Cost())

    @staticmethod
    def _event(lane: Lane, count: int, *, killed: bool) -> AnswersLost:
        worst = lane.lost
        return AnswersLost(lane.name, count, count * worst.tokens, count * worst.usd, count * worst.gpu_seconds, killed)


class LostAnswers:
    """What was generated and lost, told to the core; nothing where no cap counts it."""

    def __init__(
        self, ledger: Ledger | None, lanes: Sequence[Lane], controller: Decider, note: Callable[[Event], None]
    ) -> None:
        self.ledger = ledger
        self._lanes, self._controller, self._note = lanes, controller, note
        self.gpu_seconds = [0.0] * len(lanes)
        """Of each model the requests that were lost, over all starts."""

    def restore(
        self,
        store: Store,
        models: Names,
        happened: Callable[[Event], None],
        left: Mapping[str, int] = NOTHING_LEFT,
    ) -> Mapping[int, Cost]:
        """What each model has lost in earlier starts, with what was entered, has no answer and is not `left` with a
        batch service."""
        if self.ledger is None:
            return {}
        for event in self.ledger.restore(store, left):
            happened(event)
        lost = cost_by_model(never_stored(store.reader.events()), models)
        for model, cost in lost.items():
            self.gpu_seconds[model] = cost.gpu_seconds
        return lost

    def tell(self) -> None:
        """Note and count what servers have lost since this was called last."""
        if self.ledger is None:
            return
        for model, lane in enumerate(self._lanes):
            if (event := self.ledger.noticed(model, lane.endpoint.stats)) is not None:
                self.lose(model, event)

    def lose(self, model: int, event: AnswersLost) -> None:
        """Note and count one loss."""
        self._note(event)
        self.gpu_seconds[model] += event.gpu_seconds
        self._controller.lose(model, cost_of(event))


class HasCost(Protocol):
    """Something on which so much was spent: an event, or a row of sums."""

    @property
    def tokens(self) -> int: ...
    @property
    def usd(self) -> float: ...
    @property
    def gpu_seconds(self) -> float: ...


def cost_of(spent: HasCost) -> Cost:
    """What a loss counts as."""
    return Cost(spent.tokens, spent.usd, spent.gpu_seconds)


def total_cost(spent: Iterable[HasCost]) -> Cost:
    """The sum of these costs."""
    return reduce(Cost.plus, map(cost_of, spent), NO_COST)


def spent_on_baseline(events: Sequence[Event]) -> Cost:
    """On a verifier's label scores without content."""
    return total_cost(events_of_kind(events, BaselineAsked))


def spent_on_unused(events: Sequence[Event]) -> Cost:
    """On verdicts of a `regrade` that did not come to its end, which changes no grade."""
    spent = total_cost(events_of_kind(events, VerdictsAsked))
    return spent if spent.tokens else NO_COST  # else what rounding has left of all that was taken back


def spent_on_greedy(events: Sequence[Event]) -> PriorTaken | None:
    """On greedy answers that came first (R0); None where there were none."""
    taken = [one for one in events_of_kind(events, PriorTaken) if one.greedy]
    return taken[-1] if taken else None


def spent_on_opponent(events: Sequence[Event]) -> OpponentAnswered | None:
    """On the answers that all others are compared with; None where they are not of this run."""
    found = events_of_kind(events, OpponentAnswered)
    return found[-1] if found else None


def never_stored(events: Sequence[Event]) -> list[AnswersLost | AnswersUnwanted]:
    """All that tells of answers which cost something, or may have, and are not among the trials."""
    return [event for event in events if isinstance(event, AnswersLost | AnswersUnwanted)]


def cost_by_model(events: Sequence[AnswersLost | AnswersUnwanted], models: Names) -> dict[int, Cost]:
    """What such events of each of these models come to."""
    totals: dict[int, Cost] = {}
    for event in events:
        if event.model in models:
            model, more = models.position_of(event.model), cost_of(event)
            totals[model] = totals.get(model, Cost()).plus(more)
    return totals


def at_least_elapsed(reader: RunReader) -> float:
    """Seconds that the run has been active: after a kill with as much more as it may have been without saying so."""
    marks = [event for event in reader.events() if isinstance(event, RunBegun | RunStopped | RunFinished)]
    killed = bool(marks) and isinstance(marks[-1], RunBegun)
    return reader.elapsed + (UNSAID_SECONDS if killed else 0.0)
