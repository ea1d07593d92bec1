"""Two runs of the same questions: what changed from one to the other.

Scores are compared as the run compares its models, on the questions that both have: z = (a_B - a_A) / sqrt(var_A +
var_B); of questions that were drawn at random, by the differences on those that were asked in both. Questions are
compared one by one by the means and variances of their posteriors, and named where the difference is one in twenty for
all of them together (Holm).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from adaptive_eval.core.drawn import drawn_pairs
from adaptive_eval.core.evidence import Prior, estimate
from adaptive_eval.core.result import TWO_SIDED_95
from adaptive_eval.core.types import Verdict
from adaptive_eval.record.restore import RunCounts
from adaptive_eval.record.view import RunView
from adaptive_eval.show.repeatable import PLACES
from adaptive_eval.store import Change, TrialsImported, differences
from scorio.moments import CountArray, FloatArray, question_moments
from scorio.sinf.compare import compare
from scorio.sinf.multiplicity import holm_adjusted

LEVEL = 0.05


@dataclass(frozen=True, slots=True)
class ModelChange:
    """One model in both runs, on the questions that both have."""

    name: str
    rank_a: int | None
    rank_b: int | None
    score_a: float
    score_b: float
    difference: float
    """Of B to A."""
    lo: float
    """The lower end of its 95% interval."""
    hi: float
    z: float
    p: float
    """Two-sided."""
    trials_a: int
    trials_b: int


@dataclass(frozen=True, slots=True)
class QuestionChange:
    """A question on which a model's answers have become better or worse."""

    model: str
    question: str
    mean_a: float
    mean_b: float
    adjusted_p: float


@dataclass(frozen=True, slots=True)
class PairChange:
    """A comparison that both runs made, with another verdict or another order."""

    first: str
    second: str | None
    verdict_a: str
    verdict_b: str


@dataclass(frozen=True, slots=True)
class Changes:
    """Everything that differs between two runs."""

    run_a: str
    run_b: str
    questions: int
    """That both runs have; the means are over these."""
    only_a: tuple[str, ...]
    """Questions of one run alone."""
    only_b: tuple[str, ...]
    models_only_a: tuple[str, ...]
    """Models of one run alone."""
    models_only_b: tuple[str, ...]
    reworded: tuple[str, ...]
    """Questions of one id whose prompt or answer is not the same."""
    same_seeds: tuple[str, ...]
    """Models whose trials had the same seeds in both runs: equal answers are then no news."""
    recorded: tuple[str, ...]
    """Models that one of the runs has not asked: its outcomes of them are those of an earlier run."""
    with_prior: tuple[str, ...]
    """Runs in whose scores outcomes of an earlier run count: where that is the other one, both share them."""
    settings: tuple[Change, ...]
    models: tuple[ModelChange, ...]
    questions_changed: tuple[QuestionChange, ...]
    verdicts: tuple[PairChange, ...]
    trials_a: int
    trials_b: int
    tokens_a: int
    tokens_b: int
    gpu_seconds_a: float = 0.0
    """Of requests."""
    gpu_seconds_b: float = 0.0
    server_seconds_a: float | None = None
    """For which servers were held; None where that is unknown."""
    server_seconds_b: float | None = None
    server_gpu_seconds_a: float | None = None
    server_gpu_seconds_b: float | None = None
    drawn: bool = False
    """Questions were drawn at random: each model is compared on those that it was asked in both runs."""


