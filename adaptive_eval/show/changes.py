"""Changes between two runs of the same questions.

Scores are compared as in a run, on the questions that both runs have: z = (a_B - a_A) / sqrt(var_A + var_B). If the
questions were drawn at random, the differences on the questions asked in both runs are used instead. Single questions
are compared by the means and variances of their posteriors, and listed if the change is significant at 5% for all
questions together (Holm).
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from adaptive_eval.base.lists import first_few
from adaptive_eval.config.benchmarks import BenchmarkPart, Weighing, weigh_questions
from adaptive_eval.config.decisions import prior_of
from adaptive_eval.config.fingerprint import differences
from adaptive_eval.core.evidence import estimate
from adaptive_eval.core.result import TWO_SIDED_95
from adaptive_eval.core.same_questions import pairs_by_question
from adaptive_eval.core.types import Verdict
from adaptive_eval.notes import Change
from adaptive_eval.report.alarms import alarm_sentences
from adaptive_eval.report.finding import comparison_state
from adaptive_eval.report.lines import several
from adaptive_eval.report.needs import void_models
from adaptive_eval.report.published import PLACE_SECTIONS
from adaptive_eval.report.results import setting
from adaptive_eval.report.shared_answers import SharedAnswers
from adaptive_eval.report.stored import RunCounts
from adaptive_eval.report.view import RunView
from adaptive_eval.report.words import draws_questions
from scorio.moments import CountArray, FloatArray, question_moments, relative_weights
from scorio.sinf.compare import compare
from scorio.sinf.multiplicity import holm_adjusted

SIGNIFICANCE_LEVEL = 0.05
MAX_ITEMS = 20
"""Longest list of questions, names or settings."""


@dataclass(frozen=True, slots=True)
class ModelChange:
    """One model in both runs, on the questions that both have."""

    name: str
    rank_a: int | None
    rank_b: int | None
    score_a: float
    score_b: float
    difference: float
    """Score of B minus score of A."""
    lo: float
    """Lower end of the 95% interval of the difference."""
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
class RunSide:
    """One of two runs, and its cost."""

    run: str
    trials: int
    """All requested answers."""
    tokens: int = 0
    gpu_seconds: float = 0.0
    """GPU seconds of requests."""

    @classmethod
    def of(cls, view: RunView) -> Self:
        """Describe a run."""
        if view.results is None:
            return cls(view.name, sum(row.trials for row in view.traffic))
        cost = view.results.cost
        return cls(view.name, cost.asked, int(cost.in_all("tokens")), cost.in_all("gpu_seconds"))


@dataclass(frozen=True, slots=True)
class RunDiff:
    """Differences between two runs of the same questions."""

    a: RunSide
    b: RunSide
    questions: int
    """Number of questions that both runs have; all means are over these."""
    caveats: tuple[str, ...]
    """What is not compared, and what these scores have in common, in sentences."""
    settings: tuple[Change, ...]
    models: tuple[ModelChange, ...]
    questions_changed: tuple[QuestionChange, ...]
    verdicts: tuple[PairChange, ...]
    drawn: bool
    """Whether questions were drawn at random: each model is then compared on those that both runs asked it."""

    def to_plain(self) -> dict[str, object]:
        """Convert to plain values by name, as `compare --format json` writes them: `run_a`, `run_b` ..."""
        plain = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in ("a", "b")}
        plain["settings"] = [change._asdict() for change in self.settings]
        for field in fields(RunSide):
            plain |= {f"{field.name}_{key}": getattr(side, field.name) for key, side in (("a", self.a), ("b", self.b))}
        return plain


NONE_SHARED = SharedAnswers()


def diff_runs(
    a: RunView, counts_a: RunCounts, b: RunView, counts_b: RunCounts, shared: SharedAnswers = NONE_SHARED
) -> RunDiff:
    """Compare run B with run A; some answers of both may be `shared`."""
    ids_b = {question.id for question in b.questions}
    common = [question.id for question in a.questions if question.id in ids_b]
    recorded = counts_a.recorded | counts_b.recorded
    void = {name for view in (a, b) if view.results is not None for name in void_models(view.results)} - recorded
    names = [name for name in a.models if name in b.models and name not in recorded | void]
    cells_a, cells_b = counts_a.of(names, common), counts_b.of(names, common)
    # by z, since p may be rounded to 0
    models = sorted(_scores(a, cells_a, b, cells_b), key=lambda change: (-abs(change.z), -abs(change.difference)))
    settings = tuple(_setting_changes(a, b))
    unanswered = [name for name in names if name not in {change.name for change in models}]
    with_prior = [view.name for view, counts in ((a, counts_a), (b, counts_b)) if counts.before.any()]
    return RunDiff(
        a=RunSide.of(a),
        b=RunSide.of(b),
        questions=len(common),
        caveats=(
            *_alarms(a, b),
            *_lacking(a, b, recorded, void, unanswered),
            *_shared_or_corrected(a, b, settings, with_prior, shared),
        ),
        settings=settings,
        models=tuple(models),
        questions_changed=tuple(_changed_questions(cells_a, cells_b, np.array(a.weights))),
        verdicts=tuple(_verdict_changes(a, b)),
        drawn=_are_drawn(a, b),
    )


def _alarms(*views: RunView) -> Iterator[str]:
    """Alarms of the runs, and comparisons that their incomplete answers could decide."""
    for which, view in zip(("first", "second"), views, strict=True):
        for sentence in alarm_sentences(view.results) if view.results is not None else ():
            yield f"of the {which} run: {sentence.removesuffix('.')}"


def _lacking(
    a: RunView, b: RunView, recorded: Collection[str], void: Collection[str], unanswered: Sequence[str]
) -> Iterator[str]:
    """Sentences on questions and models that are not compared, or not alike in both runs."""
    asked_a, asked_b = (
        {question.id: (question.prompt, question.answer) for question in view.questions} for view in (a, b)
    )
    changed = [
        key
        for key in asked_a
        if key in asked_b and any(x and y and x != y for x, y in zip(asked_a[key], asked_b[key], strict=True))
    ]  # an imported log may lack one of them
    both, repeating = [name for name in a.models if name in b.models], "answers come back word for word"
    for what, why, names in (
        ("question", "only in the first run", [key for key in asked_a if key not in asked_b]),
        ("question", "only in the second run", [key for key in asked_b if key not in asked_a]),
        ("question", "with the same id, but another prompt or answer", changed),
        ("model", "only in the first run", [name for name in a.models if name not in b.models]),
        ("model", "only in the second run", [name for name in b.models if name not in a.models]),
        (
            "model",
            "not compared, since one of the runs has recorded outcomes instead of asking",
            [name for name in both if name in recorded],
        ),
        ("model", f"not compared, since {repeating} in one of the runs", [name for name in both if name in void]),
        ("model", "not compared, since one of the runs has too few answers", unanswered),
    ):
        if names:
            yield f"{several(len(names), what)} {why}: {first_few(list(names), MAX_ITEMS)}"


def _shared_or_corrected(
    a: RunView, b: RunView, settings: Sequence[Change], with_prior: Sequence[str], shared: SharedAnswers
) -> Iterator[str]:
    """Sentences on what these scores rest on."""
    too_wide = "such runs differ less than runs with answers of their own, so the intervals are too wide"
    if shared.number:
        counted = f"{several(shared.number, 'answer')} count{'s' * (shared.number == 1)}"
        yield f"{counted} in both runs, of which one is an import or a copy: {too_wide}"
    if shared.unknown:
        yield f"logs without times were imported: if answers of one run are those of the other, {too_wide}"
    if any(path[0] == "benchmarks" and path[-1] == "weight" for path in (row.path.split(".") for row in settings)):
        yield "scores of both runs have the benchmark weights of the second run"
    if with_prior:
        yield (
            f"outcomes of an earlier run (R0) count in the scores of {' and '.join(with_prior)}: if that was the other "
            "of the two, both share them, and differ less than their new trials do"
        )
    if labelled := [view.name for view in (a, b) if view.results is not None and view.results.corrected]:
        yield f"ranks and verdicts of {' and '.join(labelled)} are corrected by labels, the scores here are as graded"


def _setting_changes(a: RunView, b: RunView) -> Iterator[Change]:
    """Settings that differ, without folders; models and benchmarks are compared by name.

    A model's configuration has all defaults, so a change for the whole run appears in every model; it is listed once.
    """
    (settings_a, models_a), (settings_b, models_b) = _split_models(a.configuration), _split_models(b.configuration)
    shared = list(differences(settings_a, settings_b))
    yield from shared
    for name in (name for name in models_a if name in models_b):
        model_changes = (change for change in differences(models_a[name], models_b[name]) if change not in shared)
        yield from (change._replace(path=f"models.{name}.{change.path}") for change in model_changes)


def _split_models(configuration: Mapping[str, object]) -> tuple[dict[str, object], dict[str, Mapping[str, object]]]:
    """Settings of the whole run, with benchmarks by name, and models by name."""
    models = configuration["models"]
    assert isinstance(models, list)
    settings = {key: value for key, value in configuration.items() if key not in (*PLACE_SECTIONS, "models", "name")}
    settings["benchmarks"] = {benchmark["name"]: benchmark for benchmark in _benchmarks(configuration)}
    # recorded models are never asked, so their address is irrelevant
    return settings, {
        model["name"]: {**model, "base_url": None} if model.get("recorded") else model for model in models
    }


def _scores(a: RunView, counts_a: RunCounts, b: RunView, counts_b: RunCounts) -> Iterator[ModelChange]:
    rank_a, rank_b = _ranks(a), _ranks(b)
    cells_a, cells_b = counts_a.cells, counts_b.cells
    parts = [BenchmarkPart(name=part["name"], weight=part["weight"]) for part in _benchmarks(b.configuration)]
    weighing = weigh_questions(parts, tuple(counts_a.roster.questions)) if len(counts_a.roster.questions) else None
    for model, name in enumerate(counts_a.roster.models):
        compared = _both_scores(cells_a[model], a, cells_b[model], b, weighing)
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


def _benchmarks(configuration: Mapping[str, object]) -> Sequence[Mapping[str, Any]]:
    listed = configuration.get("benchmarks") or ()
    assert isinstance(listed, list | tuple)
    return listed


def _both_scores(
    cells_a: CountArray, a: RunView, cells_b: CountArray, b: RunView, weighing: Weighing | None
) -> tuple[float, float, float] | None:
    """Both scores of a model with counts (M, K), and the standard error of their difference; None if a question has no
    trial. Drawn questions are only those that were asked in both runs."""
    if _are_drawn(a, b):
        return _drawn_scores(cells_a, cells_b, np.array(a.weights, dtype=float))
    if not cells_a.sum(axis=-1).all() or not cells_b.sum(axis=-1).all():
        return None
    (score_a, var_a), (score_b, var_b) = _score(cells_a, a, weighing), _score(cells_b, b, weighing)
    return score_a, score_b, float(compare(score_b, var_b, score_a, var_a).sigma)


def _drawn_scores(cells_a: CountArray, cells_b: CountArray, weights: FloatArray) -> tuple[float, float, float] | None:
    """Both scores and their difference's standard error, on questions with trials in both runs; None below two."""
    cells = np.stack([cells_b, cells_a])
    shares = cells / np.maximum(cells.sum(axis=-1, keepdims=True), 1)
    both = cells.any(axis=-1).all(axis=0)
    if both.sum() < 2:
        return None
    first = np.array([0])
    (paired,) = pairs_by_question(shares, weights, first, first + 1)
    score_b, score_a = (shares[:, both] @ weights).mean(axis=1).tolist()
    return score_a, score_b, float(np.sqrt(paired.moments.var[0]))


