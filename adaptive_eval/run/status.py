"""Where a run stands at this moment, as plain values: what every display shows."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import starmap

import numpy as np

from adaptive_eval.core.controller import Controller
from adaptive_eval.core.result import Result
from adaptive_eval.core.rules import Precision
from adaptive_eval.core.types import PairVerdict, Reason, Verdict
from adaptive_eval.endpoints.types import Endpoint
from adaptive_eval.results.posterior import question_posteriors
from adaptive_eval.scheduler.scheduler import Scheduler
from scorio.moments import question_moments

DETAILED_QUESTIONS = 5


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
    with `against`; None where the objective is about precision alone."""
    boundary: float | None
    verdict: Verdict | None
    against: str | None
    set_aside: str | None


@dataclass(frozen=True, slots=True)
class Cap:
    """A budget: what was used of it."""

    name: str
    used: float
    cap: float


@dataclass(frozen=True, slots=True)
class Traffic:
    """What goes on between us and the servers."""

    in_flight: int
    retries: int
    errors: int
    healthy_replicas: int
    replicas: int


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
    trials: int
    """Committed, over all starts."""
    new_trials: int
    """Committed since this start."""
    new_tokens: int
    elapsed: float
    trials_to_go: float | None
    """What the open comparisons still need at most; None before the first look."""
    detail: Detail | None


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
            trials=trials,
            new_trials=trials - scheduler.taken_up[0],
            new_tokens=sum(tally.tokens for tally in scheduler.tallies) - scheduler.taken_up[1],
            elapsed=scheduler.elapsed(),
            trials_to_go=None if result is None else result.trials_to_go,
            detail=self._detail(pairs),
        )

    def _standings(self, result: Result, pairs: Sequence[PairVerdict]) -> tuple[Standing, ...]:
        without_z = isinstance(self._controller.plan.deciding_rule, Precision)
        beside = _beside([row.model for row in result.models], pairs)
        rows = []
        for row, next_model in zip(result.models, [*(row.model for row in result.models[1:]), None], strict=True):
            pair = beside.get(row.model)
            members = () if pair is None else (pair.better, pair.worse)
            other = next((model for model in members if model not in (row.model, next_model, None)), None)
            rows.append(
                Standing(
                    name=self._models[row.model],
                    tier=row.tier,
                    score=row.score,
                    lo=row.lo,
                    hi=row.hi,
                    trials=row.trials,
                    z=None if pair is None or without_z else pair.z,
                    boundary=None if pair is None or without_z else pair.boundary,
                    verdict=None if pair is None else pair.verdict,
                    against=None if other is None else self._models[other],
                    set_aside=self._controller.set_aside.get(row.model),
                )
            )
        return tuple(rows)

    def _caps(self) -> tuple[Cap, ...]:
        budget, tallies = self._controller.plan.budget, self._scheduler.tallies
        used = {
            "trials": sum(tally.trials for tally in tallies),
            "tokens": sum(tally.tokens for tally in tallies),
            "usd": sum(tally.usd for tally in tallies),
            "gpu_seconds": sum(tally.gpu_seconds for tally in tallies),
            "wall_seconds": self._scheduler.elapsed(),
        }
        caps = ((name, getattr(budget, name)) for name in used)
        return tuple(Cap(name, used[name], cap) for name, cap in caps if cap is not None)

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


def _beside(order: Sequence[int], pairs: Sequence[PairVerdict]) -> dict[int, PairVerdict]:
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
