"""From what a run has stored to what a display shows: the same values that the run itself would show."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from adaptive_eval.config.planning import budget_of
from adaptive_eval.core.types import Lost, Reason, Verdict
from adaptive_eval.record.ending import Ended, mishap_of
from adaptive_eval.record.results import QuestionRow, Results
from adaptive_eval.record.status import (
    DETAILED_QUESTIONS,
    Compared,
    Detail,
    Placed,
    QuestionDetail,
    Standing,
    Status,
    Traffic,
    caps,
    standings,
)
from adaptive_eval.show.serve.feed import Feed
from adaptive_eval.store import Event, ModelSetAside, ReplicaBack, ReplicaLost, RunFinished, only, since_the_start


class StoredStatus:
    """The status of a run; what counts as new is what has come since this was made."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._before = feed.ledger.spent()
        self.update()

    def update(self) -> None:
        """Take in what the feed has read."""
        spent, before = self._feed.ledger.spent(), self._before
        trials, tokens = spent.trials - before.trials, spent.tokens - before.tokens
        self._status = replace(status_of(self._feed), new_trials=trials, new_tokens=tokens)

    def take(self) -> Status:
        """The status as of the latest update, at the time of now; the feed may be reading meanwhile."""
        return replace(self._status, elapsed=self._feed.elapsed())


def status_of(feed: Feed) -> Status:
    """The status as of the feed's latest poll, with nothing new."""
    results, spent = feed.results, feed.ledger.spent()
    used = {
        "trials": spent.trials,
        "tokens": spent.tokens,
        "usd": spent.usd,
        "gpu_seconds": spent.gpu_seconds,
        "wall_seconds": feed.elapsed(),
    }
    return Status(
        looks=len(feed.ledger.looks()),
        standings=() if results is None else _standings(results),
        verdicts=Counter() if results is None else Counter(Verdict(pair.verdict) for pair in results.pairs),
        caps=caps(budget_of(feed.stored.config.budget), used),
        traffic=_traffic(feed),
        models=(),
        trials=spent.trials,
        new_trials=0,
        new_tokens=0,
        elapsed=feed.elapsed(),
        trials_to_go=None if results is None else results.trials_to_go,
        detail=None if results is None else _detail(results),
    )


def _standings(results: Results) -> tuple[Standing, ...]:
    placed = [
        Placed(row.name, row.tier, _number(row.score), _number(row.lo), _number(row.hi), row.trials, row.set_aside)
        for row in results.models
    ]
    compared = [
        Compared(pair.better, pair.worse, Verdict(pair.verdict), pair.z, pair.boundary) for pair in results.pairs
    ]
    return standings(placed, compared)


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _traffic(feed: Feed) -> Traffic:
    replicas = {(model.name, url) for model in feed.stored.config.models for url in model.replicas}
    lost: set[tuple[str, str]] = set()
    for event in since_the_start(feed.ledger.events()):
        match event:
            case ReplicaLost(model=model, replica=replica):
                lost.add((model, replica))
            case ReplicaBack(model=model, replica=replica):
                lost.discard((model, replica))
    return Traffic(
        in_flight=None,
        retries=sum(one.retries for one in feed.ledger.traffic()),
        errors=None,
        healthy_replicas=len(replicas) - len(lost),
        replicas=len(replicas),
    )


def _detail(results: Results) -> Detail | None:
    open_pairs = [pair for pair in results.pairs if pair.verdict == Verdict.OPEN and pair.worse is not None]
    if not open_pairs:
        return None
    pair = max(open_pairs, key=lambda pair: -math.inf if pair.power is None else pair.power)
    assert pair.worse is not None
    at = {row.name: place for place, row in enumerate(results.models)}
    first, second = at[pair.better], at[pair.worse]
    least_known = sorted(results.questions, key=lambda row: -(_width(row, first) ** 2) - _width(row, second) ** 2)
    rows = [
        QuestionDetail(row.id, _posterior(row, first), _posterior(row, second))
        for row in least_known[:DETAILED_QUESTIONS]
    ]
    return Detail(pair.better, pair.worse, tuple(rows))


def _width(row: QuestionRow, model: int) -> float:
    return row.hi[model] - row.lo[model]


def _posterior(row: QuestionRow, model: int) -> tuple[float, float, float]:
    return row.mean[model], row.lo[model], row.hi[model]


def ended(feed: Feed) -> Ended:
    """How a run that is over has ended; one that was killed counts as stopped, since the same command goes on."""
    events = since_the_start(feed.ledger.events())
    config = feed.stored.config
    lost = {event.model: Lost(event.cause, event.reason) for event in only(events, ModelSetAside)}
    return Ended(
        reason=_reason(feed, events),
        status=status_of(feed),
        results=feed.results,
        directory=feed.directory,
        gate=config.objective.gated_by,
        lost=lost,
        fixed=config.trials.min == config.trials.max,
        mishap=mishap_of(events),
    )


def _reason(feed: Feed, events: Sequence[Event]) -> Reason | None:
    """What the run has said last, or what its trials say: those of an imported run may be enough."""
    last = events[-1] if events else None
    if isinstance(last, RunFinished):
        return last.reason
    found = None if feed.results is None else feed.results.run.reason
    return None if found is None else Reason(found)
