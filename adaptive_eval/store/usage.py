"""Running sums over committed trials, for the display, warnings and the report; no decision depends on them.

They find suspicious answers: all of a model's are empty, identical, unreadable for the grader, or wrong. There may be a
good reason, but far more often a grader, a prompt or a server is at fault, and the ranking worthless.
"""

from collections import Counter
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from adaptive_eval.store.records import NO_GRADING, GradingUse, StoredOutcome
from adaptive_eval.store.repeats import AnswerWatch

LEAST = 12
"""With fewer answers, all may well be alike or wrong by chance."""


class AnswerFault(StrEnum):
    """A fault of all answers of a model; the first that applies is reported."""

    EMPTY = "all_empty"
    ALIKE = "all_alike"
    UNREAD = "nothing_extracted"
    WRONG = "all_wrong"
    REPEATED = "repeats"
    """Answers repeat too often (see `store.repeats`)."""


@dataclass(slots=True)
class SharedTraits:
    """Traits that all graded answers of a model may share."""

    number: int = 0
    empty: int = 0
    unread: int = 0
    """Outputs in which the grader found no answer."""
    right: int = 0
    categories: set[int] = field(default_factory=set)
    texts: set[int | None] = field(default_factory=set)
    """At most two are kept: more make no difference."""
    questions: set[str] = field(default_factory=set)
    """At most two, too."""

    def add(self, outcome: StoredOutcome) -> None:
        """Add an answer; ungraded and timed-out ones are left out."""
        if outcome.category is None or (outcome.flags and outcome.timed_out):
            return
        self.number += 1
        self.empty += bool(outcome.flags) and "empty" in outcome.flags.split()
        self.unread += outcome.found is False
        # without a verdict on right or wrong: category 0 means that no condition of the rubric holds
        self.right += outcome.category > 0 if outcome.correct is None else outcome.correct
        self.categories.add(outcome.category)
        if len(self.texts) < 2:
            self.texts.add(outcome.digest)
        if len(self.questions) < 2:
            self.questions.add(outcome.question)

    def copy(self) -> "SharedTraits":
        """A copy that later answers do not change."""
        return replace(
            self, categories=self.categories.copy(), texts=self.texts.copy(), questions=self.questions.copy()
        )

    @property
    def fault(self) -> AnswerFault | None:
        """The fault that all answers share; None if there is none, or too few answers."""
        if self.number < LEAST:
            return None
        if self.empty == self.number:
            return AnswerFault.EMPTY
        alike = len(self.texts) == 1 and None not in self.texts and len(self.questions) > 1
        if alike and self.right < self.number:
            return AnswerFault.ALIKE
        if self.unread == self.number:
            return AnswerFault.UNREAD
        return AnswerFault.WRONG if self.right == 0 and len(self.categories) == 1 else None


_FAULTS = {
    AnswerFault.EMPTY: "are empty; look at what the server sends, and at max_tokens and the reasoning settings",
    AnswerFault.ALIKE: "are one and the same text, whatever the question; look at the prompt and at the server",
    AnswerFault.UNREAD: (
        "hold nothing that the grader takes for an answer; look at the grader, or ask for the answer in the form that "
        "it reads"
    ),
    AnswerFault.WRONG: "are graded wrong; look at the grader and the answer keys, unless the questions are that hard",
}


def fault_sentence(fault: AnswerFault, number: int) -> str:
    """The sentence that warns of a fault in this many answers."""
    return f"all {number} answers {_FAULTS[fault]}"


class AnswerMeans(NamedTuple):
    """Mean price, tokens and seconds of a model's answers, without their grades; None if unknown."""

    usd: float | None
    """None without a price, too."""
    tokens: float | None
    seconds: float | None


NO_ANSWER = frozenset({"timed_out", "unanswered"})
"""Flags of trials for which no complete answer came."""


@dataclass(slots=True)
class TrialUsage:
    """Sums over the committed trials of one model."""

    trials: int = 0
    ungraded: int = 0
    tokens: int = 0
    usd: float = 0.0
    gpu_seconds: float = 0.0
    counted: int = 0
    """Answers whose tokens are known; imported ones may lack them, as well as their time."""
    completion_tokens: int = 0
    timed: int = 0
    """Answers whose time is known."""
    seconds: float = 0.0
    """Sum of these times."""
    grading: GradingUse = NO_GRADING
    """Usage of a judge or a verifier, included in the above."""
    signals: Counter[str] = field(default_factory=Counter)
    """Number of answers with each signal: truncated, empty, timed_out ..."""
    answers: SharedTraits = field(default_factory=SharedTraits)
    """Traits that all answers may share."""
    watch: AnswerWatch = field(default_factory=AnswerWatch)
    """Answers to some questions, to find repeats."""

    def add(self, outcome: StoredOutcome) -> None:
        """Count one more trial."""
        self.spend(outcome)
        self.judge(outcome)

    def spend(self, outcome: StoredOutcome, times: int = 1) -> None:
        """Count the usage of one more answer, whatever its grade; with -1 take it back."""
        self.trials += times
        self.tokens += times * outcome.cost.tokens
        self.usd += times * outcome.cost.usd
        self.gpu_seconds += times * outcome.cost.gpu_seconds
        flags = outcome.flags.split() if outcome.flags else []
        if flags:
            self.signals.update(dict.fromkeys(flags, times))
        if not NO_ANSWER.isdisjoint(flags):
            return
        self.counted += times * (outcome.completion_tokens > 0)
        self.completion_tokens += times * outcome.completion_tokens
        self.timed += times * (outcome.seconds > 0.0)
        self.seconds += times * outcome.seconds

    def judge(self, outcome: StoredOutcome) -> None:
        """Count the grade of an answer."""
        self.ungraded += outcome.category is None
        self.answers.add(outcome)
        self.watch.add(outcome)

    @property
    def answer_means(self) -> AnswerMeans:
        """Means over the answers for which the tokens, or the time, are known."""
        graded = self.grading.cost.plus(self.grading.in_vain)
        usd = round(self.usd - graded.usd, 12)  # a difference of 0 has a rounding error
        return AnswerMeans(
            usd=usd / self.counted if self.counted and usd > 0.0 else None,
            tokens=self.completion_tokens / self.counted if self.counted else None,
            seconds=self.seconds / self.timed if self.timed else None,
        )

    def copy(self) -> "TrialUsage":
        """A copy of the current sums, to which no trials may be added."""
        return replace(self, signals=self.signals.copy(), answers=self.answers.copy(), watch=self.watch.copy())
