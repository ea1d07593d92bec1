"""The base class of graders, their results, and the signals of an answer that need no grader.

A grader reads an answer's text and returns signals, which the rubric maps to a category. It is a frozen section of the
configuration with a `grade` method: a new grader needs only its options and that method. It can be sent to a worker
process. For any text, it raises nothing but `GraderError`.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import ClassVar, NamedTuple, get_args

from pydantic import Field

from adaptive_eval.base.errors import GraderError
from adaptive_eval.base.sections import Section
from adaptive_eval.core.types import NO_COST, Cost
from adaptive_eval.endpoints.types import Answer, Signal
from adaptive_eval.questions.types import Question

SignalValue = float | bool | str

INLINE_CHARACTERS = 50_000
"""Maximum length of a text to grade in the event loop; a longer text would block it and goes to a worker."""


INSPECT_LETTERS = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}
"""Letter grades of Inspect: correct, incorrect, partially correct, no answer."""


class Marks(NamedTuple):
    """The result of a grader: its signals, and the extracted answer, if any."""

    signals: Mapping[str, SignalValue]
    extracted: str | None


class Grade(NamedTuple):
    """The grade of a trial: its category, and the signals behind it."""

    category: int
    signals: Mapping[str, SignalValue]
    extracted: str | None
    cost: Cost = NO_COST
    """The cost of grading, if a server was asked."""


@dataclass(frozen=True, slots=True)
class MarkedAnswer(Answer):
    """An answer that was graded on the node that generated it."""

    marks: Marks | GraderError | None = None
    """The marks, or the error of a grader that gave none."""

    def require_marks(self) -> Marks:
        """The marks; raises the grader's error if there are none."""
        if isinstance(self.marks, Marks):
            return self.marks
        raise self.marks or GraderError("the grader gave no marks")


def with_marks(answer: Answer, marks: Marks | GraderError) -> MarkedAnswer:
    """An answer with marks that came with it, or with the grader's error."""
    return MarkedAnswer(**{field.name: getattr(answer, field.name) for field in fields(Answer)}, marks=marks)


@dataclass(frozen=True, slots=True)
class SampleAnswer(MarkedAnswer):
    """The answer of an Inspect sample with its marks; tokens count all models that the sample called."""

    own_tokens: tuple[int, int, int] = (0, 0, 0)
    """Prompt, completion and cached prompt tokens of the model itself."""
    usd_of_others: float = 0.0
    """Cost of other models that the sample called, such as a judge."""


class GradingLimits(Section):
    """Limits of the worker processes, which all graders of a run share."""

    timeout: float = Field(10.0, gt=0, le=3600)
    """Maximum seconds per answer in a worker process; a timeout is a grader error, never a wrong answer."""
    workers: int | None = Field(None, ge=1, le=64)
    """Maximum worker processes; default: the number of cores minus one, but two to eight."""
    memory: float = Field(2.0, gt=0)
    """Maximum GiB of a worker process; exceeding it is a grader error."""


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """What the worker processes of graders work with."""

    limits: GradingLimits = GradingLimits()
    folder: Path = Path()
    """Their folder, the first place for plug-ins."""
    keys: frozenset[str] = frozenset()
    """Environment variables that they do not get, besides those named like secrets."""


class GraderOptions(Section):
    """Base class of graders, with the defaults of a cheap grader."""

    reads_key: ClassVar[bool] = True
    """Whether it compares an answer with the answer key of the question."""
    comes_with_answer: ClassVar[bool] = False
    """Whether the marks come with the answers, so that a text alone cannot be graded; then `stored_marks` has them."""

    @property
    def gives(self) -> frozenset[str]:
        """Names of its signals; empty if they are not known in advance."""
        return frozenset({"is_correct", "has_answer"})

    @property
    def functions(self) -> tuple[str, ...]:
        """The user's grading functions, as `package.module:function`."""
        return ()

    def quick(self, text: str, question: Question) -> Marks | None:
        """The marks if they take well under a millisecond; None if `grade` must run in a worker.

        By default this calls `grade`, except for very long texts.
        """
        return self.grade(text, question) if len(text) <= INLINE_CHARACTERS else None

    def grade(self, text: str, question: Question) -> Marks:
        """Grade an answer to a question."""
        raise NotImplementedError

    def stored_marks(self, answer: Answer, signals: Mapping[str, SignalValue], extracted: str | None) -> Marks | None:
        """The marks that came with a stored answer, of which the store has these signals; None if there are none."""
        return None

    def warm_up(self) -> None:
        """Load what `grade` needs, before any time limit starts."""

    def key_problem(self, question: Question) -> str | None:
        """Why answers to this question cannot be graded; None if they can. By default the key must not be empty."""
        if not self.reads_key or question.answer.strip():
            return None
        return "has no answer to compare with; set questions.fields.answer"

    @property
    def knows_right_answers(self) -> bool:
        """Whether one of `right_answers` must be graded correct; false if the required form is unknown."""
        return True

    def right_answers(self, question: Question) -> Sequence[str]:
        """Texts that a model could give as a correct answer; by default only the key."""
        return (question.answer,)