def changes_between(a: RunView, counts_a: RunCounts, b: RunView, counts_b: RunCounts) -> Changes:
    """What differs from run A to run B."""
    keys_a, keys_b = [one.id for one in a.questions], [one.id for one in b.questions]
    common = [key for key in keys_a if key in set(keys_b)]
    recorded = counts_a.recorded | counts_b.recorded
    names = [name for name in a.models if name in b.models and name not in recorded]
    cells_a, cells_b = counts_a.of(names, common), counts_b.of(names, common)
    return Changes(
        run_a=a.name,
        run_b=b.name,
        questions=len(common),
        only_a=tuple(key for key in keys_a if key not in set(keys_b)),
        only_b=tuple(key for key in keys_b if key not in set(keys_a)),
        models_only_a=tuple(name for name in a.models if name not in b.models),
        models_only_b=tuple(name for name in b.models if name not in a.models),
        reworded=_reworded(a, b, common),
        same_seeds=tuple(_same_seeds(a, b, names)),
        recorded=tuple(name for name in a.models if name in b.models and name in recorded),
        with_prior=tuple(view.name for view, counts in ((a, counts_a), (b, counts_b)) if counts.before.any()),
        settings=tuple(_settings(a, b)),
        models=tuple(sorted(_models(a, cells_a, b, cells_b), key=_surest_first)),
        questions_changed=tuple(_questions(cells_a, cells_b, np.array(a.weights))),
        verdicts=tuple(_verdicts(a, b)),
        trials_a=sum(one.trials for one in a.traffic),
        trials_b=sum(one.trials for one in b.traffic),
        tokens_a=0 if a.results is None else a.results.cost.tokens,
        tokens_b=0 if b.results is None else b.results.cost.tokens,
        gpu_seconds_a=0.0 if a.results is None else a.results.cost.gpu_seconds,
        gpu_seconds_b=0.0 if b.results is None else b.results.cost.gpu_seconds,
        server_seconds_a=None if a.results is None else a.results.cost.server_seconds,
        server_seconds_b=None if b.results is None else b.results.cost.server_seconds,
        server_gpu_seconds_a=None if a.results is None else a.results.cost.server_gpu_seconds,
        server_gpu_seconds_b=None if b.results is None else b.results.cost.server_gpu_seconds,
        drawn=a.draws_questions or b.draws_questions,
    )


def _reworded(a: RunView, b: RunView, common: list[str]) -> tuple[str, ...]:
    asked_a, asked_b = ({one.id: (one.prompt, one.answer) for one in view.questions} for view in (a, b))
    return tuple(key for key in common if asked_a[key] != asked_b[key])


def _settings(a: RunView, b: RunView) -> Iterator[Change]:
    """Models are compared by name; where the runs lay is no change.

    A model's configuration is complete: what changed for the whole run has changed in each, and is told once.
    """
    (rest_a, models_a), (rest_b, models_b) = _parts(a.configuration), _parts(b.configuration)
    shared = list(differences(rest_a, rest_b))
    yield from shared
    for name in (name for name in models_a if name in models_b):
        own = (change for change in differences(models_a[name], models_b[name]) if change not in shared)
        yield from (change._replace(path=f"models.{name}.{change.path}") for change in own)


def _parts(configuration: Mapping[str, object]) -> tuple[dict[str, object], dict[str, Mapping[str, object]]]:
    """What holds for the whole run, and the models by name."""
    models = configuration["models"]
    assert isinstance(models, list)
    rest = {key: value for key, value in configuration.items() if key not in (*PLACES, "models", "name")}
    return rest, {one["name"]: _without_address(one) if one.get("recorded") else one for one in models}


def _without_address(model: Mapping[str, object]) -> Mapping[str, object]:
    """A recorded model is never asked: the address that stands in its configuration is nobody's."""
    return {key: value for key, value in model.items() if key != "base_url"}


def _same_seeds(a: RunView, b: RunView, names: list[str]) -> Iterator[str]:
    if any(event.kind == TrialsImported.KIND for view in (a, b) for event in view.events):
        return  # sampled elsewhere
    (in_a, models_a), (in_b, models_b) = _parts(a.configuration), _parts(b.configuration)
    if (in_a["seed"], in_a["seeds"]) != (in_b["seed"], in_b["seeds"]):
        return
    for name in names:
        if all(models_a[name][key] == models_b[name][key] for key in ("model", "sampling", "prompt", "api")):
            yield name


def _models(a: RunView, counts_a: RunCounts, b: RunView, counts_b: RunCounts) -> Iterator[ModelChange]:
    rank_a, rank_b = _ranks(a), _ranks(b)
    cells_a, cells_b = counts_a.cells, counts_b.cells
    for model, name in enumerate(counts_a.roster.models):
        compared = _compared(cells_a[model], a, cells_b[model], b)
        if compared is None:
            continue
        score_a, score_b, sigma = compared
        difference, half = score_b - score_a, TWO_SIDED_95 * sigma
        z = difference / sigma if sigma else 0.0
        yield ModelChange(
            name=name,
            rank_a=rank_a.get(name),
            rank_b=rank_b.get(name),
            score_a=score_a,
            score_b=score_b,
            difference=difference,
            lo=difference - half,
            hi=difference + half,
            z=z,
            p=float(2.0 * ndtr(-abs(z))),
            trials_a=round(float(cells_a[model].sum() - counts_a.before[model].sum())),
            trials_b=round(float(cells_b[model].sum() - counts_b.before[model].sum())),
        )


