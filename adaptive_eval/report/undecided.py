"""The most important undecided pair, which the headline names with what it would take."""

import math

from adaptive_eval.core.types import Reason, Verdict
from adaptive_eval.report.lines import Scale, safe_name, several
from adaptive_eval.report.needs import LONGEST_NAME, OF_TRIALS, UNDECIDED, NeedKind, need_of
from adaptive_eval.report.results import PairRow, Results
from adaptive_eval.report.warnings import is_alarmed
from adaptive_eval.report.words import objective_view

ENDED_BY = {Reason.BUDGET: "the budget", Reason.GPU_TIME: "the budget", Reason.WALL_TIME: "the time limit"}


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
    more = sum(row.verdict in UNDECIDED for row in results.pairs) - 1
    what, verb = "comparison" if results.compares else "score", "is" if more == 1 else "are"
    others = f"; {several(more, f'more {what}')} {verb} undecided" if more else ""
    if results.compares and need_of(results, pair).kind not in OF_TRIALS:
        return f"{need_sentence(results, pair)}{others}."
    subject = "It" if pair.second is None else "They"
    return f"{_how_close(results, pair)}{others}. {subject} {_needs(results, pair)}."


def _how_close(results: Results, pair: PairRow) -> str:
    scale, subject = Scale.of(results.weights), "it differs" if pair.second is None else "they differ"
    names = pair_names(pair.first, pair.second)
    if not results.compares:
        return f"The score of {names} is not as precise as requested"
    if results.gate or results.frontier:
        return f"{names if pair.second is None else f'The comparison of {names}'} is undecided"
    apart = "" if pair.difference is None else f": {subject} by {scale.rounded_points(abs(pair.difference))}"
    asked, scored = objective_view(results.decisions), [row.name for row in results.models if row.score is not None]
    if asked.baseline is None and asked.first is None and [pair.first, pair.second] == scored[:2]:
        apart = ""  # the sentence before has it
    value = scale.score(asked.value)
    if pair.verdict == Verdict.OPEN:
        ended_by = f", since {ENDED_BY[Reason(why)]} ended the run" if (why := results.run.reason) in ENDED_BY else ""
        against = f" with {value}" if pair.second is None else ""
        return f"The comparison of {names}{against} is still open{ended_by}{apart}"
    both = f"{names} from {value}" if pair.second is None else f"{names} apart"
    return f"There are too few answers to tell {both}{apart}"


def pair_names(first: str, second: str | None) -> str:
    """Names of both models of a pair, or of the one that is compared with a value."""
    return " and ".join(safe_name(name, LONGEST_NAME) for name in (first, second) if name is not None)


def need_sentence(results: Results, pair: PairRow) -> str:
    """Say what an undecided pair needs, without a full stop."""
    names, need = pair_names(pair.first, pair.second), need_of(results, pair)
    if pair.second is None or need.kind in OF_TRIALS:
        return f"{names} {_needs(results, pair)}"
    return f"The comparison of {names} needs {need.missing(results)}"


def _needs(results: Results, pair: PairRow) -> str:
    """The need of an undecided pair, as words that follow its names."""
    need = need_of(results, pair)
    verb = "needs" if pair.second is None else "each need" if need.kind is NeedKind.TRIALS else "need"
    return f"{verb} {need.missing(results)}"
