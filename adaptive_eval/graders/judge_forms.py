"""The forms of a judgement: a verdict, levels of several criteria, or a comparison with another answer.

A form is data: the task and the possible replies, the fields of a reply, how votes are combined, and the signals of the
answer. A comparison is made in both orders, so that a judge's position bias does not move scores: if both orders favour
the same answer, that is the verdict, otherwise it is a tie.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from pydantic import Field

from adaptive_eval.base.errors import GraderError
from adaptive_eval.base.sections import Section
from adaptive_eval.graders.ballots import VERDICT, BallotField, Levels
from adaptive_eval.graders.rubric import CategoryConfig, RubricConfig
from adaptive_eval.graders.scoring import SCORE, JudgeCriterion, lowest_score, weighted_sum
from adaptive_eval.graders.transcript import GradingForm, ShownTexts, shortened
from adaptive_eval.graders.types import SignalValue
from adaptive_eval.questions.types import Question

VOTES_DIFFER = "the judge's votes differ"
"""Begins the error if no verdict has a majority."""
VERDICT_NAME = r"^[A-Za-z0-9][A-Za-z0-9 _-]*$"


class JudgeLevel(Section):
    """A possible verdict."""

    name: str = Field(min_length=1, max_length=40, pattern=VERDICT_NAME)
    """Name of the verdict, for the judge and for conditions of the rubric: `when: {verdict: good}`."""
    meaning: str = ""
    """When to give this verdict, as an instruction to the judge."""
    correct: bool | None = None
    """Whether an answer with this verdict is correct (`is_correct`)."""


class CombinedVotes(NamedTuple):
    """The combined votes on an answer."""

    levels: Levels
    """One level for each field of a label; () for an empty answer."""
    signals: Mapping[str, SignalValue]
    """Statistics of the votes."""


@dataclass(frozen=True, kw_only=True)
class JudgeForm(GradingForm):
    """A form with a reply of one level for each field."""

    ballot: tuple[BallotField, ...]
    """The fields of each reply."""
    majority: bool = False
    """Whether more than half of the votes must agree; otherwise the median of each field counts."""
    even: str | None = None
    """The level if an even number of votes has two different middle ones; default: the lower of them."""
    facts: Callable[[Levels], dict[str, SignalValue]] = lambda levels: {}
    """The signals that follow from the levels."""
    certain: ClassVar[Mapping[str, SignalValue]] = {"agreement": 1.0}
    """The statistics of votes if a decision needed none."""

    @property
    def label_ballot(self) -> tuple[BallotField, ...]:
        """The fields of a decision, and of a person's label."""
        return self.ballot

    def signals(self, levels: Levels) -> dict[str, SignalValue]:
        """Signals of an answer with this verdict, which is () for an empty answer."""
        chosen = levels or ("",) * len(self.label_ballot)
        named = {field.name: level for field, level in zip(self.label_ballot, chosen, strict=True)}
        return {**named, "has_answer": bool(levels), **self.facts(levels)}

    def key_problem(self, question: Question) -> str | None:
        """Why a question cannot be judged this way; None if it can."""
        return None

    def decided(self, question: Question, answer: str, longest: int) -> Levels | None:
        """The verdict if no request is needed; None if the judge must be asked, shown at most `longest` bytes."""
        return None if answer.strip() else ()

    def voted(self, votes: Sequence[Sequence[Levels]], requested: int) -> CombinedVotes:
        """The decision of the votes, of which `requested` were requested; raises `GraderError` if they disagree."""
        return self._combine([replies[0] for replies in votes], requested)

    def _combine(self, ballots: Sequence[Levels], requested: int) -> CombinedVotes:
        counts = Counter(ballots)
        if not self.majority:
            fields = zip(self.label_ballot, zip(*ballots, strict=True), strict=True)
            chosen = tuple(self._median(levels, field.levels) for field, levels in fields)
        elif 2 * max(counts.values()) <= requested:
            counts_by_verdict = {levels[0]: count for levels, count in counts.items()}
            raise GraderError(f"{VOTES_DIFFER}: {counts_by_verdict}")
        else:
            chosen = counts.most_common(1)[0][0]
        return CombinedVotes(chosen, {"agreement": counts[chosen] / requested})

    def _median(self, votes: Sequence[str], sorted_levels: Sequence[str]) -> str:
        """The median of the votes on a field."""
        in_order = sorted(votes, key=sorted_levels.index)
        lower, upper = in_order[(len(votes) - 1) // 2], in_order[len(votes) // 2]
        return lower if lower == upper or self.even is None else self.even


def verdict_form(verdicts: Sequence[JudgeLevel]) -> JudgeForm:
    """The form for one of several verdicts."""
    correct = {verdict.name: bool(verdict.correct) for verdict in verdicts if verdict.correct is not None}

    def facts(levels: Levels) -> dict[str, SignalValue]:
        return {"is_correct": bool(levels) and correct.get(levels[0], False)} if correct else {}

    options = [(verdict.name, verdict.meaning) for verdict in verdicts]
    ballot = (BallotField(VERDICT, tuple(name for name, _ in options)),)
    return JudgeForm(options=options, ballot=ballot, majority=True, facts=facts)


def criteria_form(criteria: Sequence[JudgeCriterion]) -> JudgeForm:
    """The form for a level of each of several criteria."""

    def facts(levels: Levels) -> dict[str, SignalValue]:
        return {SCORE: weighted_sum(criteria, levels) if levels else lowest_score(criteria)}

    return JudgeForm(
        task="You grade one answer to a question. Each criterion is a matter of its own.",
        what="criteria, each with its levels,",
        options=[(criterion.description, criterion.meaning) for criterion in criteria],
        ballot=tuple(BallotField(criterion.name, criterion.sorted_levels) for criterion in criteria),
        facts=facts,
    )


REFERENCE = "reference"
"""The value of `compare_to` for the answer key."""

FIRST, SECOND = "first", "second"
"""The places of the two answers in a transcript."""
BETTER, TIE, WORSE = "better", "tie", "worse"
"""Outcomes for the graded answer."""
PLACES = (
    (FIRST, "the first answer is better"),
    (SECOND, "the second answer is better"),
    (TIE, "neither is better than the other"),
)
COMPARISON_RUBRIC = RubricConfig(
    categories=(
        CategoryConfig(name=BETTER, weight=1.0, when={VERDICT: BETTER}),
        CategoryConfig(name=TIE, weight=0.5, when={VERDICT: TIE}),
        CategoryConfig(name=WORSE, weight=0.0),
    )
)
"""Scores the share of comparisons won; a tie counts half."""


@dataclass(frozen=True, kw_only=True)
class ComparisonForm(JudgeForm):
    """The form for a comparison with another answer, the same for all models."""

    compare_to: str
    """The source of the other answer: a field of the question, or `REFERENCE`."""
    task: str = "You compare two answers to a question. The order in which they stand says nothing of them."
    options: Sequence[tuple[str, str]] = PLACES
    answers: Sequence[str] = (FIRST, SECOND)
    ballot: tuple[BallotField, ...] = (BallotField(VERDICT, tuple(name for name, _ in PLACES)),)
    even: str | None = TIE  # any other level would favour one of the two answers
    certain: ClassVar[Mapping[str, SignalValue]] = {"agreement": 1.0, "order_dependent": 0.0, "prefers_first": 0.0}

    @property
    def label_ballot(self) -> tuple[BallotField, ...]:
        return (BallotField(VERDICT, (WORSE, TIE, BETTER)),)

    def other_answer(self, question: Question) -> str:
        """The answer to compare with; "" if there is none."""
        if self.compare_to == REFERENCE:
            return question.answer
        value = question.metadata.get(self.compare_to)
        return "" if value is None else str(value)

    def key_problem(self, question: Question) -> str | None:
        if self.other_answer(question).strip():
            return None
        return f"has no answer in {self.compare_to} to compare with; see grader.compare_to"

    def shown(self, question: Question, answer: str) -> Sequence[ShownTexts]:
        other = self.other_answer(question)
        reference = "" if self.compare_to == REFERENCE else question.answer
        return tuple(
            {"question": question.prompt, "reference": reference, **dict(zip(self.answers, texts, strict=True))}
            for texts in ((answer, other), (other, answer))
        )

    def decided(self, question: Question, answer: str, longest: int) -> Levels | None:
        other = self.other_answer(question).strip()
        if shortened(answer.strip(), longest) == other:
            return (TIE,)
        return super().decided(question, answer, longest) if other else (BETTER,)

    def voted(self, votes: Sequence[Sequence[Levels]], requested: int) -> CombinedVotes:
        verdicts, dependent, biases = zip(*map(combine_orders, votes), strict=True)
        levels, agreement = self._combine([(verdict,) for verdict in verdicts], requested)
        shares = {"order_dependent": sum(dependent) / len(votes), "prefers_first": sum(biases) / len(votes)}
        return CombinedVotes(levels, {**agreement, **shares})


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
