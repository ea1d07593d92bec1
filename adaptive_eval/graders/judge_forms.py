"""The forms that a judge's question can have: a verdict, levels of several criteria, or which of two answers is better.

A form says what the judge is told and shown, what its reply must contain, what several votes come to, and which signals
an answer gets from that. `Judge` has one of them and asks nothing about which: verdicts are here, `ByScores` is in
`scoring.py`, `ByComparison` in `comparing.py`.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from pydantic import Field

from adaptive_eval.errors import GraderError
from adaptive_eval.graders.ballots import VERDICT, BallotField, Said
from adaptive_eval.graders.rubric import RubricConfig
from adaptive_eval.graders.transcript import ANSWER, ShownTexts, grading_words
from adaptive_eval.graders.types import SignalValue
from adaptive_eval.questions.types import Question
from adaptive_eval.sections import Section

LEVEL_NAME = r"^[A-Za-z0-9][A-Za-z0-9 _-]*$"


class JudgeLevel(Section):
    """One verdict."""

    name: str = Field(min_length=1, max_length=40, pattern=LEVEL_NAME)
    """What the judge says; conditions of the rubric name it, as in `when: {verdict: good}`."""
    says: str = ""
    """When it is to be given."""
    correct: bool | None = None
    """Whether the answer then counts as correct (`is_correct`)."""


class Voted(NamedTuple):
    """The decision of all votes on an answer."""

    said: Said
    """One level for each field of the ballot; () for an empty answer."""
    agreement: float
    """The share of the votes that say so."""
    order_dependent: float = 0.0
    """Of two answers that are compared: the share of the votes that depend on their order."""
    prefers_first: float = 0.0
    """How much oftener the first place was preferred than the second."""


EMPTY = Voted((), 1.0)
"""An empty answer, which is sent to nobody."""


class JudgeForm(ABC):
    """One way to ask a judge about an answer, and to read what it says."""

    orders: ClassVar[int] = 1
    """Requests that one vote takes."""
    answers: ClassVar[tuple[str, ...]] = ANSWER
    """The marks between which answers are shown."""

    @property
    @abstractmethod
    def ballot(self) -> tuple[BallotField, ...]:
        """The form that each reply must have."""

    @property
    def label_ballot(self) -> tuple[BallotField, ...]:
        """The form for a person who labels in the judge's place."""
        return self.ballot

    @property
    @abstractmethod
    def gives(self) -> frozenset[str]:
        """The signals that an answer gets by this form."""

    @property
    def own_rubric(self) -> RubricConfig | None:
        """The categories that follow from what the judge says, where the configuration declares none."""
        return None

    @property
    def needs_rubric(self) -> bool:
        """Whether the judge may say too much for a category each: the configuration must declare them."""
        return False

    def key_problem(self, question: Question) -> str | None:
        """Why a question cannot be judged by this form, if it cannot."""
        return None

    @abstractmethod
    def task(self, criteria: str) -> str:
        """The judge's task, and the replies that it may give."""

    def shown(self, question: Question, answer: str) -> tuple[ShownTexts, ...]:
        """The texts that show an answer to the judge: one for each request of a vote."""
        return (ShownTexts(question.prompt, question.answer, dict(zip(self.answers, (answer,), strict=True))),)

    def decided(self, question: Question, answer: str) -> Voted | None:
        """The verdict that is known without asking; None if the judge has to give it."""
        return None if answer.strip() else EMPTY

    @abstractmethod
    def voted(self, votes: Sequence[Sequence[Said]], wanted: int) -> Voted:
        """The decision of the votes, of as many as were wanted, each with its replies; `GraderError` if they differ."""

    @abstractmethod
    def signals_of(self, said: Said) -> dict[str, SignalValue]:
        """Signals of an answer with this verdict; () for an empty one."""

    def signals_of_vote(self, voted: Voted) -> dict[str, SignalValue]:
        """The signals of a vote, with what all votes show of the judge."""
        return self.signals_of(voted.said)


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

    def voted(self, votes: Sequence[Sequence[Said]], wanted: int) -> Voted:
        counts = Counter(replies[0] for replies in votes)
        most, number = counts.most_common(1)[0]
        if 2 * number <= wanted:
            told = {said[0]: times for said, times in counts.items()}
            raise GraderError(f"the votes of the judge differ: {told}")
        return Voted(most, number / wanted)

    def signals_of(self, said: Said) -> dict[str, SignalValue]:
        verdict = said[0] if said else ""
        known: dict[str, SignalValue] = {VERDICT: verdict, "has_answer": bool(said)}
        if self._say_correct:
            known["is_correct"] = {one.name: bool(one.correct) for one in self.verdicts}.get(verdict, False)
        return known
