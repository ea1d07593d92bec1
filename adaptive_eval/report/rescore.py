"""A stored run under other rubrics: scores and ranks as each rubric would have them (paper, 3.4 and Figure 7).

Nothing is asked or changed: every rubric is applied to the stored signals of each trial. The trials are those in the
scores, without outcomes of another run (R0), which are known under the run's rubric alone.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.base.errors import ConfigError, GraderError, StoreError
from adaptive_eval.config.benchmarks import Weighing, weigh_questions
from adaptive_eval.core.evidence import Estimates, Prior
from adaptive_eval.core.evidence_source import DrawnQuestions, EvidenceSource
from adaptive_eval.core.settings import Bench
from adaptive_eval.core.tally import why_unjudgeable
from adaptive_eval.graders.frozen import (
    LENGTH_RATIO,
    Facts,
    FrozenThresholds,
    fact_numbers,
    fit_frozen,
    length_ratio,
)
from adaptive_eval.graders.rubric import Rubric, RubricConfig, SchemaRubric, open_rubric
from adaptive_eval.graders.types import FLAGS, SignalValue, measured_facts
from adaptive_eval.report.records import TrialFacts
from adaptive_eval.report.stored import StoredRun, open_run
from adaptive_eval.report.thresholds import kept_thresholds, thresholds_from_event, thresholds_from_run
from scorio.categorical import SCHEMATA, Signals, classify
from scorio.rank import compare_rankings, rank_scores

OWN_RUBRIC = "the run's rubric"
NO_CATEGORY = -1
"""Of a trial that lacks a signal of the rubric."""


@dataclass(frozen=True, slots=True)
class RescoredModel:
    """One model under one rubric."""

    name: str
    score: float | None
    """None if some question has no answer with a category."""
    sigma: float | None
    rank: int | None
    """1 for the best; equal scores share a rank."""
    counts: tuple[int, ...]
    """Trials by category."""
    left_out: int
    """Trials that lack a signal."""


@dataclass(frozen=True, slots=True)
class RescoredRubric:
    """One rubric on the stored trials."""

    name: str
    categories: tuple[str, ...]
    weights: tuple[float, ...]
    thresholds: Mapping[str, float]
    """Percentiles that the rubric compares with."""
    fitted: tuple[str, ...]
    """Thresholds fitted on these very trials."""
    assumed: Mapping[str, float]
    """Values for absent signals."""
    models: tuple[RescoredModel, ...]
    """The models in the order of the run's own ranking."""
    tau_b: float | None
    """Kendall's tau-b of its scores with those of the run's rubric; None if too few models have a score."""


@dataclass(frozen=True, slots=True)
class RubricUnavailable:
    """A rubric that cannot grade these trials."""

    name: str
    why: str


@dataclass(frozen=True, slots=True)
class Rescoring:
    """A run under several rubrics."""

    run: str
    trials: int
    """Number of graded trials in the scores."""
    rubrics: tuple[RescoredRubric, ...]
    """The run's own first."""
    unavailable: tuple[RubricUnavailable, ...]
    with_prior: bool
    """Whether the run counts outcomes of another run, which are left out here."""


