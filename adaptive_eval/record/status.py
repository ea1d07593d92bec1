"""Where a run stands at this moment, as plain values: what every display shows."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import starmap

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.core.settings import Budget
from adaptive_eval.core.types import Verdict
from adaptive_eval.record.build import Findings
from adaptive_eval.record.finding import relation
from adaptive_eval.record.question_rows import question_posteriors
from adaptive_eval.record.results import BatchRow, GradingCost, ModelRow, OtherCostRow, PairRow
from adaptive_eval.record.sites import SiteRow
from adaptive_eval.store import Roster, Spending
from scorio.moments import question_moments


@dataclass(frozen=True, slots=True)
class StandingRow:
    """One model in the ranking."""

    name: str
    tier: int
    score: float
    lo: float
    hi: float
    trials: int
    z: float | None
    """Of the comparison that is shown beside this model, if any: with the model placed next, with a fixed value, or
    with `against`; None where the objective does not compare."""
    boundary: float | None
    verdict: Verdict | None
    against: str | None
    """The other model of that comparison; None: a fixed value."""
    set_aside: str | None
    relation: str = ""
    """What is known of this model beside the other, as words that stand before its name."""
    recorded: str | None = None
    """The earlier run that its outcomes come from: it is not asked."""


def standings(
    models: Sequence[ModelRow], pairs: Sequence[PairRow], *, gate: str | None = None
) -> tuple[StandingRow, ...]:
    """The ranking, for models from best to worst; `gate`: the baseline of a gate, whose pairs pass or fail."""
    beside = _beside([model.name for model in models], pairs)
    return tuple(_standing(model, beside.get(model.name), gate) for model in models)


def _standing(model: ModelRow, pair: PairRow | None, gate: str | None) -> StandingRow:
    members = () if pair is None else (pair.better, pair.worse)
    return StandingRow(
        name=model.name,
        tier=model.tier,
        score=_number(model.score),
        lo=_number(model.lo),
        hi=_number(model.hi),
        trials=model.trials,
        z=None if pair is None else pair.z,
        boundary=None if pair is None else pair.boundary,
        verdict=None if pair is None else Verdict(pair.verdict),
        against=next((other for other in members if other not in (model.name, None)), None),
        set_aside=model.set_aside,
        relation="" if pair is None else _relation(model, pair, gate),
        recorded=model.recorded,
    )


def _relation(model: ModelRow, pair: PairRow, gate: str | None) -> str:
    if pair.worse is None:
        return pair.verdict.replace("_", " ")
    if model.name == gate:
        return "baseline of"
    ahead = model.name == pair.better
    if gate is not None and pair.verdict == Verdict.RESOLVED:
        return "passes against" if ahead else "fails against"
    return "open against" if pair.verdict == Verdict.OPEN else relation(pair.verdict, ahead=ahead)


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _beside(order: Sequence[str], pairs: Sequence[PairRow]) -> dict[str, PairRow]:
    """The comparison to show beside each model: with the next or with a fixed value, else one that is shown nowhere
    yet, an open one before others."""
    following = dict(zip(order, order[1:], strict=False))
    beside = {pair.better: pair for pair in pairs if pair.worse in (None, following.get(pair.better))}
    left = [pair for pair in pairs if beside.get(pair.better) is not pair]
    for pair in sorted(left, key=lambda pair: pair.verdict != Verdict.OPEN):
        free = [model for model in (pair.better, pair.worse) if model is not None and model not in beside]
        if free:
            beside[free[0]] = pair
    return beside


DETAILED_QUESTIONS = 20
"""A display shows as many of them as it has room for."""


@dataclass(frozen=True, slots=True)
class Cap:
    """A budget: what was used of it."""

    name: str
    used: float
    cap: float


@dataclass(frozen=True, slots=True)
class SiteTraffic:
    """What goes on between us and a site of a cluster; None: only the process of the run knows."""

    model: str
    site: str
    in_flight: int | None
    queued: int | None
    """Requests in flight that its server does not have, or has answered already."""
    answers: int
    """That have come from it, since some moment: only differences count."""


@dataclass(frozen=True, slots=True)
class CurrentTraffic:
    """What goes on between us and the servers; None: only the process of the run knows."""

    in_flight: int | None
    retries: int
    errors: int | None
    healthy_replicas: int
    replicas: int
    sites: tuple[SiteTraffic, ...] = ()
    waiting: int | None = None
    """Requests that no site of their model has yet."""


@dataclass(frozen=True, slots=True)
class ModelTraffic:
    """What one model has used over all starts, and what goes on between us and its servers."""

    model: str
    trials: int
    tokens: int
    usd: float
    gpu_seconds: float
    in_flight: int
    retries: int
    errors: Mapping[str, int]
    """By kind."""
    replicas: Mapping[str, bool]
    """By address, whether they are healthy."""
    server_seconds: float | None = None
    """For how long its servers were held, where that is known."""
    server_gpu_seconds: float | None = None
    """`server_seconds` times its GPUs."""


@dataclass(frozen=True, slots=True)
class QuestionDetail:
    """The posterior of one question for the two models of the comparison that is nearest to being decided."""

    question: str
    first: tuple[float, float, float]
    """Mean and 95% interval."""
    second: tuple[float, float, float]
    first_counts: tuple[int, ...] = ()
    """Trials by category."""
    second_counts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Detail:
    """The open comparison that is nearest to being decided, on the questions that are known least.

    Before the first look, which decides what is open, the two models that have most answers.
    """

    first: str
    second: str
    questions: tuple[QuestionDetail, ...]
    not_judged: int = 0
    """Trials of the two that no look has used yet."""
    best: int = 1
    """The category that is worth most."""


@dataclass(frozen=True, slots=True)
class Status:
    """The whole picture."""

    looks: int
    standings: tuple[StandingRow, ...]
    """From best to worst; empty before the first look."""
    verdicts: Counter[Verdict]
    caps: tuple[Cap, ...]
    traffic: CurrentTraffic
    models: tuple[ModelTraffic, ...]
    """Empty where the status was taken from the store: only the process of the run knows."""
    trials: int
    """Committed, over all starts."""
    new_trials: int
    """Committed since this start."""
    new_tokens: int
    elapsed: float
    trials_to_go: float | None
    """What the open comparisons still need at most; None before the first look."""
    detail: Detail | None
    promise: str | None = None
    """What a call is worth."""
    batches: tuple[BatchRow, ...] = ()
    """That are pending at batch services."""
    beside: tuple[OtherCostRow, ...] = ()
    """What caps count besides the stored answers of today's models."""
    grading: GradingCost | None = None
    """What a judge or a verifier has used of it."""
    sites: tuple[SiteRow, ...] = ()
    """On a cluster."""


