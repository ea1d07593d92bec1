"""Stored answers without a grade are graded once more when a run goes on, before anything is asked.

A few at a time, each few stored as soon as they are graded: it may take long, shows how far it is, and can be stopped.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice

from adaptive_eval.questions.types import Question
from adaptive_eval.scheduler.grading import Grading, grade_stored, in_vain
from adaptive_eval.scheduler.verdict_costs import VerdictCosts
from adaptive_eval.store import Event, Regrade, RegradingBegun, Store, TrialRecord, TrialsRegraded

AT_A_TIME = 16
"""Answers that are graded between two signs of life, and lost when one stops it."""


class Regrading:
    """Tries once more what the grader has failed on."""

    def __init__(
        self,
        grading: Grading,
        store: Store,
        questions: Mapping[str, Question],
        models: set[str],
        costs: VerdictCosts,
    ) -> None:
        self._costs = costs
        self._grading = grading
        self._store = store
        self._questions = questions
        self._models = models
        """The models that the run has today: answers of others wait until they come back."""
        self._stopped = False
        self._at_work: asyncio.Task[list[Regrade]] | None = None

    async def run(self, happened: Callable[[Event], None]) -> list[Regrade]:
        """Grade and store them; gives those on which the grader failed again."""
        if next(self._ungraded(), None) is None:  # that is known when all are read, which should be done once
            return []
        self._costs.give_up(self._ungraded(), happened)
        failed: list[Regrade] = []
        total = sum(1 for _ in self._ungraded())
        graded = 0
        while some := list(islice(self._ungraded(), len(failed), len(failed) + AT_A_TIME)):
            if graded == 0:
                happened(RegradingBegun(total))
            verdicts = await self._grade(self._costs.affordable(some), happened)
            if not verdicts:
                break
            regrades = [self._costs.used(one) for one in verdicts]
            graded += len(regrades)
            event = TrialsRegraded(len(regrades), so_far=graded, of=total)
            self._store.regrade(regrades, [event, *filter(None, map(in_vain, verdicts))])
            happened(event)
            for verdict in verdicts:
                self._costs.require_kept(verdict)
            failed += [regrade for regrade in regrades if regrade.failed]
        return failed

    def stop(self) -> None:
        """Leave what is not graded yet as it is."""
        self._stopped = True
        if self._at_work is not None:
            self._at_work.cancel()

    async def _grade(self, some: Sequence[TrialRecord], happened: Callable[[Event], None]) -> list[Regrade]:
        """Their grades, none when it is stopped."""
        if self._stopped:
            return []
        again = self._costs.stored_again(happened)
        at_work = self._at_work = asyncio.create_task(grade_stored(self._grading, some, self._questions, again))
        try:
            await asyncio.wait([at_work])
        finally:
            at_work.cancel()  # where the whole run is cancelled
        if at_work.cancelled():
            return []
        return at_work.result()

    def _ungraded(self) -> Iterator[TrialRecord]:
        """What has no grade now, in the order of commitment: what has failed again stays in front."""
        ungraded = self._store.reader.trials("ungraded")
        return (record for record in ungraded if record.model in self._models and not record.awaits)
