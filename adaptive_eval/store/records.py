"""The values that go into the store and come out of it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from operator import attrgetter
from typing import NamedTuple

from adaptive_eval.core.types import NO_COST, Cost, Outcome
from adaptive_eval.endpoints.types import Answer, Signal
from adaptive_eval.store.events.event import Event, Json
from adaptive_eval.store.events.grading import VerdictsWasted

SignalValue = float | bool | str

AWAITS_VERDICT = "its verdict has not come yet"
"""The error of an answer that is stored, and graded next."""

AWAITS_THRESHOLDS = "its category waits for thresholds that are fitted on the opening"
"""The error of an answer that a grader has read, where the rubric is not complete yet."""

LARGEST_SIZE = 512
"""Bytes from which on the length of a text makes no difference: up to here texts are stored as they are."""


class StoredOutcome(NamedTuple):
    """A trial without its texts, as a resume needs it."""

    model: str
    question: str
    trial: int
    category: int | None
    cost: Cost
    flags: str
    digest: int | None
    """Equal where the answers are, word for word; None for an empty one."""
    size: int = LARGEST_SIZE
    """Bytes of its texts, each counted up to `LARGEST_SIZE`."""
    correct: bool | None = None
    """The grader's verdict, if it gives one."""
    found: bool | None = None
    """The grader found an answer in it; None where it does not say."""
    bits: float | None = None
    """-log2 of the chance of its tokens, as its server tells it; None where it does not."""
    seconds: float = 0.0
    """How long the answer took; 0 where nobody knows."""
    awaits_thresholds: bool = False
    """It gets its category when the thresholds of the rubric are fitted."""
    awaits_verdict: bool = False
    """Its grade is on its way, or was when the run ended."""

    @property
    def timed_out(self) -> bool:
        """Whether nothing came within the time limit."""
        return "timed_out" in self.flags.split()

    def to_outcome(self, model: int, question: int) -> Outcome:
        """The trial as the core takes it, with the core's numbers."""
        timed_out = bool(self.flags) and self.timed_out
        return Outcome(model, question, self.trial, self.category, self.cost, timed_out, self.seconds)


class TrialKey(NamedTuple):
    """Question and number of a trial of a model."""

    question: str
    trial: int


class TrialPlace(NamedTuple):
    """The round that a trial was asked for, and the flags of its answer."""

    model: str
    question: str
    trial: int
    round: int
    flags: str | None

    @property
    def key(self) -> TrialKey:
        """Its question and number."""
        return TrialKey(self.question, self.trial)

    def has_flag(self, flag: Signal) -> bool:
        """Whether the answer has a flag."""
        return flag in (self.flags or "").split()


class CellExtent(NamedTuple):
    """How far the trials of a question by a model go."""

    model: str
    question: str
    extent: int
    """One more than the highest number, whether or not all before it are there."""


class RoundCount(NamedTuple):
    """How many trials of a question by a model got one grade in one round."""

    model: str
    question: str
    round: int
    category: int
    trials: int


class TrialFacts(NamedTuple):
    """Facts for any rubric: everything of a graded trial but its texts."""

    model: str
    question: str
    trial: int
    round: int
    category: int
    latency: float
    signals: str | None
    """JSON, of the grader: as it is stored, since few of them differ."""
    flags: str | None
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    completion_bpt: float | None
    prompt_bpt: float | None


