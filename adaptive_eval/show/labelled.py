"""A run and its labels as Markdown: how often the grader errs, and the ranking by corrected scores."""

from collections.abc import Iterator

from adaptive_eval.core.result import TWO_SIDED_95
from adaptive_eval.record.labelled import MIN_LABELS, LabelledModel, LabelledRun
from adaptive_eval.record.lines import Scale, several
from adaptive_eval.show.text import count, markdown_cell, markdown_table

MAX_PAIRS = 66


def label_sections(found: LabelledRun) -> Iterator[str]:
    """Render tables of labels, grades and corrected scores."""
    if found.problem is not None:
        yield f"There are labels, which cannot be used here: {markdown_cell(found.problem, 500)}"
        return
    total, wrong = sum(one.labels for one in found.models), sum(one.disagreements for one in found.models)
    labelled = f"{count(total)} answer{' has' if total == 1 else 's have'} a label"
    yield f"{labelled}; the grader ({found.grader}) disagrees with {count(wrong)} of them."
    if any(one.corrected is not None for one in found.models):
        yield (
            "A score with correction estimates what labels of all answers would give (prediction-powered), and its "
            "interval has the error of the correction, too. The answers must not have been selected by their content: "
            "`adaptive-eval label` does not."
        )
    if found.alone:
        yield "Scores here are of this run's own answers: outcomes that were known before (R0) have no labels."
    if found.differ:
        yield (
            "**The grader errs differently about the models.** A ranking by its grades alone is not to be relied on: "
            "go by the scores with correction."
        )
    scale = Scale.of(found.weights)
    head = ["model", "labels", "disagree", "without correction", "with correction", "95% interval", "rank", "before"]
    yield markdown_table(head, _rows(found, scale), left=1)
    yield "Grades (columns) of answers with each label (rows):"
    columns = [*found.levels, "nothing"]
    yield markdown_table(["model", "label", *columns], _confusions(found), left=2)
    if turned := [pair for pair in found.pairs if pair.corrected_order != "the same order"][:MAX_PAIRS]:
        yield "Not told apart, or the other way round, with correction:"
        yield markdown_table(
            ["ahead without correction", "behind", "difference with correction", "order"],
            (
                [
                    markdown_cell(pair.ahead),
                    markdown_cell(pair.behind),
                    f"{scale.width(pair.difference)} ± {scale.width(pair.sigma)}",
                    pair.corrected_order,
                ]
                for pair in turned
            ),
            left=2,
        )
    if notes := list(_notes(found)):
        yield "\n".join(f"- {note}" for note in notes)


def _rows(found: LabelledRun, scale: Scale) -> Iterator[list[str]]:
    ranks = _ranks(found.models)
    for place, one in enumerate(found.models, start=1):
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


def _ranks(models: tuple[LabelledModel, ...]) -> dict[str, int]:
    """Ranks by corrected scores; empty unless all models are corrected."""
    known = [(one.corrected, one.name) for one in models if one.corrected is not None]
    if len(known) < len(models):
        return {}
    return {name: rank for rank, (_, name) in enumerate(sorted(known, key=lambda one: -one[0]), start=1)}


def _confusions(found: LabelledRun) -> Iterator[list[str]]:
    for one in found.models:
        for level, row in zip(found.levels, one.confusion, strict=True):
            if any(row):
                yield [markdown_cell(one.name), level, *map(count, row)]


def _notes(found: LabelledRun) -> Iterator[str]:
    few = [markdown_cell(one.name) for one in found.models if one.corrected is None]
    if few:
        yield f"Fewer than {MIN_LABELS} labels, too few to correct a score: {', '.join(few)}."
    if found.left_out:
        left_out = several(found.left_out, "label")
        yield f"Not counted: {left_out} of answers that this run does not have, or not in a complete round."
