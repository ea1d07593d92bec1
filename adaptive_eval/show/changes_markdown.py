"""Differences between two runs as Markdown that reads well on a terminal."""

from collections.abc import Iterator, Sequence

from adaptive_eval.record.finding import state_word
from adaptive_eval.record.lines import Scale, count, duration, first_few, several
from adaptive_eval.show.changes import LEVEL, ModelChange, RunDiff
from adaptive_eval.show.text import markdown_cell, markdown_table, number_or_dash

SHOWN = 20


def changes_markdown(found: RunDiff, weights: Sequence[float]) -> str:
    """Render the whole comparison; `weights` are those of the rubric."""
    scale = Scale.of(weights)
    parts = [f"# {markdown_cell(found.a.run)} → {markdown_cell(found.b.run)}", _headline(found), *_models(found, scale)]
    parts += [*_verdicts(found), *_questions(found, scale), *_caveats(found), *_settings(found)]
    return "\n\n".join(parts) + "\n"


def _headline(found: RunDiff) -> str:
    sure = [one for one in found.models if one.p < LEVEL]
    told = f"{len(sure)} of {len(found.models)} models have changed by more than chance (p < {LEVEL:g} each)"
    each = ", each by those that it was asked in both" if found.drawn else ""
    return f"{told} on the {found.questions} questions that both runs have{each}; {', '.join(_cost_changes(found))}."


def _cost_changes(found: RunDiff) -> Iterator[str]:
    """Trials and costs of both runs, as far as both are known."""
    a, b = found.a, found.b
    yield f"answers asked for {count(a.trials)} → {count(b.trials)}"
    for what, before, after, shown in (
        ("tokens", a.tokens, b.tokens, count),
        ("GPU time of requests", a.gpu_seconds, b.gpu_seconds, duration),
        ("servers of all models together held for", a.server_seconds, b.server_seconds, duration),
        ("their GPUs for", a.server_gpu_seconds, b.server_gpu_seconds, duration),
    ):
        if before is not None and after is not None and (before or after):
            yield f"{what} {shown(before)} → {shown(after)}"


def _models(found: RunDiff, scale: Scale) -> Iterator[str]:
    if found.models:
        head = ["model", "rank", "score before", "after", "difference", "95% interval", "z", "p", "trials"]
        yield markdown_table(head, (_model_cells(one, scale) for one in found.models))
        yield "The surest change comes first (by |z|)."


def _model_cells(one: ModelChange, scale: Scale) -> list[str]:
    rank = f"{one.rank_a or '-'}" if one.rank_a == one.rank_b else f"{one.rank_a or '-'} → {one.rank_b or '-'}"
    return [
        markdown_cell(one.name),
        rank,
        scale.score(one.score_a),
        scale.score(one.score_b),
        _points(scale, one.difference),
        f"{_points(scale, one.lo).removesuffix(' points')} to {_points(scale, one.hi).removesuffix(' points')}",
        number_or_dash(one.z),
        _p_text(one.p),
        f"{one.trials_a:,} → {one.trials_b:,}",
    ]


def _p_text(value: float) -> str:
    return "< 0.0001" if value < 0.0001 else f"{value:.4f}"


def _points(scale: Scale, value: float) -> str:
    return f"{'+' if value > 0 else ''}{scale.rounded_points(value)}"


def _verdicts(found: RunDiff) -> Iterator[str]:
    if found.verdicts:
        yield "## Comparisons that are decided differently"
        rows = (
            [
                markdown_cell(one.first if one.second is None else f"{one.first} and {one.second}"),
                *(markdown_cell(state_word(verdict)) for verdict in (one.verdict_a, one.verdict_b)),
            ]
            for one in found.verdicts
        )
        yield markdown_table(["comparison", "before", "after"], rows, left=3)


def _questions(found: RunDiff, scale: Scale) -> Iterator[str]:
    if found.questions_changed:
        yield "## Questions that have changed by more than chance, all questions and models considered"
        rows = (
            [markdown_cell(one.question), markdown_cell(one.model)]
            + [scale.score(one.mean_a), scale.score(one.mean_b), _p_text(one.adjusted_p)]
            for one in found.questions_changed[:SHOWN]
        )
        yield markdown_table(["question", "model", "before", "after", "adjusted p"], rows, left=2)
        if (more := len(found.questions_changed) - SHOWN) > 0:
            yield f"and {more} more"


def _caveats(found: RunDiff) -> Iterator[str]:
    only = [
        ("question", "of the first run alone", found.a.only),
        ("question", "of the second run alone", found.b.only),
        ("model", "of the first run alone", found.a.models_only),
        ("model", "of the second run alone", found.b.models_only),
        ("question", "with one id, but another prompt or answer", found.reworded),
    ]
    lines = [f"- {several(len(names), what)} {why}: {_listed(names)}" for what, why, names in only if names]
    if found.same_seeds:
        lines.append(
            f"- the same seeds in both runs for {_listed(found.same_seeds)}: a server that honours them gives the same "
            "answers twice, and the intervals are then too wide"
        )
    if found.recorded:
        lines.append(
            f"- not asked by both runs, and so not compared: {_listed(found.recorded)}, of which one has recorded "
            "outcomes of an earlier run"
        )
    if found.with_prior:
        lines.append(
            f"- outcomes of an earlier run (R0) count in the scores of {_listed(found.with_prior)}: if that was the "
            "other of the two, both share them, and differ less than the new trials alone would"
        )
    if lines:
        yield "## To be considered"
        yield "\n".join(lines)


def _listed(names: Sequence[str]) -> str:
    return first_few(list(map(markdown_cell, names)), SHOWN)


def _settings(found: RunDiff) -> Iterator[str]:
    if found.settings:
        yield "## Settings that differ"
        lines = [f"- {markdown_cell(str(change))}" for change in found.settings[:SHOWN]]
        more = [f"- and {len(found.settings) - SHOWN} more"] if len(found.settings) > SHOWN else []
        yield "\n".join(lines + more)
