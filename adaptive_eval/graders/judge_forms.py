"""The ways to ask a judge: for a verdict, for levels of several criteria, or which of two answers is better.

A form defines what the judge is told and shown, what its reply must contain, how votes are combined, and which signals
the answer gets. Verdicts are here, `ByScores` is in `scoring.py`, `ByComparison` in `comparing.py`.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from pydantic import Field

from adaptive_eval.base.errors import GraderError
from adaptive_eval.base.sections import Section
from adaptive_eval.graders.ballots import VERDICT, BallotField, Levels
from adaptive_eval.graders.rubric import RubricConfig
from adaptive_eval.graders.transcript import ANSWER, ShownTexts, grading_words
from adaptive_eval.graders.types import SignalValue
from adaptive_eval.questions.types import Question

LEVEL_NAME = r"^[A-Za-z0-9][A-Za-z0-9 _-]*$"


class JudgeLevel(Section):
    """One verdict."""

    name: str = Field(min_length=1, max_length=40, pattern=LEVEL_NAME)
    """Name of the verdict, for the judge and for conditions of the rubric: `when: {verdict: good}`."""
    says: str = ""
    """Instructions on when to give it."""
    correct: bool | None = None
    """Whether an answer with this verdict is correct (`is_correct`)."""


class VoteResult(NamedTuple):
    """The decision of all votes on an answer."""

    said: Levels
    """One level for each field of the ballot; () for an empty answer."""
    agreement: float
    """The share of the votes that agree."""
    order_dependent: float = 0.0
    """In a comparison, the share of the votes that depend on the order."""
    prefers_first: float = 0.0
    """In a comparison, how much more often the first place was preferred than the second."""


EMPTY = VoteResult((), 1.0)
"""The result for an empty answer, about which no judge is asked."""


class JudgeForm(ABC):
    """A way to ask a judge about an answer and to read its reply."""

    orders: ClassVar[int] = 1
    """Number of requests for one vote."""
    answers: ClassVar[tuple[str, ...]] = ANSWER
    """The marks between which answers are shown."""

    @property
    @abstractmethod
    def ballot(self) -> tuple[BallotField, ...]:
        """The form that each reply must have."""

    @property
    def label_ballot(self) -> tuple[BallotField, ...]:
        """The ballot for a person who labels in place of the judge."""
        return self.ballot

    @property
    @abstractmethod
    def gives(self) -> frozenset[str]:
        """The names of the signals that an answer gets."""

    @property
    def own_rubric(self) -> RubricConfig | None:
        """The categories that follow from the possible verdicts, used if the configuration declares none."""
        return None

    @property
    def needs_rubric(self) -> bool:
        """Whether there are too many possible replies for a category each: the configuration must declare some."""
        return False

    def key_problem(self, question: Question) -> str | None:
        """Why a question cannot be judged in this form; None if it can."""
        return None

    @abstractmethod
    def task(self, criteria: str) -> str:
        """The judge's instructions, with the possible replies."""

    def shown(self, question: Question, answer: str) -> tuple[ShownTexts, ...]:
        """The texts that show an answer to the judge, one for each request of a vote."""
        return (ShownTexts(question.prompt, question.answer, dict(zip(self.answers, (answer,), strict=True))),)

    def decided(self, question: Question, answer: str) -> VoteResult | None:
        """The verdict if it is known without asking; None if the judge must be asked."""
        return None if answer.strip() else EMPTY

    @abstractmethod
    def voted(self, votes: Sequence[Sequence[Levels]], wanted: int) -> VoteResult:
        """The decision of the votes, out of `wanted` that were requested; raises `GraderError` if they disagree."""

    @abstractmethod
    def make_signals(self, said: Levels) -> dict[str, SignalValue]:
        """Signals of an answer with this verdict, which is () for an empty answer."""

    def signals_of_vote(self, voted: VoteResult) -> dict[str, SignalValue]:
        """Signals of the decision, with statistics of all votes."""
        return self.make_signals(voted.said)


@dataclass(frozen=True)
class ByVerdicts(JudgeForm):
    """The judge gives one of several verdicts."""

    verdicts: tuple[JudgeLevel, ...]

    @property
    def ballot(self) -> tuple[BallotField, ...]:
        return (BallotField(VERDICT, tuple(one.name for one in self.verdicts)),)

    @property
    def gives(self) -> frozenset[str]:
        return frozenset({VERDICT, "is_correct"} if self._say_correct else {VERDICT})

    @property
    def _say_correct(self) -> bool:
        return self.verdicts[0].correct is not None

    def task(self, criteria: str) -> str:
        return grading_words([(one.name, one.says) for one in self.verdicts], criteria, "verdicts")

    def voted(self, votes: Sequence[Sequence[Levels]], wanted: int) -> VoteResult:
        counts = Counter(replies[0] for replies in votes)
        most, number = counts.most_common(1)[0]
        if 2 * number <= wanted:
            told = {said[0]: times for said, times in counts.items()}
            raise GraderError(f"the votes of the judge differ: {told}")
        return VoteResult(most, number / wanted)

    def make_signals(self, said: Levels) -> dict[str, SignalValue]:
        verdict = said[0] if said else ""
        known: dict[str, SignalValue] = {VERDICT: verdict, "has_answer": bool(said)}
        if self._say_correct:
            known["is_correct"] = {one.name: bool(one.correct) for one in self.verdicts}.get(verdict, False)
        return known
