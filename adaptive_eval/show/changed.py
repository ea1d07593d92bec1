"""What changed between two runs, as Markdown that reads well on a terminal."""

from collections.abc import Iterator, Sequence

from adaptive_eval.record.scale import Scale
from adaptive_eval.show.changes import Changes, ModelChange
from adaptive_eval.show.text import cell, count, number, table

SHOWN = 20
SURE = 0.05


def changed(found: Changes, weights: Sequence[float]) -> str:
    """The whole comparison; `weights` are those of the rubric."""
    scale = Scale.of(weights)
    parts = [f"# {cell(found.run_a)} → {cell(found.run_b)}", _headline(found), *_models(found, scale)]
    parts += [*_verdicts(found), *_questions(found, scale), *_notes(found), *_settings(found)]
    return "\n\n".join(parts) + "\n"


def _headline(found: Changes) -> str:
    sure = [one for one in found.models if one.p < SURE]
    told = f"{len(sure)} of {len(found.models)} models have changed by more than chance (p < {SURE:g} each)"
    cost = f"trials {count(found.trials_a)} → {count(found.trials_b)}"
    tokens = f", tokens {count(found.tokens_a)} → {count(found.tokens_b)}" if found.tokens_a or found.tokens_b else ""
    return f"{told} on the {found.questions} questions that both runs have; {cost}{tokens}."


def _models(found: Changes, scale: Scale) -> Iterator[str]:
    if found.models:
        head = ["model", "rank", "score before", "after", "difference", "95% interval", "z", "p", "trials"]
        yield table(head, (_model(one, scale) for one in found.models))


def _model(one: ModelChange, scale: Scale) -> list[str]:
    rank = f"{one.rank_a or '-'}" if one.rank_a == one.rank_b else f"{one.rank_a or '-'} → {one.rank_b or '-'}"
    return [
        cell(one.name),
        rank,
        scale.score(one.score_a),
        scale.score(one.score_b),
        _signed(scale, one.difference),
        f"{_signed(scale, one.lo)} .. {_signed(scale, one.hi)}",
        number(one.z),
        number(one.p, 4),
        f"{one.trials_a:,} → {one.trials_b:,}",
    ]


def _signed(scale: Scale, value: float) -> str:
    return f"{'+' if value > 0 else ''}{scale.width(value)}"


def _verdicts(found: Changes) -> Iterator[str]:
    if found.verdicts:
        yield "## Comparisons that are decided differently"
        rows = (
            [
                cell(one.first) if one.second is None else f"{cell(one.first)} and {cell(one.second)}",
                cell(one.verdict_a.replace("_", " ")),
                cell(one.verdict_b.replace("_", " ")),
            ]
            for one in found.verdicts
        )
        yield table(["comparison", "before", "after"], rows, left=3)


def _questions(found: Changes, scale: Scale) -> Iterator[str]:
    if found.questions_changed:
        yield "## Questions that have changed by more than chance, all questions and models considered"
        rows = (
            [
                cell(one.question),
                cell(one.model),
                scale.score(one.mean_a),
                scale.score(one.mean_b),
                number(one.adjusted_p, 4),
            ]
            for one in found.questions_changed[:SHOWN]
        )
        yield table(["question", "model", "before", "after", "adjusted p"], rows, left=2)
        if (more := len(found.questions_changed) - SHOWN) > 0:
            yield f"and {more} more"


def _notes(found: Changes) -> Iterator[str]:
    only = [
        ("questions of the first run alone", found.only_a),
        ("questions of the second run alone", found.only_b),
        ("models of the first run alone", found.models_only_a),
        ("models of the second run alone", found.models_only_b),
        ("questions of one id with another prompt or answer", found.reworded),
    ]
    lines = [f"- {len(names)} {what}: {_named(names)}" for what, names in only if names]
    if found.same_seeds:
        lines.append(
            f"- the same seeds in both runs for {_named(found.same_seeds)}: a server that honours them gives the same "
            "answers, and then the difference is smaller than the interval says"
        )
    if found.with_prior:
        lines.append(
            f"- outcomes of an earlier run (R0) count in the scores of {_named(found.with_prior)}: if that was the "
            "other of the two, both share them, and differ less than the new trials alone would"
        )
    if lines:
        yield "## To be considered"
        yield "\n".join(lines)


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(map(cell, names[:SHOWN])) + more


def _settings(found: Changes) -> Iterator[str]:
    if found.settings:
        yield "## Settings that differ"
        lines = [f"- {cell(str(change))}" for change in found.settings[:SHOWN]]
        more = [f"- and {len(found.settings) - SHOWN} more"] if len(found.settings) > SHOWN else []
        yield "\n".join(lines + more)
