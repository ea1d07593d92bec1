"""A stored run under other rubrics: scores, ranks and tiers as each rubric would have them (paper, 3.4 and Figure 7).

Nothing is asked or changed: every rubric is applied to the stored signals of each trial. The trials are those in the
scores, without outcomes of an earlier run (R0), which are known under the run's rubric alone. Tiers come from a single
look at these trials by the run's rule; by the sequential boundary without futility if that rule is a plug-in, or if the
run does not compare models with each other. The run itself may have called a pair at an earlier look, which stands
there.
"""

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import compress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.base.errors import ConfigError, GraderError
from adaptive_eval.config.benchmarks import Weighing, weigh_questions
from adaptive_eval.core.drawn import drawn_pairs, estimates_of_drawn
from adaptive_eval.core.evidence import Estimates, Evidence, Prior, judged_pairs, update, weigh_evidence
from adaptive_eval.core.rules import Rule, calls
from adaptive_eval.core.sequential import Sequential
from adaptive_eval.core.settings import Bench
from adaptive_eval.core.tally import why_unjudgeable
from adaptive_eval.graders.frozen import LENGTH_RATIO, FrozenThresholds
from adaptive_eval.graders.many_trials import (
    AT_ONCE,
    NO_CATEGORY,
    AnswerMeasures,
    SignalsBuilder,
    TrialSignals,
    classify_trials,
    completed,
    lacking,
    with_length_ratios,
)
from adaptive_eval.graders.rubric import Rubric, RubricConfig, SchemaRubric, open_rubric
from adaptive_eval.record.restore import StoredRun, open_run
from adaptive_eval.record.thresholds import FIRST_ROUND
from adaptive_eval.store import TrialFacts
from adaptive_eval.store.thresholds import kept_thresholds, thresholds_from_event
from scorio.categorical import SCHEMATA, Schema, Thresholds
from scorio.categorical.variables import INVALID, VARIABLES
from scorio.rank import compare_rankings, rank_scores

OWN_RUBRIC = "the run's rubric"
ASSUMED = frozenset(condition.signal for condition in INVALID)
"""Signals of invalid answers. A schema that uses one for nothing else can do without it."""


@dataclass(frozen=True, slots=True)
class RelabelledModel:
    """One model under one rubric."""

    name: str
    score: float | None
    """None if some question has no answer with a category."""
    sigma: float | None
    rank: int | None
    """1 for the best; equal scores share a rank."""
    tier: int | None
    """A new tier begins where a model is called worse than the one above it."""
    counts: tuple[int, ...]
    """Trials by category."""
    left_out: int
    """Trials that lack a signal."""


@dataclass(frozen=True, slots=True)
class RelabelledRubric:
    """One rubric on the stored trials."""

    name: str
    same_as: str | None
    """An earlier rubric that puts every trial into the same category, with the same weights."""
    categories: tuple[str, ...]
    weights: tuple[float, ...]
    thresholds: Mapping[str, float]
    """Percentiles that the rubric compares with."""
    fitted: tuple[str, ...]
    """Thresholds fitted on these very trials."""
    assumed: Mapping[str, float]
    """Values for absent signals."""
    models: tuple[RelabelledModel, ...]
    """The models in the order of the run's own ranking."""
    tau_b: float | None
    """Kendall's tau-b of its scores with those of the run's rubric; None if too few models have a score."""


@dataclass(frozen=True, slots=True)
class RubricUnavailable:
    """A rubric that these trials cannot be graded by."""

    name: str
    why: str


@dataclass(frozen=True, slots=True)
class Relabelling:
    """A run under several rubrics."""

    run: str
    trials: int
    """Number of graded trials in the scores."""
    rubrics: tuple[RelabelledRubric, ...]
    """The run's own first."""
    not_there: tuple[RubricUnavailable, ...]
    with_prior: bool
    """Whether the run counts outcomes of an earlier run, which are left out here."""


