"""A run and its labels in paragraphs and tables: how often the grader errs, and the ranking by corrected scores."""

from collections.abc import Iterator

from adaptive_eval.base.lists import first_few
from adaptive_eval.core.result import TWO_SIDED_95
from adaptive_eval.report.finding import difference_text, state_word
from adaptive_eval.report.labelled import MIN_LABELS, LabelledRun
from adaptive_eval.report.lines import Scale, count, several
from adaptive_eval.report.results import PairRow, Results
from adaptive_eval.show.text import Block, Table

MAX_PAIRS = 66
SHOWN_NAMES = 5


def label_blocks(results: Results) -> Iterator[Block]:
    """Labels, grades and corrected scores; empty without labels."""
    labelled = results.labelled
    if labelled is None:
        return
    if labelled.problem is not None:
        yield f"The labels cannot be used: {labelled.problem}"
        return
    wrong = sum(row.disagreements for row in labelled.models)
    with_label = f"{count(labelled.labels)} answer{' has' if labelled.labels == 1 else 's have'} a label"
    of_each = labelled.grader == "by_benchmark"
    disagreed = "the graders disagree" if of_each else f"the grader ({labelled.grader}) disagrees"
    yield f"{with_label}; {disagreed} with {count(wrong)} of them."
    if labelled.corrected:
        yield (
            "A corrected score estimates the score if all answers had labels (prediction-powered inference); its "
            "interval includes the error of the correction. Labelled answers must not be selected by their content; "
            "adaptive-eval label draws them at random. Ranking, verdicts and gate use the corrected scores."
        )
    if labelled.alone:
        yield "These scores use only the answers of this run: earlier outcomes (R0) have no labels."
    if labelled.differ:
        yield "The grader's error differs between models."
    scale = Scale.of(results.weights)
    head = ["model", "labels", "disagree", "without correction", "with correction", "95% interval", "rank", "before"]
    yield Table.of("Scores as graded and as corrected", head, _rows(results, labelled, scale))
    columns = ["model", "label", *labelled.levels, "nothing"]
    yield Table("Grades (columns) of answers with each label (rows)", tuple(columns), tuple(_confusions(labelled)), 2)
    if changed := [pair for pair in results.pairs if _is_changed(pair)][:MAX_PAIRS]:
        head = [
            "ahead with correction",
            "behind",
            "difference with correction (95% interval)",
            "verdict",
            "without labels",
        ]
        yield Table.of(
            "Comparisons that labels have changed", head, (_pair_cells(results, pair) for pair in changed), 2
        )
    yield from _label_notes(labelled)


def _is_changed(pair: PairRow) -> bool:
    graded = pair.by_grades
    return graded is not None and (graded.verdict, graded.first) != (pair.verdict, pair.first)


def _pair_cells(results: Results, pair: PairRow) -> list[str]:
    graded, scale = pair.by_grades, Scale.of(results.weights)
    assert graded is not None
    gap = graded.difference
    return [
        pair.first,
        pair.second or "the value",
        difference_text(results, pair),
        state_word(pair.verdict),
        state_word(graded.verdict) + ("" if gap is None else f": {graded.first} by {scale.rounded_points(gap)}"),
    ]


def _rows(results: Results, labelled: LabelledRun, scale: Scale) -> Iterator[list[str]]:
    ranks = {row.name: row.rank for row in results.models}
    for place, model in enumerate(labelled.models, start=1):
        mu, sigma = model.corrected, model.corrected_sigma
        yield [
            model.name,
            count(model.labels),
            count(model.disagreements),
            f"{scale.score(model.score)} ± {scale.width(model.sigma)}",
            "-" if mu is None else f"{scale.score(mu)} ± {scale.width(sigma)}",
            "-"
            if mu is None or sigma is None
            else scale.interval(mu - TWO_SIDED_95 * sigma, mu + TWO_SIDED_95 * sigma),
            str(ranks.get(model.name, "-")),
            str(place),
        ]


def _confusions(labelled: LabelledRun) -> Iterator[tuple[str, ...]]:
    for model in labelled.models:
        for level, row in zip(labelled.levels, model.confusion, strict=True):
            if any(row):
                yield (model.name, level, *map(count, row))


def _label_notes(labelled: LabelledRun) -> Iterator[str]:
    few = [model.name for model in labelled.models if model.corrected is None]
    if few:
        yield f"A score is corrected if it has {MIN_LABELS} labels (on each benchmark); too few: {', '.join(few)}."
    if labelled.foreign:
        names = first_few(labelled.foreign_names, SHOWN_NAMES)
        yield f"Not counted: {several(labelled.foreign, 'label')} that the grader does not have ({names})."
    if labelled.left_out:
        left_out = several(labelled.left_out, "label")
        yield f"Not counted: {left_out} of answers that are not, or no longer, in a complete round of this run."
