"""Fixed settings of a controller: sizes, pace and caps. Everything else is a plug-in."""

from collections.abc import Iterable
from dataclasses import MISSING, dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.core.types import NO_COST, Cost
from scorio.moments import CountArray, FloatArray, relative_weights, weighted


def require(holds: bool, rule: str, got: object) -> None:
    """Raise ValueError unless the rule holds."""
    if not holds:
        raise ValueError(f"{rule}, but got {got!r}")


MAX_CATEGORIES = 254
"""Outcomes in flight are stored in one byte, with two values reserved."""

CHUNK_CELLS = 1 << 18
"""Counts per chunk: more would take memory without saving time."""

MAX_ROUND_FACTOR = 4.0
"""A cheap model gets at most this many times the trials of the most expensive one in a round."""

MAX_SHARE_AHEAD = 0.25
"""With dedicated servers, the share of the trials that caps still cover which may be requested ahead of looks: a parked
round stays reserved, and cannot be used for the comparisons that a look leaves open."""

CURRENCIES = ("trials", "tokens", "usd", "gpu_seconds")
"""What trials cost: their number, and the fields of `Cost`."""

MIN_BLOCK_SIZE = 50
"""Minimum questions of a block: means of fewer are not close enough to normal if few of them differ."""


def require_type(value: object, kind: type, name: str) -> None:
    """Raise TypeError unless the value has this type."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be of type {kind.__name__}, but got {value!r}")


def require_whole(value: object, name: str) -> None:
    """Raise TypeError unless the value is a whole number, which true and false are not."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool):
        raise TypeError(f"{name} must be a whole number, but got {value!r}")


MAX_SHOWN_VALUES = 8


def brief_repr(value: Any, hidden: tuple[str, ...] = ()) -> str:
    """The repr of a dataclass with the fields that differ from their defaults, and the shapes of large arrays."""
    shown = []
    for field in fields(value):
        default = field.default_factory() if field.default_factory is not MISSING else field.default
        content = getattr(value, field.name)
        if isinstance(content, np.ndarray):
            text = repr(content.tolist()) if content.size <= MAX_SHOWN_VALUES else f"<array of shape {content.shape}>"
        elif field.repr and field.name not in hidden and content != default:
            text = repr(content)
        else:
            continue
        shown.append(f"{field.name}={text}")
    return f"{type(value).__name__}({', '.join(shown)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trials:
    """Trials per question: `min` before the first look, `max` at the horizon, on average over a model's questions.

    Examples:
        >>> from adaptive_eval.core import Trials
        >>> Trials(min=8)
        Trials(min=8, max=80)
    """

    min: int = 4
    max: int = 80

    def __post_init__(self) -> None:
        require_whole(self.min, "trials.min")
        require_whole(self.max, "trials.max")
        require(1 <= self.min <= self.max, "trials must hold 1 <= min <= max", (self.min, self.max))


@dataclass(frozen=True, slots=True)
class Pace:
    """How far rounds run ahead of looks, which keeps servers busy at the cost of some unneeded trials.

    A round has one trial per question; round k + `lookahead` is composed from look k - 1.

    With a `share`, rounds are as large as needed, and take the same time whatever their size, as with a batch service.
    Each model has its own: once all its requested trials have arrived, it gets that share of those at which one of its
    comparisons may first be decided, and at least one trial per question. Nothing runs ahead of a look.

    With `dedicated_servers`, each model also has its own rounds, of one trial per question. As long as it is in an open
    comparison, 1 + `lookahead` of them are in flight. Then they are parked: unsent trials stay unsent.
    """

    lookahead: int = 0
    share: float = 0.0
    opening: int = 0
    """Trials per question before the first look, if that is more than `Trials.min`."""
    dedicated_servers: bool = False
    """Servers are paid for while they run: they are kept busy, and released once their model is settled."""

    def __post_init__(self) -> None:
        require(self.lookahead >= 0, "lookahead must not be negative", self.lookahead)
        require(0.0 <= self.share <= 1.0, "share must lie in [0, 1]", self.share)
        require(self.opening >= 0, "opening must not be negative", self.opening)
        require(
            not self.dedicated_servers or self.share == 0.0,
            "rounds of dedicated_servers have one trial per question",
            self,
        )
        require(self.share == 0.0 or self.lookahead == 0, "rounds as large as needed run ahead of no look", self)

    @property
    def in_step(self) -> bool:
        """Whether all models go from round to round together."""
        return self.share == 0.0 and not self.dedicated_servers

    def first_round(self, lower: int, upper: int) -> int:
        """Trials per question before the first look, within these bounds."""
        return max(lower, min(self.opening, upper))

    def rounds_ahead(self, payable: float, trials: int) -> int:
        """Rounds in flight after that of the next look: a round has `trials`, and caps still cover `payable` trials."""
        return (
            int(min(self.lookahead, MAX_SHARE_AHEAD * payable / max(trials, 1)))
            if self.dedicated_servers
            else self.lookahead
        )


