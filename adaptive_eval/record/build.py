"""From a controller and the tallies of its trials to `Results`.

In two steps, since the second takes a while with thousands of questions: a snapshot in the loop, the rest anywhere.

What is known of each question: the posterior of a model's score on it.

What a run has started itself, and what its swaps took: read off its events.

What the results of a run say it is about.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from adaptive_eval import __version__
from adaptive_eval.config.run import RunConfig
from adaptive_eval.core.controller import Controller
from adaptive_eval.core.result import ComparisonResult, ModelResult, Result
from adaptive_eval.core.rules import Rule
from adaptive_eval.core.types import Look, Verdict
from adaptive_eval.endpoints.wire import sent_sampling
from adaptive_eval.questions import Question
from adaptive_eval.record.gate import gate_of, gate_rows
from adaptive_eval.record.results import (
    FORMAT,
    Caution,
    Cost,
    GateRow,
    LookRow,
    ModelRow,
    PairRow,
    QuestionRow,
    Results,
    RunInfo,
    ServerRow,
    TurnsRow,
)
from adaptive_eval.record.scale import Scale
from adaptive_eval.record.warnings import (
    alarm_cautions,
    cautions,
    decision_cautions,
    horizon_cautions,
    import_cautions,
    notice_cautions,
    prior_caution,
    reversal_cautions,
    rule_caution,
    unknown_cautions,
)
from adaptive_eval.store import Event, ServerLaunched, only
from adaptive_eval.store.usage import Tally
from scorio.moments import FloatArray, question_moments


def server_rows(events: Sequence[Event]) -> tuple[ServerRow, ...]:
    """The servers that came up."""
    rows: dict[str, ServerRow] = {}
    for one in only(events, ServerLaunched):
        starts = rows[one.model].starts + 1 if one.model in rows else 1
        rows[one.model] = ServerRow(one.model, one.command, one.version, starts)
    return tuple(rows.values())


def turns_rows(events: Sequence[Event]) -> tuple[TurnsRow, ...]:
    """The places that models have shared; one that served a single model was not shared."""
    swaps: dict[str, list[ServerLaunched]] = {}
    for one in only(events, ServerLaunched):
        if one.on is not None:
            swaps.setdefault(one.on, []).append(one)
    rows = (
        TurnsRow(on, len({one.model for one in here}), len(here), sum(one.seconds for one in here))
        for on, here in swaps.items()
    )
    return tuple(row for row in rows if row.models > 1)


TAIL = 0.025


def question_posteriors(counts: NDArray[np.integer], w: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Posterior mean, and a 95% interval, of the score on each question, for counts (..., K) under the uniform prior.

    The interval is that of the Beta distribution on [min w, max w] with the posterior's mean and variance: exact for
    two categories, and unlike the normal one inside the range and not symmetric near its ends. With m and v scaled to
    [0, 1], s = m (1 - m) / v - 1 gives Beta(m s, (1 - m) s).
    """
    mean, var = question_moments(np.asarray(counts + 1.0, dtype=np.float64), w)
    low, width = w.min(), np.ptp(w)
    m, v = (mean - low) / width, var / width**2
    s = m * (1.0 - m) / v - 1.0
    a, b = m * s, (1.0 - m) * s
    return mean, low + width * betaincinv(a, b, TAIL), low + width * betaincinv(a, b, 1.0 - TAIL)


MOST_NEEDED = 1e12
"""Trials a question: a comparison that seems to need more is of equal scores, which differ by a rounding error."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What a run is about, in the order of the core's numbers."""

    name: str
    models: tuple[str, ...]
    questions: tuple[str, ...]
    sampled: tuple[bool, ...]
    """Models whose answers are drawn at a temperature above 0."""
    created: float
    """Seconds since 1970."""
    decisions: Mapping[str, object] = field(default_factory=dict)
    """The sections of the configuration that say what is decided, and how."""
    sampling: tuple[Mapping[str, object], ...] = ()
    """What the requests to each model carry, where there were any."""


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """What results are built from, as it was at one moment: copies, which the run no longer changes."""

    subject: Subject
    result: Result
    rule: Rule
    weights: FloatArray
    looks: tuple[Look, ...]
    arrived: NDArray[np.integer]
    """(L, M, K): every outcome, those of the round in flight too."""
    prior_depths: FloatArray
    """(L,): outcomes of R0 a question."""
    set_aside: Mapping[int, str]
    tallies: tuple[Tally, ...]
    elapsed: float
    now: float
    """Seconds since 1970."""
    stopped: bool
    noticed: tuple[Caution, ...]
    """About answers that cannot be right, changed settings, imported trials and the servers."""
    servers: tuple[ServerRow, ...]
    turns: tuple[TurnsRow, ...]


