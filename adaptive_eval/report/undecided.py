"""The most important undecided pair, which the headline names with what it would take."""

import math

from adaptive_eval.core.types import Reason
from adaptive_eval.report.lines import Scale, safe_name, several
from adaptive_eval.report.needs import LONGEST_NAME, OF_TRIALS, UNDECIDED, need_of
from adaptive_eval.report.results import PairRow, Results
from adaptive_eval.report.warnings import is_alarmed
from adaptive_eval.report.words import objective_view


def undecided_pair(results: Results) -> PairRow | None:
    """The undecided pair that matters most, once the run has ended.

    Of neighbours, and of rivals of the best model, it is the highest one in the ranking; of other comparisons the one
    with the smallest difference.
    """
    if results.run.status == "running" or is_alarmed(results.decisions, results.warnings):
        return None
    if results.run.reason == Reason.ALARM:
        return None
    asked, ranks = objective_view(results.decisions), {row.name: row.rank for row in results.models}
    by_rank = asked.compares and asked.baseline is None and asked.first is None and asked.value is None

    def importance(pair: PairRow) -> tuple[int, float]:
        gap = math.inf if pair.difference is None else abs(pair.difference)
        return ranks[pair.first] if by_rank else 0, gap

    scored = {row.name for row in results.models if row.score is not None}
    pairs = [pair for pair in results.pairs if pair.verdict in UNDECIDED and pair.first in scored]
    return min(pairs, key=importance, default=None)


def undecided_sentence(results: Results) -> str | None:
    """Name the most important undecided pair and what it would take; None if every pair is decided."""
    if (pair := undecided_pair(results)) is None:
        return None
    more, need, apart = sum(row.verdict in UNDECIDED for row in results.pairs) - 1, need_of(results, pair), ""
    what, verb = "comparison" if results.compares else "score", "is" if more == 1 else "are"
    others = f"; {several(more, f'more {what}')} {verb} undecided" if more else ""
    if pair.difference is not None and need.kind in OF_TRIALS:  # else the scores may be wrong
        subject = "it differs" if pair.second is None else "they differ"
        apart = f": {subject} by {Scale.of(results.weights).rounded_points(abs(pair.difference))}"
    state = "undecided" if results.compares else "not as precise as requested"
    return f"{_subject(results, pair)} is {state}{apart}{others}. It needs {need.missing(results)}."


def need_sentence(results: Results, pair: PairRow) -> str:
    """Say what an undecided pair needs, without a full stop."""
    return f"{_subject(results, pair)} needs {need_of(results, pair).missing(results)}"


def _subject(results: Results, pair: PairRow) -> str:
    names = pair_names(pair.first, pair.second)
    if not results.compares:
        return f"The score of {names}"
    value = Scale.of(results.weights).score(objective_view(results.decisions).value)
    return f"The comparison of {names}{f' with {value}' if pair.second is None else ''}"


def pair_names(first: str, second: str | None) -> str:
    """Names of both models of a pair, or of the one that is compared with a value."""
    return " and ".join(safe_name(name, LONGEST_NAME) for name in (first, second) if name is not None)
