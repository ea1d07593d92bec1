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
    """Answers before the change: the place of the first trial after it, in the order in which trials are asked."""
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
    """The committed trials of one model, and the alarms that they raise."""

    def __init__(self, model: int, bench: Bench, *, drawn: bool) -> None:
        self._model, self._bench, self._drawn = model, bench, drawn
        self._batches: list[tuple[Batch, int]] = []
        """Each with the number of the look that was the first to see it."""
        self._answers = 0
        self._of_kind = dict.fromkeys(AnswerKind, 0)

    def take_over(self, before: "AnswerHistory") -> None:
        """Begin with the answers of the stage before."""
        self._batches, self._answers = [*before._batches], before._answers
        self._of_kind = {**before._of_kind}

    def add(self, batch: Batch, look: int) -> None:
        """Add a committed batch, which the look of this number is the first to see."""
        self._batches.append((batch, look))
        self._answers += batch.size
        for kind in AnswerKind if batch.kinds.any() else ():
            self._of_kind[kind] += int(np.count_nonzero(batch.kinds & kind))

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

    def find_change(self) -> AnswerAlarm | None:
        """The alarm for the likeliest change of the server, if the latest batch shows any."""
        number = len(self._batches)
        kinds = AnswerKind(int(np.bitwise_or.reduce(self._batches[-1][0].kinds))) if number else AnswerKind(0)
        if not kinds:
            return None
        asked, questions = self.trials(), self._bench.questions
        shape = int(asked.passes.max()) + 1, 1 if self._drawn else questions
        cells = asked.passes * shape[1] + (0 if self._drawn else asked.questions)

        def counted(selected: NDArray[np.bool_] | slice) -> IntArray:
            return np.bincount(cells[selected], minlength=shape[0] * shape[1]).reshape(shape)

        trials, moments = counted(slice(None)), tried_moments(shape[0])
        hypotheses = self._bench.models * len(AnswerKind) * number * (number + 1)
        limit = log(FALSE_ALARM) - log(hypotheses) - log(max(len(moments), 1))
        chances = {
            kind: log_chances(trials, counted((asked.kinds & kind) > 0), moments).min(initial=0.0) for kind in kinds
        }
        kind = min(chances, key=lambda kind: chances[kind])
        if chances[kind] > limit:
            return None
        hits = (asked.kinds & kind) > 0
        at = int(np.searchsorted(asked.passes, first_changed_pass(trials, counted(hits))))
        since = np.bincount(asked.questions[:at], minlength=questions)
        before, after = int(hits[:at].sum()), int(hits[at:].sum())
        return AnswerAlarm(self._model, kind, after, len(hits) - at, before, at, tuple(since.tolist()))

    def find_incomplete(self, unsure: UnsureGrades) -> AnswerAlarm | None:
        """The alarm that the grades of too many answers are unsure, since these are incomplete, if so."""
        if sum(self._of_kind[kind] for kind in INCOMPLETE) <= TOLERATED_ANSWERS:
            return None
        asked = self.trials()
        incomplete, graded = unsure._replace(kinds=INCOMPLETE & unsure.kinds), asked.categories < UNGRADED
        kinds = asked.kinds[graded & incomplete.mask(asked.kinds, asked.categories)]
        trials = int(np.count_nonzero(graded))
        if len(kinds) <= max(TOLERATED_ANSWERS, MAX_INCOMPLETE_SHARE * trials):
            return None
        shown = AnswerKind(int(np.bitwise_or.reduce(kinds)) & incomplete.kinds)
        return AnswerAlarm(self._model, shown, len(kinds), trials)

    def find_silence(self, kinds: AnswerKind) -> AnswerAlarm | None:
        """The alarm that most answers are of one of these kinds, the most specific where several are, if so."""
        kind = max(kinds, key=lambda kind: self._of_kind[kind], default=None)
        if kind is None or self._of_kind[kind] <= max(TOLERATED_ANSWERS, MAX_SILENT_SHARE * self._answers):
            return None
        return AnswerAlarm(self._model, kind, self._of_kind[kind], self._answers)


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