def take_snapshot(
    subject: Subject,
    controller: Controller,
    tallies: Sequence[Tally],
    *,
    elapsed: float,
    now: float,
    stopped: bool,
    events: Sequence[Event] = (),
) -> Snapshot | None:
    """What is known after the latest look, None before the first; `events` are all that were recorded."""
    result = controller.result()
    if result is None:
        return None
    bench = controller.plan.bench
    before = bench.prior_counts
    return Snapshot(
        subject=subject,
        result=result,
        rule=controller.plan.deciding_rule,
        weights=bench.weights,
        looks=tuple(controller.looks),
        arrived=controller.arrived.copy(),
        prior_depths=np.zeros(bench.models) if before is None else before.sum(axis=(1, 2)) / bench.questions,
        set_aside={model: lost.reason for model, lost in controller.set_aside.items()},
        tallies=tuple(tally.copy() for tally in tallies),
        elapsed=elapsed,
        now=now,
        stopped=stopped,
        noticed=(
            *alarm_cautions(subject.models, tallies, events),
            *horizon_cautions(controller.plan.deciding_rule, controller.extensions, events),
            *decision_cautions(events),
            *import_cautions(events),
            *notice_cautions(events),
        ),
        servers=server_rows(events),
        turns=turns_rows(events),
    )


class Found(NamedTuple):
    """What the latest look has found, as results.json says it: models from best to worst."""

    models: tuple[ModelRow, ...]
    pairs: tuple[PairRow, ...]
    trials_to_go: float


def found_in(snapshot: Snapshot) -> Found:
    """What was found, without what it takes a while to work out."""
    result, tallies = snapshot.result, snapshot.tallies
    return Found(
        models=tuple(_model(snapshot, row, tallies[row.model]) for row in result.models),
        pairs=tuple(_pair(snapshot, one) for one in result.comparisons),
        trials_to_go=result.trials_to_go,
    )


def build_results(snapshot: Snapshot) -> Results:
    """The results, which take a while with thousands of questions."""
    subject, result, tallies = snapshot.subject, snapshot.result, snapshot.tallies
    found, order = found_in(snapshot), [row.model for row in result.models]
    reversals = tuple((subject.models[one.better], _name(subject, one.worse)) for one in result.reversals)
    return Results(
        format=FORMAT,
        run=_run_info(snapshot),
        decisions=subject.decisions,
        weights=tuple(snapshot.weights.tolist()),
        models=found.models,
        pairs=found.pairs,
        reversals=reversals,
        adjusted_p=_reordered(result, order),
        looks=tuple(map(_look, snapshot.looks)),
        questions=_questions(snapshot, order),
        warnings=(
            *rule_caution(subject.decisions),
            *prior_caution(subject.models, snapshot.prior_depths.tolist()),
            *reversal_cautions(reversals),
            *snapshot.noticed,
            *unknown_cautions(subject.models, tallies, result.models, Scale.of(snapshot.weights.tolist())),
            *cautions(subject.models, tallies, subject.sampled),
        ),
        cost=_cost(result, tallies),
        trials_to_go=found.trials_to_go,
        servers=snapshot.servers,
        turns=snapshot.turns,
        gate=_gate(snapshot, found.models, found.pairs, reversals),
    )


def _gate(
    snapshot: Snapshot,
    models: Sequence[ModelRow],
    pairs: Sequence[PairRow],
    reversals: Sequence[tuple[str, str | None]],
) -> tuple[GateRow, ...]:
    """What the gate says, where there is one; an empty answer may have been worth all.

    What timed out or has no grade is in the bounds of the scores already.
    """
    asked = gate_of(snapshot.subject.decisions)
    if asked is None:
        return ()
    least = snapshot.arrived.sum(axis=-1).min(axis=-1)
    each = np.ptp(snapshot.weights) / (snapshot.arrived.shape[1] * np.maximum(least, 1))
    lacking = [tally.signals["empty"] for tally in snapshot.tallies]
    may_move = dict(zip(snapshot.subject.models, (each * lacking).tolist(), strict=True))
    return tuple(gate_rows(asked, models, pairs, reversals, may_move))


def _run_info(snapshot: Snapshot) -> RunInfo:
    reason = snapshot.result.reason
    return RunInfo(
        name=snapshot.subject.name,
        version=__version__,
        created=iso_time(snapshot.subject.created),
        updated=iso_time(snapshot.now),
        active_seconds=snapshot.elapsed,
        status="finished" if reason is not None else "stopped" if snapshot.stopped else "running",
        reason=None if reason is None else str(reason),
    )


