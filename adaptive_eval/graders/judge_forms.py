"""The kinds of judging: by a verdict, by levels of several criteria, or by comparing two answers.

A form defines the judge's instructions, the fields of its reply, how votes are combined, and the signals of the answer.
Verdicts are here, `ByScores` is in `scoring.py`, `ByComparison` in `comparing.py`.
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
    """A possible verdict."""

    name: str = Field(min_length=1, max_length=40, pattern=LEVEL_NAME)
    """Name of the verdict, for the judge and for conditions of the rubric: `when: {verdict: good}`."""
    says: str = ""
    """When to give this verdict, as an instruction to the judge."""
    correct: bool | None = None
    """Whether an answer with this verdict is correct (`is_correct`)."""


class VoteResult(NamedTuple):
    """The combined votes on an answer."""

    levels: Levels
    """One level for each field of the ballot; () for an empty answer."""
    agreement: float
    """The share of votes that agree."""
    order_dependent: float = 0.0
    """In a comparison, the share of votes that depend on the order."""
    prefers_first: float = 0.0
    """In a comparison, how much more often the first place was preferred than the second."""


EMPTY = VoteResult((), 1.0)
"""The result for an empty answer, for which no request is sent."""


class JudgeForm(ABC):
    """A kind of judging: how to ask about an answer and read the reply."""

    orders: ClassVar[int] = 1
    """Number of requests per vote."""
    answers: ClassVar[tuple[str, ...]] = ANSWER
    """Names of the marks around the answers shown."""

    @property
    @abstractmethod
    def ballot(self) -> tuple[BallotField, ...]:
        """The fields that each reply must have."""

    @property
    def label_ballot(self) -> tuple[BallotField, ...]:
        """The ballot for a person who labels in place of the judge."""
        return self.ballot

    @property
    @abstractmethod
    def gives(self) -> frozenset[str]:
        """Names of the signals of an answer."""

    @property
    def own_rubric(self) -> RubricConfig | None:
        """The rubric implied by the possible verdicts, for configurations that declare none."""
        return None

    @property
    def needs_rubric(self) -> bool:
        """Whether the configuration must declare categories, since there are too many possible replies."""
        return False

    def key_problem(self, question: Question) -> str | None:
        """Why a question cannot be judged this way; None if it can."""
        return None

    @abstractmethod
    def task(self, criteria: str) -> str:
        """Instructions to the judge, with the possible replies."""

    def shown(self, question: Question, answer: str) -> tuple[ShownTexts, ...]:
        """The texts to show to the judge, for each request of a vote."""
        return (ShownTexts(question.prompt, question.answer, dict(zip(self.answers, (answer,), strict=True))),)

    def decided(self, question: Question, answer: str) -> VoteResult | None:
        """The verdict if no request is needed; None if the judge must be asked."""
        return None if answer.strip() else EMPTY

    @abstractmethod
    def voted(self, votes: Sequence[Sequence[Levels]], requested: int) -> VoteResult:
        """The decision of the votes, of which `requested` were requested; raises `GraderError` if they disagree."""

    @abstractmethod
    def make_signals(self, levels: Levels) -> dict[str, SignalValue]:
        """Signals of an answer with this verdict, which is () for an empty answer."""

    def signals_of_vote(self, voted: VoteResult) -> dict[str, SignalValue]:
        """Signals of the decision, including statistics of the votes."""
        return self.make_signals(voted.levels)


@dataclass(frozen=True)
class ByVerdicts(JudgeForm):
    """The judge chooses one of several verdicts."""

    verdicts: tuple[JudgeLevel, ...]

    @property
    def ballot(self) -> tuple[BallotField, ...]:
        return (BallotField(VERDICT, tuple(verdict.name for verdict in self.verdicts)),)

    @property
    def gives(self) -> frozenset[str]:
        return frozenset({VERDICT, "is_correct"} if self._say_correct else {VERDICT})

    @property
    def _say_correct(self) -> bool:
        return self.verdicts[0].correct is not None

    def task(self, criteria: str) -> str:
        return grading_words([(verdict.name, verdict.says) for verdict in self.verdicts], criteria, "verdicts")

    def voted(self, votes: Sequence[Sequence[Levels]], requested: int) -> VoteResult:
        counts = Counter(replies[0] for replies in votes)
        majority, count = counts.most_common(1)[0]
        if 2 * count <= requested:
            counts_by_verdict = {levels[0]: votes_for for levels, votes_for in counts.items()}
            raise GraderError(f"the judge's votes differ: {counts_by_verdict}")
        return VoteResult(majority, count / requested)

    def make_signals(self, levels: Levels) -> dict[str, SignalValue]:
        verdict = levels[0] if levels else ""
        signals: dict[str, SignalValue] = {VERDICT: verdict, "has_answer": bool(levels)}
        if self._say_correct:
            signals["is_correct"] = {level.name: bool(level.correct) for level in self.verdicts}.get(verdict, False)
        return signals
