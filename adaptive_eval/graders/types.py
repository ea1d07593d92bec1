"""The base class of graders, their results, and the signals of an answer that need no grader.

A grader reads an answer's text and gives signals, which the rubric maps to a category. It is a frozen section of the
configuration with a `grade` method: to write one is to write its options and that method, and it can be sent to a
worker process. Whatever a model has written, it raises nothing but `GraderError`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from math import log
from typing import ClassVar, NamedTuple, get_args

from pydantic import Field

from adaptive_eval.base.errors import GraderError
from adaptive_eval.base.sections import Section
from adaptive_eval.core.types import NO_COST, Cost
from adaptive_eval.endpoints.types import Answer, AnswerLogprobs, Signal
from adaptive_eval.questions.types import Question

SignalValue = float | bool | str

INLINE_CHARACTERS = 50_000
"""Longer texts are graded in a worker, so as not to block the event loop."""


INSPECT_LETTERS = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}
"""Letter grades of Inspect: correct, incorrect, partially correct, no answer."""


class Marks(NamedTuple):
    """The result of a grader: its signals, and the answer it found in the text, if any."""

    signals: Mapping[str, SignalValue]
    extracted: str | None


@dataclass(frozen=True, slots=True)
class Grade:
    """The grade of a trial: its category, and the signals that led to it."""

    category: int
    signals: Mapping[str, SignalValue]
    extracted: str | None
    cost: Cost = NO_COST
    """The cost of grading, if a server was asked."""


@dataclass(frozen=True, slots=True)
class MarkedAnswer(Answer):
    """An answer that was graded on the node where it was generated."""

    marks: Marks | None = None
    trouble: GraderError | None = None
    """Why there are no marks."""

    def require_marks(self) -> Marks:
        """The marks; raises the grader's error if there are none."""
        if self.marks is None:
            raise self.trouble or GraderError("the grader gave no marks")
        return self.marks


@dataclass(frozen=True, slots=True)
class SampleAnswer(MarkedAnswer):
    """The answer of an Inspect sample with its marks; tokens count all models that the sample called."""

    own: tuple[int, int] = (0, 0)
    """Prompt and completion tokens of the model itself."""
    usd_of_others: float = 0.0
    """Cost of the other models that the sample called, such as a judge."""


class GraderOptions(Section):
    """Base class of graders, with their common options and the defaults of a cheap one."""

    reads_key: ClassVar[bool] = True
    """Whether it compares an answer with the answer key of the question."""
    timeout: float = Field(10.0, gt=0, le=3600)
    """Seconds for one answer in a worker process; more is a grader error, never a wrong answer."""
    workers: int | None = Field(None, ge=1, le=64)
    """Most worker processes; default: one per core but one, two to four, and as many more for slow answers."""
    memory: float = Field(2.0, gt=0)
    """GiB for a worker process; more is a grader error."""

    @property
    def gives(self) -> frozenset[str]:
        """The names of its signals; empty if they are not known beforehand."""
        return frozenset({"is_correct", "has_answer"})

    @property
    def functions(self) -> tuple[str, ...]:
        """The user's grading functions, as `package.module:function`."""
        return ()

    def quick(self, text: str, question: Question) -> Marks | None:
        """The marks if they take well under a millisecond; None if `grade` must run in a worker.

        By default `grade` itself counts as quick, except for very long texts.
        """
        return self.grade(text, question) if len(text) <= INLINE_CHARACTERS else None

    def is_slow(self, text: str, question: Question) -> bool:
        """Whether `grade` is expected to be slow, so that others go first; most graders cannot tell."""
        return False

    def grade(self, text: str, question: Question) -> Marks:
        """Grade an answer to a question; each grader implements this."""
        raise NotImplementedError

    def warm_up(self) -> None:
        """Load what `grade` needs, before any time limit starts; most graders need nothing."""

    def key_problem(self, question: Question) -> str | None:
        """Why no answer to this question can be graded, if so; by default only if its key is empty."""
        if not self.reads_key or question.answer.strip():
            return None
        return "has no answer to compare with; set questions.fields.answer"

    @property
    def knows_right_answers(self) -> bool:
        """Whether one of `right_answers` must be graded right; false if the required form is unknown."""
        return True

    def right_answers(self, question: Question) -> Sequence[str]:
        """Texts that a model could give as a right answer; by default only the key."""
        return (question.answer,)