def _compared(cells_a: CountArray, a: RunView, cells_b: CountArray, b: RunView) -> tuple[float, float, float] | None:
    """Both scores of a model with counts (M, K) in both runs, and the standard error of their difference; None where a
    question has no trial, so that there is no score on all of them. Of questions that were drawn at random those that
    were asked in both runs stand for all."""
    if a.draws_questions or b.draws_questions:
        return _compared_on_both(cells_a, cells_b, np.array(a.weights, dtype=float))
    if not cells_a.sum(axis=-1).all() or not cells_b.sum(axis=-1).all():
        return None
    (score_a, var_a), (score_b, var_b) = _score(cells_a, a), _score(cells_b, b)
    return score_a, score_b, float(compare(score_b, var_b, score_a, var_a).sigma)


def _compared_on_both(
    cells_a: CountArray, cells_b: CountArray, weights: FloatArray
) -> tuple[float, float, float] | None:
    """The scores of a model in both runs on the questions that have trials in both; None where these are fewer than
    two."""
    cells = np.stack([cells_b, cells_a])
    shares = cells / np.maximum(cells.sum(axis=-1, keepdims=True), 1)
    both = cells.any(axis=-1).all(axis=0)
    if both.sum() < 2:
        return None
    nothing, first = np.zeros(shares.shape[:2], dtype=int), np.array([0])
    (paired,) = drawn_pairs(shares, nothing, weights, first, first + 1)
    score_b, score_a = (shares[:, both] @ weights).mean(axis=1).tolist()
    return score_a, score_b, float(np.sqrt(paired.found.var[0]))


def _surest_first(one: ModelChange) -> tuple[float, float]:
    """By z, which still tells apart what p no longer can."""
    return -abs(one.z), -abs(one.difference)


def _score(cells: CountArray, view: RunView) -> tuple[float, float]:
    """Score and variance of one model with counts (M, K), under the prior of its run."""
    stopping = view.configuration["stopping"]
    assert isinstance(stopping, dict)
    prior: Prior = "uniform" if stopping["prior"] == "uniform" else "self"
    weights = np.array(view.weights, dtype=float)
    found = estimate(cells[None], weights, prior, np.array(cells.sum(axis=-1))[None])
    return float(found.score[0]), float(found.var[0])


def _ranks(view: RunView) -> dict[str, int]:
    return {} if view.results is None else {row.name: row.rank for row in view.results.models}


def _questions(counts_a: RunCounts, counts_b: RunCounts, w: NDArray[np.float64]) -> Iterator[QuestionChange]:
    """What has changed beyond chance, the surest first."""
    names, keys = tuple(counts_a.roster.models), tuple(counts_a.roster.questions)
    if not names or not keys:
        return
    cells_a, cells_b = counts_a.cells, counts_b.cells
    mean_a, var_a = question_moments(np.asarray(cells_a + 1.0), w)
    mean_b, var_b = question_moments(np.asarray(cells_b + 1.0), w)
    z = compare(mean_b, var_b, mean_a, var_a).z
    tried = (cells_a.sum(axis=-1) > 0) & (cells_b.sum(axis=-1) > 0)
    p = np.where(tried, 2.0 * ndtr(-np.abs(z)), 1.0)
    adjusted = holm_adjusted(p.ravel()).reshape(p.shape)
    # by z too, which still tells apart what p no longer can
    for model, question in sorted(zip(*np.nonzero(adjusted < LEVEL), strict=True), key=lambda at: -abs(z[at])):
        values = mean_a[model, question], mean_b[model, question], adjusted[model, question]
        yield QuestionChange(names[model], keys[question], *map(float, values))


def _verdicts(a: RunView, b: RunView) -> Iterator[PairChange]:
    if a.results is None or b.results is None:
        return
    then = {frozenset((pair.better, pair.worse)): pair for pair in a.results.pairs}
    for pair in b.results.pairs:
        old = then.get(frozenset((pair.better, pair.worse)))
        if old is None:
            continue
        turned = old.better != pair.better and Verdict.RESOLVED in (old.verdict, pair.verdict)
        if turned or old.verdict != pair.verdict:
            called = f"{old.verdict}, {old.better} ahead" if turned else old.verdict
            now = f"{pair.verdict}, {pair.better} ahead" if turned else pair.verdict
            yield PairChange(pair.better, pair.worse, called, now)