def rescore(directory: Path, rubrics: Mapping[str, RubricConfig] | None = None) -> Rescoring:
    """Score a stored run by these rubrics; by default the twelve schemata of the paper."""
    with open_run(directory) as stored:
        trials, config = _Trials.read(stored), stored.setup.config
        if not len(trials):
            raise ConfigError(f"{directory} has no look yet, so there is nothing to rescore; let it run on")
        scoring = _Scoring.of(stored)
        stored_thresholds = thresholds_from_event(kept_thresholds(config.rubric, stored.events))
    frozen = FrozenThresholds(
        {**stored_thresholds.values, **config.rubric.numbers}, stored_thresholds.rest_on, stored_thresholds.medians
    )
    own_rubric = _scored(scoring, OWN_RUBRIC, open_rubric(config.rubric, frozen), trials, trials.category)
    own_rubric = replace(own_rubric, thresholds=_used_thresholds(config.rubric, frozen))
    order = np.argsort([model.rank or len(trials) for model in own_rubric.models], kind="stable").tolist()
    scored, unavailable = [own_rubric], list[RubricUnavailable]()
    for name, section in (default_rubrics(config.rubric) if rubrics is None else rubrics).items():
        try:
            rubric = _score_by(scoring, name, section, trials, frozen)
            scored.append(replace(rubric, tau_b=_agreement(rubric, own_rubric)))
        except GraderError as error:
            unavailable.append(RubricUnavailable(name, str(error)))
    ordered = tuple(
        replace(scored_rubric, models=tuple(scored_rubric.models[at] for at in order)) for scored_rubric in scored
    )
    prior = config.prior is not None or len(config.asked) < len(config.models)
    return Rescoring(config.name, len(trials), ordered, tuple(unavailable), prior)


def default_rubrics(section: RubricConfig) -> dict[str, RubricConfig]:
    """The twelve schemata, with the thresholds of the run's own rubric."""
    numbers = section.numbers if section.name in SCHEMATA and not section.categories else {}
    return {name: RubricConfig(name=name, thresholds=numbers) for name in SCHEMATA}


@dataclass(frozen=True, slots=True, eq=False)
class _Trials:
    """The graded trials in the scores, as columns."""

    models: tuple[str, ...]
    questions: tuple[str, ...]
    model: NDArray[np.int32]
    question: NDArray[np.int32]
    category: NDArray[np.int32]
    """The stored category."""
    facts: Sequence[Facts]
    """All that a rubric may use."""

    def __len__(self) -> int:
        return len(self.model)

    @classmethod
    def read(cls, stored: StoredRun) -> "_Trials":
        """The trials of the current models and questions."""
        roster, rows = stored.setup.roster, judged_rows(stored)
        places = [(*roster.cell(row.model, row.question), row.category) for row in rows]
        model, question, category = np.array(places, dtype=np.int32).reshape(-1, 3).T
        names = tuple(roster.models), tuple(roster.questions)
        return cls(*names, model, question, category, [_stored_facts(row) for row in rows])

    def tally(self, categories: NDArray[np.integer], levels: int) -> NDArray[np.int64]:
        """Trials by category (L, M, K + 1); the last column counts those without one."""
        counts = np.zeros((len(self.models), len(self.questions), levels + 1), dtype=np.int64)
        np.add.at(counts, (self.model, self.question, np.where(categories == NO_CATEGORY, levels, categories)), 1)
        return counts


@dataclass(frozen=True, slots=True, eq=False)
class _Scoring:
    """Estimates of scores as in a look of the run."""

    prior: Prior
    horizon: int
    source: EvidenceSource
    weighing: Weighing | None

    @classmethod
    def of(cls, stored: StoredRun) -> "_Scoring":
        config = stored.setup.config
        weighing = weigh_questions(config.benchmarks, tuple(stored.setup.roster.questions))
        source = EvidenceSource() if config.trials.draw is None else DrawnQuestions(config.trials.draw)
        return cls(config.stopping.prior, config.trials.max, source, weighing)

    def estimates(
        self, counts: NDArray[np.integer], scored: NDArray[np.bool_], weights: NDArray[np.float64]
    ) -> Estimates:
        """Estimates by these counts (L, M, K)."""
        models, questions, _ = counts.shape
        bench = Bench(models, questions, weights, **({} if self.weighing is None else self.weighing._asdict()))
        nothing, rows = Estimates.nothing(bench), np.flatnonzero(scored)
        return self.source.estimates(nothing, rows, counts, bench, self.prior, self.horizon)


