"""A run and its labels as Markdown: how often the grader errs, and the ranking by corrected scores."""

from collections.abc import Iterator

from adaptive_eval.core.result import TWO_SIDED_95
from adaptive_eval.record.finding import state_word
from adaptive_eval.record.labelled import MIN_LABELS, LabelledRun
from adaptive_eval.record.lines import Scale, count, several
from adaptive_eval.record.results import PairRow, Results
from adaptive_eval.show.text import markdown_cell, markdown_table

MAX_PAIRS = 66


def label_sections(results: Results) -> Iterator[str]:
    """Render tables of labels, grades and corrected scores; nothing without labels."""
    labelled = results.labelled
    if labelled is None:
        return
    if labelled.problem is not None:
        yield f"There are labels, which cannot be used here: {markdown_cell(labelled.problem, 500)}"
        return
    wrong = sum(row.disagreements for row in labelled.models)
    with_label = f"{count(labelled.labels)} answer{' has' if labelled.labels == 1 else 's have'} a label"
    yield f"{with_label}; the grader ({labelled.grader}) disagrees with {count(wrong)} of them."
    if labelled.corrected:
        yield (
            "A score with correction estimates what labels of all answers would give (prediction-powered), and its "
            "interval has the error of the correction, too. The answers must not have been selected by their content: "
            "`adaptive-eval label` does not. Ranking, verdicts and gate go by scores with correction."
        )
    if labelled.alone:
        yield "Scores here are of this run's own answers: outcomes that were known before (R0) have no labels."
    if labelled.differ:
        yield "**The grader errs differently about the models.**"
    scale = Scale.of(results.weights)
    head = ["model", "labels", "disagree", "without correction", "with correction", "95% interval", "rank", "before"]
    yield markdown_table(head, _rows(results, labelled, scale), left=1)
    yield "Grades (columns) of answers with each label (rows):"
    columns = [*labelled.levels, "nothing"]
    yield markdown_table(["model", "label", *columns], _confusions(labelled), left=2)
    if changed := [pair for pair in results.pairs if _is_changed(pair)][:MAX_PAIRS]:
        yield "Comparisons that labels have changed:"
        head = ["ahead with correction", "behind", "difference with correction", "verdict", "by the grades alone"]
        yield markdown_table(head, (_pair_cells(pair, scale) for pair in changed), left=2)
    if notes := list(_notes(labelled)):
        yield "\n".join(f"- {note}" for note in notes)


def _is_changed(pair: PairRow) -> bool:
    graded = pair.by_grades
    return graded is not None and (graded.verdict, graded.better) != (pair.verdict, pair.better)


def _pair_cells(pair: PairRow, scale: Scale) -> list[str]:
    graded = pair.by_grades
    assert graded is not None
    ahead = f": {markdown_cell(graded.better)} by {scale.width(graded.difference)}"
    return [
        markdown_cell(pair.better),
        "the value" if pair.worse is None else markdown_cell(pair.worse),
        f"{scale.width(pair.difference)} ± {scale.width(pair.sigma)}",
        state_word(pair.verdict),
        state_word(graded.verdict) + (ahead if graded.difference is not None else ""),
    ]


def _rows(results: Results, labelled: LabelledRun, scale: Scale) -> Iterator[list[str]]:
    ranks = {row.name: row.rank for row in results.models}
    for place, one in enumerate(labelled.models, start=1):
        mu, sigma = one.corrected, one.corrected_sigma
        yield [
            markdown_cell(one.name),
            count(one.labels),
            count(one.disagreements),
            f"{scale.score(one.score)} ± {scale.width(one.sigma)}",
            "-" if mu is None else f"{scale.score(mu)} ± {scale.width(sigma)}",
            "-"
            if mu is None or sigma is None
            else scale.interval(mu - TWO_SIDED_95 * sigma, mu + TWO_SIDED_95 * sigma),
            str(ranks.get(one.name, "-")),
            str(place),
        ]


def _confusions(labelled: LabelledRun) -> Iterator[list[str]]:
    for one in labelled.models:
        for level, row in zip(labelled.levels, one.confusion, strict=True):
            if any(row):
                yield [markdown_cell(one.name), level, *map(count, row)]


def _notes(labelled: LabelledRun) -> Iterator[str]:
    few = [markdown_cell(one.name) for one in labelled.models if one.corrected is None]
    if few:
        yield f"Fewer than {MIN_LABELS} labels, too few to correct a score: {', '.join(few)}."
    if labelled.left_out:
        left_out = several(labelled.left_out, "label")
        yield f"Not counted: {left_out} of answers that this run does not have, or not in a complete round."
