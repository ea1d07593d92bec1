"""A run under other rubrics as Markdown: how scores, ranks and tiers move, and which rubrics are unavailable."""

from collections.abc import Callable, Iterator

from adaptive_eval.record.lines import Scale, count
from adaptive_eval.record.rescore import RescoredModel, RescoredRubric, Rescoring
from adaptive_eval.show.text import markdown_cell, markdown_table, number_or_dash

MAX_MOVES = 3


def rescored_markdown(found: Rescoring) -> str:
    """Render the whole document."""
    parts = [f"# {markdown_cell(found.run)} under other rubrics", *rubric_sections(found)]
    return "\n\n".join(parts) + "\n"


def rubric_sections(found: Rescoring) -> Iterator[str]:
    """Render tables of scores, ranks and tiers by rubric."""
    said = (
        "without the outcomes of another run (R0, or recorded), which have no other categories"
        if found.with_prior
        else ""
    )
    yield (
        f"{count(found.trials)} graded trials that the scores are of{', ' if said else ''}{said}, put into categories "
        "anew by what is stored of each; nothing was asked, and nothing in the run is changed. A rubric that was "
        "chosen because of what it shows here promises nothing."
    )
    head = ["", "rubric", "tau-b", "tiers", "first", "moves"]
    yield markdown_table(head, (_summary_cells(number, one, found) for number, one in _numbered(found)), left=2)
    yield (
        "tau-b: agreement of its scores with those of the run's rubric (Kendall). tiers: how many there are, by one "
        "look at these trials; the run may have called more comparisons at an earlier look."
    )
    numbers = [str(number) for number, _ in _numbered(found)]
    if len({tuple(map(_rank_cell, one.models)) for one in found.rubrics}) > 1:
        yield "Rank, and tier in brackets:"
        yield markdown_table(["model", *numbers], _by_model(found, lambda model, _: _rank_cell(model)))
    else:
        yield "Ranks and tiers are the same by all of these."
    yield "Score and its standard error:"
    yield markdown_table(["model", *numbers], _by_model(found, _score_cell))
    if notes := list(_rubric_notes(found)):
        yield "\n".join(f"- {note}" for note in notes)


def _numbered(found: Rescoring) -> Iterator[tuple[int, RescoredRubric]]:
    return enumerate(found.rubrics)


def _summary_cells(number: int, one: RescoredRubric, found: Rescoring) -> list[str]:
    tiers = [model.tier for model in one.models if model.tier is not None]
    first = [markdown_cell(model.name) for model in one.models if model.rank == 1]
    return [
        str(number),
        markdown_cell(one.name),
        "" if number == 0 else number_or_dash(one.tau_b),
        str(max(tiers, default=0)),
        ", ".join(first),
        ", ".join(_rank_moves(one, found.rubrics[0])),
    ]


def _rank_moves(one: RescoredRubric, own: RescoredRubric) -> Iterator[str]:
    """Largest changes of rank; +1 is one rank better."""
    ranks = ((mine.name, mine.rank, theirs.rank) for mine, theirs in zip(one.models, own.models, strict=True))
    known = [(name, before - now) for name, now, before in ranks if now is not None and before is not None]
    moved = sorted((pair for pair in known if pair[1]), key=lambda pair: -abs(pair[1]))
    yield from (f"{markdown_cell(name)} {by:+d}" for name, by in moved[:MAX_MOVES])
    if len(moved) > MAX_MOVES:
        yield f"{len(moved) - MAX_MOVES} more"


def _by_model(found: Rescoring, shown: Callable[[RescoredModel, Scale], str]) -> Iterator[list[str]]:
    scales = [Scale.of(one.weights) for one in found.rubrics]
    for at, model in enumerate(found.rubrics[0].models):
        cells = (shown(one.models[at], scale) for one, scale in zip(found.rubrics, scales, strict=True))
        yield [markdown_cell(model.name), *cells]


def _rank_cell(model: RescoredModel) -> str:
    return "-" if model.rank is None else f"{model.rank} ({model.tier})"


def _score_cell(model: RescoredModel, scale: Scale) -> str:
    return "-" if model.score is None else f"{scale.score(model.score)} ± {scale.width(model.sigma)}"


def _rubric_notes(found: Rescoring) -> Iterator[str]:
    for one in found.rubrics:
        name = markdown_cell(one.name)
        if one.fitted:
            told = ", ".join(f"{key} {one.thresholds[key]:.4g}" for key in one.fitted)
            yield f"{name}: thresholds fitted on these trials ({told}); further trials would move them."
        left_out = sum(model.left_out for model in one.models)
        if left_out:
            yield f"{name}: {count(left_out)} trials lack a signal, and are left out."
    assumed = {key: value for one in found.rubrics for key, value in one.assumed.items()}
    for key, value in assumed.items():
        names = ", ".join(markdown_cell(one.name) for one in found.rubrics if key in one.assumed)
        yield f"No trial has {key}: taken for {value:g} by {names}."
    why = dict.fromkeys(one.why for one in found.unavailable)
    for told in why:
        names = ", ".join(markdown_cell(one.name) for one in found.unavailable if one.why == told)
        yield f"{names}: {markdown_cell(told, 500)}."
