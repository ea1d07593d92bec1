"""Cost of a judge's verdicts under the caps: they count at their worst until they arrive.

An answer is stored with the most that its verdict may cost on top, by the answer's length, and the verdict takes back
the unused part. A later start takes back every reserve that it finds. The verdicts of the first of these answers may
have been generated and lost, as many as were asked for at a time: an event says what they count as. The others were
never asked for, since verdicts are asked for in the order of commitment. As much is reserved anew before any is asked
for again. A reply that is lost on the way counts at its worst as soon as that is noticed, as an answer does. If no cap
counts verdicts, nothing is reserved, and only the usage of replies that arrived is stored.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from adaptive_eval.base.errors import Unavailable
from adaptive_eval.core.types import NO_COST, Cost
from adaptive_eval.endpoints.types import Answer
from adaptive_eval.questions.types import Question
from adaptive_eval.scheduler.grading import Grading
from adaptive_eval.store import AnswersLost, CommitBatch, Regrade, RunBegun, TrialRecord
from adaptive_eval.store.spending import stored_cost

BEYOND = (
    "a verdict has cost {} tokens, and at most {} were reserved for it: the server that gives verdicts does not "
    "keep to grader.sampling.max_tokens, and no cap can hold; mend it and run the same command, or remove the caps"
)


def require_kept(verdict: Regrade, reserved: Cost, vote: Cost) -> None:
    """Raise `Unavailable` if a verdict has cost more than was reserved for it.

    `vote` is the most that one reply may cost: replies that were lost on the way count in whole votes.
    """
    if 0 < reserved.tokens < verdict.cost.tokens - vote.tokens:
        raise Unavailable(BEYOND.format(verdict.cost.tokens, reserved.tokens))


def verdict_reserve(grading: Grading, *, capped: bool) -> Cost | None:
    """The reserve for all votes on one answer: zero if no cap counts them, None if nobody is asked."""
    if not grading.lasting:
        return None
    return grading.lost if capped else NO_COST


def used(verdict: Regrade, reserved: Cost) -> Regrade:
    """The verdict at its cost minus the reserve, so that the unused part is taken back."""
    return verdict._replace(cost=verdict.cost.plus(reserved.times(-1)))


def add_cost(record: TrialRecord, more: Cost) -> Regrade:
    """A regrade that leaves the record ungraded and adds to its cost."""
    return Regrade(record.model, record.question, record.trial, None, {}, None, record.grader_error, more)


class VerdictCosts:
    """Reserves for verdicts, and checks of their cost when they arrive."""

    def __init__(self, grading: Grading, questions: Sequence[Question], *, capped: bool) -> None:
        """`capped`: a cap counts the cost of verdicts."""
        self.is_counted = grading.lasting and capped
        """Whether anything is reserved."""
        self._grading, self._questions = grading, {question.id: question for question in questions}

    def reserved(self, record: TrialRecord) -> Cost:
        """The reserve for all votes on a stored answer, by the length of its text."""
        if not self.is_counted:
            return NO_COST
        question = self._questions[record.question].for_trial(record.trial)
        return self._grading.lost_with(record.answer.text, question)

    def settle_reserves(
        self, records: Iterable[TrialRecord], prices: Mapping[str, Callable[[Answer], Cost]], starts: Iterable[RunBegun]
    ) -> CommitBatch:
        """The batch that takes back the reserves for verdicts that an earlier start has not received, and records as
        lost those that it may have asked for.

        `records` are in the order of commitment, `prices` has the cost of an answer by model, and `starts` are the
        earlier ones.
        """
        asked = max((one.judged_at_once or 0 for one in starts), default=0)
        lost, rest = dict[str, AnswersLost](), list[Regrade]()
        for one in records:
            more, reserved = one.cost.plus(prices[one.model](one.answer).times(-1)), self.reserved(one)
            more = min(more, reserved) if reserved.tokens else more  # the rest is of unreadable verdicts
            if one.awaits_verdict and more.tokens > 0:
                if len(rest) < asked:
                    before = lost.get(one.model, AnswersLost(one.model, killed=True))
                    total = stored_cost(before).plus(more)
                    lost[one.model] = AnswersLost(one.model, 0, *total, killed=True, verdicts=before.verdicts + 1)
                rest.append(add_cost(one, more.times(-1)))
        return CommitBatch(events=list(lost.values()), verdicts=rest)

    def require_kept(self, verdict: Regrade, reserved: Cost) -> None:
        """Raise `Unavailable` if a new verdict shows that the caps cannot hold."""
        require_kept(verdict, reserved, self._grading.lost_vote(reserved))

    def loss(self, record: TrialRecord) -> AnswersLost | None:
        """The event for a lost reply about an answer; None if no cap counts it."""
        if not self.is_counted:
            return None
        return AnswersLost(record.model, 0, *self._grading.lost_vote(self.reserved(record)), verdicts=1)