def _score_by(
    scoring: _Scoring, name: str, config: RubricConfig, trials: _Trials, frozen: FrozenThresholds
) -> RescoredRubric:
    """Score the trials by a configured rubric with thresholds of the run that it names, or else the `frozen` ones of
    this run; others are fitted on these trials. Raises `GraderError` if no trial has a signal that it needs."""
    if absent := [signal for signal in missing_signals(trials.facts, open_rubric(config)) if signal != LENGTH_RATIO]:
        raise GraderError(f"needs {', '.join(absent)}, which no trial has")
    if (source := thresholds_from_run(config)) is not None:
        frozen = thresholds_from_event(source)
    facts = trials.facts
    questions = [trials.questions[at] for at in trials.question.tolist()] if config.looks_at_lengths else []
    rubric, all_thresholds = fit_thresholds(config, facts, questions, frozen)
    if config.looks_at_lengths:
        medians, bare = (
            all_thresholds.medians,
            [_without_ratio(trial) if LENGTH_RATIO in trial else trial for trial in facts],
        )
        facts = [
            {**trial, **length_ratio(trial, question, medians)} for trial, question in zip(bare, questions, strict=True)
        ]
    fitted = tuple(threshold for threshold in config.unfitted if threshold not in frozen.values)
    scored = _scored(scoring, name, rubric, trials, classify_trials(facts, rubric))
    return replace(scored, thresholds=_used_thresholds(config, all_thresholds), fitted=fitted)


def missing_signals(trials: Sequence[Facts], rubric: Rubric) -> tuple[str, ...]:
    """Signals that the rubric needs but no trial has."""
    return tuple(sorted(name for name in rubric.needs if not any(name in facts for facts in trials)))


def fit_thresholds(
    config: RubricConfig, trials: Sequence[Facts], questions: Sequence[str], frozen: FrozenThresholds
) -> tuple[Rubric, FrozenThresholds]:
    """Fit the thresholds of a rubric that are not `frozen` yet; returns the rubric and all thresholds."""
    missing = {name: rule for name, rule in config.unfitted.items() if name not in frozen.values}
    with_medians = config.looks_at_lengths and not frozen.medians
    fitted = fit_frozen(fact_numbers(trials), questions, missing, with_medians=with_medians)
    names = config.unfitted.keys()
    values = {name: value for name, value in {**frozen.values, **fitted.values}.items() if name in names}
    thresholds = FrozenThresholds(values, {**frozen.rest_on, **fitted.rest_on}, fitted.medians or frozen.medians)
    return open_rubric(config, thresholds), thresholds


def classify_trials(trials: Sequence[Facts], rubric: Rubric) -> NDArray[np.integer]:
    """(N,): the category of each trial, `NO_CATEGORY` if a signal is missing."""
    if isinstance(rubric, SchemaRubric):
        return _by_schema(trials, rubric)
    return np.array([_category(rubric, facts) for facts in trials], dtype=np.int32)


def _by_schema(trials: Sequence[Facts], rubric: SchemaRubric) -> NDArray[np.integer]:
    """All trials at once, since one takes 0.2 ms."""
    numbers = fact_numbers(trials)
    columns = {name: numbers(name) for name in rubric.schema.signals}
    columns |= {name: np.nan_to_num(columns[name]) for name in rubric.optional & columns.keys()}
    has_signals = ~np.any([np.isnan(column) for column in columns.values()], axis=0)
    categories = np.full(len(trials), NO_CATEGORY, dtype=np.int32)
    if has_signals.any():
        try:
            signals = Signals(**{name: column[has_signals] for name, column in columns.items()})
            categories[has_signals] = classify(signals, rubric.schema, rubric.thresholds)
        except ValueError as error:
            raise StoreError(f"the stored signals of a grader are damaged: {error}") from error
    return categories


def _category(rubric: Rubric, facts: Facts) -> int:
    try:
        return rubric.category(facts)
    except GraderError:
        return NO_CATEGORY


def _stored_facts(row: TrialFacts) -> Facts:
    """All that a rubric may use of a trial."""
    measures = row.finish_reason, row.prompt_tokens, row.completion_tokens, row.completion_bpt, row.prompt_bpt
    flags = (row.flags or "").split()
    return {**measured_facts(*measures, flags), **_flags_and_signals(row.flags, row.signals)}


