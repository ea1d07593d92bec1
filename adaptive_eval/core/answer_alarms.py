"""Alarms about a model's answers: too many are incomplete, most say nothing, or a kind of failure is more frequent.

**Incomplete answers.** If the grades of more than `MAX_INCOMPLETE_SHARE` of a model's answers are unsure
(`Plan.unsure`), since they were cut off, timed out or exceed the context, its score means little, and further
answers under the same limits would not change that.

**Answers that say nothing.** If more than `MAX_SILENT_SHARE` of a model's answers are of one kind that says nothing,
its score says more about the server or its settings than about the model, unless the rubric names that kind
(`Plan.says_nothing`).

**A server that changes.** The answers of a model to one question are exchangeable as long as its server stays the same.
So if a question has N answers, K of them of some kind, then among its B latest answers the number of that kind is
hypergeometric, whatever its share is. The sum over the questions is compared with its largest possible chance,

    P(sum_q X_q >= x) <= min_t exp(-t x) prod_q E exp(t X_q),

where Hoeffding (1963) bounds each factor by that of a binomial variable, in four ways: the hypergeometric law is
symmetric in K and B, and in answers of the kind and others. Neither hard questions nor their order matter, since each
question is compared with itself.

This is done for each kind, after each of a model's batches, and for some moments between two passes over the questions,
mostly late ones. The limit on the chance is divided among all of these, with 1 / (j (j + 1)) for the j-th batch, so
that a run of any length raises a false alarm with a probability of at most `FALSE_ALARM` (benchmarks/answer_alarms.md).
That holds if a model's own answers decide only whether it is asked more, not which questions: those follow from the
answers of other models (`policies`).

Drawn questions have one answer each, in random order. There all answers of a model are exchangeable, as if they were
those to one question.
"""

from math import log
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.core.answer_kinds import INCOMPLETE, AnswerKind, UnsureGrades
from adaptive_eval.core.rounds import PASSES, UNGRADED, Batch
from adaptive_eval.core.settings import Bench
from adaptive_eval.core.types import ModelNumbers
from scorio.moments import FloatArray, IntArray

FALSE_ALARM = 1e-4
"""Largest probability that a run raises an alarm although no server has changed."""
EARLIER_CHANGE = 0.01
"""Chance at which an earlier change, before one that has raised the alarm, is believed: that costs only answers."""
MAX_INCOMPLETE_SHARE = 0.10
"""A run with a larger share of incomplete answers stops: the score could be off by ten points of a hundred."""
MAX_SILENT_SHARE = 0.5
"""A run with a larger share of answers that say nothing stops."""
TOLERATED_ANSWERS = 2
"""So few answers never stop a run, whatever their share."""
TILTS = (0.1, 0.2, 0.4, 0.7, 1.1, 1.7, 2.5, 4.0, 6.0, 10.0)
"""Values of t. The bound holds for each of them."""
SPACING = 1.4
"""Each moment that is tried is this many times as many passes before the latest one as the next, rounded."""


class AnswerAlarm(NamedTuple):
    """Too many answers of a model are of one kind: of all its answers, or of those since its server has changed."""

    model: int
    kind: AnswerKind
    """Of incomplete answers, all their kinds."""
    answers: int
    """Answers of the kind among the latest `of`."""
    of: int
    before: int = 0
    """Answers of the kind among those before the change."""
    before_of: int = 0
    since: tuple[int, ...] | None = None
    """(M,): the number of the first trial of each question after the change; None if nothing has changed."""

    @property
    def is_change(self) -> bool:
        """Whether the server has changed."""
        return self.since is not None

    @property
    def reason(self) -> str:
        """The finding in words that follow the model's name."""
        phrase = self.kind.phrase
        if not self.is_change:
            return f"{self.answers} of its {self.of} answers ({self.answers / self.of:.0%}) {phrase}"
        if not self.before_of:
            return f"{self.answers} of its {self.of} answers {phrase}, more of the later ones than of the first"
        before = f"{self.before} of the {self.before_of} before"
        return f"{self.answers} of its last {self.of} answers {phrase}, and {before}"


class ServerChange(NamedTuple):
    """A moment since which answers of a kind are more frequent."""

    kind: AnswerKind
    log_chance: float
    at: int
    """The place of the first trial after it, in the order in which a model's trials are asked."""


class AskedTrials(NamedTuple):
    """A model's committed trials in the order in which they were asked, as arrays."""

    questions: IntArray
    passes: IntArray
    """The number of the pass in which each was asked, over all batches."""
    categories: NDArray[np.uint8]
    """UNGRADED without a grade."""
    kinds: NDArray[np.uint8]
    """Bits of `AnswerKind`."""


