"""A stored run under other rubrics: scores and ranks as each rubric would have them (paper, 3.4 and Figure 7).

Nothing is asked or changed: every rubric is applied to the stored signals of each trial. The trials are those in the
scores, without outcomes of another run (R0), which are known under the run's rubric alone.
"""

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import compress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.base.errors import ConfigError, GraderError
from adaptive_eval.config.benchmarks import Weighing, weigh_questions
from adaptive_eval.core.evidence import Estimates, Prior
from adaptive_eval.core.evidence_source import DrawnQuestions, EvidenceSource
from adaptive_eval.core.settings import Bench
from adaptive_eval.core.tally import why_unjudgeable
from adaptive_eval.graders.frozen import LENGTH_RATIO, FrozenThresholds
from adaptive_eval.graders.many_trials import (
    CHUNK_SIZE,
    NO_CATEGORY,
    AnswerMeasures,
    SignalsBuilder,
    TrialSignals,
    add_length_ratios,
    classify_trials,
    fit_thresholds,
    missing_signals,
)
from adaptive_eval.graders.rubric import Rubric, RubricConfig, SchemaRubric, open_rubric
from adaptive_eval.report.records import TrialFacts
from adaptive_eval.report.stored import StoredRun, open_run
from adaptive_eval.report.thresholds import kept_thresholds, thresholds_from_event, thresholds_from_run
from scorio.categorical import SCHEMATA
from scorio.rank import compare_rankings, rank_scores

OWN_RUBRIC = "the run's rubric"


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
    signals: TrialSignals

    def __len__(self) -> int:
        return len(self.model)

    @classmethod
    def read(cls, stored: StoredRun) -> "_Trials":
        """The trials of the current models and questions."""
        roster, gathered = stored.setup.roster, SignalsBuilder()
        places, measured = array("i"), TrialFacts._fields.index("finish_reason")
        for row in stored.reader.trial_facts():
            if (row.model, row.question) in roster:
                places.extend((*roster.cell(row.model, row.question), row.trial, row.category))
                gathered.add((row.signals, row.flags), AnswerMeasures._make(row[measured:]))
        model, question, trial, category = np.frombuffer(places, np.int32).reshape(-1, 4).T
        judged = _is_judged(stored, model, question, trial)
        model, question, category = (np.ascontiguousarray(column[judged]) for column in (model, question, category))
        names = tuple(roster.models), tuple(roster.questions)
        return cls(*names, model, question, category, gathered.build().select(judged))

    def tally(self, categories: NDArray[np.integer], levels: int) -> NDArray[np.int64]:
        """Trials by category (L, M, K + 1); the last column counts those without one."""
        shape = len(self.models), len(self.questions), levels + 1
        counts = np.zeros(int(np.prod(shape)), dtype=np.int64)
        for at in range(0, len(self), CHUNK_SIZE):
            part = slice(at, at + CHUNK_SIZE)
            column = np.where(categories[part] == NO_CATEGORY, levels, categories[part])
            np.add.at(counts, np.ravel_multi_index((self.model[part], self.question[part], column), shape), 1)
        return counts.reshape(shape)


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
    if absent := [signal for signal in missing_signals(trials.signals, open_rubric(config)) if signal != LENGTH_RATIO]:
        raise GraderError(f"needs {', '.join(absent)}, which no trial has")
    if (source := thresholds_from_run(config)) is not None:
        frozen = thresholds_from_event(source)
    signals = trials.signals
    questions = [trials.questions[at] for at in trials.question.tolist()] if config.looks_at_lengths else ()
    rubric, all_thresholds = fit_thresholds(config, signals, questions, frozen)
    if config.looks_at_lengths:
        signals = add_length_ratios(signals, questions, all_thresholds.medians)
    fitted = tuple(threshold for threshold in config.unfitted if threshold not in frozen.values)
    scored = _scored(scoring, name, rubric, trials, classify_trials(signals, rubric))
    return replace(scored, thresholds=_used_thresholds(config, all_thresholds), fitted=fitted)


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
    assumed = {signal: 0.0 for signal in optional if np.isnan(trials.signals.numbers(signal)).all()}
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
    """Graded trials in the scores of the current models and questions."""
    roster = stored.setup.roster
    rows = [row for row in stored.reader.trial_facts() if (row.model, row.question) in roster]
    places = [(*roster.cell(row.model, row.question), row.trial) for row in rows]
    model, question, trial = np.array(places, dtype=np.int32).reshape(-1, 3).T
    return list(compress(rows, _is_judged(stored, model, question, trial)))


def _is_judged(
    stored: StoredRun, model: NDArray[np.int32], question: NDArray[np.int32], trial: NDArray[np.int32]
) -> NDArray[np.bool_]:
    """Mask of the graded trials in the scores: the first of each model and question, as many as the newest look has."""
    judged_counts = stored.counts().own.sum(axis=2)
    order = np.lexsort((trial, question, model))
    cell = (model.astype(np.int64) * judged_counts.shape[1] + question)[order]
    _, begin, sizes = np.unique(cell, return_index=True, return_counts=True)
    judged = np.zeros(len(model), dtype=np.bool_)
    judged[order] = np.arange(len(cell)) - np.repeat(begin, sizes) < judged_counts.ravel()[cell]
    return judged
