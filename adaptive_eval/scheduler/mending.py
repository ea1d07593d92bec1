"""Repairs of the store before a run goes on: nothing is asked meanwhile, and no record is applied before.

What was no answer of a model that was set aside is forgotten, so that it is asked for again. The core sets a model
aside when too few requests of a round were really answered (`core.rounds`), or when too many have no grade
(`core.ungraded`), such as those that its server always fails. That is decided on what is stored, and stays so for
whoever reads the run; who starts it again has mended something, or hopes that it is.

Stored answers without a grade are graded once more, a few at a time, each few stored as soon as they are graded: it may
take long, shows how far it is, and can be stopped. Under caps a verdict is reserved before it is asked for, and what an
earlier start has reserved for verdicts that it has not seen come is written down as lost.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from itertools import islice

from adaptive_eval.core.rounds import enough_answers
from adaptive_eval.core.types import NO_COST, Cost
from adaptive_eval.endpoints.types import Again
from adaptive_eval.scheduler.answer_grader import AnswerGrader
from adaptive_eval.scheduler.grading import grade_stored, wasted_verdict
from adaptive_eval.scheduler.journal import RunJournal
from adaptive_eval.scheduler.state import RunState
from adaptive_eval.scheduler.verdict_costs import used
from adaptive_eval.store import (
    AnswersLost,
    AnswerUngraded,
    CommitBatch,
    ModelSetAside,
    Regrade,
    RegradingBegun,
    RunReader,
    ServersNoticed,
    TrialKey,
    TrialPlace,
    TrialRecord,
    TrialsRegraded,
    events_of_kind,
)
from adaptive_eval.store.records import AWAITS_VERDICT
from adaptive_eval.store.spending import entered_cost, spent_in_all, stored_cost

AT_A_TIME = 16
"""Answers that are graded between two signs of life, and lost when one stops it."""


class Mending:
    """Forgets what was no answer, and grades stored answers once more that have no grade."""

    def __init__(self, state: RunState, grader: AnswerGrader, journal: RunJournal) -> None:
        self._grading, self._costs, self._questions = grader.grading, grader.costs, grader.questions
        self._store, self._observer, self._caps = journal.store, journal.observer, state.controller
        self._meter = journal.meter
        self._lanes = {lane.name: lane for lane in state.lanes}
        """The models that the run has today: answers of others wait until they come back."""
        self._told_failed: set[str] = set()
        """Models of which an answer without a grade was told."""
        self._stopped = False
        self._at_work: asyncio.Task[list[Regrade]] | None = None

    async def run(self) -> None:
        """Mend what there is to mend."""
        for name, trials in trials_to_ask_again(self._store.reader).items():
            if name in self._lanes:
                text = f"{len(trials)} of its requests had no answer when it was set aside, and were asked again"
                self._store.forget_trials(name, trials, event := ServersNoticed(name, "asked_again", text))
                self._observer.happened(event)
        await self._regrade()

    async def _regrade(self) -> None:
        if next(self._ungraded(), None) is None:  # that is known when all are read, which should be done once
            return
        self._meter.start()
        self._lose_reserved()
        total = sum(1 for _ in self._ungraded())
        graded, failed = 0, 0
        while some := list(islice(self._ungraded(), failed, failed + AT_A_TIME)):
            if graded == 0:
                self._observer.happened(RegradingBegun(total))
            reserves = self._affordable([(one, self._costs.reserved(one)) for one in some])
            verdicts = await self._grade([one for one, _ in reserves])
            if not verdicts:
                break
            graded += len(verdicts)
            event = TrialsRegraded(len(verdicts), so_far=graded, of=total)
            each = [(verdict, reserved) for verdict, (_, reserved) in zip(verdicts, reserves, strict=True)]
            self._store.regrade([used(*one) for one in each], [event, *filter(None, map(wasted_verdict, verdicts))])
            self._observer.happened(event)
            for verdict, reserved in each:
                self._costs.require_kept(verdict, reserved, finished=self._caps.finished is not None)
            failed += self._tell_failed(verdicts)

    def stop(self) -> None:
        """Leave what is not graded yet as it is."""
        self._stopped = True
        if self._at_work is not None:
            self._at_work.cancel()

    def _tell_failed(self, verdicts: Sequence[Regrade]) -> int:
        """Tell of the first answer of each model that has no grade again; gives how many answers have none."""
        failed = [one for one in verdicts if one.failed]
        for one in failed:
            if one.model not in self._told_failed:
                self._told_failed.add(one.model)
                self._write(CommitBatch(events=[AnswerUngraded(one.model, one.question, str(one.grader_error))]))
        return len(failed)

    async def _grade(self, some: Sequence[TrialRecord]) -> list[Regrade]:
        """Their grades, none when it is stopped."""
        if self._stopped:
            return []
        grading = grade_stored(self._grading, some, self._questions, self._repeat_guard)
        at_work = self._at_work = asyncio.create_task(grading)
        try:
            await asyncio.wait([at_work])
        finally:
            at_work.cancel()  # where the whole run is cancelled
        return [] if at_work.cancelled() else at_work.result()

    def _ungraded(self) -> Iterator[TrialRecord]:
        """Trials without a grade, in the order of commitment; those that failed again stay in front."""
        ungraded = self._store.reader.trials("ungraded")
        return (record for record in ungraded if record.model in self._lanes and not record.awaits_thresholds)

    # -- under caps -----------------------------------------------------------------------------------------------

    def _lose_reserved(self) -> None:
        """Write down as lost what was reserved for verdicts that an earlier start has not seen come."""
        lost, rest = dict[str, AnswersLost](), list[Regrade]()
        for one in self._ungraded():
            before = lost.get(one.model, AnswersLost(one.model, killed=True))
            more = one.cost.plus(self._lanes[one.model].price.cost(one.answer).times(-1))
            if one.awaits_verdict and more.tokens > 0:
                total = stored_cost(before).plus(more)
                lost[one.model] = AnswersLost(one.model, 0, *total, killed=True, verdicts=before.verdicts + 1)
                rest.append(_with_cost(one, more.times(-1)))
        if rest:
            self._write(CommitBatch(events=list(lost.values()), verdicts=rest))

    def _affordable(self, reserves: Sequence[tuple[TrialRecord, Cost]]) -> Sequence[tuple[TrialRecord, Cost]]:
        """Reserve, on disk, the verdicts of the first records that the caps allow; returns these, with their costs."""
        if not self._costs.is_counted:
            return reserves
        number = len(reserves)
        while number and not self._bears(reduce(Cost.plus, (cost for _, cost in reserves[:number]))):
            number -= 1
        if number:
            waiting = [_with_cost(replace(one, grader_error=AWAITS_VERDICT), cost) for one, cost in reserves[:number]]
            self._write(CommitBatch(verdicts=waiting))
        return reserves[:number]

    def _repeat_guard(self, record: TrialRecord) -> Again | None:
        """The guard of a lost reply: it counts the loss, and says whether the caps allow another request."""
        loss = self._costs.loss(record)
        return None if loss is None else partial(self._loss_is_borne, loss)

    async def _loss_is_borne(self, loss: AnswersLost) -> bool:
        self._write(CommitBatch(events=[loss]))
        return self._bears(NO_COST)

    def _bears(self, more: Cost) -> bool:
        """Whether the caps bear this on top of all that was spent, for whichever model."""
        reader = self._store.reader
        entered = entered_cost(reader, {name: lane.price.worst for name, lane in self._lanes.items()})
        return self._caps.can_afford(spent_in_all(reader).plus(entered).plus(more))

    def _write(self, batch: CommitBatch) -> None:
        self._store.commit(batch)
        for event in batch.events:
            self._observer.happened(event)


def _with_cost(record: TrialRecord, more: Cost) -> Regrade:
    """The record still without a grade, at another cost."""
    return Regrade(record.model, record.question, record.trial, None, {}, None, record.grader_error, more)


def trials_to_ask_again(reader: RunReader) -> Mapping[str, Sequence[TrialKey]]:
    """Trials that models which were set aside are asked again: time-outs of silent rounds, and permanent failures."""
    set_aside = {event.model for event in events_of_kind(reader.events(), ModelSetAside)}
    if not set_aside:
        return {}
    rounds: defaultdict[tuple[str, int], list[TrialPlace]] = defaultdict(list)
    for place in reader.places():
        if place.model in set_aside:
            rounds[place.model, place.round].append(place)
    again: dict[str, list[TrialKey]] = {}
    for (model, _), places in rounds.items():
        late = [place.key for place in places if place.has_flag("timed_out")]
        missing = [place.key for place in places if place.has_flag("unanswered")]
        missing += [] if enough_answers(len(late), len(places)) else late
        if missing:
            again.setdefault(model, []).extend(missing)
    return again
