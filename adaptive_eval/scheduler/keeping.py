"""From an answer to a graded trial on disk, which the core may be told of.

An answer is graded and then stored, but for two kinds. Where a grade takes a request of its own, the answer is stored
first, and its verdict in a later commit. Where the rubric has thresholds that are fitted on the opening, the answer is
stored without a category, and waits for it until the thresholds are frozen.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence

from adaptive_eval.core.types import Ask, Outcome
from adaptive_eval.endpoints.types import Answer
from adaptive_eval.errors import ConfigError, Unavailable
from adaptive_eval.questions.types import Question
from adaptive_eval.scheduler.committer import Committer
from adaptive_eval.scheduler.departures import Departures
from adaptive_eval.scheduler.grading import Grading, grade_or_error, in_vain, record_of, regrade_of, waiting_record
from adaptive_eval.scheduler.intake import Intake
from adaptive_eval.scheduler.opening_fit import OpeningFit, place_of
from adaptive_eval.scheduler.types import Lane
from adaptive_eval.scheduler.verdict_costs import VerdictCosts
from adaptive_eval.scheduler.waiting import TrialGroup
from adaptive_eval.store import CommitBatch, Event, RunReader, Store, TrialRecord


class AnswerKeeper:
    """Has answers graded and stored, and knows those that wait for a verdict or for thresholds."""

    def __init__(
        self,
        lanes: Sequence[Lane],
        questions: Sequence[Question],
        grading: Grading,
        costs: VerdictCosts,
        committer: Committer,
        intake: Intake,
        departures: Departures,
        opening_fit: OpeningFit | None,
        abort: Callable[[BaseException], None],
    ) -> None:
        """`opening_fit`: where the rubric has thresholds to be fitted; `abort` ends the run by an error."""
        self._lanes, self._questions, self._grading, self._costs = lanes, questions, grading, costs
        self._committer, self._intake = committer, intake
        self._departures, self._opening_fit, self._abort = departures, opening_fit, abort
        self._unjudged: dict[tuple[str, str, int], TrialRecord] = {}
        """Answers that are on disk, and whose verdicts are not."""

    def restore_grading(self, reader: RunReader) -> None:
        """What grades have used in earlier starts counts, where somebody is asked for them."""
        if self._grading.lasting:
            self._intake.restore_grading(reader.grading_uses())

    # -- before they are on disk ---------------------------------------------------------------------------------

    async def keep(self, model: int, group: TrialGroup, answers: Sequence[Answer]) -> None:
        """Grade the answers of a request, and have them stored."""
        lane, question = self._lanes[model], self._questions[group.question]
        each = list(zip(group.trials, answers, strict=True))
        if self._grading.lasting:
            reserved = self._costs.reserved
            records = [waiting_record(lane, question, trial, group.round, answer, reserved) for trial, answer in each]
            await self._judge(model, question, records)
            return
        for trial, answer in each:
            grade = await grade_or_error(self._grading, answer, question.for_trial(trial))
            self._committer.add_trial(record_of(lane, question, trial, group.round, answer, grade))

    async def _judge(self, model: int, question: Question, records: Sequence[TrialRecord]) -> None:
        """Store answers, then have them graded: whoever ends the run between the two loses neither."""
        for record in records:
            self._committer.add_trial(record)
        await self._committer.safe()
        again = self._costs.asked_again(model, self._committer.safe)
        grading = (
            grade_or_error(self._grading, record.answer, question.for_trial(record.trial), again) for record in records
        )
        for record, grade in zip(records, await asyncio.gather(*grading), strict=True):
            verdict = regrade_of(record, grade)
            self._committer.add_verdict(self._costs.used(verdict))
            if (event := in_vain(verdict)) is not None:
                self._committer.add_event(event)
            try:
                self._costs.require_kept(verdict)
            except Unavailable as error:
                self._abort(error)

    # -- what was committed --------------------------------------------------------------------------------------

    def graded(self, batch: CommitBatch) -> Iterator[Outcome]:
        """What the core is told of answers that have a grade now, or never will."""
        for record in self._decided(batch):
            if record.awaits:
                self._hold(record)
                continue
            outcome = self._intake.take_new(record)
            if self._opening_fit is not None and not self._opening_fit.over:
                self._opening_fit.count(record.outcome())
            if record.grader_error is not None:
                self._departures.ungraded(outcome.model, record.question, record.grader_error)
            yield outcome

    def _decided(self, batch: CommitBatch) -> list[TrialRecord]:
        """All but answers whose verdict is on its way; these are taken in with it."""
        if not self._grading.lasting:
            return list(batch.trials)
        records = [record for record in batch.trials if not record.waits]
        verdicts = [one for one in batch.verdicts if place_of(one) in self._unjudged]
        self._unjudged |= {place_of(record): record for record in batch.trials if record.waits}
        return [*records, *(self._unjudged.pop(place_of(one)).judged(one) for one in verdicts)]

    # -- thresholds that are fitted on the opening ---------------------------------------------------------------

    def restore_opening(self, store: Store) -> Event | None:
        """Take up answers that wait for thresholds, and fit these where nothing else is missing."""
        if self._opening_fit is None:
            return None
        event = self._opening_fit.restore(store)
        self._grading.rubric = self._opening_fit.rubric
        return event

    def is_here(self, ask: Ask) -> bool:
        """Nobody has to be asked for a trial that the core wants: it waits for thresholds."""
        return self._opening_fit is not None and self._opening_fit.is_here(ask)

    def asked(self, model: int) -> int:
        """Trials of a model that the core has asked for, and that wait for thresholds."""
        return 0 if self._opening_fit is None else self._opening_fit.asked(model)

    def waited(self, batch: CommitBatch) -> list[Outcome]:
        """Answers that have waited for thresholds, and have a category on disk now."""
        if self._opening_fit is None:
            return []
        outcomes: list[Outcome] = []
        for verdict in batch.verdicts:
            if (settled := self._opening_fit.settle(verdict)) is not None:
                outcomes.append(self._intake.judge(settled))
                if verdict.grader_error is not None:
                    self._departures.ungraded(outcomes[-1].model, verdict.question, verdict.grader_error)
        return outcomes

    def _hold(self, record: TrialRecord) -> None:
        """Have an answer wait for thresholds, or for no more than the next commit where these are there by now."""
        assert self._opening_fit is not None
        self._intake.hold(record)
        self._opening_fit.hold(record, asked=True)
        if self._opening_fit.over:
            self._committer.add_verdict(self._opening_fit.verdict_on(record))

    def end_opening(self, note: Callable[[Event], None]) -> None:
        """Freeze the thresholds once nothing of the opening is missing: every answer that waits gets its category."""
        fit = self._opening_fit
        if fit is None or not fit.ready(self._departures.gone):
            return
        try:
            note(fit.freeze())
        except ConfigError as error:
            self._abort(error)
            return
        self._grading.rubric = fit.rubric
        for verdict in fit.verdicts():
            self._committer.add_verdict(verdict)