def _score(cells: CountArray, view: RunView, weighing: Weighing | None) -> tuple[float, float]:
    """Score and variance of one model with counts (M, K), under the prior of its run."""
    prior = prior_of(str(setting(view.configuration, "stopping", "rule")))
    weights = np.array(view.weights, dtype=float)
    g, groups = (None, None) if weighing is None else (relative_weights(weighing[0]), weighing[1])
    estimates = estimate(cells[None], weights, prior, np.array(cells.sum(axis=-1))[None], g=g, groups=groups)
    return float(estimates.score[0]), float(estimates.var[0])


def _are_drawn(*views: RunView) -> bool:
    return any(draws_questions(view.configuration) for view in views)


def _ranks(view: RunView) -> dict[str, int]:
    return {} if view.results is None else {row.name: row.rank for row in view.results.models}


def _changed_questions(counts_a: RunCounts, counts_b: RunCounts, w: NDArray[np.float64]) -> Iterator[QuestionChange]:
    """Significant changes of questions, the most certain first."""
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
    # by z, since p may be rounded to 0
    for model, question in sorted(
        zip(*np.nonzero(adjusted < SIGNIFICANCE_LEVEL), strict=True), key=lambda at: -abs(z[at])
    ):
        values = mean_a[model, question], mean_b[model, question], adjusted[model, question]
        yield QuestionChange(names[model], keys[question], *map(float, values))


def _verdict_changes(a: RunView, b: RunView) -> Iterator[PairChange]:
    if a.results is None or b.results is None:
        return
    pairs_a = {frozenset((pair.first, pair.second)): pair for pair in a.results.pairs}
    for pair in b.results.pairs:
        old = pairs_a.get(frozenset((pair.first, pair.second)))
        if old is None:
            continue
        turned = old.first != pair.first and Verdict.RESOLVED in (old.verdict, pair.verdict)
        called, now = comparison_state(a.results, old), comparison_state(b.results, pair)
        if turned and not (a.results.gate or b.results.gate):
            called, now = f"{called}, {old.first} ahead", f"{now}, {pair.first} ahead"
        if called != now:
            yield PairChange(pair.first, pair.second, called, now)