def relabel(directory: Path, rubrics: Mapping[str, RubricConfig] | None = None) -> Relabelling:
    """Relabel a stored run by these rubrics; by default the twelve schemata of the paper."""
    with open_run(directory) as stored:
        found = relabelled(stored, rubrics)
    if found is None:
        raise ConfigError(f"{directory} has no look yet, so there is nothing to relabel; let it run on")
    return found


def relabelled(stored: StoredRun, rubrics: Mapping[str, RubricConfig] | None = None) -> Relabelling | None:
    """Relabel an open run; None if no trial was judged yet."""
    trials = _Trials.of(stored)
    if not len(trials):
        return None
    own = stored.setup.config.rubric
    judge = _Judge.of(stored)
    kept = thresholds_from_event(kept_thresholds(own, stored.events))
    frozen = FrozenThresholds({**kept.values, **own.numbers}, kept.rest_on, kept.medians)
    first = judge.apply(OWN_RUBRIC, open_rubric(own, frozen), trials, trials.category, _used_thresholds(own, frozen))
    order = np.argsort([one.rank or len(trials) for one in first.models], kind="stable")
    found, not_there = [_reorder_models(first, order)], []
    wanted = default_rubrics(own, trials.signals) if rubrics is None else rubrics
    labels: dict[str, tuple[bytes, tuple[float, ...]]] = {}
    for name, config in wanted.items():
        try:
            one, categories = judge.try_rubric(name, config, trials, frozen)
        except GraderError as error:
            not_there.append(RubricUnavailable(name, str(error)))
            continue
        key = (blake2b(np.ascontiguousarray(categories, np.int16).data).digest(), one.weights)
        alike = next((other for other, known in labels.items() if known == key), None)
        labels[name] = key
        found.append(_add_agreement(_reorder_models(one, order), found[0], alike))
    run = stored.setup.config
    prior = run.prior is not None or len(run.asked) < len(run.models)
    return Relabelling(stored.setup.config.name, len(trials), tuple(found), tuple(not_there), prior)


def default_rubrics(own: RubricConfig, trials: TrialSignals) -> dict[str, RubricConfig]:
    """The twelve schemata; a signal that no trial has is assumed to be 0 if it only marks invalid answers."""
    found = {}
    for name, schema in SCHEMATA.items():
        rubric = SchemaRubric(schema, schema.weights, Thresholds(), {})
        absent = {one: 0.0 for one in lacking(trials, rubric) if one in ASSUMED and _only_for_invalid(schema, one)}
        assume = {one: value for one, value in own.assume.items() if one in schema.signals}
        fixed = own.numbers if own.name in SCHEMATA and not own.categories else {}
        found[name] = RubricConfig(name=name, thresholds=fixed, assume=absent | assume)
    return found


def _only_for_invalid(schema: Schema, signal: str) -> bool:
    """Whether a schema uses the signal for its category 0 alone."""
    ways = (way for category in schema.categories for way in category.rule)
    compared = (condition for way in ways for variable in way for condition in VARIABLES[variable])
    return all(signal not in (condition.signal, condition.bound) for condition in compared)


@dataclass(frozen=True, slots=True, eq=False)
class _Trials:
    models: tuple[str, ...]
    questions: tuple[str, ...]
    model: NDArray[np.int32]
    question: NDArray[np.int32]
    category: NDArray[np.int32]
    """The stored category."""
    signals: TrialSignals
    opening: NDArray[np.bool_]
    """Mask of the trials of the first round."""

    def __len__(self) -> int:
        return len(self.model)

    def labels(self, chosen: NDArray[np.bool_]) -> list[str]:
        """The question ids of the chosen trials."""
        return [self.questions[at] for at in self.question[chosen].tolist()]

    @classmethod
    def of(cls, stored: StoredRun) -> "_Trials":
        """The trials in the scores of the current models and questions."""
        roster, gathered = stored.setup.roster, SignalsBuilder()
        places, measured = array("i"), TrialFacts._fields.index("finish_reason")
        for row in stored.reader.trial_facts():
            if (row.model, row.question) in roster:
                places.extend((*roster.cell(row.model, row.question), row.trial, row.round, row.category))
                gathered.add((row.signals, row.flags), AnswerMeasures._make(row[measured:]))
        model, question, trial, round_, category = np.frombuffer(places, np.int32).reshape(-1, 5).T
        judged = _is_judged(stored, model, question, trial)
        model, question, category = (np.ascontiguousarray(one[judged]) for one in (model, question, category))
        opening, signals = round_[judged] == FIRST_ROUND, gathered.whole().only(judged)
        return cls(tuple(roster.models), tuple(roster.questions), model, question, category, signals, opening)

    def tally(self, categories: NDArray[np.integer], levels: int) -> NDArray[np.int64]:
        """Trials by category (L, M, K + 1); the last column counts those without one."""
        shape = len(self.models), len(self.questions), levels + 1
        found = np.zeros(int(np.prod(shape)), dtype=np.int64)
        for at in range(0, len(self), AT_ONCE):
            some = slice(at, at + AT_ONCE)
            told = np.where(categories[some] == NO_CATEGORY, levels, categories[some])
            np.add.at(found, np.ravel_multi_index((self.model[some], self.question[some], told), shape), 1)
        return found.reshape(shape)


