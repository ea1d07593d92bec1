"""Gate outcomes for each model: PASS, FAIL or UNDECIDED.

PASS: it is not worse than the baseline by delta or more; FAIL: it is worse by more than delta. Both are calls of one
comparison: the model's score plus delta against the baseline's, or against a fixed value. Each is wrong with a chance
of at most 1 - confidence, however often one looks. A call decides nothing if later trials reversed it.

Where benchmarks have gates of their own, a model passes if it passes all of them and the one on all questions, and
fails if it fails any.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import nan
from typing import NamedTuple

from adaptive_eval.core.result import GateResult
from adaptive_eval.core.types import Verdict
from adaptive_eval.report.lines import Scale
from adaptive_eval.report.results import GateRow, PairRow, setting

PASS, FAIL, UNDECIDED, OPEN = "PASS", "FAIL", "UNDECIDED", "open"
OUTCOMES = (FAIL, OPEN, UNDECIDED, PASS)
"""Worst first. Only a run that goes on has open ones."""


class GateTerms(NamedTuple):
    """Baseline or value, margin and scale of a gate."""

    baseline: str | None
    """None: the gate is on a value."""
    delta: float
    scale: Scale = Scale(0.0, 1.0)
    value: float = nan
    """nan: the gate has a baseline."""
    goes_on: bool = False
    """Whether the run goes on, so that open comparisons may still be decided."""
    void: frozenset[str] = frozenset()
    """Models whose answers come back word for word."""

    @property
    def against(self) -> str:
        """The baseline or the value, in words."""
        return self.scale.score(self.value) if self.baseline is None else self.baseline

    @property
    def sides(self) -> tuple[str, str]:
        """Words for a model that is ahead, and for one that is behind."""
        against = self.against
        if self.baseline is None:
            return f"above {against}", f"below {against}"
        return f"better than {against}", f"worse than {against}"


def gate_terms(decisions: Mapping[str, object], weights: Sequence[float]) -> GateTerms | None:
    """The gate of a configuration; None if it has none."""
    if not setting(decisions, "objective", "gate"):
        return None
    baseline, value = (setting(decisions, "objective", key) for key in ("baseline", "value"))
    delta, scale = setting(decisions, "stopping", "delta"), Scale.of(weights)
    return GateTerms(baseline, delta, scale, nan if value is None else value)


def judged_model(pair: PairRow, baseline: str | None) -> str:
    """The model of a pair that is judged: the one that is not the baseline."""
    return str(pair.second if pair.first == baseline else pair.first)


def plain_gate(
    asked: GateTerms,
    pairs: Sequence[PairRow],
    reversals: Sequence[tuple[str, str | None]],
    names: Sequence[str],
) -> Iterator[GateResult]:
    """The gate's one part, on all questions, where no benchmark has a gate of its own."""
    for pair in pairs:
        name = judged_model(pair, asked.baseline)
        z = 1.0 if (pair.signed_z(name) or 0.0) > 0.0 else -1.0
        call = int(-z if (pair.first, pair.second) in reversals else z) if pair.verdict == Verdict.RESOLVED else 0
        yield GateResult(names.index(name), 0, call, z)


ALL_QUESTIONS = "all questions"
TURNED = "it was decided, but later trials point the other way"
ENDED_FIRST = "the run ended before it was decided"
NOT_ANSWERS = "the answers are not usable"
BY_LABELS = "scores corrected by labels do not decide it"


def outcome_in_words(outcome: str, asked: GateTerms) -> str:
    """Describe a call of a gate."""
    ahead, behind = asked.sides
    if not asked.delta:
        return behind if outcome == FAIL else ahead
    return f"{'' if outcome == FAIL else 'not '}{behind} by more than {asked.scale.points(asked.delta)}"


MISSING_DECIDE = "answers that are missing, incomplete, empty, not usable or without a grade could decide it"


def _undecided(asked: GateTerms, pair: PairRow) -> tuple[str, str]:
    if pair.verdict == Verdict.OPEN:
        return (OPEN, "the run goes on") if asked.goes_on else (UNDECIDED, ENDED_FIRST)
    if pair.verdict == Verdict.UNDECIDED_BY_LABELS:
        return UNDECIDED, BY_LABELS
    if void := [name for name in (pair.first, pair.second) if name in asked.void]:
        return UNDECIDED, f"answers of {' and '.join(void)} come back word for word"
    return (
        UNDECIDED,
        MISSING_DECIDE if pair.verdict == Verdict.BLOCKED else "the remaining trials are unlikely to decide it",
    )


class GatePart(NamedTuple):
    """Questions that a gate judges: all, or one benchmark."""

    benchmark: str | None
    """None: all questions."""
    delta: float


Outcomes = Mapping[tuple[str, str], str]
"""Outcomes by benchmark and model."""


def gate_rows(
    asked: GateTerms,
    parts: Sequence[GatePart],
    models: Sequence[str],
    pairs: Sequence[PairRow],
    results: Sequence[GateResult],
) -> tuple[tuple[GateRow, ...], Outcomes]:
    """Outcome of each model, in the order of the pairs, and of each benchmark's own gate."""
    rows, outcomes = [], {}
    for pair in pairs:
        name = judged_model(pair, asked.baseline)
        parts_by_reason: dict[str, dict[str, list[str]]] = {outcome: {} for outcome in OUTCOMES}
        for result in results:
            if models[result.model] != name:
                continue
            part = parts[result.part]
            outcome, why = _outcome_of_part(asked._replace(delta=part.delta), result, pair)
            parts_by_reason[outcome].setdefault(why, []).append(part.benchmark or ALL_QUESTIONS)
            if part.benchmark is not None:
                outcomes[part.benchmark, name] = outcome
        decided = next(outcome for outcome in OUTCOMES if parts_by_reason[outcome])
        reasons = parts_by_reason[decided].items()
        why = "; ".join(f"on {' and '.join(names)}: {why}" if len(parts) > 1 else why for why, names in reasons)
        rows.append(GateRow(name, asked.baseline, decided, why))
    return tuple(rows), outcomes


def _outcome_of_part(asked: GateTerms, result: GateResult, pair: PairRow) -> tuple[str, str]:
    if result.call == 0:
        return _undecided(asked, pair)
    if result.z * result.call < 0.0:
        return UNDECIDED, TURNED
    called = PASS if result.call > 0 else FAIL
    return called, outcome_in_words(called, asked)


def gate_outcome(rows: Sequence[GateRow]) -> str | None:
    """The worst outcome of all models; None if there is no gate."""
    return min((row.outcome for row in rows), key=OUTCOMES.index, default=None)
