"""Where a run stands at this moment, as plain values: what every display shows.

The ranking as a display shows it: each model, and one comparison beside it.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import starmap
from typing import NamedTuple

import numpy as np

from adaptive_eval.core.controller import Controller
from adaptive_eval.core.result import Result
from adaptive_eval.core.settings import Budget
from adaptive_eval.core.types import PairVerdict, Reason, Verdict
from adaptive_eval.endpoints.types import Endpoint
from adaptive_eval.record.build import question_posteriors
from adaptive_eval.scheduler.scheduler import Scheduler
from scorio.moments import question_moments


@dataclass(frozen=True, slots=True)
class Standing:
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
    set_aside: str | None


class Placed(NamedTuple):
    """A model in its place; the score and its interval are nan where there are none."""

    name: str
    tier: int
    score: float
    lo: float
    hi: float
    trials: int
    set_aside: str | None


class Compared(NamedTuple):
    """A comparison; z and boundary are None where the objective does not compare."""

    better: str
    worse: str | None
    verdict: Verdict
    z: float | None
    boundary: float | None


def standings(models: Sequence[Placed], pairs: Sequence[Compared]) -> tuple[Standing, ...]:
    """The ranking, for models from best to worst."""
    order = [model.name for model in models]
    beside = _beside(order, pairs)
    return tuple(
        _standing(model, beside.get(model.name), following)
        for model, following in zip(models, [*order[1:], None], strict=True)
    )


def _standing(model: Placed, pair: Compared | None, following: str | None) -> Standing:
    members = () if pair is None else (pair.better, pair.worse)
    return Standing(
        name=model.name,
        tier=model.tier,
        score=model.score,
        lo=model.lo,
        hi=model.hi,
        trials=model.trials,
        z=None if pair is None else pair.z,
        boundary=None if pair is None else pair.boundary,
        verdict=None if pair is None else pair.verdict,
        against=next((other for other in members if other not in (model.name, following, None)), None),
        set_aside=model.set_aside,
    )


def _beside(order: Sequence[str], pairs: Sequence[Compared]) -> dict[str, Compared]:
    """The comparison to show beside each model: with the next or with a fixed value, else one that is shown nowhere
    yet, an open one before others."""
    following = dict(zip(order, order[1:], strict=False))
    beside = {pair.better: pair for pair in pairs if pair.worse in (None, following.get(pair.better))}
    left = [pair for pair in pairs if beside.get(pair.better) is not pair]
    for pair in sorted(left, key=lambda pair: pair.verdict is not Verdict.OPEN):
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


def caps(budget: Budget, used: Mapping[str, float]) -> tuple[Cap, ...]:
    """The caps that there are, and what was used of each."""
    return tuple(Cap(name, used[name], cap) for name in used if (cap := getattr(budget, name)) is not None)


class StatusTaker:
    """Takes the status of one run; what only a look can change is computed once a look."""

    def __init__(
        self,
        models: Sequence[str],
        questions: Sequence[str],
        controller: Controller,
        scheduler: Scheduler,
        endpoints: Sequence[Endpoint],
    ) -> None:
        self._models = models
        self._questions = questions
        self._controller = controller
        self._scheduler = scheduler
        self._endpoints = endpoints
        self._result: Result | None = None
        self._as_of: tuple[int, Reason | None] = (0, None)

    def take(self) -> Status:
        """The status now."""
        controller, scheduler = self._controller, self._scheduler
        as_of = (len(controller.looks), controller.finished)
        if as_of != self._as_of:
            self._as_of, self._result = as_of, controller.result()
        result = self._result
        trials = sum(tally.trials for tally in scheduler.tallies)
        pairs = () if result is None else tuple(one.verdict for one in result.comparisons)
        return Status(
            looks=len(controller.looks),
            standings=() if result is None else self._standings(result, pairs),
            verdicts=Counter(pair.verdict for pair in pairs),
            caps=self._caps(),
            traffic=self._traffic(),
            models=tuple(self._models_traffic()),
            trials=trials,
            new_trials=trials - scheduler.taken_up[0],
            new_tokens=sum(tally.tokens for tally in scheduler.tallies) - scheduler.taken_up[1],
            elapsed=scheduler.elapsed(),
            trials_to_go=None if result is None else result.trials_to_go,
            detail=self._detail(pairs),
        )

    def _standings(self, result: Result, pairs: Sequence[PairVerdict]) -> tuple[Standing, ...]:
        names = self._models
        set_aside = {model: lost.reason for model, lost in self._controller.set_aside.items()}
        compares = self._controller.plan.objective.compares
        placed = [
            Placed(names[row.model], row.tier, row.score, row.lo, row.hi, row.trials, set_aside.get(row.model))
            for row in result.models
        ]
        compared = [
            Compared(
                names[pair.better],
                None if pair.worse is None else names[pair.worse],
                pair.verdict,
                z=pair.z if compares else None,
                boundary=pair.boundary if compares else None,
            )
            for pair in pairs
        ]
        return standings(placed, compared)

    def _caps(self) -> tuple[Cap, ...]:
        tallies = self._scheduler.tallies
        used = {
            "trials": sum(tally.trials for tally in tallies),
            "tokens": sum(tally.tokens for tally in tallies),
            "usd": sum(tally.usd for tally in tallies),
            "gpu_seconds": sum(tally.gpu_seconds for tally in tallies),
            "wall_seconds": self._scheduler.elapsed(),
        }
        return caps(self._controller.plan.budget, used)

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
        each = zip(self._models, scheduler.tallies, scheduler.in_flight, self._endpoints, strict=True)
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

    def _detail(self, pairs: Sequence[PairVerdict]) -> Detail | None:
        open_pairs = [pair for pair in pairs if pair.verdict is Verdict.OPEN and pair.worse is not None]
        if not open_pairs:
            return None
        pair = max(open_pairs, key=lambda pair: pair.power)
        assert pair.worse is not None
        counts, w = self._controller.arrived[[pair.better, pair.worse]], self._controller.plan.bench.weights
        variance = question_moments(np.asarray(counts + 1.0), w).var.sum(axis=0)
        least_known = np.argsort(-variance, kind="stable")[:DETAILED_QUESTIONS]
        first, second = np.stack(question_posteriors(counts[:, least_known], w), axis=-1).tolist()
        rows = zip((self._questions[q] for q in least_known), map(tuple, first), map(tuple, second), strict=True)
        return Detail(self._models[pair.better], self._models[pair.worse], tuple(starmap(QuestionDetail, rows)))
