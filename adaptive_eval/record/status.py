"""Current state of a run, as plain values for all displays."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import starmap
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.core.settings import Budget
from adaptive_eval.core.types import Verdict
from adaptive_eval.record.finding import Clause, Findings, Judged, count_states, model_clauses
from adaptive_eval.record.question_rows import question_posteriors
from adaptive_eval.record.results import BatchRow, GateRow, GradingCost, ModelRow, OtherCostRow, PairRow
from adaptive_eval.record.sites import SiteRow
from adaptive_eval.store import Roster
from scorio.moments import question_moments


class Standing(NamedTuple):
    """One model in the ranking."""

    row: ModelRow
    clauses: tuple[Clause, ...] = ()
    """Its relations to others, undecided ones first; empty if no comparison involves it."""

    @property
    def clause(self) -> Clause | None:
        """The first relation."""
        return next(iter(self.clauses), None)


def standings(found: Judged) -> tuple[Standing, ...]:
    """The ranking, best model first."""
    return tuple(Standing(row, tuple(model_clauses(found, row))) for row in found.models)


BOUGHT = ("trials", "tokens", "usd")
DETAILED_QUESTIONS = 20
"""Displays show as many of them as they have room for."""


@dataclass(frozen=True, slots=True)
class Cap:
    """A cap of the budget, with what was used of it."""

    name: str
    used: float
    cap: float


@dataclass(frozen=True, slots=True)
class CurrentTraffic:
    """Requests at all servers; None: known to the run's process alone."""

    in_flight: int | None
    retries: int
    errors: int | None
    healthy_replicas: int
    replicas: int


@dataclass(frozen=True, slots=True)
class ModelTraffic:
    """Usage of one model over all starts, and its requests now."""

    model: str
    trials: int
    tokens: int
    usd: float
    gpu_seconds: float
    in_flight: int
    retries: int
    errors: Mapping[str, int]
    """Number of errors by kind."""
    replicas: Mapping[str, bool]
    """Whether each replica is healthy, by address."""
    server_seconds: float | None = None
    """Time for which its servers were held; None if unknown."""
    server_gpu_seconds: float | None = None
    """`server_seconds` times its GPUs."""


@dataclass(frozen=True, slots=True)
class QuestionDetail:
    """Posterior of one question for the two models of a `Detail`."""

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

    Before the first look it has the two models with most answers.
    """

    first: str
    second: str
    questions: tuple[QuestionDetail, ...]
    not_judged: int = 0
    """Trials of the two that no look has used yet."""
    best: int = 1
    """The category with the highest weight."""


@dataclass(frozen=True, slots=True)
class Status:
    """State of a run at one moment."""

    looks: int
    standings: tuple[Standing, ...]
    """From best to worst; empty before the first look."""
    verdicts: Counter[Verdict]
    caps: tuple[Cap, ...]
    traffic: CurrentTraffic
    models: tuple[ModelTraffic, ...]
    """Empty if the status was read from the store: known to the run's process alone."""
    trials: int
    """Committed trials over all starts."""
    new_trials: int
    """Trials committed in this start."""
    new_tokens: int
    elapsed: float
    trials_to_go: float | None
    """Estimate of the trials that open comparisons still need; None before the first look."""
    detail: Detail | None
    promise: str | None = None
    """Error rate promised for each call, in one line."""
    batches: tuple[BatchRow, ...] = ()
    """Pending batches."""
    beside: tuple[OtherCostRow, ...] = ()
    """Spending that caps count besides the stored answers of the current models."""
    grading: GradingCost | None = None
    """Cost of grades by a judge or a verifier."""
    sites: tuple[SiteRow, ...] = ()
    """Sites on a cluster."""
    gate: tuple[GateRow, ...] = ()
    """The gate's outcome for each model."""
    finding: tuple[str, ...] = ()
    """Finding of the latest look, in sentences."""

    @property
    def states(self) -> str:
        """Number of comparisons in each state, in words."""
        return count_states([row.outcome for row in self.gate] or self.verdicts.elements())

    @property
    def judged(self) -> int:
        """Trials that looks have judged, which the scores are computed from."""
        return sum(one.row.trials for one in self.standings if one.row.recorded is None)


def used_caps(budget: Budget, used: Mapping[str, float], beside: Sequence[OtherCostRow]) -> tuple[Cap, ...]:
    """Caps of the budget with what was `used` of them; spending `beside` is added for trials, tokens and USD."""
    spent = dict(used) | {name: used[name] + sum(getattr(row, name) for row in beside) for name in BOUGHT}
    return tuple(Cap(name, spent[name], cap) for name in spent if (cap := getattr(budget, name)) is not None)


def closest_comparison(
    found: Findings, roster: Roster, counts: NDArray[np.integer], w: NDArray[np.float64]
) -> Detail | None:
    """Find the open comparison that is nearest to being decided, with counts (L, M, K) of all graded trials."""
    shown = _nearest_open_pair(found.pairs) if found.models else _two_most_answered(roster, counts)
    if shown is None:
        return None
    counts = counts[list(map(roster.models.position_of, shown))]
    variance = question_moments(np.asarray(counts + 1.0), w).var.sum(axis=0)
    answered = set(np.flatnonzero(counts.sum(axis=(0, 2))).tolist())
    by_variance: list[int] = np.argsort(-variance, kind="stable").tolist()
    least_known = [question for question in by_variance if question in answered][:DETAILED_QUESTIONS]
    known = np.stack(question_posteriors(counts[:, least_known], w), axis=-1).tolist()
    columns = [map(tuple, each) for each in (*known, *counts[:, least_known].tolist())]
    rows = zip([roster.questions[one] for one in least_known], *columns, strict=True)
    waiting = int(counts.sum()) - sum(row.trials for row in found.models if row.name in shown)
    return Detail(*shown, tuple(starmap(QuestionDetail, rows)), max(0, waiting), int(w.argmax()))


def _nearest_open_pair(pairs: Sequence[PairRow]) -> tuple[str, str] | None:
    best: tuple[float, str, str] | None = None
    for pair in pairs:
        if pair.verdict == Verdict.OPEN and pair.worse is not None:
            power = -math.inf if pair.power is None else pair.power
            if best is None or power > best[0]:
                best = power, pair.better, pair.worse
    return None if best is None else best[1:]


def _two_most_answered(roster: Roster, counts: NDArray[np.integer]) -> tuple[str, str] | None:
    """The two models with most answers; None if fewer than two have any."""
    answers = counts.sum(axis=(1, 2))
    order = np.argsort(-answers, kind="stable")[:2].tolist()
    if len(order) < 2 or not answers[order[1]]:
        return None
    return roster.models[order[0]], roster.models[order[1]]
