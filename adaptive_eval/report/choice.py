"""The choice of the cheapest model that will do, in words."""

import math
from collections.abc import Sequence

from adaptive_eval.base.numbers import plain_number
from adaptive_eval.core.cheapest import Part
from adaptive_eval.core.result import TWO_SIDED_95
from adaptive_eval.core.types import Verdict
from adaptive_eval.report.lines import Scale, safe_name
from adaptive_eval.report.needs import LONGEST_NAME, some_models
from adaptive_eval.report.results import SET_ASIDE, FrontierRow, Results
from adaptive_eval.report.words import objective_view


def choice_sentence(results: Results) -> str:
    """The finding: the model that is chosen or may be, what it saves, and what is not known about cheaper ones."""
    rows, margin = results.frontier, margin_in_words(results)
    first = next(row for row in rows if row.part in (Part.CHOSEN, Part.CANDIDATE))
    undecided = [row for row in rows if row.part == Part.UNDECIDED]
    if first.part == Part.CANDIDATE:
        yet = " yet" if results.run.status == "running" else ""
        by_labels = any(pair.verdict == Verdict.UNDECIDED_BY_LABELS for pair in results.pairs)
        why = " (undecided because of labels)" if by_labels else ""
        may_do = _names([*undecided, first])
        return f"No model is chosen{yet}{why}: {may_do} may do, and none is shown to be within {margin} of the best."
    best = next(row.name for row in results.models if row.score is not None)
    sentences = [f"{_with_score(results, first)} is the cheapest within {margin} of the best."]
    if first.model != best:
        of_best = next(row for row in rows if row.model == best)
        times = ""
        if of_best.usd and first.usd:
            times = f", at about {plain_number(of_best.usd / first.usd, 2)} times the cost in the first round"
        sentences.append(f"The highest score has {_with_score(results, of_best)}{times}.")
    if undecided:
        verb = "costs" if len(undecided) == 1 else "cost"
        sentences.append(f"It is not known whether {_names(undecided)}, which {verb} less, will do as well.")
    if alike := [row for row in rows if row.part in (Part.DEARER, Part.UNDECIDED) and costs_alike(row, first)]:
        sentences.append(f"{_names([first, *alike])} cost about the same: any of them may be the cheapest.")
    return " ".join(sentences)


def costs_alike(row: FrontierRow, other: FrontierRow) -> bool:
    """Whether the costs of two models are within the noise of their measurement, or equal."""
    if row.usd is None or other.usd is None:
        return False
    noise = math.hypot(row.usd_sigma or 0.0, other.usd_sigma or 0.0)
    return abs(row.usd - other.usd) <= TWO_SIDED_95 * noise + 1e-9 * row.usd


def part_in_words(results: Results, row: FrontierRow) -> tuple[str, tuple[str, ...]]:
    """A model's part in the choice, as words that precede the name of another model, and that name."""
    match row.part:
        case Part.CHOSEN:
            return f"cheapest within {margin_in_words(results)} of the best", ()
        case Part.CANDIDATE:
            return "may do, not shown", ()
        case Part.UNDECIDED:
            return "undecided", ()
        case Part.RULED_OUT:
            return f"more than {margin_in_words(results)} behind", (str(row.behind),)
    return "set aside" if row.part == SET_ASIDE else "costs more", ()


def margin_in_words(results: Results) -> str:
    """How far behind the best the chosen model may be."""
    return Scale.of(results.weights).points(objective_view(results.decisions).margin or 0.0)


def _with_score(results: Results, row: FrontierRow) -> str:
    score = Scale.of(results.weights).score(next(model.score for model in results.models if model.name == row.model))
    return f"{safe_name(row.model, LONGEST_NAME)} ({score})"


def _names(rows: Sequence[FrontierRow]) -> str:
    return some_models(row.model for row in rows)