@dataclass(frozen=True, slots=True)
class TrialRecord:
    """One trial as it is stored: the answer whole, and its grade, or why the grader failed."""

    model: str
    question: str
    trial: int
    round: int
    answer: Answer
    category: int | None
    """None exactly where `grader_error` says why: the grader failed, or there is no answer."""
    signals: Mapping[str, SignalValue] = field(default_factory=dict)
    extracted: str | None = None
    grader_error: str | None = None
    cost: Cost = NO_COST
    _outcome: StoredOutcome | None = field(default=None, init=False, repr=False, compare=False)
    """Worked out once: who writes it wants it, and who tells the core of it."""

    @property
    def awaits_verdict(self) -> bool:
        """Whether its grade is on its way."""
        return self.category is None and self.grader_error == AWAITS_VERDICT

    @property
    def awaits_thresholds(self) -> bool:
        """Whether the grader has read it, and its category comes when the thresholds of the rubric are fitted."""
        return self.category is None and self.grader_error == AWAITS_THRESHOLDS

    def judged(self, grade: "Regrade") -> "TrialRecord":
        """The trial with a grade that has come."""
        cost = self.cost.plus(grade.cost)
        return replace(
            self,
            category=grade.category,
            signals=grade.signals,
            extracted=grade.extracted,
            grader_error=grade.grader_error,
            cost=cost,
        )

    def outcome(self) -> StoredOutcome:
        """The trial as a resume would read it."""
        if self._outcome is None:
            object.__setattr__(self, "_outcome", self._worked_out())
        assert self._outcome is not None
        return self._outcome

    def _worked_out(self) -> StoredOutcome:
        flags = " ".join(sorted(self.answer.signals))
        return StoredOutcome(
            self.model,
            self.question,
            self.trial,
            self.category,
            self.cost,
            flags,
            answer_digest(self.answer),
            counted_size(self.answer.text) + counted_size(self.answer.reasoning or ""),
            boolean_signal(self.signals, "is_correct"),
            boolean_signal(self.signals, "has_answer"),
            total_bits(self.answer.completion_bpt, self.answer.completion_tokens),
            self.answer.latency,
            self.awaits_thresholds,
        )


class Regrade(NamedTuple):
    """A new grade for a stored trial."""

    model: str
    question: str
    trial: int
    category: int | None
    signals: Mapping[str, SignalValue]
    extracted: str | None
    grader_error: str | None
    cost: Cost = NO_COST
    """Cost of the grade, on top of what is stored."""

    @property
    def failed(self) -> bool:
        """Whether there is no grade, and none is awaited."""
        return self.category is None and self.grader_error != AWAITS_THRESHOLDS


class StoredLook(NamedTuple):
    """One look with every verdict, as plain values."""

    number: int
    body: Json


@dataclass(frozen=True, slots=True)
class Spending:
    """Cumulative usage of the run at a moment, over all models."""

    at: float
    """Seconds since 1970."""
    trials: int
    tokens: int
    usd: float
    gpu_seconds: float

    def and_then(self, part: "Spending") -> "Spending":
        """Add usage that came after."""
        return Spending(
            at=part.at,
            trials=self.trials + part.trials,
            tokens=self.tokens + part.tokens,
            usd=self.usd + part.usd,
            gpu_seconds=self.gpu_seconds + part.gpu_seconds,
        )


@dataclass(frozen=True, slots=True)
class ReplicaTraffic:
    """The stored answers of one model by one of its replicas."""

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
    """Mean seconds to its first token, where that is known."""


class ReplicaSums(NamedTuple):
    """Sums over the stored answers of one model by one of its replicas."""

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
    last: int
    """The number of the trial that was committed last."""
    at: float
    """When that was, in seconds since 1970."""

    def and_then(self, later: "ReplicaSums") -> "ReplicaSums":
        """The sums of these answers and of later ones of the same replica."""
        summed = {name: getattr(self, name) + getattr(later, name) for name in ADDED}
        return later._replace(**summed)

    def traffic(self) -> ReplicaTraffic:
        """The traffic, with means of the times."""
        latency, ttft = self.latency / self.trials, self.ttft / self.timed if self.timed else None
        return ReplicaTraffic(*self[:6], latency, ttft)


ADDED = tuple(name for name in ReplicaSums._fields if name not in ("model", "replica", "last", "at"))
"""Fields that are added."""


@dataclass(frozen=True, slots=True)
class JudgeUse:
    """Usage of a judge's verdicts on stored answers; it is part of the cost of the trials."""

    answers: int
    prompt_tokens: float
    completion_tokens: float
    usd: float
    gpu_seconds: float
    seconds: float = 0.0
    """Of all replies, one after the other; 0 where nobody has measured it."""
    agreements: tuple[float | None, ...] = ()
    """Of as many judges as there may be, in their order, how far the votes of each agree with what was decided, from 0
    to 1; None for one that is not there, or gave no vote."""


