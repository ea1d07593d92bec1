"""Running sums over the graded answers of a model, in the order of the log; no decision of the core depends on them.

They find suspicious answers: all of a model's are empty, identical, unreadable for the grader, or wrong. There may be a
good reason, but far more often a grader, a prompt or a server is at fault, and the ranking worthless.
"""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from adaptive_eval.core.answer_kinds import AnswerKind
from adaptive_eval.core.types import NO_COST, Cost
from adaptive_eval.machine.facts import facts_of, is_right
from adaptive_eval.machine.repeats import AnswerWatch
from adaptive_eval.machine.trial import AnswerFacts, Trial

MIN_ANSWERS = 12
"""With fewer answers, all may well be alike or wrong by chance."""


class AnswerFault(StrEnum):
    """A fault of all answers of a model; the first that applies is reported."""

    EMPTY = "all_empty"
    ALIKE = "all_alike"
    UNREAD = "nothing_extracted"
    WRONG = "all_wrong"
    REPEATED = "repeats"
    """Answers repeat too often (see `machine.repeats`)."""


@dataclass(slots=True)
class SharedTraits:
    """Traits that all graded answers of a model may share."""

    number: int = 0
    empty: int = 0
    unread: int = 0
    """Answers in which the grader found nothing to grade."""
    right: int = 0
    lowest: int = 0
    """Answers in a category of the lowest weight."""
    texts: set[int | None] = field(default_factory=set)
    """Digests of at most two different texts: more make no difference."""
    questions: set[int] = field(default_factory=set)
    """At most two, too."""

    def add(self, trial: Trial, facts: AnswerFacts, lowest: Collection[int]) -> None:
        """Add an answer; ungraded and timed-out ones are left out. `lowest`: categories of the lowest weight."""
        category, kinds = trial.category, trial.kinds
        if category is None or (kinds and kinds & AnswerKind.TIMED_OUT):
            return
        self.number += 1
        if kinds and kinds & AnswerKind.EMPTY:
            self.empty += 1
        if facts.has_answer is False:
            self.unread += 1
        self.right += is_right(trial, facts, lowest)
        self.lowest += category in lowest
        if len(self.texts) < 2:
            self.texts.add(facts.digest)
        if len(self.questions) < 2:
            self.questions.add(trial.question)

    def copy(self) -> "SharedTraits":
        """A copy that later answers do not change."""
        return replace(self, texts=self.texts.copy(), questions=self.questions.copy())

    @property
    def fault(self) -> AnswerFault | None:
        """The fault that all answers share; None if there is none, or too few answers."""
        if self.number < MIN_ANSWERS:
            return None
        if self.empty == self.number:
            return AnswerFault.EMPTY
        is_one_text = len(self.texts) == 1 and None not in self.texts and len(self.questions) > 1
        if is_one_text and self.right < self.number:
            return AnswerFault.ALIKE
        if self.unread == self.number:
            return AnswerFault.UNREAD
        return AnswerFault.WRONG if self.right == 0 and self.lowest == self.number else None


_FAULTS = {
    AnswerFault.EMPTY: "are empty; check what the server sends, max_tokens and the reasoning settings",
    AnswerFault.ALIKE: "are the same text, whatever the question; check the prompt and the server",
    AnswerFault.UNREAD: (
        "hold no answer that the grader can parse; fix the grader, or ask for its format in the prompt"
    ),
    AnswerFault.WRONG: "are graded wrong; check the grader and the answer keys, unless the questions are that hard",
}


def fault_sentence(fault: AnswerFault, number: int) -> str:
    """The sentence that warns of a fault in this many answers."""
    return f"all {number} answers {_FAULTS[fault]}"


class GradingUse(NamedTuple):
    """Usage of grades by a judge or a verifier, and the number of answers with such a grade."""

    answers: int = 0
    cost: Cost = NO_COST
    wasted_verdicts: int = 0
    wasted: Cost = NO_COST
    """Usage of verdicts that gave no grade."""

    def plus(self, more: "GradingUse") -> "GradingUse":
        """The sum of both."""
        return GradingUse(
            self.answers + more.answers,
            self.cost.plus(more.cost),
            self.wasted_verdicts + more.wasted_verdicts,
            self.wasted.plus(more.wasted),
        )


NO_GRADING = GradingUse()


