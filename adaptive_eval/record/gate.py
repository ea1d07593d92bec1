"""Gate outcomes for each model: PASS, FAIL or UNDECIDED.

PASS: it is not worse than the baseline by delta or more; FAIL: it is worse by more than delta. Both are calls of one
comparison, the model with delta given to it against the baseline, so that each is wrong with at most 1 - confidence,
at whatever looks. A call that what is no answer could explain, or that later trials have turned, decides nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, cast

from adaptive_eval.core.types import Verdict
from adaptive_eval.record.results import GateRow, ModelRow, PairRow
from adaptive_eval.record.scale import Scale

PASS, FAIL, UNDECIDED = "PASS", "FAIL", "UNDECIDED"
OUTCOMES = (FAIL, UNDECIDED, PASS)
"""The worst first."""


class GateTerms(NamedTuple):
    """Baseline, margin and scale of a gate."""

    baseline: str
    delta: float
    scale: Scale = Scale(0.0, 1.0)


def gate_terms(decisions: Mapping[str, object], weights: Sequence[float]) -> GateTerms | None:
    """The gate of a configuration; None if it has none."""
    if (baseline := gate_baseline(decisions)) is None:
        return None
    stopping = cast(Mapping[str, float], decisions["stopping"])
    return GateTerms(baseline, stopping["delta"], Scale.of(weights))


def gate_baseline(decisions: Mapping[str, object]) -> str | None:
    """The baseline of the gate; None if there is no gate."""
    objective = cast(Mapping[str, object], decisions.get("objective", {}))
    return str(objective["baseline"]) if objective.get("gate") else None


def gate_rows(
    asked: GateTerms,
    models: Sequence[ModelRow],
    pairs: Sequence[PairRow],
    reversals: Sequence[tuple[str, str | None]],
    may_move: Mapping[str, float],
) -> Iterator[GateRow]:
    """The outcome of each model, best first; `may_move` bounds the effect of answers that are none on each score."""
    rows = {row.name: row for row in models}
    for pair in pairs:
        name = str(pair.worse if pair.better == asked.baseline else pair.better)
        if (pair.better, pair.worse) in reversals:
            found = UNDECIDED, "it was called, and later trials point the other way"
        elif pair.verdict != Verdict.RESOLVED:
            found = UNDECIDED, _undecided(pair)
        else:
            called = FAIL if pair.better == asked.baseline else PASS
            found = called, outcome_in_words(called, asked)
            if doubted := _doubted_models(asked, called, rows[name], rows[asked.baseline], may_move):
                why = f"called {called}, which answers of {' and '.join(doubted)} that {NO_ANSWER} could explain"
                yield GateRow(name, asked.baseline, UNDECIDED, why, doubted)
                continue
        yield GateRow(name, asked.baseline, *found)


NO_ANSWER = "timed out, are empty or have no grade"


def outcome_in_words(outcome: str, asked: GateTerms) -> str:
    """What a call says, in words."""
    by = asked.scale.points(asked.delta)
    if outcome == FAIL:
        return f"worse than {asked.baseline}" + (f" by more than {by}" if asked.delta else "")
    return f"less than {by} worse than {asked.baseline}, or better" if asked.delta else f"better than {asked.baseline}"


def _undecided(pair: PairRow) -> str:
    if pair.verdict == Verdict.BLOCKED:
        return "a model was set aside"
    return "not decided yet" if pair.verdict == Verdict.OPEN else "the trials that are left would hardly decide it"


def _doubted_models(
    asked: GateTerms, called: str, model: ModelRow, baseline: ModelRow, may_move: Mapping[str, float]
) -> tuple[str, ...]:
    """Models whose failed answers could explain a call: with other outcomes the difference would not be beyond the
    margin."""
    behind, ahead, given = (model, baseline, asked.delta) if called == FAIL else (baseline, model, -asked.delta)
    moved = may_move[behind.name]
    lacking = [behind.name] * (moved > 0.0 or behind.highest not in (None, behind.score))
    lacking += [ahead.name] * (ahead.lowest not in (None, ahead.score))
    best = behind.score if behind.highest is None else behind.highest
    least = ahead.score if ahead.lowest is None else ahead.lowest
    holds = best is not None and least is not None and best + moved + given < least
    return () if holds else tuple(lacking)


def gate_outcome(rows: Sequence[GateRow]) -> str | None:
    """The worst outcome of all models; None if there is no gate."""
    return min((row.outcome for row in rows), key=OUTCOMES.index, default=None)