@dataclass(frozen=True, slots=True, eq=False)
class _Judge:
    """A single look at counts by the run's rule."""

    rule: Rule
    prior: Prior
    horizon: int
    drawn: bool
    """Whether questions were drawn at random instead of asked in full."""
    weighing: Weighing | None

    @classmethod
    def of(cls, stored: StoredRun) -> "_Judge":
        config = stored.setup.config
        weighing = weigh_questions(config.benchmarks, tuple(stored.setup.roster.questions))
        if config.plug_ins:
            default = Sequential(config.stopping.confidence)
            return cls(default, config.stopping.prior, config.trials.max, config.trials.draw is not None, weighing)
        plan = stored.plan
        plain = plan.objective.compares and plan.objective.reference is None and plan.objective.rule is None
        # `optimal` earns its calls by giving pairs up at earlier looks, and here there is one look
        rule = getattr(plan.rule, "ties", plan.rule) if plain else Sequential(config.stopping.confidence)
        return cls(rule, plan.prior, plan.trials.max, plan.drawn > 0, weighing)

    def try_rubric(
        self, name: str, config: RubricConfig, trials: _Trials, frozen: FrozenThresholds
    ) -> tuple[RelabelledRubric, NDArray[np.integer]]:
        """Apply a configured rubric with the run's `frozen` thresholds; raises `GraderError` if that is impossible.

        Further thresholds are fitted: on the run's opening if the rubric asks for that, else on all of these trials.
        """
        if absent := [one for one in lacking(trials.signals, open_rubric(config)) if one != LENGTH_RATIO]:
            raise GraderError(f"needs {', '.join(absent)}, which no trial has")
        signals, everywhere = trials.signals, np.ones(len(trials), dtype=bool)
        some = everywhere
        basis = trials.labels(some) if config.looks_at_lengths else ()
        rubric, whole = completed(config, signals.only(some), basis, frozen)
        if config.looks_at_lengths:
            signals = with_length_ratios(signals, trials.labels(everywhere), whole.medians)
        categories = classify_trials(signals, rubric)
        fitted = tuple(one for one in config.unfitted if one not in frozen.values)
        return self.apply(name, rubric, trials, categories, _used_thresholds(config, whole), fitted), categories

    def apply(
        self,
        name: str,
        rubric: Rubric,
        trials: _Trials,
        categories: NDArray[np.integer],
        thresholds: Mapping[str, float],
        fitted: tuple[str, ...] = (),
    ) -> RelabelledRubric:
        """Score, rank and tier of the models by these categories, in the order of the configuration."""
        tally = trials.tally(categories, len(rubric.weights))
        counts, without = tally[..., :-1], tally[..., -1]
        why_not = [
            why_unjudgeable(row.sum(axis=-1), bare, some=self.drawn) for row, bare in zip(counts, without, strict=True)
        ]
        scored = np.array([why is None for why in why_not])
        known, evidence = self._weigh(counts, scored, np.array(rubric.weights, dtype=float))
        ranks, tiers = self._ranks_and_tiers(known, evidence, scored)
        sigma = known.sigma()
        models = tuple(
            RelabelledModel(
                name=model,
                score=float(known.score[at]) if scored[at] else None,
                sigma=float(sigma[at]) if scored[at] else None,
                rank=ranks.get(at),
                tier=tiers.get(at),
                counts=tuple(counts[at].sum(axis=0).tolist()),
                left_out=int(without[at].sum()),
            )
            for at, model in enumerate(trials.models)
        )
        schema = rubric if isinstance(rubric, SchemaRubric) else None
        return RelabelledRubric(
            name=name,
            same_as=None,
            categories=rubric.names,
            weights=rubric.weights,
            thresholds=thresholds,
            fitted=fitted,
            assumed={} if schema is None else dict(schema.assume),
            models=models,
            tau_b=None,
        )

    def _weigh(
        self, counts: NDArray[np.integer], scored: NDArray[np.bool_], weights: NDArray[np.float64]
    ) -> tuple[Estimates, Evidence]:
        """Estimates by these counts (L, M, K), and the evidence on every pair."""
        models, questions, _ = counts.shape
        if self.drawn:
            known = estimates_of_drawn(counts, weights)
            first, second = judged_pairs(models, reference=False, margin=None)
            (paired,) = drawn_pairs(counts, np.zeros_like(counts[..., 0]), weights, first, second)
            return known, weigh_evidence(known, paired=paired)
        bench = Bench(models, questions, weights, **({} if self.weighing is None else self.weighing._asdict()))
        known = update(Estimates.nothing(bench), np.flatnonzero(scored), counts, bench, self.prior, self.horizon)
        return known, weigh_evidence(known)

    def _ranks_and_tiers(
        self, known: Estimates, evidence: Evidence, scored: NDArray[np.bool_]
    ) -> tuple[dict[int, int], dict[int, int]]:
        """Rank and tier of every model that has a score."""
        there = np.flatnonzero(scored)
        if not len(there):
            return {}, {}
        ranks = dict(zip(there.tolist(), np.asarray(rank_scores(known.score[there])).astype(int).tolist(), strict=True))
        order = there[np.argsort(-known.score[there], kind="stable")]
        called = calls(self.rule, [evidence])
        tiers, tier = {int(order[0]): 1}, 1
        for above, below in zip(order.tolist(), order[1:].tolist(), strict=False):
            (at,) = evidence.plain_positions(np.array([[above, below]]))
            tier += bool(called[at] > 0 if evidence.first[at] == above else called[at] < 0)
            tiers[below] = tier
        return ranks, tiers


