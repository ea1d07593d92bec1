"""Several runs as one value, `Board`: a ranking for each benchmark side by side, their average, and their history.

Of a model that several runs of a benchmark have scored, one score counts: that of the newest run that is over (it has
finished, or was imported), or of the newest run where none is. The others are its history. Plain values throughout, so
that the whole is JSON as it stands; nothing says where the runs lie, since boards are published.

The average of a model is the plain mean of its scores over all benchmarks, with sigma^2 = sum_b sigma_b^2 / B^2, since
benchmarks are sampled apart. A model that one of them lacks has none: the benchmarks differ in difficulty, so that a
mean over others is no score on the same scale.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from adaptive_eval.core.result import TWO_SIDED_95
from adaptive_eval.record.board_runs import BoardRun, RunOnBoard, RunScore, UnreadRun
from scorio.rank import rank_scores, rank_with_uncertainty

APART = 1.645
"""z at which neighbours are in different tiers where no run has compared them: the paper's, for a single look."""
ALIKE = 0.5
"""Two sets of questions that share this part of the smaller are worth a note."""


@dataclass(frozen=True, slots=True)
class ScoreChange:
    """How a model's score moved between the two newest runs that have it."""

    model: str
    before: str
    """The run."""
    after: str
    difference: float
    lo: float
    """The lower end of its 95% interval."""
    hi: float


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One set of questions under one rubric: who stands where, and the runs that say so."""

    name: str
    questions: int
    categories: tuple[str, ...]
    weights: tuple[float, ...]
    decided_by: str | None
    """The run whose ranking this is, tiers and all; None where scores of several runs are put together."""
    models: tuple[RunScore, ...]
    """Best first."""
    runs: tuple[RunOnBoard, ...]
    """Oldest first."""
    changes: tuple[ScoreChange, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AverageRow:
    """One model over all benchmarks; no score where one of them lacks it."""

    model: str
    rank: int | None
    tier: int | None
    score: float | None
    sigma: float | None
    lo: float | None
    hi: float | None
    sampled_sigma: float | None
    """Where the questions stand for questions like these."""
    missing: tuple[str, ...]
    """Benchmarks without a score of this model."""


@dataclass(frozen=True, slots=True)
class Board:
    """The whole."""

    benchmarks: tuple[Benchmark, ...]
    average: tuple[AverageRow, ...]
    """Every model: those with an average first, best first."""
    no_average: str | None
    """Why there is none."""
    unread: tuple[UnreadRun, ...]
    notes: tuple[str, ...]


def board_of(runs: Iterable[BoardRun], unread: Iterable[UnreadRun] = ()) -> Board:
    """The board of these runs."""
    groups: dict[str, list[BoardRun]] = {}
    for run in sorted(runs, key=_by_age):
        groups.setdefault(run.benchmark, []).append(run)
    groups = _with_their_logs(groups)
    named = sorted(zip(_names(list(groups.values())), groups.values(), strict=True), key=lambda one: one[0])
    benchmarks = [_benchmark(name, group) for name, group in named]
    scored = [one for one in benchmarks if one.models]
    why_not = _no_average(scored)
    notes = [f"{one.name} has no score yet, and is in no average" for one in benchmarks if not one.models]
    return Board(
        benchmarks=tuple(benchmarks),
        average=tuple(_average(scored, why_not is None)),
        no_average=why_not,
        unread=tuple(unread),
        notes=(*notes, *_relations(named)),
    )


def _with_their_logs(groups: Mapping[str, Sequence[BoardRun]]) -> dict[str, list[BoardRun]]:
    """The groups, with those whose texts nobody has (imported logs) among the runs that took outcomes from them: these
    outcomes are of one benchmark, and would count twice in an average."""
    joined: dict[str, list[BoardRun]] = {}
    for key, group in groups.items():
        joined.setdefault(_home_of(key, groups), []).extend(group)
    return {key: sorted(group, key=_by_age) for key, group in joined.items()}


def _home_of(key: str, groups: Mapping[str, Sequence[BoardRun]]) -> str:
    """Where a group belongs: with itself, unless it has no texts and stands in runs that have them."""
    group = groups[key]
    if any(run.texts for run in group):
        return key
    names, size = {run.run for run in group}, group[-1].questions
    for other, runs in groups.items():
        if any(run.texts and run.questions == size and run.takes & names for run in runs):
            return other
    return key


def _by_age(run: BoardRun) -> tuple[str, float, str]:
    return run.line.created, run.begun, run.line.name


def _names(groups: Sequence[Sequence[BoardRun]]) -> list[str]:
    """What each is called; where two are called alike, by their newest runs too."""
    plain = [group[-1].called for group in groups]
    return [
        f"{name} ({group[-1].line.name})" if plain.count(name) > 1 else name
        for name, group in zip(plain, groups, strict=True)
    ]


def _benchmark(name: str, runs: Sequence[BoardRun]) -> Benchmark:
    lines = [run.line for run in runs]
    counting = _counting(lines)
    sources = {one.run for one in counting}
    decided_by = next(iter(sources)) if len(sources) == 1 else None
    return Benchmark(
        name=name,
        questions=runs[-1].questions,
        categories=runs[-1].categories,
        weights=runs[-1].weights,
        decided_by=decided_by,
        models=tuple(counting if decided_by is not None else _ranked_together(counting)),
        runs=tuple(lines),
        changes=tuple(_changes(lines)),
        notes=tuple(_notes(runs)),
    )


def _counting(runs: Sequence[RunOnBoard]) -> list[RunScore]:
    """The score of each model that counts, run by run from the newest, best first."""
    chosen: dict[str, RunScore] = {}
    weight: dict[str, tuple[bool, int]] = {}
    for age, run in enumerate(runs):
        for one in run.models:
            worth = run.over and not one.set_aside, age
            if one.model not in weight or worth > weight[one.model]:
                chosen[one.model], weight[one.model] = one, worth
    return [one for run in reversed(runs) for one in run.models if chosen[one.model] is one]


def _ranked_together(scores: Sequence[RunScore]) -> Iterator[RunScore]:
    """Scores of several runs in one order."""
    if not scores:
        return
    values, sigmas = [one.score for one in scores], [one.sigma for one in scores]
    ranks, tiers = rank_scores(values), rank_with_uncertainty(values, sigmas, APART)
    for place in tiers.order.tolist():
        yield replace(scores[place], rank=int(ranks[place]), tier=int(tiers.ranking[place]))


def _changes(runs: Sequence[RunOnBoard]) -> Iterator[ScoreChange]:
    """In the order of the newest run; models that only one run has do not change."""
    history: dict[str, list[RunScore]] = {}
    for run in runs:
        for one in run.models:
            if not one.recorded:  # it would be held against the very same answers
                history.setdefault(one.model, []).append(one)
    for model, scores in history.items():
        if len(scores) > 1:
            before, after = scores[-2:]
            difference, half = after.score - before.score, TWO_SIDED_95 * float(np.hypot(before.sigma, after.sigma))
            yield ScoreChange(model, before.run, after.run, difference, difference - half, difference + half)


def _notes(runs: Sequence[BoardRun]) -> Iterator[str]:
    """What a reader must know before holding one run against another."""
    asked: dict[str, dict[str, list[str]]] = {}
    for run in runs:
        for model, settings in run.settings:
            asked.setdefault(model, {}).setdefault(settings, []).append(run.line.name)
    for model, ways in asked.items():
        if len(ways) > 1:
            told = " and ".join(", ".join(names) for names in ways.values())
            yield f"{model} was asked with other settings (its served model, sampling or prompt) in {told}"
    graders: dict[str, list[str]] = {}
    for run in runs:
        graders.setdefault(run.grader, []).append(run.line.name)
    if len(graders) > 1:
        yield "answers were graded in different ways in " + " and ".join(map(", ".join, graders.values()))
    if primed := [run.line.name for run in runs if any(one.with_prior for one in run.line.models)]:
        yield f"outcomes of an earlier run (R0) count in the scores of {', '.join(primed)}"


def _relations(named: Sequence[tuple[str, Sequence[BoardRun]]]) -> Iterator[str]:
    """Benchmarks that are nearly one."""
    for (name, runs), (other, others) in combinations(named, 2):
        one, two = runs[-1], others[-1]
        shared = len(one.texts & two.texts)
        if not shared or shared < ALIKE * min(len(one.texts), len(two.texts)):
            continue
        if (one.weights, one.categories) != (two.weights, two.categories):
            why = "they have different rubrics, so that scores mean different things"
        elif one.prompt != two.prompt:
            why = "their questions were put to models in different ways (prompt)"
        elif shared == len(one.texts) == len(two.texts):
            why = "their ids or answer keys differ"
        else:
            why = "neither has exactly the questions of the other"
        yield f"{name} and {other} share {shared} questions and stand apart: {why}"


def _no_average(benchmarks: Sequence[Benchmark]) -> str | None:
    if len(benchmarks) < 2:
        return f"there is {'one benchmark' if benchmarks else 'no benchmark'} with scores"
    scales = {(min(one.weights), max(one.weights)) for one in benchmarks}
    if len(scales) > 1:
        told = ", ".join(f"{low:g} to {high:g}" for low, high in sorted(scales))
        return f"the benchmarks' scores are on different scales ({told})"
    if not set.intersection(*({one.model for one in benchmark.models} for benchmark in benchmarks)):
        return "no model has a score on every benchmark (models are known by their names)"
    return None


def _average(benchmarks: Sequence[Benchmark], wanted: bool) -> Iterator[AverageRow]:
    scored = [{one.model: one for one in benchmark.models} for benchmark in benchmarks]
    names = list(dict.fromkeys(one.model for benchmark in benchmarks for one in benchmark.models))
    whole = [name for name in names if wanted and all(name in each for each in scored)]
    if whole:
        own = [[each[name] for each in scored] for name in whole]
        scores = np.array([[one.score for one in row] for row in own]).mean(axis=1)
        sigmas = np.sqrt(np.array([[one.sigma**2 for one in row] for row in own]).sum(axis=1)) / len(scored)
        ranks, tiers = rank_scores(scores), rank_with_uncertainty(scores, sigmas, APART)
        for place in tiers.order.tolist():
            score, sigma = float(scores[place]), float(sigmas[place])
            yield AverageRow(
                model=whole[place],
                rank=int(ranks[place]),
                tier=int(tiers.ranking[place]),
                score=score,
                sigma=sigma,
                lo=score - TWO_SIDED_95 * sigma,
                hi=score + TWO_SIDED_95 * sigma,
                sampled_sigma=_sampled(own[place]),
                missing=(),
            )
    for name in sorted(set(names) - set(whole), key=lambda one: _standing(one, scored)):
        missing = tuple(each.name for each, has in zip(benchmarks, scored, strict=True) if name not in has)
        yield AverageRow(name, None, None, None, None, None, None, None, missing)


def _sampled(scores: Sequence[RunScore]) -> float | None:
    known = [one.sampled_sigma for one in scores if one.sampled_sigma is not None]
    return float(np.sqrt(np.square(known).sum())) / len(scores) if len(known) == len(scores) else None


def _standing(model: str, scored: Sequence[dict[str, RunScore]]) -> tuple[int, float, str]:
    """On more benchmarks first, then by the mean of the ranks there."""
    ranks = [each[model].rank for each in scored if model in each]
    return -len(ranks), float(np.mean(ranks)), model
