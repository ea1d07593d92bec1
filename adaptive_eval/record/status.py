"""Where a run stands at this moment, as plain values: what every display shows.

The ranking as a display shows it: each model, and one comparison beside it.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import starmap

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.core.controller import Controller
from adaptive_eval.core.settings import Budget
from adaptive_eval.core.types import Reason, Verdict
from adaptive_eval.endpoints.types import Endpoint
from adaptive_eval.record.build import Found, Subject, found_in, question_posteriors, take_snapshot
from adaptive_eval.record.results import ModelRow, PairRow
from adaptive_eval.scheduler.scheduler import Scheduler
from adaptive_eval.store import Roster, Spending
from scorio.moments import question_moments


@dataclass(frozen=True, slots=True)
class Standing:
    """One model in the ranking."""

    name: str
    tier: int
    letters: str
    """Models that share a letter are not told apart."""
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
    set_aside: str | None


def standings(models: Sequence[ModelRow], pairs: Sequence[PairRow]) -> tuple[Standing, ...]:
    """The ranking, for models from best to worst."""
    order = [model.name for model in models]
    beside = _beside(order, pairs)
    return tuple(
        _standing(model, beside.get(model.name), following)
        for model, following in zip(models, [*order[1:], None], strict=True)
    )


def _standing(model: ModelRow, pair: PairRow | None, following: str | None) -> Standing:
    members = () if pair is None else (pair.better, pair.worse)
    return Standing(
        name=model.name,
        tier=model.tier,
        letters=model.letters,
        score=_number(model.score),
        lo=_number(model.lo),
        hi=_number(model.hi),
        trials=model.trials,
        z=None if pair is None else pair.z,
        boundary=None if pair is None else pair.boundary,
        verdict=None if pair is None else Verdict(pair.verdict),
        against=next((other for other in members if other not in (model.name, following, None)), None),
        set_aside=model.set_aside,
    )


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


DETAILED_QUESTIONS = 5


@dataclass(frozen=True, slots=True)
class Cap:
    """A budget: what was used of it."""

    name: str
    used: float
    cap: float


@dataclass(frozen=True, slots=True)
class Traffic:
    """What goes on between us and the servers; None: only the process of the run knows."""

    in_flight: int | None
    retries: int
    errors: int | None
    healthy_replicas: int
    replicas: int


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


@dataclass(frozen=True, slots=True)
class QuestionDetail:
    """The posterior of one question for the two models of the comparison that is nearest to being decided."""

    question: str
    first: tuple[float, float, float]
    """Mean and 95% interval."""
    second: tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class Detail:
    """The open comparison that is nearest to being decided, on the questions that are known least."""

    first: str
    second: str
    questions: tuple[QuestionDetail, ...]


@dataclass(frozen=True, slots=True)
class Status:
    """The whole picture."""

    looks: int
    standings: tuple[Standing, ...]
    """From best to worst; empty before the first look."""
    verdicts: Counter[Verdict]
    caps: tuple[Cap, ...]
    traffic: Traffic
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


@dataclass(frozen=True, slots=True, eq=False)
class Moment:
    """A run at one moment, live or stored: all that a status is made of."""

    roster: Roster
    weights: NDArray[np.float64]
    budget: Budget
    looks: int
    found: Found | None
    """None before the first look."""
    counts: NDArray[np.integer]
    """(L, M, K): every graded trial."""
    spent: Spending
    before: tuple[int, int]
    """Trials and tokens that are not new."""
    elapsed: float
    traffic: Traffic
    models: tuple[ModelTraffic, ...] = ()


def status_of(moment: Moment) -> Status:
    """The status at a moment: the same for whoever runs the run and whoever reads it."""
    found, spent = moment.found, moment.spent
    return Status(
        looks=moment.looks,
        standings=() if found is None else standings(found.models, found.pairs),
        verdicts=Counter(Verdict(pair.verdict) for pair in (() if found is None else found.pairs)),
        caps=_caps(moment),
        traffic=moment.traffic,
        models=moment.models,
        trials=spent.trials,
        new_trials=spent.trials - moment.before[0],
        new_tokens=spent.tokens - moment.before[1],
        elapsed=moment.elapsed,
        trials_to_go=None if found is None else found.trials_to_go,
        detail=None if found is None else _detail(moment, found.pairs),
    )


def _caps(moment: Moment) -> tuple[Cap, ...]:
    """The caps that there are, and what was used of each."""
    spent = moment.spent
    used = {
        "trials": spent.trials,
        "tokens": spent.tokens,
        "usd": spent.usd,
        "gpu_seconds": spent.gpu_seconds,
        "wall_seconds": moment.elapsed,
    }
    return tuple(Cap(name, used[name], cap) for name in used if (cap := getattr(moment.budget, name)) is not None)


def _detail(moment: Moment, pairs: Sequence[PairRow]) -> Detail | None:
    open_pairs = [pair for pair in pairs if pair.verdict == Verdict.OPEN and pair.worse is not None]
    if not open_pairs:
        return None
    pair = max(open_pairs, key=lambda pair: -math.inf if pair.power is None else pair.power)
    assert pair.worse is not None
    at = moment.roster.models.position_of
    counts, w = moment.counts[[at(pair.better), at(pair.worse)]], moment.weights
    variance = question_moments(np.asarray(counts + 1.0), w).var.sum(axis=0)
    least_known = np.argsort(-variance, kind="stable")[:DETAILED_QUESTIONS].tolist()
    first, second = np.stack(question_posteriors(counts[:, least_known], w), axis=-1).tolist()
    keys = map(moment.roster.questions.name_of, least_known)
    rows = zip(keys, map(tuple, first), map(tuple, second), strict=True)
    return Detail(pair.better, pair.worse, tuple(starmap(QuestionDetail, rows)))


class StatusTaker:
    """Takes the status of a run that is at work; what only a look can change is worked out once a look."""

    def __init__(
        self, subject: Subject, controller: Controller, scheduler: Scheduler, endpoints: Sequence[Endpoint]
    ) -> None:
        self._subject = subject
        self._roster = Roster.of(subject.models, subject.questions)
        self._controller = controller
        self._scheduler = scheduler
        self._endpoints = endpoints
        self._found: Found | None = None
        self._as_of: tuple[int, Reason | None, int] = (0, None, 0)

    def take(self) -> Status:
        """The status now."""
        controller, scheduler = self._controller, self._scheduler
        tallies = scheduler.tallies
        self._look()
        return status_of(
            Moment(
                roster=self._roster,
                weights=controller.plan.bench.weights,
                budget=controller.plan.budget,
                looks=len(controller.looks),
                found=self._found,
                counts=controller.arrived,
                spent=Spending(
                    at=0.0,
                    trials=sum(tally.trials for tally in tallies),
                    tokens=sum(tally.tokens for tally in tallies),
                    usd=sum(tally.usd for tally in tallies),
                    gpu_seconds=sum(tally.gpu_seconds for tally in tallies),
                ),
                before=scheduler.taken_up,
                elapsed=scheduler.elapsed(),
                traffic=self._traffic(),
                models=tuple(self._models_traffic()),
            )
        )

    def _look(self) -> None:
        controller = self._controller
        as_of = (len(controller.looks), controller.finished, len(controller.set_aside))
        if as_of != self._as_of:
            tallies = self._scheduler.tallies
            snapshot = take_snapshot(self._subject, controller, tallies, elapsed=0.0, now=0.0, stopped=False)
            self._as_of, self._found = as_of, None if snapshot is None else found_in(snapshot)

    def _traffic(self) -> Traffic:
        stats = [endpoint.stats for endpoint in self._endpoints]
        replicas = [replica for one in stats for replica in one.replicas]
        return Traffic(
            in_flight=sum(self._scheduler.in_flight),
            retries=sum(one.retries for one in stats),
            errors=sum(sum(one.errors.values()) for one in stats),
            healthy_replicas=sum(replica.healthy for replica in replicas),
            replicas=len(replicas),
        )

    def _models_traffic(self) -> Iterator[ModelTraffic]:
        scheduler = self._scheduler
        each = zip(self._subject.models, scheduler.tallies, scheduler.in_flight, self._endpoints, strict=True)
        for model, tally, in_flight, endpoint in each:
            stats = endpoint.stats
            yield ModelTraffic(
                model=model,
                trials=tally.trials,
                tokens=tally.tokens,
                usd=tally.usd,
                gpu_seconds=tally.gpu_seconds,
                in_flight=in_flight,
                retries=stats.retries,
                errors=stats.errors,
                replicas={replica.url: replica.healthy for replica in stats.replicas},
            )