def _used_thresholds(config: RubricConfig, frozen: FrozenThresholds) -> dict[str, float]:
    known = {**frozen.values, **config.numbers}
    return {name: float(known[name]) for name in config.percentiles if name in known}


def _reorder_models(found: RelabelledRubric, order: NDArray[np.intp]) -> RelabelledRubric:
    return replace(found, models=tuple(found.models[at] for at in order.tolist()))


def _add_agreement(found: RelabelledRubric, own: RelabelledRubric, same_as: str | None) -> RelabelledRubric:
    both = [(a.score, b.score) for a, b in zip(found.models, own.models, strict=True)]
    known = [(a, b) for a, b in both if a is not None and b is not None]
    tau = None
    if len(known) > 1:
        ours, theirs = (np.array(column, dtype=float) for column in zip(*known, strict=True))
        tau = float(compare_rankings(rank_scores(ours, "fractional"), rank_scores(theirs, "fractional")).tau_b)
    return replace(found, tau_b=None if tau is None or np.isnan(tau) else tau, same_as=same_as)


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
    wanted = stored.counts().own.sum(axis=2)
    order = np.lexsort((trial, question, model))
    cell = (model.astype(np.int64) * wanted.shape[1] + question)[order]
    _, begin, sizes = np.unique(cell, return_index=True, return_counts=True)
    judged = np.zeros(len(model), dtype=np.bool_)
    judged[order] = np.arange(len(cell)) - np.repeat(begin, sizes) < wanted.ravel()[cell]
    return judged