@lru_cache(maxsize=4096)
def _flags_and_signals(flags: str | None, signals: str | None) -> Facts:
    """The flags of an answer and its grader's signals, cached, since trials share few combinations."""
    raised = set((flags or "").split())
    facts: dict[str, SignalValue] = {flag: flag in raised for flag in FLAGS}
    try:
        stored = json.loads(signals) if signals else {}
    except (ValueError, RecursionError):
        stored = None
    if not isinstance(stored, dict) or not all(
        isinstance(value, str | int | float | None) for value in stored.values()
    ):
        raise StoreError("the stored signals of a grader are damaged: not a JSON object of plain values")
    return facts | stored


def _without_ratio(facts: Facts) -> Facts:
    return {name: value for name, value in facts.items() if name != LENGTH_RATIO}


def _scored(
    scoring: _Scoring, name: str, rubric: Rubric, trials: _Trials, categories: NDArray[np.integer]
) -> RescoredRubric:
    """Score and rank of the models by these categories, in the order of the configuration."""
    tally = trials.tally(categories, len(rubric.weights))
    counts, without = tally[..., :-1], tally[..., -1]
    rows = zip(counts, without, strict=True)
    asks_all = scoring.source.asks_all
    scored = np.array([why_unjudgeable(row.sum(axis=-1), bare, asks_all=asks_all) is None for row, bare in rows])
    estimates = scoring.estimates(counts, scored, np.array(rubric.weights, dtype=float))
    scored &= np.isfinite(estimates.score)  # a model that has just joined has no answers to drawn questions
    scored_models = np.flatnonzero(scored)
    ranks, sigma = dict[int, int](), estimates.sigma()
    if len(scored_models):
        ranked = np.asarray(rank_scores(estimates.score[scored_models])).astype(int)
        ranks = dict(zip(scored_models.tolist(), ranked.tolist(), strict=True))
    models = tuple(
        RescoredModel(
            name=model,
            score=float(estimates.score[at]) if scored[at] else None,
            sigma=float(sigma[at]) if scored[at] else None,
            rank=ranks.get(at),
            counts=tuple(counts[at].sum(axis=0).tolist()),
            left_out=int(without[at].sum()),
        )
        for at, model in enumerate(trials.models)
    )
    optional = rubric.optional if isinstance(rubric, SchemaRubric) else ()
    numbers = fact_numbers(trials.facts)
    assumed = {signal: 0.0 for signal in optional if np.isnan(numbers(signal)).all()}
    return RescoredRubric(name, rubric.names, rubric.weights, {}, (), assumed, models, None)


def _used_thresholds(config: RubricConfig, frozen: FrozenThresholds) -> dict[str, float]:
    available = {**frozen.values, **config.numbers}
    return {name: float(available[name]) for name in config.percentiles if name in available}


def _agreement(rubric: RescoredRubric, reference: RescoredRubric) -> float | None:
    """Kendall's tau-b of the scores under two rubrics; None if too few models have both."""
    both = [(a.score, b.score) for a, b in zip(rubric.models, reference.models, strict=True)]
    scores = np.array([(a, b) for a, b in both if a is not None and b is not None])
    if len(scores) < 2:
        return None
    tau = float(compare_rankings(*(rank_scores(column, "fractional") for column in scores.T)).tau_b)
    return None if np.isnan(tau) else tau


def judged_rows(stored: StoredRun) -> list[TrialFacts]:
    """Graded trials in the scores of the current models and questions: the first of each model and question, as many
    as the newest look has."""
    cells, roster = defaultdict[tuple[int, int], list[TrialFacts]](list), stored.setup.roster
    for row in stored.reader.trial_facts():
        if (row.model, row.question) in roster:
            cells[roster.cell(row.model, row.question)].append(row)
    judged_counts = stored.counts().own.sum(axis=2)
    return [
        row for cell, rows in cells.items() for row in sorted(rows, key=lambda row: row.trial)[: judged_counts[cell]]
    ]
