"""Differences between two runs, in paragraphs and tables."""

from collections.abc import Iterator, Sequence

from adaptive_eval.report.finding import state_word
from adaptive_eval.report.lines import Scale, count, duration, several
from adaptive_eval.show.changes import MAX_ITEMS, SIGNIFICANCE_LEVEL, ModelChange, RunDiff
from adaptive_eval.show.text import Block, Table, number_or_dash


def changes_blocks(diff: RunDiff, weights: Sequence[float]) -> Iterator[Block]:
    """The whole comparison; `weights` are those of the rubric."""
    scale = Scale.of(weights)
    yield _headline(diff)
    yield from _models(diff, scale)
    yield from _verdicts(diff)
    yield from _questions(diff, scale)
    yield from _listed("Caveats:", diff.caveats)
    yield from _listed("Settings that differ:", diff.settings)


def _headline(diff: RunDiff) -> str:
    sure = [change for change in diff.models if change.p < SIGNIFICANCE_LEVEL]
    changed = f"{several(len(sure), 'model')} of {len(diff.models)} {'differs' if len(sure) == 1 else 'differ'}"
    drawn_note = ", each model on those that it was asked in both" if diff.drawn else ""
    return (
        f"{changed} (p < {SIGNIFICANCE_LEVEL:g}, not corrected for their number) on the {diff.questions} questions "
        f"that both runs have{drawn_note}; {', '.join(_cost_changes(diff))}."
    )


def _cost_changes(diff: RunDiff) -> Iterator[str]:
    """Trials and costs of both runs, if known for both."""
    a, b = diff.a, diff.b
    yield f"answers requested {count(a.trials)} → {count(b.trials)}"
    for what, before, after, shown in (
        ("tokens", a.tokens, b.tokens, count),
        ("GPU time of requests", a.gpu_seconds, b.gpu_seconds, duration),
    ):
        if before or after:
            yield f"{what} {shown(before)} → {shown(after)}"


def _models(diff: RunDiff, scale: Scale) -> Iterator[Block]:
    if diff.models:
        head = ("model", "rank", "score before", "after", "difference", "95% interval", "z", "p", "trials")
        yield Table(
            "Models, the most certain change first", head, tuple(_model_cells(change, scale) for change in diff.models)
        )


def _model_cells(change: ModelChange, scale: Scale) -> tuple[str, ...]:
    ranks = dict.fromkeys([change.rank_a, change.rank_b])
    return (
        change.name,
        " → ".join(str(rank or "-") for rank in ranks),
        scale.score(change.score_a),
        scale.score(change.score_b),
        _points(scale, change.difference),
        f"{_points(scale, change.lo).removesuffix(' points')} to {_points(scale, change.hi).removesuffix(' points')}",
        number_or_dash(change.z),
        _p_text(change.p),
        f"{change.trials_a:,} → {change.trials_b:,}",
    )


def _p_text(value: float) -> str:
    return "< 0.0001" if value < 0.0001 else f"{value:.4f}"


def _points(scale: Scale, value: float) -> str:
    return f"{'+' if value > 0 else ''}{scale.rounded_points(value)}"


def _verdicts(diff: RunDiff) -> Iterator[Block]:
    if diff.verdicts:
        rows = (
            [
                " and ".join(filter(None, [change.first, change.second])),
                *map(state_word, (change.verdict_a, change.verdict_b)),
            ]
            for change in diff.verdicts
        )
        yield Table.of("Comparisons that are decided differently", ["comparison", "before", "after"], rows, 3)


def _questions(diff: RunDiff, scale: Scale) -> Iterator[Block]:
    if diff.questions_changed:
        rows = (
            [
                change.question,
                change.model,
                *map(scale.score, (change.mean_a, change.mean_b)),
                _p_text(change.adjusted_p),
            ]
            for change in diff.questions_changed[:MAX_ITEMS]
        )
        title = "Questions that have changed by more than chance (corrected for all questions and models)"
        yield Table.of(title, ["question", "model", "before", "after", "adjusted p"], rows, 2)
        if (more := len(diff.questions_changed) - MAX_ITEMS) > 0:
            yield f"and {more} more"


def _listed(title: str, items: Sequence[object]) -> Iterator[str]:
    if items:
        yield title
        yield from (f"- {item}" for item in items[:MAX_ITEMS])
        if (more := len(items) - MAX_ITEMS) > 0:
            yield f"- and {more} more"