class AnswerHistory:
    """The committed trials of one model."""

    def __init__(self, questions: int, *, drawn: bool = False) -> None:
        self._questions, self._drawn = questions, drawn
        self._batches: list[tuple[Batch, int]] = []
        """Each with the number of the look that was the first to see it."""
        self.answers = 0
        self._of_kind = dict.fromkeys(AnswerKind, 0)

    def __len__(self) -> int:
        return len(self._batches)

    def copy(self) -> "AnswerHistory":
        """A copy that later answers do not change."""
        copied = AnswerHistory(self._questions, drawn=self._drawn)
        copied._batches, copied.answers, copied._of_kind = [*self._batches], self.answers, {**self._of_kind}
        return copied

    def add(self, batch: Batch, look: int) -> None:
        """Add a committed batch, which the look of this number is the first to see."""
        self._batches.append((batch, look))
        self.answers += batch.size
        for kind in AnswerKind if batch.kinds.any() else ():
            self._of_kind[kind] += int(np.count_nonzero(batch.kinds & kind))

    @property
    def kinds(self) -> AnswerKind:
        """The kinds of the answers in the latest batch."""
        batch, _ = self._batches[-1]
        return AnswerKind(int(np.bitwise_or.reduce(batch.kinds)))

    def count(self, kinds: AnswerKind) -> int:
        """How many answers are of these kinds; one that is of several counts for each."""
        return sum(self._of_kind[kind] for kind in kinds)

    def most_frequent(self, kinds: AnswerKind) -> tuple[AnswerKind, int] | None:
        """The most frequent of these kinds, the most specific where several are, and its answers; None without any."""
        top_kind = max(kinds, key=lambda kind: self._of_kind[kind], default=None)
        return None if top_kind is None else (top_kind, self._of_kind[top_kind])

    def trials(self) -> AskedTrials:
        """All trials."""
        parts, passes = [], 0
        for batch, _ in self._batches:
            number = np.arange(batch.size) * PASSES // max(batch.size, 1) if self._drawn else batch.slots.passes()
            parts.append((batch.slots.questions(), passes + number, batch.categories_by_place(), batch.kinds))
            passes += int(number.max(initial=-1)) + 1
        return AskedTrials(*map(np.concatenate, zip(*parts, strict=True)))

    def first_look_at(self, trial: int) -> int:
        """The number of the first look that saw the trial at this place among all."""
        ends = np.cumsum([batch.size for batch, _ in self._batches])
        return self._batches[int(np.searchsorted(ends, trial, side="right"))][1]

    def find_change(self, kind: AnswerKind, log_limit: float) -> "ServerChange | None":
        """The change since which this kind is more frequent; None if none has a chance within the limit, given as its
        logarithm."""
        asked = self.trials()
        strata = np.zeros_like(asked.questions) if self._drawn else asked.questions
        shape = int(asked.passes.max(initial=0)) + 1, 1 if self._drawn else self._questions
        cells = asked.passes * shape[1] + strata
        trials, hits = (
            np.bincount(cells[selected], minlength=shape[0] * shape[1]).reshape(shape)
            for selected in (slice(None), (asked.kinds & kind) > 0)
        )
        moments = tried_moments(len(trials))
        chances = log_chances(trials, hits, moments)
        if not len(moments) or chances.min() > log_limit - log(len(moments)):
            return None
        first_pass = first_changed_pass(trials, hits)
        return ServerChange(kind, float(chances.min()), int(np.searchsorted(asked.passes, first_pass)))


def first_changed_pass(trials: IntArray, hits: IntArray) -> int:
    """The first pass since which hits are more frequent.

    `trials` and `hits` (T, M) are counts by pass and question. It is the pass after the likeliest moment, or after an
    earlier one if there was a change before it already. If the pass before it has hits, the change may have come there,
    and that pass is the first one."""
    first = len(trials)
    while first > 1:
        moments = np.arange(1, first)
        chances = log_chances(trials[:first], hits[:first], moments)
        if chances.min() > log(EARLIER_CHANGE / len(moments)):
            break
        first = int(moments[chances.argmin()])
    return first - 1 if hits[first - 1].any() else first


def tried_moments(passes: int) -> IntArray:
    """The moments at which a change is tried: after how many of the passes."""
    back, number = [], 1.0
    while number < passes:
        back.append(round(number))
        number *= SPACING
    return passes - np.unique(np.array(back, dtype=np.int64))


