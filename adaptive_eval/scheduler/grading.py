"""Grades, or the reasons why there are none, for new answers and for stored ones without a grade.

A failure of the grader says nothing about the answer, so it is never graded wrong, and drawing another answer instead
would favour what the grader understands. The grader is tried again unless it has used up its limits. If it keeps
failing, the answer is stored ungraded, and the core is told so (see `core.tally`). `adaptive-eval regrade`, and the
next start of the run, try to grade the stored answer.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from adaptive_eval.base.errors import GraderError, JudgeFailed
from adaptive_eval.core.types import NO_COST, Cost
from adaptive_eval.endpoints.types import Again, Answer
from adaptive_eval.graders.asked import cost_from_signals
from adaptive_eval.graders.attempts import grade_or_error as grade_or_error
from adaptive_eval.graders.pool import Grading as Grading
from adaptive_eval.graders.types import Grade
from adaptive_eval.questions.types import Question
from adaptive_eval.store import Regrade, TrialRecord, VerdictsWasted
from adaptive_eval.store.records import AWAITS_VERDICT
from adaptive_eval.supply.types import Lane


async def grade_stored(
    grading: Grading,
    records: Sequence[TrialRecord],
    questions: Mapping[str, Question],
    again: Callable[[TrialRecord], Again | None],
) -> list[Regrade]:
    """Grade stored answers again, all at once."""
    asked = ((one.answer, questions[one.question].for_trial(one.trial), again(one)) for one in records)
    return [*map(make_regrade, records, await asyncio.gather(*(grade_or_error(grading.grade, *one) for one in asked)))]


def waiting_record(lane: Lane, question: Question, trial: int, round_: int, answer: Answer) -> TrialRecord:
    """Record of an answer that awaits its verdict, without the cost of the verdict."""
    return make_record(lane, question, trial, round_, answer, GraderError(AWAITS_VERDICT))


def make_record(
    lane: Lane, question: Question, trial: int, round_: int, answer: Answer, grade: Grade | GraderError
) -> TrialRecord:
    """Record of an answer with its grade, or the reason why it has none."""
    cost = lane.price.cost(answer)
    trial_at = (lane.name, question.id, trial, round_, answer)
    if isinstance(grade, GraderError):
        return TrialRecord(*trial_at, category=None, grader_error=str(grade), cost=cost)
    return TrialRecord(*trial_at, grade.category, grade.signals, grade.extracted, cost=cost)


def wasted_verdict(verdict: Regrade, replaced: Cost | None = None) -> VerdictsWasted | None:
    """The event for the cost of a verdict beyond its grade, plus that of a `replaced` one; None if that is nothing."""
    more = verdict.cost.plus((cost_from_signals(verdict.signals) or NO_COST).times(-1))
    verdicts = int(verdict.failed) + (replaced is not None)
    more = more if replaced is None else more.plus(replaced)
    if more.tokens <= 0:  # USD and seconds may differ from 0 by rounding
        return None
    return VerdictsWasted(verdict.model, verdicts, *more)


def make_regrade(record: TrialRecord, result: Grade | GraderError) -> Regrade:
    """Make the regrade of a stored trial from a grader's result."""
    at = (record.model, record.question, record.trial)
    if isinstance(result, GraderError):
        spent = result.cost if isinstance(result, JudgeFailed) and isinstance(result.cost, Cost) else NO_COST
        return Regrade(*at, category=None, signals={}, extracted=None, grader_error=str(result), cost=spent)
    return Regrade(*at, result.category, result.signals, result.extracted, None, result.cost)
