"""The values that go into the store and come out of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import NamedTuple

from adaptive_eval.core.answer_kinds import answer_kinds
from adaptive_eval.core.types import NO_COST, Cost, Outcome
from adaptive_eval.endpoints.types import Answer, Signal
from adaptive_eval.graders.types import SignalValue
from adaptive_eval.notes.event import Event, Json
from adaptive_eval.notes.grading import VerdictsWasted
from adaptive_eval.storage.header import RunHeader as RunHeader

AWAITS_VERDICT = "its verdict has not come yet"
"""The `grader_error` of a stored answer that is to be graded next."""

LARGEST_SIZE = 512
"""Sizes are counted up to this many bytes; shorter texts are stored uncompressed."""


class StoredOutcome(NamedTuple):
    """A trial without its texts, as a resume needs it."""

    model: str
    question: str
    trial: int
    category: int | None
    cost: Cost
    flags: str
    digest: int | None
    """Equal for identical answers; None for an empty answer."""
    size: int = LARGEST_SIZE
    """Bytes of its texts, each counted up to `LARGEST_SIZE`."""
    correct: bool | None = None
    """The grader's verdict, if it gives one."""
    found: bool | None = None
    """Whether the grader found an answer in it; None if it does not say."""
    bits: float | None = None
    """-log2 of the probability of its tokens, as reported by its server; None if it reports none."""
    seconds: float = 0.0
    """How long the answer took; 0 if unknown."""
    completion_tokens: int = 0
    """Tokens of the answer; 0 if unknown."""
    awaits_verdict: bool = False
    """Its grade is pending, or was when the run ended."""

    @property
    def timed_out(self) -> bool:
        """Whether no answer came within the time limit."""
        return "timed_out" in self.flags.split()

    def to_outcome(self, model: int, question: int) -> Outcome:
        """Convert to the core's `Outcome`; `model` and `question` are the core's indices."""
        kinds = answer_kinds(self.flags) if self.flags else 0
        return Outcome(model, question, self.trial, self.category, self.cost, kinds, self.seconds)


class TrialKey(NamedTuple):
    """Question and number of a trial of a model."""

    question: str
    trial: int


class TrialPlace(NamedTuple):
    """The round in which a trial was requested, and the flags of its answer."""

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
    """The extent of the stored trials of one model and question."""

    model: str
    question: str
    extent: int
    """One more than the highest trial number; lower numbers may be missing."""


class RoundCount(NamedTuple):
    """How many trials of one model and question got one category in one round."""

    model: str
    question: str
    round: int
    category: int
    trials: int


class TrialFacts(NamedTuple):
    """The facts about a graded trial that a rubric may use: all but its texts."""

    model: str
    question: str
    trial: int
    round: int
    category: int
    latency: float
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
    _outcome: StoredOutcome | None = field(default=None, init=False, repr=False, compare=False)
    """Cached, since both the store and the core need it."""

    @property
    def awaits_verdict(self) -> bool:
        """Whether its grade is pending."""
        return self.category is None and self.grader_error == AWAITS_VERDICT

    @property
    def failed(self) -> bool:
        """Whether the grader has failed on it; a server that never answers is not the grader's fault."""
        return self.category is None and not self.awaits_verdict and "unanswered" not in self.answer.signals

    def judged(self, grade: "Regrade") -> "TrialRecord":
        """The trial with this grade."""
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
        """The trial without its texts, as a resume would read it."""
        if self._outcome is None:
            object.__setattr__(self, "_outcome", self._build_outcome())
        assert self._outcome is not None
        return self._outcome

    def _build_outcome(self) -> StoredOutcome:
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
            self.answer.completion_tokens,
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
    """Cost of the grade, to be added to the stored cost."""

    @property
    def failed(self) -> bool:
        """Whether there is no grade."""
        return self.category is None


class StoredLook(NamedTuple):
    """A look with all its verdicts, as plain values."""

    number: int
    body: Json


class StoredSettings(NamedTuple):
    """A configuration of a run, and the looks that were taken under it."""

    configuration: Json
    look_times: Mapping[int, float]
    """When each was taken, by its number."""
    until: float
    """When the next configuration came; infinite for the newest."""


