"""From what a run has stored to what a display shows: the same values that the run itself would show."""

from dataclasses import replace

import numpy as np

from adaptive_eval.config.planning import budget_of
from adaptive_eval.graders.rubric import open_rubric
from adaptive_eval.record.build import Found
from adaptive_eval.record.ending import Ended, ended_of
from adaptive_eval.record.status import Moment, Status, Traffic, status_of
from adaptive_eval.record.view import counted
from adaptive_eval.show.serve.feed import Feed
from adaptive_eval.store import ReplicaBack, ReplicaLost, Spending, since_the_start


class StoredStatus:
    """The status of a run; what counts as new is what has come since this was made."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._before = _spent(feed)
        self.update()

    def update(self) -> None:
        """Take in what the feed has read."""
        self._status = stored_status(self._feed, self._before)

    def take(self) -> Status:
        """The status as of the latest update, at the time of now; the feed may be reading meanwhile."""
        return replace(self._status, elapsed=self._feed.elapsed())


def stored_status(feed: Feed, before: Spending | None = None) -> Status:
    """The status as of the feed's latest poll; new is what was not used `before`, nothing where that is not said."""
    stored, results, spent = feed.stored, feed.results, _spent(feed)
    before = spent if before is None else before
    weights = np.array(open_rubric(stored.config.rubric).weights, dtype=float)
    return status_of(
        Moment(
            roster=stored.roster,
            weights=weights,
            budget=budget_of(stored.config.budget),
            looks=len(feed.ledger.looks()),
            found=None if results is None else Found(results.models, results.pairs, results.trials_to_go),
            counts=counted(feed.ledger.graded(), stored.roster, len(weights)),
            spent=spent,
            before=(before.trials, before.tokens),
            elapsed=feed.elapsed(),
            traffic=_traffic(feed),
        )
    )


def _spent(feed: Feed) -> Spending:
    """By the models that the run has today."""
    return feed.ledger.spent(feed.stored.roster.models)


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


def ended(feed: Feed) -> Ended:
    """How a run that is over has ended."""
    return ended_of(feed.stored.config, feed.ledger.events(), feed.results, stored_status(feed), feed.directory)
