"""Status of a stored run for displays, with the same values that the run itself would show."""

from adaptive_eval.config.planning import core_caps
from adaptive_eval.record.ending import Ended, build_ended
from adaptive_eval.record.sites import site_rows
from adaptive_eval.record.snapshot import batch_rows
from adaptive_eval.record.status import CurrentTraffic, Status, results_in_progress, used_caps
from adaptive_eval.record.words import promise_in_short
from adaptive_eval.show.serve.feed import Feed
from adaptive_eval.store import ReplicaBack, ReplicaLost, Spending, events_since_start
from adaptive_eval.store.events.batches import pending_batches
from adaptive_eval.store.spending import stored_cost


def stored_status(feed: Feed, before: Spending | None = None) -> Status:
    """Status as of the feed's latest poll; trials and tokens beyond `before` (default: now) count as new."""
    stored, results, spent = feed.stored, feed.results, current_spending(feed)
    before = spent if before is None else before
    budget = core_caps(stored.config.budget, stored.config.models, stored.config.serving_groups)
    elapsed, beside, decisions = feed.sums.elapsed, feed.other_costs, stored.config.stated()
    used = {"trials": spent.trials, "tokens": spent.tokens, "usd": spent.usd}
    return Status(
        looks=len(feed.sums.looks),
        results=None if results is None else results_in_progress(results),
        caps=used_caps(budget, used | {"gpu_seconds": feed.gpu_seconds, "wall_seconds": elapsed}, beside),
        traffic=_traffic(feed),
        models=(),
        trials=spent.trials,
        new_trials=spent.trials - before.trials,
        new_tokens=spent.tokens - before.tokens,
        elapsed=elapsed,
        promise=promise_in_short(decisions),
        batches=batch_rows(pending_batches(feed.sums.events)),
        usage=stored_cost(spent),
        beside=beside,
        grading=feed.grading if results is None else results.cost.grading,
        sites=site_rows(feed.sums.events),
    )


def current_spending(feed: Feed) -> Spending:
    """Usage of the current models."""
    return feed.sums.spent(feed.stored.roster.models)


def _traffic(feed: Feed) -> CurrentTraffic:
    replicas = {(model.name, url) for model in feed.stored.config.models for url in model.replicas}
    lost: set[tuple[str, str]] = set()
    for event in events_since_start(feed.sums.events):
        match event:
            case ReplicaLost(model=model, replica=replica):
                lost.add((model, replica))
            case ReplicaBack(model=model, replica=replica):
                lost.discard((model, replica))
    return CurrentTraffic(
        in_flight=None,
        retries=sum(one.retries for one in feed.sums.traffic),
        errors=None,
        healthy_replicas=len(replicas) - len(lost & replicas),  # a site is no replica
        replicas=len(replicas),
    )


def build_ended_from_feed(feed: Feed) -> Ended:
    """How a run that is over ended."""
    gated = feed.stored.config.objective.gate
    return build_ended(feed.sums.events, feed.results, stored_status(feed), feed.directory, gated=gated)