@dataclass(frozen=True, slots=True)
class Spending:
    """Cumulative usage of all models at one moment of the run."""

    at: float
    """Seconds since 1970."""
    trials: int
    tokens: int
    usd: float
    gpu_seconds: float

    def and_then(self, part: "Spending") -> "Spending":
        """The sum of this usage and a later part."""
        return Spending(
            at=part.at,
            trials=self.trials + part.trials,
            tokens=self.tokens + part.tokens,
            usd=self.usd + part.usd,
            gpu_seconds=self.gpu_seconds + part.gpu_seconds,
        )


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
        return ReplicaTraffic(*self[:6], latency, ttft)


SUMMED_FIELDS = tuple(name for name in ReplicaSums._fields if name not in ("model", "replica", "last", "at"))
"""Fields that are summed when two rows are merged."""


@dataclass(frozen=True, slots=True)
class JudgeUse:
    """Usage of a judge's verdicts on stored answers, which is part of the trials' cost."""

    answers: int
    prompt_tokens: float
    completion_tokens: float
    usd: float
    gpu_seconds: float
    seconds: float = 0.0
    """Total duration of all replies; 0 if not measured."""
    agreements: tuple[float | None, ...] = ()
    """For each judge that a panel may have, how often its votes agree with the decision, from 0 to 1; None for a judge
    that does not exist or gave no vote."""


class ComparisonCount(NamedTuple):
    """The number of stored comparisons of two answers by a judge that had the same result."""

    order_dependent: float
    """Share of the votes that changed when the order of the answers was swapped."""
    prefers_first: float
    """How much more often the first answer was preferred, from -1 to 1."""
    trials: int


class GradingUse(NamedTuple):
    """Usage of grades by a judge or a verifier, and the number of answers with such a grade."""

    answers: int = 0
    cost: Cost = NO_COST
    verdicts_in_vain: int = 0
    in_vain: Cost = NO_COST
    """Usage of further verdicts that were unreadable or replaced."""

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
    """The usage in an event of verdicts that led to no grade."""
    return GradingUse(verdicts_in_vain=event.verdicts, in_vain=Cost(event.tokens, event.usd, event.gpu_seconds))


class HeldTime(NamedTuple):
    """How long a model has held its servers, busy or not, over all starts."""

    seconds: float = 0.0
    gpu_seconds: float = 0.0
    """`seconds` times the model's GPUs."""
    up: bool = False
    """Whether it still holds them."""


class SentRequest(NamedTuple):
    """The model of a request and the number of trials it asks for."""

    model: str
    trials: int


@dataclass(slots=True)
class CommitBatch:
    """Records that are committed together; more may be added until then."""

    trials: list[TrialRecord] = field(default_factory=list)
    looks: list[StoredLook] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    elapsed: float | None = None
    """Seconds the run has been active so far, over all its starts."""
    sent: list[SentRequest] = field(default_factory=list)
    """Requests to be sent once this is committed."""
    unsent: list[SentRequest] = field(default_factory=list)
    """Requests that were not sent after all, or whose answer will not come."""
    held: Mapping[str, HeldTime] | None = None
    """How long each model has held its servers so far."""
    verdicts: list[Regrade] = field(default_factory=list)
    """Grades of trials that were stored ungraded."""


def boolean_signal(signals: Mapping[str, SignalValue], name: str) -> bool | None:
    """The value of a boolean signal; None if it is absent or not boolean."""
    value = signals.get(name)
    return value if isinstance(value, bool) else None


def total_bits(bits_per_token: float | None, tokens: int) -> float | None:
    """The bits of a whole answer; None if unknown."""
    return None if bits_per_token is None else bits_per_token * tokens


def counted_size(text: str) -> int:
    """Bytes of a text, counted up to `LARGEST_SIZE`."""
    return min(len(text[:LARGEST_SIZE].encode("utf-8", "surrogatepass")), LARGEST_SIZE)


def answer_digest(answer: Answer) -> int | None:
    """A 64-bit digest of text and reasoning as a signed integer, by which identical answers are found.

    None for an empty answer, which does not count as a repeat.
    """
    if not answer.text and not answer.reasoning:
        return None
    digest = blake2b(answer.text.encode("utf-8", "surrogatepass"), digest_size=8)
    if answer.reasoning:
        digest.update(b"\0" + answer.reasoning.encode("utf-8", "surrogatepass"))
    return int.from_bytes(digest.digest(), "big", signed=True)