class ComparisonCount(NamedTuple):
    """Stored comparisons of two answers by a judge that came out alike."""

    order_dependent: float
    """Share of the votes that were another in the other order."""
    prefers_first: float
    """How much oftener the first place was preferred, from -1 to 1."""
    decided: bool
    """Not a tie."""
    asked: bool
    """Not of two answers that are the same, about which nobody is asked."""
    trials: int


class GradingUse(NamedTuple):
    """Usage of grades by a judge or a verifier, and the number of answers with such a grade."""

    answers: int = 0
    cost: Cost = NO_COST
    verdicts_in_vain: int = 0
    in_vain: Cost = NO_COST
    """Usage of further verdicts that could not be read, or were replaced."""

    def plus(self, more: "GradingUse") -> "GradingUse":
        """The sum of both."""
        return GradingUse(
            self.answers + more.answers,
            self.cost.plus(more.cost),
            self.verdicts_in_vain + more.verdicts_in_vain,
            self.in_vain.plus(more.in_vain),
        )


NO_GRADING = GradingUse()


def wasted_use(event: VerdictsWasted) -> GradingUse:
    """Usage that led to no grade, by its event."""
    return GradingUse(verdicts_in_vain=event.verdicts, in_vain=Cost(event.tokens, event.usd, event.gpu_seconds))


class HeldTime(NamedTuple):
    """For how long a model has held its servers, busy or not, over all starts."""

    seconds: float = 0.0
    gpu_seconds: float = 0.0
    """`seconds` times the model's GPUs."""
    up: bool = False
    """It holds them still."""


class SentRequest(NamedTuple):
    """A request, and how many trials it asks for."""

    model: str
    trials: int


@dataclass(frozen=True, slots=True)
class CommitBatch:
    """Records that are committed together."""

    trials: Sequence[TrialRecord] = ()
    looks: Sequence[StoredLook] = ()
    events: Sequence[Event] = ()
    elapsed: float | None = None
    """Seconds the run has been active so far, over all its starts."""
    sent: Sequence[SentRequest] = ()
    """Sent once this is committed."""
    unsent: Sequence[SentRequest] = ()
    """Not sent after all, or without an answer that is still to come."""
    held: Mapping[str, HeldTime] | None = None
    """How long each model has held its servers so far."""
    verdicts: Sequence[Regrade] = ()
    """Grades of trials that were stored before they were graded."""


@dataclass(frozen=True, slots=True)
class RunHeader:
    """Name and configuration of a run, and what its trials depend on."""

    name: str
    configuration: Json
    """The whole configuration as plain values, without any secret."""
    meaning: Json
    """Settings that every trial depends on: seed, prompt, grader, rubric."""
    models: Mapping[str, Json]
    """Settings that the trials of each model depend on: its served name and sampling."""
    questions: Mapping[str, Json]
    """Every question by its id, with everything a grader or a report needs."""
    read_stored: Callable[["RunHeader"], Json] = field(default=attrgetter("configuration"), compare=False, repr=False)
    """Reads the configuration of a stored run by the names that its settings have today."""


def boolean_signal(signals: Mapping[str, SignalValue], name: str) -> bool | None:
    """A signal that is true or false; None where it is neither."""
    value = signals.get(name)
    return value if isinstance(value, bool) else None


def total_bits(bits_per_token: float | None, tokens: int) -> float | None:
    """The bits of a whole answer; None if unknown."""
    return None if bits_per_token is None else bits_per_token * tokens


def counted_size(text: str) -> int:
    """Bytes of a text, counted up to `LARGEST_SIZE`."""
    return min(len(text[:LARGEST_SIZE].encode("utf-8", "surrogatepass")), LARGEST_SIZE)


def answer_digest(answer: Answer) -> int | None:
    """64 bits of text and reasoning as a signed integer, so that equal answers are found without keeping them.

    None for an empty answer, which says nothing that could be said twice.
    """
    if not answer.text and not answer.reasoning:
        return None
    digest = blake2b(answer.text.encode("utf-8", "surrogatepass"), digest_size=8)
    if answer.reasoning:
        digest.update(b"\0" + answer.reasoning.encode("utf-8", "surrogatepass"))
    return int.from_bytes(digest.digest(), "big", signed=True)