def log_chances(trials: IntArray, hits: IntArray, moments: IntArray) -> FloatArray:
    """For each moment, the logarithm of a bound on the chance that at least as many of the hits come after it.

    A moment is the number of passes (T, M) before it. The bound holds if the order of the trials of each question does
    not matter."""
    total, of_kind = trials.sum(axis=0), hits.sum(axis=0)
    mixed = (of_kind > 0) & (of_kind < total)  # no order of the others would differ
    n, k = total[mixed].astype(float), of_kind[mixed].astype(float)
    early = trials[:, mixed].cumsum(axis=0)[moments - 1].astype(float)
    after = n - early
    later_hits = k.sum() - hits[:, mixed].sum(axis=1).cumsum()[moments - 1]
    bounds = np.zeros(len(later_hits))
    for tilt in TILTS:
        growth = np.expm1(tilt)
        base_term = tilt * (k - early)
        factors = (
            after * np.log1p(k / n * growth),
            k * np.log1p(after / n * growth),
            base_term + (n - k) * np.log1p(early / n * growth),
            base_term + early * np.log1p((n - k) / n * growth),
        )
        bounds = np.minimum(bounds, np.minimum.reduce(factors).sum(axis=1) - tilt * later_hits)
    return bounds


class ChangeFinder:
    """Watches the answers of all models of a run."""

    def __init__(self, bench: Bench, *, drawn: bool) -> None:
        self._bench = bench
        self._histories = [AnswerHistory(bench.questions, drawn=drawn) for _ in range(bench.models)]

    def take_over(self, before: "ChangeFinder", models: ModelNumbers) -> None:
        """Begin with the answers of the stage before."""
        for model, old_number in enumerate(models):
            if old_number is not None:
                self._histories[model] = before._histories[old_number].copy()

    def add(self, batch: Batch, look: int) -> None:
        """Add a committed batch, which the look of this number is the first to see."""
        if not batch.is_counted:
            self._histories[batch.model].add(batch, look)

    def history(self, model: int) -> AnswerHistory:
        """The committed trials of a model."""
        return self._histories[model]

    def find_incomplete(self, model: int, unsure: UnsureGrades) -> AnswerAlarm | None:
        """The alarm that the grades of too many answers of a model are unsure, since these are incomplete, if so."""
        history = self._histories[model]
        if history.count(INCOMPLETE) <= TOLERATED_ANSWERS:
            return None
        asked = history.trials()
        incomplete, graded = unsure._replace(kinds=INCOMPLETE & unsure.kinds), asked.categories < UNGRADED
        kinds = asked.kinds[graded & incomplete.mask(asked.kinds, asked.categories)]
        trials = int(np.count_nonzero(graded))
        if len(kinds) <= max(TOLERATED_ANSWERS, MAX_INCOMPLETE_SHARE * trials):
            return None
        return AnswerAlarm(model, AnswerKind(int(np.bitwise_or.reduce(kinds)) & incomplete.kinds), len(kinds), trials)

    def find_silence(self, model: int, kinds: AnswerKind) -> AnswerAlarm | None:
        """The alarm that most answers of a model are of one of these kinds, if so."""
        history = self._histories[model]
        top_kind = history.most_frequent(kinds)
        if top_kind is None or top_kind[1] <= max(TOLERATED_ANSWERS, MAX_SILENT_SHARE * history.answers):
            return None
        return AnswerAlarm(model, *top_kind, history.answers)

    def find_change(self, model: int) -> ServerChange | None:
        """The likeliest change of a model's server, if its latest batch shows any."""
        history = self._histories[model]
        number = len(history)
        if not number or not history.kinds:
            return None
        hypotheses = len(self._histories) * len(AnswerKind) * number * (number + 1)
        log_limit = log(FALSE_ALARM) - log(hypotheses)
        changes = (history.find_change(kind, log_limit) for kind in history.kinds)
        return min(
            (change for change in changes if change is not None), key=lambda change: change.log_chance, default=None
        )

    def describe(self, model: int, change: ServerChange) -> AnswerAlarm:
        """The alarm for a change."""
        asked, (kind, _, at) = self._histories[model].trials(), change
        hits = (asked.kinds & kind) > 0
        since = np.bincount(asked.questions[:at], minlength=self._bench.questions)
        before, after = int(hits[:at].sum()), int(hits[at:].sum())
        return AnswerAlarm(model, kind, after, len(hits) - at, before, at, tuple(since.tolist()))