def usual_answers(key: str) -> tuple[str, ...]:
    """An answer key in the most common forms of models' answers."""
    return (
        key,
        rf"\boxed{{{key}}}",
        f"Answer: {key}",
        f"The answer is {key}.",
        f"#### {key}",
        f"**{key}**",
        f"({key})",
    )


def marks(correct: bool, extracted: str | None, **signals: SignalValue) -> Marks:
    """Build marks with the signals of every grader and additional ones."""
    return Marks({"is_correct": correct, "has_answer": extracted is not None, **signals}, extracted)


def score_signals(score: float, *, higher_is_better: bool = True) -> dict[str, SignalValue]:
    """The signals for a metric's value; without `is_correct` for values other than 0 and 1."""
    best = float(higher_is_better)
    return {"score": score, **({"is_correct": score == best} if score in (0.0, 1.0) else {})}


NEEDS_RUBRIC = (
    "but the rubric only has right and wrong; declare a category for it: "
    "rubric: {categories: [{name: half, weight: 0.5, when: {score: {at_least: 0.5, below: 1}}}, ...]}"
)
"""The end of a sentence about a score that is neither 0 nor 1."""

FLAGS: tuple[str, ...] = get_args(Signal)
MEASURES = ("completion_tokens", "prompt_tokens", "token_ratio", "repeated_pattern", "completion_bpt", "prompt_bpt")
ANSWER_SIGNALS = frozenset({*FLAGS, *MEASURES})
WITHOUT_TEXT: frozenset[str] = frozenset({"empty", "context_length", "timed_out", "content_filter", "unanswered"})
"""Flags of answers that may have no tokens. Any other answer without tokens has an unknown number of them."""
FINISH_NOT_LOGGED = "not logged"
"""The finish reason of an answer whose log does not say it."""

REFUSAL_OPENINGS = (
    "i'm sorry, but i can't",
    "i'm sorry, but i cannot",
    "i'm sorry, i can't",
    "i'm sorry, i cannot",
    "sorry, but i can't",
    "sorry, i can't",
    "i can't help with",
    "i can't assist with",
    "i cannot help with",
    "i cannot assist with",
    "i'm unable to help with",
    "i'm unable to assist with",
    "i won't help with",
    "i must decline",
)
MAX_REFUSAL = 600


def answer_facts(answer: Answer) -> dict[str, SignalValue]:
    """The flags and known measurements of an answer.

    token_ratio = completion tokens / 32,768; repeated_pattern = 1 unless the model stopped by itself (paper, D.1).
    """
    return {flag: flag in answer.signals for flag in FLAGS} | measured_facts(
        answer.finish_reason,
        answer.prompt_tokens,
        answer.completion_tokens,
        answer.completion_bpt,
        answer.prompt_bpt,
        answer.signals,
    )


def measured_facts(
    finish_reason: str,
    prompt_tokens: int,
    completion_tokens: int,
    completion_bpt: float | None,
    prompt_bpt: float | None,
    flags: Collection[str],
) -> dict[str, SignalValue]:
    """The known `MEASURES` of an answer: logs and commands may not report tokens."""
    from scorio.categorical.signals import TOKEN_CAP  # loads numpy, which grading processes do not need

    facts, has_text = dict[str, SignalValue](), WITHOUT_TEXT.isdisjoint(flags)
    if prompt_tokens or not has_text:
        facts["prompt_tokens"] = float(prompt_tokens)
    if completion_tokens or not has_text:
        facts["completion_tokens"] = float(completion_tokens)
        facts["token_ratio"] = completion_tokens / TOKEN_CAP
    if finish_reason != FINISH_NOT_LOGGED:
        facts["repeated_pattern"] = float(finish_reason != "stop")
    if completion_bpt is not None:
        facts["completion_bpt"] = completion_bpt
    if prompt_bpt is not None:
        facts["prompt_bpt"] = prompt_bpt
    return facts


def reads_as_refusal(text: str) -> bool:
    """Whether a short text begins with one of `REFUSAL_OPENINGS`.

    It misses refusals rather than inventing them. It is used only if the grader extracted no answer: a model that
    apologises and then answers has answered.
    """
    opening = text[: MAX_REFUSAL + 1].strip().replace("’", "'").casefold()
    return len(opening) <= MAX_REFUSAL and len(text) <= 2 * MAX_REFUSAL and opening.startswith(REFUSAL_OPENINGS)