def _model(snapshot: Snapshot, row: ModelResult, tally: Tally) -> ModelRow:
    return ModelRow(
        name=snapshot.subject.models[row.model],
        rank=row.rank,
        tier=row.tier,
        score=_known(row.score),
        sigma=_known(row.sigma),
        lo=_known(row.lo),
        hi=_known(row.hi),
        bayes=_known(row.bayes),
        bayes_sigma=_known(row.bayes_sigma),
        sampled_sigma=_known(row.sampled_sigma),
        trials=row.trials,
        set_aside=snapshot.set_aside.get(row.model),
        stored_trials=tally.trials,
        ungraded=tally.ungraded,
        repeats=tally.repeats,
        signals=dict(tally.signals),
        tokens=tally.tokens,
        usd=tally.usd,
        gpu_seconds=tally.gpu_seconds,
        sampling=snapshot.subject.sampling[row.model] if snapshot.subject.sampling else {},
        prior_depth=float(snapshot.prior_depths[row.model]),
        lowest=_known(row.lowest),
        highest=_known(row.highest),
        letters=row.letters,
    )


def _pair(snapshot: Snapshot, one: ComparisonResult) -> PairRow:
    subject, verdict = snapshot.subject, one.verdict
    return PairRow(
        better=subject.models[verdict.better],
        worse=_name(subject, verdict.worse),
        verdict=str(verdict.verdict),
        difference=_known(one.difference),
        sigma=_known(one.sigma),
        z=_known(verdict.z),
        rho=_known(verdict.rho),
        boundary=_known(verdict.boundary),
        information=_known(verdict.information),
        power=_known(verdict.power),
        trials_needed=_known(verdict.trials_needed) if verdict.trials_needed < MOST_NEEDED else None,
        sampled_z=_known(one.sampled_z),
        certifiable_delta=_known(one.certifiable_delta),
    )


def _known(value: float) -> float | None:
    """The number, or None where there is none: JSON knows neither nan nor infinity."""
    return value if math.isfinite(value) else None


def _reordered(result: Result, order: Sequence[int]) -> tuple[tuple[float | None, ...], ...]:
    """The matrix with rows and columns from best to worst; a reference value keeps the last column."""
    columns = [*order, *range(len(order), len(result.adjusted_p[0]))]
    return tuple(tuple(_known(result.adjusted_p[row][column]) for column in columns) for row in order)


def _look(look: Look) -> LookRow:
    return LookRow(
        look=look.index,
        trials=sum(look.trials),
        resolved=look.count(Verdict.RESOLVED),
        tied=look.count(Verdict.TIED),
        open=look.count(Verdict.OPEN),
        out_of_reach=look.count(Verdict.OUT_OF_REACH),
        blocked=look.count(Verdict.BLOCKED),
    )


def _questions(snapshot: Snapshot, order: Sequence[int]) -> tuple[QuestionRow, ...]:
    counts = snapshot.arrived[order]
    columns = (counts.sum(axis=-1), *question_posteriors(counts, snapshot.weights))
    by_question = zip(snapshot.subject.questions, *(column.T.tolist() for column in columns), strict=True)
    return tuple(QuestionRow(key, *map(tuple, values)) for key, *values in by_question)


def _cost(result: Result, tallies: Sequence[Tally]) -> Cost:
    return Cost(
        trials=sum(tally.trials for tally in tallies),
        fixed_trials=result.fixed_trials,
        tokens=sum(tally.tokens for tally in tallies),
        usd=sum(tally.usd for tally in tallies),
        gpu_seconds=sum(tally.gpu_seconds for tally in tallies),
        **_fixed_cost(result.fixed_trials / len(tallies), tallies),
    )


def _fixed_cost(trials: float, tallies: Sequence[Tally]) -> dict[str, float]:
    """What so many trials of every model would have cost, at what those of each cost on average."""
    if not all(tally.trials for tally in tallies):
        return {}
    kinds = ("tokens", "usd", "gpu_seconds")
    return {f"fixed_{kind}": trials * sum(getattr(tally, kind) / tally.trials for tally in tallies) for kind in kinds}


def _name(subject: Subject, model: int | None) -> str | None:
    return None if model is None else subject.models[model]


def iso_time(seconds: float) -> str:
    """Seconds since 1970 as a date and time, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def subject_of(config: RunConfig, questions: Sequence[Question], created: float) -> Subject:
    """The subject of a run that was begun at `created`, in seconds since 1970."""
    return Subject(
        name=config.name,
        models=tuple(model.name for model in config.models),
        questions=tuple(question.id for question in questions),
        sampled=tuple(model.sampling.temperature != 0.0 for model in config.models),
        created=created,
        decisions=config.stated(),
        sampling=tuple(sent_sampling(model, model.sampling) for model in config.models),
    )
