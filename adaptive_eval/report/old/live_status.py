"""Status of a run in progress, computed whenever a display asks for it."""

import time
from collections.abc import Callable, Iterator, Sequence

from adaptive_eval.core.controller import Controller
from adaptive_eval.core.types import Reason
from adaptive_eval.endpoints.types import Endpoint
from adaptive_eval.report.build import grading_cost, look_results
from adaptive_eval.report.label_effect import RunLabels
from adaptive_eval.report.other_costs import counted_gpu_seconds
from adaptive_eval.report.results import OtherCostRow, Results
from adaptive_eval.report.sites import SiteBook, SiteRow
from adaptive_eval.report.snapshot import RunSubject, batch_rows, take_snapshot
from adaptive_eval.report.status import (
    CurrentTraffic,
    ModelTraffic,
    Status,
    results_in_progress,
    used_caps,
)
from adaptive_eval.report.words import promise_in_short
from adaptive_eval.scheduler.scheduler import Scheduler
from adaptive_eval.store import Event
from adaptive_eval.store.spending import total_cost


class StatusTaker:
    """Takes the status of a run in progress; findings are computed once for each look."""

    def __init__(
        self,
        subject: RunSubject,
        controller: Controller,
        scheduler: Scheduler,
        endpoints: Sequence[Endpoint],
        beside: Callable[[], Sequence[OtherCostRow]] = tuple,
        events: Callable[[], Sequence[Event]] = tuple,
        labels: Callable[[], RunLabels | None] = lambda: None,
    ) -> None:
        """`beside` gives spending besides the stored answers, `events` all events so far, `labels` those of answers."""
        self._subject, self._beside, self._labels = subject, beside, labels
        self._controller = controller
        self._scheduler = scheduler
        self._endpoints = endpoints
        self._events, self._heard, self._sites = events, 0, SiteBook()
        self._results: Results | None = None
        self._as_of: tuple[int, Reason | None, int, int] = (0, None, 0, id(None))

    def take(self) -> Status:
        """Take the current status."""
        controller, scheduler, decisions = self._controller, self._scheduler, self._subject.decisions
        usages, plan, elapsed = scheduler.state.spent.usages, self._controller.plan, scheduler.meter.elapsed()
        requests, beside = [one.gpu_seconds for one in usages], tuple(self._beside())
        trials, usage = sum(one.trials for one in usages), total_cost(usages)
        counted = counted_gpu_seconds(scheduler.meter.servers(), requests, beside)
        self._update_results()
        return Status(
            looks=len(controller.looks),
            results=self._results,
            caps=used_caps(plan.budget, trials, usage, counted, elapsed, beside),
            traffic=self._traffic(),
            models=tuple(self._models_traffic()),
            trials=trials,
            new_trials=trials - scheduler.taken_up[0],
            new_tokens=usage.tokens - scheduler.taken_up[1],
            elapsed=elapsed,
            promise=promise_in_short(decisions),
            batches=batch_rows(scheduler.supply.pending),
            usage=usage,
            beside=beside,
            grading=grading_cost(one.grading for one in usages),
            sites=self._site_rows(),
        )

    def _update_results(self) -> None:
        controller = self._controller
        labels = self._labels()
        as_of = (len(controller.looks), controller.finished, len(controller.set_aside), id(labels))
        if as_of != self._as_of:
            usages = self._scheduler.state.spent.usages
            snapshot = take_snapshot(
                self._subject, controller, usages, elapsed=0.0, now=0.0, stopped=False, labels=labels
            )
            self._as_of = as_of
            self._results = None if snapshot is None else results_in_progress(look_results(snapshot))

    def _site_rows(self) -> tuple[SiteRow, ...]:
        events, now = self._events(), time.time()
        for event in events[self._heard :]:
            self._sites.hear(event, now)
        self._heard = len(events)
        return self._sites.rows

    def _traffic(self) -> CurrentTraffic:
        stats = [endpoint.stats for endpoint in self._endpoints]
        replicas = [replica for one in stats for replica in one.replicas]
        return CurrentTraffic(
            in_flight=sum(self._scheduler.requests.in_flight),
            retries=sum(one.retries for one in stats),
            errors=sum(sum(one.errors.values()) for one in stats),
            healthy_replicas=sum(replica.healthy for replica in replicas),
            replicas=len(replicas),
        )

    def _models_traffic(self) -> Iterator[ModelTraffic]:
        scheduler = self._scheduler
        held = scheduler.meter.held_times()
        each = zip(
            self._subject.models,
            scheduler.state.spent.usages,
            scheduler.requests.in_flight,
            self._endpoints,
            held,
            strict=True,
        )
        for model, usage, in_flight, endpoint, one in each:
            stats = endpoint.stats
            yield ModelTraffic(
                model=model,
                trials=usage.trials,
                tokens=usage.tokens,
                usd=usage.usd,
                gpu_seconds=usage.gpu_seconds,
                in_flight=in_flight,
                retries=stats.retries,
                errors=stats.errors,
                replicas={replica.url: replica.healthy for replica in stats.replicas},
                server_seconds=None if one is None else one.seconds,
                server_gpu_seconds=None if one is None else one.gpu_seconds,
            )