@dataclass(frozen=True, slots=True)
class Budget:
    """Hard caps on a whole run; None means no cap.

    Examples:
        >>> from adaptive_eval.core import Budget
        >>> Budget(usd=2.5).currency, Budget().currency
        ('usd', 'trials')
    """

    trials: int | None = None
    tokens: int | None = None
    usd: float | None = None
    gpu_seconds: float | None = None
    wall_seconds: float | None = None
    held_gpu_seconds: float | None = None
    """GPU seconds for which paid servers may be held, idle or not, including requests to other servers."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            cap = getattr(self, name)
            require(cap is None or cap > 0, f"budget.{name} must be positive", cap)

    def short_of(self, totals: Iterable[float]) -> dict[str, float]:
        """The caps that do not cover these totals, one for each of `CURRENCIES`, by currency, with the totals."""
        amounts = zip(CURRENCIES, totals, strict=True)
        return {name: total for name, total in amounts if (cap := getattr(self, name)) is not None and total > cap}

    def covers(self, cost: Cost) -> bool:
        """Whether a total cost stays within every cap."""
        return not self.short_of((0.0, *cost))

    @property
    def bought(self) -> bool:
        """Whether a cap counts what trials use: more is reserved than most of them use, and lost answers count, too."""
        return any(getattr(self, name) is not None for name in CURRENCIES[1:])

    @property
    def currency(self) -> str:
        """The unit of a trial's price when trials are allocated: the scarcest capped resource."""
        for name in ("usd", "gpu_seconds", "tokens"):
            if getattr(self, name) is not None:
                return name
        return "trials"


