"""Comparison of an answer with another one, in both orders, so that a judge's position bias does not move scores.

If both orders favour the same answer, that is the verdict. Otherwise the verdict is a tie.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pydantic import Field, field_validator, model_validator

from adaptive_eval.base.errors import GraderError
from adaptive_eval.base.sections import Section, config_error
from adaptive_eval.graders.ballots import VERDICT, BallotField, Levels
from adaptive_eval.graders.judge_forms import JudgeForm, VoteResult
from adaptive_eval.graders.rubric import CategoryConfig, RubricConfig
from adaptive_eval.graders.scoring import median_level
from adaptive_eval.graders.transcript import ShownTexts, grading_words, shortened
from adaptive_eval.graders.types import SignalValue
from adaptive_eval.questions.types import Question


class AnswersOfModel(Section):
    """Answers of a model in an earlier run."""

    run: Path
    """Directory of the earlier run, relative to the current directory. Its answers are copied into this run."""
    model: str = Field(min_length=1)
    """The model there. Each trial is compared with that model's answer of the same number, cyclically if it has
    fewer."""

    @model_validator(mode="before")
    @classmethod
    def _fill_in_run(cls, given: object) -> object:
        """Pass a missing `run` on to its validator, whose error explains more than "add the key"."""
        return {"run": None, **given} if isinstance(given, Mapping) else given

    @field_validator("run", mode="before")
    @classmethod
    def _check_run(cls, run: object) -> object:
        if run is None:
            raise config_error(
                "must name the run with the model's answers",
                "run that model by itself first, with `trials: {min: N, max: N}` for N answers per question, and "
                "give the directory of that run, as in {run: runs/earlier, model: NAME}",
            )
        return run


REFERENCE = "reference"
"""The value of `compare_to` for the answer key."""

FIRST, SECOND = "first", "second"
"""The places of the two answers in a transcript."""
BETTER, TIE, WORSE = "better", "tie", "worse"
"""Outcomes for the graded answer."""
OUTCOMES = (WORSE, TIE, BETTER)
"""Outcomes from worst to best."""
PLACES = (
    (FIRST, "the first answer is better"),
    (SECOND, "the second answer is better"),
    (TIE, "neither is better than the other"),
)
TASK = "You compare two answers to a question. The order in which they stand says nothing of them."
COMPARISON_BALLOT = (BallotField(VERDICT, tuple(name for name, _ in PLACES)),)
COMPARISON_RUBRIC = RubricConfig(
    categories=(
        CategoryConfig(name=BETTER, weight=1.0, when={VERDICT: BETTER}),
        CategoryConfig(name=TIE, weight=0.5, when={VERDICT: TIE}),
        CategoryConfig(name=WORSE, weight=0.0),
    )
)
"""Scores the share of comparisons won; a tie counts half."""


def combine_orders(replies: Sequence[Levels]) -> tuple[str, bool, float]:
    """Combine the verdicts for the two orders of the answers.

    Returns the verdict, whether it depends on the order (then it is a tie), and the bias towards the first place, from
    -1 to 1.
    """
    ((forward,), (backward,)) = replies
    first = {FIRST: BETTER, SECOND: WORSE}.get(forward, TIE)
    second = {FIRST: WORSE, SECOND: BETTER}.get(backward, TIE)
    bias = sum((verdict == FIRST) - (verdict == SECOND) for verdict in (forward, backward)) / 2.0
    return first if first == second else TIE, first != second, bias


@dataclass(frozen=True)
class ByComparison(JudgeForm):
    """The judge compares an answer with a reference answer, the same for all models."""

    compare_to: str | AnswersOfModel
    """The source of the other answer: a field of the question, `REFERENCE`, or a model."""
    longest: int
    """Maximum bytes of an answer to show to the judge."""
    orders: ClassVar[int] = 2
    answers: ClassVar[tuple[str, ...]] = (FIRST, SECOND)

    @property
    def ballot(self) -> tuple[BallotField, ...]:
        return COMPARISON_BALLOT

    @property
    def label_ballot(self) -> tuple[BallotField, ...]:
        return (BallotField(VERDICT, OUTCOMES),)

    @property
    def gives(self) -> frozenset[str]:
        return frozenset({VERDICT, "order_dependent", "prefers_first"})

    @property
    def own_rubric(self) -> RubricConfig | None:
        return COMPARISON_RUBRIC

    def other_answer(self, question: Question) -> str:
        """The answer to compare with; "" if there is none."""
        if not isinstance(self.compare_to, str):
            return question.others[0] if question.others else ""
        if self.compare_to == REFERENCE:
            return question.answer
        value = question.metadata.get(self.compare_to)
        return "" if value is None else str(value)

    def key_problem(self, question: Question) -> str | None:
        if isinstance(self.compare_to, AnswersOfModel):
            source = f"{self.compare_to.model} in {self.compare_to.run}"
            return None if question.others else f"has no answer by {source} to compare with; see grader.compare_to"
        if self.other_answer(question).strip():
            return None
        return f"has no answer in {self.compare_to} to compare with; see grader.compare_to"

    def task(self, criteria: str) -> str:
        return grading_words(PLACES, criteria, "verdicts", TASK)

    def shown(self, question: Question, answer: str) -> tuple[ShownTexts, ...]:
        other = self.other_answer(question)
        reference = "" if self.compare_to == REFERENCE else question.answer
        return tuple(
            ShownTexts(question.prompt, reference, dict(zip(self.answers, texts, strict=True)))
            for texts in ((answer, other), (other, answer))
        )

    def decided(self, question: Question, answer: str) -> VoteResult | None:
        if isinstance(self.compare_to, AnswersOfModel) and (problem := self.key_problem(question)) is not None:
            raise GraderError(problem)
        other = self.other_answer(question).strip()
        if shortened(answer.strip(), self.longest) == other:
            return VoteResult((TIE,), 1.0)
        return super().decided(question, answer) if other else VoteResult((BETTER,), 1.0)

    def voted(self, votes: Sequence[Sequence[Levels]], requested: int) -> VoteResult:
        verdicts, dependent, biases = zip(*map(combine_orders, votes), strict=True)
        verdict = median_level(verdicts, OUTCOMES)
        agreement = verdicts.count(verdict) / requested
        return VoteResult((verdict,), agreement, sum(dependent) / len(votes), sum(biases) / len(votes))

    def make_signals(self, levels: Levels) -> dict[str, SignalValue]:
        return {VERDICT: levels[0] if levels else "", "has_answer": bool(levels)}

    def signals_of_vote(self, voted: VoteResult) -> dict[str, SignalValue]:
        order_signals = {"order_dependent": voted.order_dependent, "prefers_first": voted.prefers_first}
        return {**self.make_signals(voted.levels), **order_signals}
