"""Repairs of the store before a run goes on; no model is asked meanwhile, and records are applied afterwards.

Trials that a model did not answer are forgotten if it was set aside, so that they are asked again. The core sets a
model aside when too few requests of a round were really answered (`core.rounds`), or when too many have no grade
(`core.tally`), such as those that its server always fails. Readers of the run see that decision until somebody
starts the run again, probably after mending the server.

If the user asks for it, answers since an alarm about their model are discarded and asked again; what they cost still
counts.

Stored answers without a grade are graded once more, in small batches that are stored as soon as they are graded: it may
take long, shows its progress, can be stopped, and ends with a cap on time. Under caps a verdict is reserved before it
is asked for, after the reserves that an earlier start has left are settled.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial, reduce
from itertools import islice

from adaptive_eval.core.types import NO_COST, Cost
from adaptive_eval.endpoints.types import Again
from adaptive_eval.scheduler.answer_grader import AnswerGrader
from adaptive_eval.scheduler.asked_again import trials_to_ask_again
from adaptive_eval.scheduler.committer import RunJournal
from adaptive_eval.scheduler.grading import grade_stored, wasted_verdict
from adaptive_eval.scheduler.state import RunState
from adaptive_eval.scheduler.verdict_costs import add_cost, used
from adaptive_eval.store import (
    AlarmRaised,
    AnswersLost,
    AnswerUngraded,
    CommitBatch,
    Event,
    Regrade,
    RegradingBegun,
    RunBegun,
    ServersNoticed,
    TrialKey,
    TrialRecord,
    TrialsRegraded,
    events_of_kind,
)
from adaptive_eval.store.records import AWAITS_VERDICT
from adaptive_eval.store.spending import in_flight_cost, total_spent


class StoreRepair:
    """Forgets trials that have to be asked again, and grades stored answers that have no grade."""

    def __init__(self, state: RunState, grader: AnswerGrader, journal: RunJournal) -> None:
        self._grading, self._costs, self._questions = grader.grading, grader.costs, grader.questions
        self._watch = grader.watch
        self._store, self._observer, self._caps = journal.store, journal.observer, state.controller
        self._meter = journal.meter
        self._lanes = {lane.name: lane for lane in state.lanes}
        """The models that the run has today; answers of removed models wait until these come back."""
        self._reported_models: set[str] = set()
        """Models for which a failed grade was reported."""
        self._stopped = False
        self._grading_task: asyncio.Task[list[Regrade]] | None = None

    async def run(self, *, ask_again: bool) -> None:
        """Do all repairs; `ask_again`: discard the answers since the alarms of earlier starts."""
        for alarm in alarms_to_ask_again(self._store.reader.events()) if ask_again else ():
            if alarm.model in self._lanes:
                self._discard_since(alarm)
        for name, trials in trials_to_ask_again(self._store.reader).items():
            if name in self._lanes:
                text = f"{len(trials)} of its requests had no answer when it was set aside, and were asked again"
                self._store.forget_trials(name, trials, event := ServersNoticed(name, "asked_again", text))
                self._observer.happened(event)
        await self._regrade()

    def _discard_since(self, alarm: AlarmRaised) -> None:
        """Discard the answers of a model since the change that an alarm tells of."""
        since = alarm.since or {}
        found = [
            one
            for one in self._store.reader.outcomes()
            if one.model == alarm.model and one.trial >= since.get(one.question, 0)
        ]
        cost = reduce(Cost.plus, (one.cost for one in found), NO_COST)
        event = AnswersLost(alarm.model, len(found), *cost, discarded=True)
        self._store.forget_trials(alarm.model, [TrialKey(one.question, one.trial) for one in found], event)
        self._observer.happened(event)

    async def _regrade(self) -> None:
        if next(self._ungraded(), None) is None:  # to find none, all trials are read: once is enough
            return
        self._meter.start()
        prices = {name: lane.price.cost for name, lane in self._lanes.items()}
        earlier = events_of_kind(self._store.reader.events(), RunBegun)[:-1]  # without this one
        settled = self._costs.settle_reserves(self._ungraded(), prices, earlier)
        if settled.verdicts:
            losses: list[Event] = [self._placed(loss) for loss in events_of_kind(settled.events, AnswersLost)]
            self._write(CommitBatch(verdicts=settled.verdicts, events=losses))
        total = sum(1 for _ in self._ungraded())
        graded, failed = 0, 0
        while not self.is_out_of_time and (
            some := list(islice(self._ungraded(), failed, failed + self._grading.at_once))
        ):
            if graded == 0:
                self._observer.happened(RegradingBegun(total))
            reserves = self._reserve_affordable([(one, self._costs.reserved(one)) for one in some])
            verdicts = await self._grade([one for one, _ in reserves])
            if not verdicts:
                break
            graded += len(verdicts)
            event = TrialsRegraded(len(verdicts), so_far=graded, of=total)
            each = [(verdict, reserved) for verdict, (_, reserved) in zip(verdicts, reserves, strict=True)]
            self._store.regrade([used(*one) for one in each], [event, *filter(None, map(wasted_verdict, verdicts))])
            self._observer.happened(event)
            for verdict, reserved in each:
                self._costs.require_kept(verdict, reserved)
            self._watch.see(verdicts, lambda: {row.question for row in self._store.reader.round_counts()})
            failed += self._report_failed(verdicts)

    def stop(self) -> None:
        """Stop grading; answers that have no grade yet stay as they are."""
        self._stopped = True
        if self._grading_task is not None:
            self._grading_task.cancel()

    def _report_failed(self, verdicts: Sequence[Regrade]) -> int:
        """Report each model's first answer that failed again; returns the number of failed answers."""
        failed = [one for one in verdicts if one.failed]
        for one in failed:
            if one.model not in self._reported_models:
                self._reported_models.add(one.model)
                self._write(CommitBatch(events=[AnswerUngraded(one.model, one.question, str(one.grader_error))]))
        return len(failed)

    @property
    def is_out_of_time(self) -> bool:
        """Whether the cap on time is reached, so that nothing more is graded."""
        return self._seconds_left() == 0.0

    def _seconds_left(self) -> float | None:
        """Seconds until the cap on time is reached; None without such a cap."""
        cap = self._caps.plan.budget.wall_seconds
        return None if cap is None else max(cap - self._meter.elapsed(), 0.0)

    async def _grade(self, some: Sequence[TrialRecord]) -> list[Regrade]:
        """Grade these answers; returns no grades if stopped or out of time."""
        if self._stopped:
            return []
        grading = grade_stored(self._grading, some, self._questions, self._repeat_guard)
        at_work = self._grading_task = asyncio.create_task(grading)
        try:
            await asyncio.wait([at_work], timeout=self._seconds_left())
        finally:
            at_work.cancel()  # out of time, or where the whole run is cancelled
        await asyncio.wait([at_work])
        return [] if at_work.cancelled() else at_work.result()

    def _ungraded(self) -> Iterator[TrialRecord]:
        """Trials without a grade, in the order of commitment; those that failed again stay in front."""
        ungraded = self._store.reader.trials("ungraded")
        return (record for record in ungraded if record.model in self._lanes)

    # -- under caps -----------------------------------------------------------------------------------------------

    def _reserve_affordable(self, reserves: Sequence[tuple[TrialRecord, Cost]]) -> Sequence[tuple[TrialRecord, Cost]]:
        """Reserve verdicts, on disk, for as many records as the caps allow; returns these with their reserves."""
        if not self._costs.is_counted:
            return reserves
        number = len(reserves)
        while number and not self._can_afford(reduce(Cost.plus, (cost for _, cost in reserves[:number]))):
            number -= 1
        if number:
            waiting = [add_cost(replace(one, grader_error=AWAITS_VERDICT), cost) for one, cost in reserves[:number]]
            self._write(CommitBatch(verdicts=waiting))
        return reserves[:number]

    def _repeat_guard(self, record: TrialRecord) -> Again | None:
        """The guard to call when a reply is lost: it counts the loss, and says whether caps allow another request."""
        loss = self._costs.loss(record)
        return None if loss is None else partial(self._may_repeat, loss)

    async def _may_repeat(self, loss: AnswersLost) -> bool:
        self._write(CommitBatch(events=[self._placed(loss)]))
        return self._can_afford(NO_COST)

    def _placed(self, loss: AnswersLost) -> AnswersLost:
        """A loss where it counts: after the looks of earlier starts."""
        return replace(loss, looks=self._store.reader.most_looks() or None)

    def _can_afford(self, more: Cost) -> bool:
        """Whether the caps allow this cost on top of everything spent so far by all models."""
        reader = self._store.reader
        entered = in_flight_cost(reader, {name: lane.price.worst for name, lane in self._lanes.items()})
        return self._caps.can_afford(total_spent(reader).plus(entered).plus(more))

    def _write(self, batch: CommitBatch) -> None:
        for event in self._store.commit(batch).events:
            self._observer.happened(event)


def alarms_to_ask_again(events: Sequence[Event]) -> Sequence[AlarmRaised]:
    """Alarms about changes of servers, since which no answers were discarded yet, the latest of each model."""
    found: dict[str, AlarmRaised] = {}
    for event in events:
        if isinstance(event, AlarmRaised) and event.since is not None:
            found[event.model] = event
        elif isinstance(event, AnswersLost) and event.discarded:
            found.pop(event.model, None)
    return tuple(found.values())