class Margin(NamedTuple):
    """The question of a gate: is each model better than the baseline, or a fixed value, less delta, or worse?"""

    baseline: int | None
    """The number of models for a fixed value, as for every reference; None: the question is asked of each model and
    each other one, as the choice of the cheapest needs."""
    delta: float
    parts: tuple[float, ...] = ()
    """The deltas of `Bench.gates`, for the same question on each of those benchmarks."""

    def judged(self, models: int) -> NDArray[np.intp]:
        """The models that the gate judges: all but the baseline."""
        return np.flatnonzero(np.arange(models) != self.baseline)

    def applied(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """The scores (L,) as the gate compares them: delta is added to all but the baseline's."""
        raised = np.array(scores, dtype=float)
        raised[self.judged(len(raised))] += self.delta
        return raised


class RecordedTrials(NamedTuple):
    """Trials of recorded models, by their numbers; of models that are asked there are none."""

    categories: NDArray[np.uint8]
    """(L, M, N): categories, or `rounds.UNGRADED` without a grade, or `rounds.MISSING` where there is no trial."""
    unsure: NDArray[np.bool_]
    """(L, M, N): trials whose grade could be another, since the answer is incomplete."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Bench:
    """The setting of a comparison: numbers of models and questions, the rubric's weights, a trial's worst cost.

    Examples:
        Wrong, in part and right, and every trial of the second model costs at most a cent:

        >>> from adaptive_eval.core import Bench, Cost
        >>> bench = Bench(2, 30, weights=[0.0, 0.5, 1.0], worst_cost=(Cost(), Cost(tokens=400, usd=0.01)))
        >>> bench.categories
        3
    """

    models: int
    questions: int
    weights: NDArray[np.float64]
    worst_cost: tuple[Cost, ...] = ()
    """The most that one trial of each model may use: what hard caps reserve."""
    prior_counts: CountArray | None = None
    """R0: outcomes (L, M, K) known beforehand."""
    clusters: NDArray[np.int64] | None = None
    """Cluster label 0..G-1 of each question, for the uncertainty with sampled questions."""
    question_weights: FloatArray | None = None
    """(M,): positive weights of the questions, scaled to a mean of 1; None: all equal."""
    benchmark_of: NDArray[np.int64] | None = None
    """Benchmark label 0..B-1 of each question, if a run has several: each is a separate sample."""
    gates: tuple[tuple[int, float], ...] = ()
    """Label and delta of each benchmark that has a gate of its own."""
    recorded: frozenset[int] = frozenset()
    """Models that are never asked; `prior_counts` has all their outcomes, with some for every question."""
    recorded_trials: RecordedTrials | None = None
    """The same outcomes one by one, with those that have no grade."""
    prior_unsure: NDArray[np.int64] | None = None
    """(L, M, K): the part of `prior_counts` whose grade could be another, since the answer is incomplete."""
    together: tuple[int, ...] = ()
    """Trials of a question that one request to each model asks; empty: one."""

    def __repr__(self) -> str:
        return brief_repr(self, hidden=() if any(map(any, self.worst_cost)) else ("worst_cost",))

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", np.asarray(self.weights, dtype=float))
        require(self.models >= 1, "a run needs at least one model", self.models)
        require(self.questions >= 1, "a run needs at least one question", self.questions)
        self._check_weights()
        if not self.worst_cost:
            object.__setattr__(self, "worst_cost", (NO_COST,) * self.models)
        require(len(self.worst_cost) == self.models, "worst_cost needs one entry a model", len(self.worst_cost))
        require(len(self.together) in {0, self.models}, "together needs one entry per model", len(self.together))
        require(bool(np.min(self.worst_cost) >= 0.0), "worst_cost must not be negative", self.worst_cost)
        if self.prior_counts is not None:
            shape = (self.models, self.questions, self.categories)
            require(self.prior_counts.shape == shape, f"prior_counts must have shape {shape}", self.prior_counts.shape)
            require(bool(self.prior_counts.min() >= 0), "prior_counts must not be negative", self.prior_counts.min())
        self._check_question_weights()
        labels = set() if self.benchmark_of is None else set(self.benchmark_of.tolist())
        require({label for label, _ in self.gates} <= labels, "gates need labels of benchmarks", self.gates)
        require(min((delta for _, delta in self.gates), default=0.0) >= 0.0, "delta must not be negative", self.gates)
        for name in ("clusters", "benchmark_of"):
            self._check_labels(name, getattr(self, name))
        self._check_recorded()

    def _check_question_weights(self) -> None:
        if self.question_weights is None:
            return
        g = relative_weights(self.question_weights)
        require(len(g) == self.questions, "question_weights needs one weight a question", len(g))
        object.__setattr__(self, "question_weights", None if np.ptp(self.question_weights) == 0.0 else g)

    def _check_labels(self, name: str, of_questions: NDArray[np.int64] | None) -> None:
        if of_questions is not None:
            require(of_questions.shape == (self.questions,), f"{name} needs one label a question", of_questions)
            labels = np.unique(of_questions)
            require(np.array_equal(labels, np.arange(len(labels))), f"labels of {name} must be 0, 1, ...", labels)

    def _check_recorded(self) -> None:
        if not self.recorded:
            return
        is_proper_subset = self.recorded < frozenset(range(self.models))
        require(is_proper_subset, "recorded needs models of the run, and not all of them", sorted(self.recorded))
        counts = self.prior_counts
        has_outcomes = counts is None or bool(counts[sorted(self.recorded)].any(axis=-1).all())
        require(
            has_outcomes,
            "prior_counts must have an outcome of every question of a recorded model",
            sorted(self.recorded),
        )
        if counts is not None and self.recorded_trials is not None:
            graded = (self.recorded_trials.categories < self.categories).sum(axis=-1)
            rule = "recorded_trials must have the outcomes of prior_counts"
            require(np.array_equal(graded[~self.asked], counts[~self.asked].sum(axis=-1)), rule, graded.sum())

    def _check_weights(self) -> None:
        w = self.weights
        require(w.ndim == 1 and 2 <= len(w) <= MAX_CATEGORIES, f"a rubric has 2 to {MAX_CATEGORIES} categories", w)
        require(bool(np.isfinite(w).all()), "weights must be finite", w)
        require(float(np.ptp(w)) > 0.0, "weights must not all be equal", w)

    @property
    def categories(self) -> int:
        """The number of grades an outcome may have."""
        return len(self.weights)

    def mean(self, values: FloatArray) -> FloatArray:
        """The weighted mean over the questions of values (..., M)."""
        return np.asarray(weighted(values, self.question_weights).mean(axis=-1))

    @property
    def recorded_lengths(self) -> NDArray[np.int64]:
        """(L,): the most trials of a question that each recorded model has; 0 for all others."""
        if self.recorded_trials is None:
            return np.zeros(self.models, dtype=np.int64)
        return np.asarray((self.recorded_trials.categories <= MAX_CATEGORIES).sum(axis=-1).max(axis=-1))

    @property
    def asked(self) -> NDArray[np.bool_]:
        """(L,): models that are asked for trials."""
        asked = np.ones(self.models, dtype=bool)
        asked[list(self.recorded)] = False
        return asked
