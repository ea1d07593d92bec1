"""A run under other rubrics: how scores and ranks move, and which rubrics are unavailable."""

from collections.abc import Callable, Iterator

from adaptive_eval.base.numbers import plain_number
from adaptive_eval.report.lines import Scale, count
from adaptive_eval.report.rescore import RescoredModel, RescoredRubric, Rescoring
from adaptive_eval.show.text import Block, Table, number_or_dash


def rubric_blocks(rescoring: Rescoring) -> Iterator[Block]:
    """Tables of scores and ranks by rubric."""
    exclusion = (
        "without outcomes of another run (R0, or recorded), whose category is fixed" if rescoring.with_prior else ""
    )
    yield (
        f"The {count(rescoring.trials)} graded trials of the scores{', ' if exclusion else ''}{exclusion}, categorized "
        "again by their stored signals. Nothing was asked, and the run is unchanged. The promise does not hold for a "
        "rubric chosen after seeing these results."
    )
    head = ["", "rubric", "tau-b", "first"]
    rows = (_summary_cells(number, rubric) for number, rubric in enumerate(rescoring.rubrics))
    yield Table.of("Rubrics", head, rows, 2)
    yield "tau-b: Kendall's agreement with the scores of the run's rubric."
    head = ["model", *map(str, range(len(rescoring.rubrics)))]
    if len({tuple(model.rank for model in rubric.models) for rubric in rescoring.rubrics}) > 1:
        yield Table.of("Rank", head, _by_model(rescoring, lambda model, _: str(model.rank or "-")))
    else:
        yield "Ranks are the same under all rubrics."
    yield Table.of("Score and its standard error", head, _by_model(rescoring, _score_cell))
    yield from _rubric_notes(rescoring)


def _summary_cells(number: int, rubric: RescoredRubric) -> list[str]:
    first = [model.name for model in rubric.models if model.rank == 1]
    return [
        str(number),
        rubric.name,
        "" if number == 0 else number_or_dash(rubric.tau_b),
        ", ".join(first),
    ]


def _by_model(rescoring: Rescoring, shown: Callable[[RescoredModel, Scale], str]) -> Iterator[list[str]]:
    scales = [Scale.of(rubric.weights) for rubric in rescoring.rubrics]
    for at, model in enumerate(rescoring.rubrics[0].models):
        cells = (shown(rubric.models[at], scale) for rubric, scale in zip(rescoring.rubrics, scales, strict=True))
        yield [model.name, *cells]


def _score_cell(model: RescoredModel, scale: Scale) -> str:
    return "-" if model.score is None else f"{scale.score(model.score)} ± {scale.width(model.sigma)}"


def _rubric_notes(rescoring: Rescoring) -> Iterator[str]:
    for rubric in rescoring.rubrics:
        name = rubric.name
        if rubric.fitted:
            thresholds = ", ".join(f"{key} {plain_number(rubric.thresholds[key], 4)}" for key in rubric.fitted)
            yield f"{name}: thresholds fitted on these trials ({thresholds}); more trials would change them."
        left_out = sum(model.left_out for model in rubric.models)
        if left_out:
            yield f"{name}: {count(left_out)} trials lack a signal and are excluded."
    assumed = {key: value for rubric in rescoring.rubrics for key, value in rubric.assumed.items()}
    for key, value in assumed.items():
        names = ", ".join(rubric.name for rubric in rescoring.rubrics if key in rubric.assumed)
        yield f"No trial has {key}: {names} assume {plain_number(value)}."
    reasons = dict.fromkeys(rubric.why for rubric in rescoring.unavailable)
    for reason in reasons:
        names = ", ".join(rubric.name for rubric in rescoring.unavailable if rubric.why == reason)
        yield f"{names}: {reason}."
