"""Grades or the reason why there is none: for new answers, and for those that are stored without a grade.

A failure of the grader says nothing about the answer, so it is never graded wrong, and drawing another answer instead
would favour what the grader understands. The grader is tried again, but not where it has used up its limits; if it
fails on, the answer is stored ungraded, and the core is told so (see `core.ungraded`). `adaptive-eval regrade`, and the
next start of the run, try to grade the stored answer.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TypeVar

from adaptive_eval.core.types import NO_COST, Cost
from adaptive_eval.endpoints.redaction import BLOT, blotted
from adaptive_eval.endpoints.types import Again, Answer
from adaptive_eval.errors import GraderError, GraderExhausted, JudgeFailed
from adaptive_eval.graders.asked import spent_in
from adaptive_eval.graders.pool import Grading as Grading
from adaptive_eval.graders.types import Grade
from adaptive_eval.questions.types import Question
from adaptive_eval.store import Regrade, TrialRecord, VerdictsWasted
from adaptive_eval.store.records import AWAITS_THRESHOLDS, AWAITS_VERDICT
from adaptive_eval.supply.types import Lane

ATTEMPTS = 3
"""A grader that raised an error so often on one answer is taken to fail on it always."""

AT_A_TIME = 64
Result = TypeVar("Result")


async def grade_or_error(
    grading: Grading, answer: Answer, question: Question, again: Again | None = None
) -> Grade | GraderError:
    """The grade, or the error of the last attempt; of what is no answer, why it is none."""
    if "unanswered" in answer.signals:
        return GraderError(f"its server fails this request every time, and answers others: {answer.finish_reason}")
    return await result_or_error(partial(grading.grade, answer, question, *(() if again is None else (again,))))


async def result_or_error(grade: Callable[[], Awaitable[Result]]) -> Result | GraderError:
    """What a grader gives, or the error of its last attempt."""
    for _ in range(ATTEMPTS):
        try:
            return await grade()
        except GraderError as error:
            last = error
            if isinstance(error, GraderExhausted):
                break
    return last


async def grade_stored(
    grading: Grading,
    records: Iterable[TrialRecord],
    questions: Mapping[str, Question],
    again: Callable[[TrialRecord], Again | None] = lambda record: None,
) -> list[Regrade]:
    """Grade stored answers again, without a request; their texts are in memory only `AT_A_TIME`."""
    regrades: list[Regrade] = []
    rest = iter(records)
    while some := list(islice(rest, AT_A_TIME)):
        results = await asyncio.gather(
            *(
                grade_or_error(grading, one.answer, questions[one.question].for_trial(one.trial), again(one))
                for one in some
            )
        )
        regrades += map(regrade_of, some, results)
    return regrades


def waiting_record(lane: Lane, question: Question, trial: int, round_: int, answer: Answer) -> TrialRecord:
    """Record of an answer that is graded next, without what its grade may cost."""
    return record_of(lane, question, trial, round_, answer, GraderError(AWAITS_VERDICT))


def record_of(
    lane: Lane, question: Question, trial: int, round_: int, answer: Answer, grade: Grade | GraderError
) -> TrialRecord:
    """Record of an answer with its grade, or the reason why it has none."""
    cost = lane.price.cost(answer)
    answer, grade = without_secrets(answer, grade, lane.secrets)
    trial_at = (lane.name, question.id, trial, round_, answer)
    if isinstance(grade, GraderError):
        return TrialRecord(*trial_at, category=None, grader_error=str(grade), cost=cost)
    return TrialRecord(*trial_at, grade.category, grade.signals, grade.extracted, _awaits(grade), cost=cost)


def _awaits(grade: Grade) -> str | None:
    return AWAITS_THRESHOLDS if grade.category is None else None


def without_secrets(
    answer: Answer, grade: Grade | GraderError, secrets: tuple[str, ...]
) -> tuple[Answer, Grade | GraderError]:
    """An answer and its grade without keys that came back in the answer, which was graded as it came.

    What a grader has found in such an answer may be a piece of one: it stays only where the rest of the answer has it.
    """
    if not secrets:
        return answer, grade
    answer = _without_secret_tokens(answer, secrets)
    text, reasoning = blotted(answer.text, secrets), blotted(answer.reasoning or "", secrets)
    if text == answer.text and reasoning == (answer.reasoning or ""):
        return answer, grade

    def unless_secret(said: str) -> str:
        return said if said in text or said in reasoning else BLOT

    answer = replace(answer, text=text, reasoning=None if answer.reasoning is None else reasoning)
    if isinstance(grade, GraderError):
        return answer, type(grade)(blotted(str(grade), secrets))
    signals = {name: unless_secret(said) if isinstance(said, str) else said for name, said in grade.signals.items()}
    extracted = None if grade.extracted is None else unless_secret(grade.extracted)
    return answer, replace(grade, signals=signals, extracted=extracted)


def _without_secret_tokens(answer: Answer, secrets: tuple[str, ...]) -> Answer:
    """The answer without the texts of its tokens where these have a key, which might be put together from several of
    them."""
    told = answer.token_logprobs
    if told is None or blotted(whole := "".join(told.tokens), secrets) == whole:
        return answer
    return replace(answer, token_logprobs=told._replace(tokens=("",) * len(told.tokens)))


def wasted_verdict(verdict: Regrade, replaced: Cost | None = None) -> VerdictsWasted | None:
    """The event for what a verdict has cost besides its grade, and for all of a `replaced` one; None if nothing."""
    more = verdict.cost.plus((spent_in(verdict.signals) or NO_COST).times(-1))
    verdicts = int(verdict.failed) + (replaced is not None)
    more = more if replaced is None else more.plus(replaced)
    if more.tokens <= 0:  # else what rounding has left of USD and seconds
        return None
    return VerdictsWasted(verdict.model, verdicts, *more)


def regrade_of(record: TrialRecord, result: Grade | GraderError) -> Regrade:
    """The grade that a stored trial gets."""
    at = (record.model, record.question, record.trial)
    if isinstance(result, GraderError):
        spent = result.cost if isinstance(result, JudgeFailed) and isinstance(result.cost, Cost) else NO_COST
        return Regrade(*at, category=None, signals={}, extracted=None, grader_error=str(result), cost=spent)
    return Regrade(*at, result.category, result.signals, result.extracted, _awaits(result), result.cost)
