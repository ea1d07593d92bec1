"""The values that go into the store and come out of it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.core.answer_kinds import answer_kinds
from adaptive_eval.core.types import NO_COST, Cost
from adaptive_eval.endpoints.types import Answer
from adaptive_eval.graders.asked import cost_in_signals
from adaptive_eval.graders.types import SignalValue
from adaptive_eval.machine.trial import DONE, UNGRADED, GradeDetails, Trial

Counts = NDArray[np.int32]
AWAITS_VERDICT = "its verdict has not come yet"
"""The `grader_error` of a stored answer that is to be graded next."""


class CellExtent(NamedTuple):
    """The extent of the stored trials of one model and question."""

    model: str
    question: str
    extent: int
    """One more than the highest trial number; lower numbers may be missing."""


class TrialFacts(NamedTuple):
    """The facts about a graded trial that a rubric may use: all but its texts."""

    model: str
    question: str
    trial: int
    round: int
    category: int
    latency: float
    usd: float
    cached_tokens: int
    """Of the prompt tokens."""
    signals: str | None
    """The grader's signals as stored JSON, not parsed since few of them differ."""
    flags: str | None
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    completion_bpt: float | None
    prompt_bpt: float | None


@dataclass(frozen=True, slots=True)
class TrialRecord:
    """A stored trial: the whole answer, and its grade or why the grader failed."""

    model: str
    question: str
    trial: int
    round: int
    answer: Answer
    category: int | None
    """None if and only if `grader_error` says why: the grader failed, or there is no answer."""
    signals: Mapping[str, SignalValue] = field(default_factory=dict)
    extracted: str | None = None
    grader_error: str | None = None
    cost: Cost = NO_COST

    def numbered(self, model: int, question: int) -> Trial:
        """The trial as the log has it, with the numbers of its model and question."""
        verdict = cost_in_signals(self.signals, self.cost)
        return Trial(
            model,
            question,
            self.trial,
            self.round,
            state=UNGRADED if self.category is None else DONE,
            cost=self.cost.plus(verdict.times(-1)),
            verdict=verdict,
            category=self.category,
            kinds=answer_kinds(" ".join(sorted(self.answer.signals))),
            seconds=self.answer.latency,
            answer=self.answer,
            grade=GradeDetails(self.signals, self.extracted, self.grader_error),
        )


@dataclass(frozen=True, slots=True)
class Spending:
    """Number and cost of answers."""

    trials: int = 0
    tokens: int = 0
    usd: float = 0.0
    gpu_seconds: float = 0.0

    @classmethod
    def total(cls, parts: Iterable["Spending | ReplicaSums"]) -> "Spending":
        """The sum over all parts."""
        rows = [*parts]
        return cls(*(sum(getattr(row, field.name) for row in rows) for field in fields(cls)))


class WaitingAnswers(NamedTuple):
    """Answers of a model whose verdicts have not come."""

    model: str
    spent: Spending
    """Without what is reserved for the verdicts."""
    first: int
    """The place in the log of the first of them."""


@dataclass(frozen=True, slots=True)
class ReplicaTraffic:
    """Statistics of the stored answers that one replica of a model gave."""

    model: str
    replica: str
    trials: int
    retries: int
    """Attempts that failed before the answers came."""
    prompt_tokens: int
    completion_tokens: int
    latency: float
    """Mean seconds of an answer."""
    ttft: float | None
    """Mean seconds to the first token, over the answers for which it is known."""
    cached_tokens: int = 0
    """Prompt tokens that were read from a cache."""


class ReplicaSums(NamedTuple):
    """Sums over the stored answers that one replica of a model gave."""

    model: str
    replica: str
    trials: int
    retries: int
    prompt_tokens: int
    completion_tokens: int
    latency: float
    timed: int
    """Answers whose time to the first token is known."""
    ttft: float
    """The sum of these times."""
    tokens: int
    usd: float
    gpu_seconds: float
    cached_tokens: int
    last: int
    """The number of the trial that was committed last."""
    at: float
    """When that was, in seconds since 1970."""

    def and_then(self, later: "ReplicaSums") -> "ReplicaSums":
        """The sums of these answers and later ones of the same replica."""
        summed = {name: getattr(self, name) + getattr(later, name) for name in SUMMED_FIELDS}
        return later._replace(**summed)

    def traffic(self) -> ReplicaTraffic:
        """The statistics, with mean times instead of sums."""
        latency, ttft = self.latency / self.trials, self.ttft / self.timed if self.timed else None
        return ReplicaTraffic(*self[:6], latency, ttft, self.cached_tokens)


SUMMED_FIELDS = tuple(name for name in ReplicaSums._fields if name not in ("model", "replica", "last", "at"))
"""Fields that are summed when two rows are merged."""


def merge_sums(earlier: Sequence[ReplicaSums], later: Sequence[ReplicaSums]) -> list[ReplicaSums]:
    """Add the sums of later trials to those of earlier ones."""
    merged = {(row.model, row.replica): row for row in earlier}
    for row in later:
        before = merged.get((row.model, row.replica))
        merged[row.model, row.replica] = row if before is None else before.and_then(row)
    return list(merged.values())


@dataclass(frozen=True, slots=True)
class JudgeUse:
    """Usage of a judge's verdicts on stored answers, which is part of the trials' cost."""

    answers: int
    prompt_tokens: float
    completion_tokens: float
    usd: float
    gpu_seconds: float


class ComparisonCount(NamedTuple):
    """The number of stored comparisons of two answers by a judge that had the same result."""

    order_dependent: float
    """Share of the votes that changed when the order of the answers was swapped."""
    prefers_first: float
    """How much more often the first answer was preferred, from -1 to 1."""
    trials: int