@dataclass(frozen=True, slots=True, eq=False)
class RunMoment:
    """A run at one moment, live or stored: all that a status is made of."""

    roster: Roster
    weights: NDArray[np.float64]
    budget: Budget
    looks: int
    found: Findings | None
    """None before the first look."""
    counts: NDArray[np.integer]
    """(L, M, K): every graded trial."""
    spent: Spending
    before: tuple[int, int]
    """Trials and tokens that are not new."""
    elapsed: float
    gpu_seconds: float
    """What a cap on GPU time counts."""
    traffic: CurrentTraffic
    models: tuple[ModelTraffic, ...] = ()
    promise: str | None = None
    gate: str | None = None
    """The baseline of the gate, where there is one."""
    batches: tuple[BatchRow, ...] = ()
    beside: tuple[OtherCostRow, ...] = ()
    grading: GradingCost | None = None
    sites: tuple[SiteRow, ...] = ()


def status_of(moment: RunMoment) -> Status:
    """The status at a moment: the same for whoever runs the run and whoever reads it."""
    found, spent = moment.found, moment.spent
    return Status(
        looks=moment.looks,
        standings=() if found is None else standings(found.models, found.pairs, gate=moment.gate),
        verdicts=Counter(Verdict(pair.verdict) for pair in (() if found is None else found.pairs)),
        caps=_caps(moment),
        traffic=moment.traffic,
        models=moment.models,
        trials=spent.trials,
        new_trials=spent.trials - moment.before[0],
        new_tokens=spent.tokens - moment.before[1],
        elapsed=moment.elapsed,
        trials_to_go=None if found is None else found.trials_to_go,
        detail=_detail(moment),
        promise=moment.promise,
        batches=moment.batches,
        beside=moment.beside,
        grading=moment.grading,
        sites=moment.sites,
    )


def _caps(moment: RunMoment) -> tuple[Cap, ...]:
    """The caps that there are, and what was used of each."""
    spent = moment.spent
    used = {
        name: getattr(spent, name) + sum(getattr(row, name) for row in moment.beside)
        for name in ("trials", "tokens", "usd")
    }
    used |= {"gpu_seconds": moment.gpu_seconds, "wall_seconds": moment.elapsed}
    return tuple(Cap(name, used[name], cap) for name in used if (cap := getattr(moment.budget, name)) is not None)


def _detail(moment: RunMoment) -> Detail | None:
    shown = _two_answering(moment) if moment.found is None else _nearest(moment.found.pairs)
    if shown is None:
        return None
    at = list(map(moment.roster.models.position_of, shown))
    counts, w = moment.counts[at], moment.weights
    variance = question_moments(np.asarray(counts + 1.0), w).var.sum(axis=0)
    answered = set(np.flatnonzero(counts.sum(axis=(0, 2))).tolist())
    by_variance: list[int] = np.argsort(-variance, kind="stable").tolist()
    least_known = [question for question in by_variance if question in answered][:DETAILED_QUESTIONS]
    known = np.stack(question_posteriors(counts[:, least_known], w), axis=-1).tolist()
    columns = [map(tuple, each) for each in (*known, *counts[:, least_known].tolist())]
    rows = zip(map(moment.roster.questions.name_of, least_known), *columns, strict=True)
    judged = {} if moment.found is None else {row.name: row.trials for row in moment.found.models}
    waiting = int(counts.sum()) - sum(judged.get(name, 0) for name in shown)
    return Detail(*shown, tuple(starmap(QuestionDetail, rows)), max(0, waiting), int(w.argmax()))


def _nearest(pairs: Sequence[PairRow]) -> tuple[str, str] | None:
    """The members of the open comparison that is nearest to being decided."""
    best: tuple[float, str, str] | None = None
    for pair in pairs:
        if pair.verdict == Verdict.OPEN and pair.worse is not None:
            power = -math.inf if pair.power is None else pair.power
            if best is None or power > best[0]:
                best = power, pair.better, pair.worse
    return None if best is None else best[1:]


def _two_answering(moment: RunMoment) -> tuple[str, str] | None:
    """The two models that have most answers, where two have any."""
    answers = moment.counts.sum(axis=(1, 2))
    first, second = [*np.argsort(-answers, kind="stable")[:2].tolist(), None, None][:2]
    if first is None or second is None or not answers[second]:
        return None
    return moment.roster.models.name_of(first), moment.roster.models.name_of(second)
