"""What a grader is (options and one pure method), what it gives, and what is known of an answer without it.

A grader reads an answer's text and gives signals; the rubric makes a category of them. It is a frozen section of the
configuration with a `grade` method, so that writing one is writing its options and that method, and a worker process
gets it whole. It never raises for anything a model may have written, except `GraderError`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from heapq import nlargest
from math import log
from typing import ClassVar, NamedTuple, get_args

from pydantic import Field

from adaptive_eval.core.types import NO_COST, Cost
from adaptive_eval.endpoints.types import Answer, AnswerLogprobs, Signal
from adaptive_eval.errors import GraderError
from adaptive_eval.questions.types import Question
from adaptive_eval.sections import Section

SignalValue = float | bool | str

INLINE_CHARACTERS = 50_000
"""Longer texts are graded in a worker, where they hold up nobody."""


INSPECT_LETTERS = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}
"""Marks of Inspect: correct, incorrect, partly correct, no answer."""


class Marks(NamedTuple):
    """Findings of a grader: its signals, and the answer it took out of the text (None: there was none)."""

    signals: Mapping[str, SignalValue]
    extracted: str | None


@dataclass(frozen=True, slots=True)
class Grade:
    """A graded trial: its category, and what led to it."""

    category: int | None
    """None: it waits for thresholds that are fitted on the opening."""
    signals: Mapping[str, SignalValue]
    extracted: str | None
    cost: Cost = NO_COST
    """What grading has cost, where somebody was asked."""


@dataclass(frozen=True, slots=True)
class MarkedAnswer(Answer):
    """An answer that a grader has read where it was made, on another node."""

    marks: Marks | None = None
    trouble: GraderError | None = None
    """Why there are none."""

    def require_marks(self) -> Marks:
        """The marks; raises the error of the grader that found none."""
        if self.marks is None:
            raise self.trouble or GraderError("the grader gave no marks")
        return self.marks


@dataclass(frozen=True, slots=True)
class SampleAnswer(MarkedAnswer):
    """The answer of a sample of Inspect, with its marks; its tokens are those of all models that the sample called."""

    own: tuple[int, int] = (0, 0)
    """Tokens that the model itself has read and written."""
    usd_of_others: float = 0.0
    """What the other models cost that the sample called, such as a judge."""


class GraderOptions(Section):
    """The options that all graders have, and how a cheap one behaves."""

    reads_key: ClassVar[bool] = True
    """Whether it compares an answer with the answer key of the question."""
    timeout: float = Field(10.0, gt=0, le=3600)
    """Seconds that one answer may take in a worker process; then it is a grader error, never a wrong answer."""
    workers: int | None = Field(None, ge=1, le=64)
    """Worker processes at most; default: one per core but one, two to four, and as many more for slow answers."""
    memory: float = Field(2.0, gt=0)
    """GiB that a worker process may use; beyond that it is a grader error."""

    @property
    def gives(self) -> frozenset[str]:
        """The names of its signals; empty when they are not known beforehand."""
        return frozenset({"is_correct", "has_answer"})

    @property
    def functions(self) -> tuple[str, ...]:
        """Code of the user's own that grades, as `package.module:function`."""
        return ()

    def quick(self, text: str, question: Question) -> Marks | None:
        """The marks, where they are found in well under a millisecond; None: `grade` has to run, in a worker.

        A cheap grader is its own quick way, except on texts so long that reading them takes a while.
        """
        return self.grade(text, question) if len(text) <= INLINE_CHARACTERS else None

    def is_slow(self, text: str, question: Question) -> bool:
        """Whether `grade` is known to take long, so that others go first; most graders cannot tell."""
        return False

    def grade(self, text: str, question: Question) -> Marks:
        """The marks of an answer to a question: what each grader is about."""
        raise NotImplementedError

    def warm_up(self) -> None:
        """Load what `grade` needs, before the first time limit begins; most graders need nothing."""

    def key_problem(self, question: Question) -> str | None:
        """Why no answer to this question could be graded; mostly any text will do as a key, but there must be one."""
        if not self.reads_key or question.answer.strip():
            return None
        return "has no answer to compare with; set questions.fields.answer"

    @property
    def knows_right_answers(self) -> bool:
        """One of `right_answers` is graded right wherever the grader works: most read a form that is known."""
        return True

    def right_answers(self, question: Question) -> Sequence[str]:
        """Texts that a model could give as a right answer: for most graders the key, and nothing else."""
        return (question.answer,)


def usual_answers(key: str) -> tuple[str, ...]:
    """An answer key in the ways in which models give answers most often."""
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
    """The signals that every grader gives, and its own."""
    return Marks({"is_correct": correct, "has_answer": extracted is not None, **signals}, extracted)


FLAGS: tuple[str, ...] = get_args(Signal)
MEASURES = ("completion_tokens", "prompt_tokens", "token_ratio", "repeated_pattern", "completion_bpt", "prompt_bpt")
TOKEN_MEASURES = ("worst_bpt", "last_bpt")
"""Known of answers whose tokens are kept with their log-probabilities; stored with what the grader says."""
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
    """The flags of an answer, and what was measured of it; without log-probabilities the bits per token are missing.

    token_ratio = completion tokens / 32,768; repeated_pattern = 1 unless the model stopped by itself (paper, D.1).
    """
    return {flag: flag in answer.signals for flag in FLAGS} | measured_facts(
        answer.finish_reason, answer.prompt_tokens, answer.completion_tokens, answer.completion_bpt, answer.prompt_bpt
    )


@cache
def _token_cap() -> int:
    from scorio.categorical.signals import TOKEN_CAP  # with numpy, which the processes that grade do without

    return TOKEN_CAP


def measured_facts(
    finish_reason: str,
    prompt_tokens: int,
    completion_tokens: int,
    completion_bpt: float | None,
    prompt_bpt: float | None,
) -> dict[str, SignalValue]:
    """`MEASURES` of an answer, as far as they are known."""
    facts: dict[str, SignalValue] = {
        "completion_tokens": float(completion_tokens),
        "prompt_tokens": float(prompt_tokens),
        "token_ratio": completion_tokens / _token_cap(),
        "repeated_pattern": float(finish_reason != "stop"),
    }
    if completion_bpt is not None:
        facts["completion_bpt"] = completion_bpt
    if prompt_bpt is not None:
        facts["prompt_bpt"] = prompt_bpt
    return facts


def token_facts(told: AnswerLogprobs | None) -> dict[str, SignalValue]:
    """`TOKEN_MEASURES` of an answer, in bits per token: of the tenth of its tokens that are least likely, and of its
    last tenth; at least one token each."""
    known = [] if told is None else [-value / log(2.0) for value in told.values if value is not None]
    if not known:
        return {}
    some = -(-len(known) // TENTH)
    return {"worst_bpt": sum(nlargest(some, known)) / some, "last_bpt": sum(known[-some:]) / some}


def reads_as_refusal(text: str) -> bool:
    """A short text that opens with one of the fixed phrases above.

    It is meant to miss refusals rather than to invent them, and is only asked where the grader found no answer: a model
    that apologises and then answers has answered.
    """
    opening = text[: MAX_REFUSAL + 1].strip().replace("’", "'").casefold()
    return len(opening) <= MAX_REFUSAL and len(text) <= 2 * MAX_REFUSAL and opening.startswith(REFUSAL_OPENINGS)
