"""Cost of a judge's verdicts under the caps: they count at their worst until they are there.

An answer is stored with the most that its verdict may cost on top, by the answer's length, and the verdict takes back
what it did not use. What a later start finds so was asked for and lost, as far as anybody knows: an event says what it
counts as, and as much is reserved again before it is asked for again. A reply that is lost on the way counts at its
worst as soon as that is noticed, as an answer does. Where no cap counts it nothing is reserved, and stored is what the
replies that came have used.
"""

from collections.abc import Sequence

from adaptive_eval.core.types import NO_COST, Cost
from adaptive_eval.errors import Unavailable
from adaptive_eval.graders.asked import USED
from adaptive_eval.questions.types import Question
from adaptive_eval.scheduler.grading import Grading
from adaptive_eval.scheduler.state import SpentByModel
from adaptive_eval.store import AnswersLost, Regrade, TrialRecord

BEYOND = (
    "a verdict has cost {} tokens, and at most {} were reserved for it: the server that gives verdicts does not "
    "keep to grader.sampling.max_tokens, and no cap can hold; mend it and run the same command, or remove the caps"
)

FIRST_ANSWERS = 12
"""A grader that has failed on so many answers, and has given no verdict yet, is taken to fail on all."""
MUTE = (
    "no verdict has come on any of the first {} answers, so nothing more is asked: {}\n"
    "Every answer is stored. Mend the grader or its server; the same command then has these answers graded first."
)


def require_kept(verdict: Regrade, reserved: Cost, vote: Cost) -> None:
    """Raise `Unavailable` where a verdict has cost more than was reserved for it; `vote` is one reply to it, at most.

    What was lost on the way counts in whole votes.
    """
    if 0 < reserved.tokens < verdict.cost.tokens - vote.tokens:
        raise Unavailable(BEYOND.format(verdict.cost.tokens, reserved.tokens))


def verdict_reserve(grading: Grading, *, capped: bool) -> Cost | None:
    """The reserve for all votes on one answer: zero if no cap counts them, None if nobody is asked."""
    if not grading.lasting:
        return None
    return grading.lost if capped else NO_COST


def used(verdict: Regrade, reserved: Cost) -> Regrade:
    """The verdict, taking back what it did not use of what was reserved for it."""
    return verdict._replace(cost=verdict.cost.plus(reserved.times(-1)))


class VerdictCosts:
    """Reserves for verdicts, and their cost once they are there."""

    def __init__(self, grading: Grading, questions: Sequence[Question], spent: SpentByModel, *, capped: bool) -> None:
        """`spent` is what the run has used until now; `capped`: a cap counts what verdicts cost."""
        self.is_counted = grading.lasting and capped
        """Whether anything is reserved."""
        self._grading, self._questions = grading, {question.id: question for question in questions}
        self._spent = spent
        self._heard = not grading.lasting
        """A verdict has come, in this start or before; a grader that asks nobody may fail on what it likes."""
        self._failed = 0

    def reserved(self, record: TrialRecord) -> Cost:
        """The reserve for all votes on a stored answer: as much as its text may take, and no more."""
        if not self.is_counted:
            return NO_COST
        question = self._questions[record.question].for_trial(record.trial)
        return self._grading.lost_with(record.answer.text, question)

    def require_kept(self, verdict: Regrade, reserved: Cost, *, finished: bool) -> None:
        """Raise `Unavailable` where a verdict, as it came, shows that the caps cannot hold, or that none ever comes."""
        require_kept(verdict, reserved, self._grading.lost_vote(reserved))
        self._failed += verdict.failed
        self._heard = self._heard or bool(verdict.signals.get(USED[0]))
        if self._failed < FIRST_ANSWERS or self._heard or finished:
            return  # at a cap, lost replies are not asked for again
        self._heard = any(usage.grading.cost.tokens for usage in self._spent.usages)
        if not self._heard:
            raise Unavailable(MUTE.format(self._failed, verdict.grader_error))

    def loss(self, record: TrialRecord) -> AnswersLost | None:
        """The loss of a reply about an answer on the way; None if no cap counts it."""
        if not self.is_counted:
            return None
        return AnswersLost(record.model, 0, *self._grading.lost_vote(self.reserved(record)), verdicts=1)
