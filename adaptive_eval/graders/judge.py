"""A judge: a language model on any server that gives each answer one of the verdicts that are declared."""

from typing import Literal

from pydantic import Field, field_validator

from adaptive_eval.core.types import Cost
from adaptive_eval.endpoints.types import Sampling
from adaptive_eval.graders.asked import USED, AskedGrader, spent_signals
from adaptive_eval.graders.transcript import Transcript, judging_words, transcript_of
from adaptive_eval.graders.types import Marks, SignalValue
from adaptive_eval.questions.types import Question
from adaptive_eval.sections import Count, Section, refuse

NAME = r"^[A-Za-z0-9][A-Za-z0-9 _-]*$"


class JudgeLevel(Section):
    """One verdict."""

    name: str = Field(min_length=1, max_length=40, pattern=NAME)
    """What the judge says; conditions of the rubric name it, as in `when: {verdict: good}`."""
    says: str = ""
    """When it is to be given."""
    correct: bool | None = None
    """Whether the answer then counts as correct (`is_correct`)."""


RIGHT_OR_WRONG = (
    JudgeLevel(name="correct", says="it says what the reference answer says, in whatever form", correct=True),
    JudgeLevel(name="wrong", says="it says something else, or does not come to an answer", correct=False),
)


class Judge(AskedGrader):
    """A language model says which of the verdicts an answer gets.

    Signals: `verdict`, `is_correct` where the verdicts say what is correct, `has_answer`, `agreement` (the share of the
    votes), and what was used: `judge_prompt_tokens`, `judge_completion_tokens`, `judge_usd`, `judge_gpu_seconds`. An
    empty answer is sent to nobody, and its verdict is "". A verdict that cannot be had or read is a grader error.
    """

    kind: Literal["judge"] = "judge"
    sampling: Sampling = Sampling(temperature=0.0, max_tokens=1024)
    """How a verdict is drawn; each vote has a seed of its own, which follows from that of the answer."""
    verdicts: tuple[JudgeLevel, ...] = Field(RIGHT_OR_WRONG, min_length=2)
    """Those that it may give; default: correct and wrong."""
    votes: Count = Field(1, ge=1, le=15)
    """Verdicts on each answer; more than half of them must agree."""

    @field_validator("verdicts")
    @classmethod
    def _different(cls, verdicts: tuple[JudgeLevel, ...]) -> tuple[JudgeLevel, ...]:
        if len({one.name.casefold() for one in verdicts}) < len(verdicts):
            raise refuse("must have different names", "rename one of those that are equal")
        if len({one.correct is None for one in verdicts}) > 1:
            raise refuse("must say of all or of none whether they are correct", "add `correct:` to the others")
        return verdicts

    @property
    def says_correct(self) -> bool:
        """Whether the verdicts say what is correct."""
        return self.verdicts[0].correct is not None

    @property
    def replies(self) -> int:
        """One a vote."""
        return self.votes

    @property
    def gives(self) -> frozenset[str]:
        said = {"verdict", "has_answer", "agreement", *USED}
        return frozenset({*said, "is_correct"} if self.says_correct else said)

    def transcript(self, question: Question, answer: str) -> Transcript:
        """What the judge is sent about one answer."""
        levels = [(one.name, one.says) for one in self.verdicts]
        words = judging_words(levels, self.criteria)
        return transcript_of(
            question, answer, words=words, criteria=self.criteria, template=self.template, longest=self.longest
        )

    def marks(self, verdict: str, agreement: float, used: Cost, prompt_tokens: int, completion_tokens: int) -> Marks:
        """The signals of a verdict; "" for an empty answer."""
        correct = {one.name: bool(one.correct) for one in self.verdicts}.get(verdict, False)
        said: dict[str, SignalValue] = {"verdict": verdict, "has_answer": verdict != "", "agreement": agreement}
        if self.says_correct:
            said["is_correct"] = correct
        return Marks({**said, **spent_signals(used, prompt_tokens, completion_tokens)}, verdict or None)