class AnswerMeans(NamedTuple):
    """Mean price, tokens and seconds of a model's answers, without their grades; None if unknown."""

    usd: float | None
    """None without a price, too."""
    tokens: float | None
    seconds: float | None
    gpu_seconds: float | None
    """Of requests; None without GPUs, too."""

    def usd_with_gpus(self, gpu_hour: float | None) -> float | None:
        """The price with that of GPU time, where an hour of a GPU has this price."""
        gpu_usd = (self.gpu_seconds or 0.0) * (gpu_hour or 0.0) / 3600.0
        return (self.usd or 0.0) + gpu_usd if gpu_usd else self.usd


NO_ANSWER = AnswerKind.TIMED_OUT | AnswerKind.UNANSWERED
"""Kinds of trials for which no complete answer came."""


@dataclass(slots=True)
class TrialUsage:
    """Sums over the graded answers of one model, and those on which the grader has failed."""

    trials: int = 0
    ungraded: int = 0
    tokens: int = 0
    """With those of grades, as are `usd` and `gpu_seconds`."""
    usd: float = 0.0
    gpu_seconds: float = 0.0
    answers_usd: float = 0.0
    """Without grades, as `answers_gpu_seconds`."""
    answers_gpu_seconds: float = 0.0
    counted: int = 0
    """Answers whose tokens are known; imported ones may lack them, as well as their time."""
    completion_tokens: int = 0
    priced: int = 0
    """Answers whose price is known; that of a command may be known without its tokens."""
    timed: int = 0
    """Answers whose time is known."""
    seconds: float = 0.0
    """Sum of these times."""
    grading: GradingUse = NO_GRADING
    """Usage of a judge or a verifier, included in the above."""
    kinds: Counter[int] = field(default_factory=Counter)
    """Answers by the bits of their kinds, without plain ones."""
    answers: SharedTraits = field(default_factory=SharedTraits)
    """Traits that all answers may share."""
    watch: AnswerWatch = field(default_factory=AnswerWatch)
    """Answers to some questions, to find repeats."""

    def add(self, trial: Trial, watched: Collection[int] = (), lowest: Collection[int] = ()) -> None:
        """Count one more trial; `watched`: questions whose answers are compared; `lowest`: categories of the lowest
        weight."""
        self.trials += 1
        (tokens, usd, gpu_seconds), verdict = trial.cost, trial.verdict
        self.tokens += tokens + verdict.tokens
        self.usd += usd + verdict.usd
        self.gpu_seconds += gpu_seconds + verdict.gpu_seconds
        self.answers_usd += usd
        self.answers_gpu_seconds += gpu_seconds
        kinds = trial.kinds
        if verdict is not NO_COST and any(verdict):
            is_useful = trial.category is not None
            use = GradingUse(1, verdict) if is_useful else GradingUse(wasted_verdicts=1, wasted=verdict)
            self.grading = self.grading.plus(use)
        if trial.category is None:
            self.ungraded += 1
        if kinds:
            self.kinds[kinds] += 1
        if (facts := facts_of(trial)) is None:
            return
        if not (kinds and kinds & NO_ANSWER):
            if facts.completion_tokens > 0:
                self.counted += 1
                self.completion_tokens += facts.completion_tokens
            self.priced += facts.completion_tokens > 0 or usd > 0.0
            if trial.seconds > 0.0:
                self.timed += 1
                self.seconds += trial.seconds
        self.answers.add(trial, facts, lowest)
        if trial.question in watched:
            self.watch.add(trial, facts)

    def add_wasted_verdicts(self, number: int, cost: Cost) -> None:
        """Count verdicts on answers that were judged again, which have cost more than the trials say."""
        self.grading = self.grading.plus(GradingUse(wasted_verdicts=number, wasted=cost))

    @property
    def signals(self) -> Counter[str]:
        """Answers with each signal: truncated, empty, timed_out ..."""
        names = Counter[str]()
        for bits, number in self.kinds.items():
            names.update({kind.signal: number for kind in AnswerKind if bits & kind})
        return names

    @property
    def answer_means(self) -> AnswerMeans:
        """Means over the answers for which the tokens, or the time, are known."""
        usd = round(self.answers_usd, 12)
        return AnswerMeans(
            usd=usd / self.priced if self.priced and usd > 0.0 else None,
            tokens=self.completion_tokens / self.counted if self.counted else None,
            seconds=self.seconds / self.timed if self.timed else None,
            gpu_seconds=self.answers_gpu_seconds / self.timed if self.timed and self.answers_gpu_seconds else None,
        )

    def copy(self) -> "TrialUsage":
        """A copy that later answers do not change."""
        return replace(self, kinds=self.kinds.copy(), answers=self.answers.copy(), watch=self.watch.copy())