def usual_answers(key: str) -> tuple[str, ...]:
    """An answer key in the forms in which models give answers most often."""
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
    """Build marks with the signals of every grader and further ones."""
    return Marks({"is_correct": correct, "has_answer": extracted is not None, **signals}, extracted)


def score_signals(score: float, *, higher_is_better: bool = True) -> dict[str, SignalValue]:
    """The signals of a metric's value; `is_correct` is missing for values other than 0 and 1."""
    best = float(higher_is_better)
    return {"score": score, **({"is_correct": score == best} if score in (0.0, 1.0) else {})}


NEEDS_RUBRIC = (
    "but the rubric knows right and wrong alone; declare what it is worth: "
    "rubric: {categories: [{name: half, weight: 0.5, when: {score: {at_least: 0.5, below: 1}}}, ...]}"
)
"""The end of a sentence about a score that is neither 0 nor 1."""

FLAGS: tuple[str, ...] = get_args(Signal)
MEASURES = ("completion_tokens", "prompt_tokens", "token_ratio", "repeated_pattern", "completion_bpt", "prompt_bpt")
TOKEN_MEASURES = ("worst_bpt", "last_bpt")
"""Only for answers whose tokens are stored with log-probabilities; stored with the grader's signals."""
ANSWER_SIGNALS = frozenset({*FLAGS, *MEASURES, *TOKEN_MEASURES})
TENTH = 10

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
    """The flags and measurements of an answer; without log-probabilities the bits per token are missing.

    token_ratio = completion tokens / 32,768; repeated_pattern = 1 unless the model stopped by itself (paper, D.1).
    """
    return {flag: flag in answer.signals for flag in FLAGS} | measured_facts(
        answer.finish_reason, answer.prompt_tokens, answer.completion_tokens, answer.completion_bpt, answer.prompt_bpt
    )


def measured_facts(
    finish_reason: str,
    prompt_tokens: int,
    completion_tokens: int,
    completion_bpt: float | None,
    prompt_bpt: float | None,
) -> dict[str, SignalValue]:
    """The known `MEASURES` of an answer."""
    from scorio.categorical.signals import TOKEN_CAP  # loads numpy, which grading processes do not need

    facts: dict[str, SignalValue] = {
        "completion_tokens": float(completion_tokens),
        "prompt_tokens": float(prompt_tokens),
        "token_ratio": completion_tokens / TOKEN_CAP,
        "repeated_pattern": float(finish_reason != "stop"),
    }
    if completion_bpt is not None:
        facts["completion_bpt"] = completion_bpt
    if prompt_bpt is not None:
        facts["prompt_bpt"] = prompt_bpt
    return facts


def token_facts(logprobs: AnswerLogprobs | None) -> dict[str, SignalValue]:
    """`TOKEN_MEASURES` in bits per token: means over the least likely tenth of the tokens, and over the last tenth."""
    known = [] if logprobs is None else [-value / log(2.0) for value in logprobs.values if value is not None]
    if not known:
        return {}
    some = -(-len(known) // TENTH)
    return {"worst_bpt": sum(nlargest(some, known)) / some, "last_bpt": sum(known[-some:]) / some}


def reads_as_refusal(text: str) -> bool:
    """Whether a short text begins with one of the phrases above.

    It rather misses refusals than invents them, and is used only if the grader found no answer: a model that apologises
    and then answers has answered.
    """
    opening = text[: MAX_REFUSAL + 1].strip().replace("’", "'").casefold()
    return len(opening) <= MAX_REFUSAL and len(text) <= 2 * MAX_REFUSAL and opening.startswith(REFUSAL_OPENINGS)
