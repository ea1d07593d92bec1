"""From a controller and the usages of its trials to `Results`.

In two steps, since the second takes a while with thousands of questions: a snapshot in the loop, the rest anywhere.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import reduce
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptive_eval import __version__
from adaptive_eval.core.result import ComparisonResult, ModelResult, Result, question_means
from adaptive_eval.core.types import Look, Reason, Verdict
from adaptive_eval.record.gate import gate_of, gate_rows
from adaptive_eval.record.metrics import metric_cautions, metric_rows
from adaptive_eval.record.question_rows import CountedRows
from adaptive_eval.record.removed_models import counted_gpu_seconds
from adaptive_eval.record.results import (
    FORMAT,
    UNJUDGED_FORMAT,
    CallRow,
    EarlyEnd,
    GateRow,
    GradingCost,
    LookRow,
    ModelRow,
    PairRow,
    Results,
    RunCost,
    RunInfo,
    Unjudged,
    WastedCost,
)
from adaptive_eval.record.scale import Scale
from adaptive_eval.record.snapshot import Beginning, RunSubject, Snapshot
from adaptive_eval.record.warnings import (
    cautions,
    judge_caution,
    prior_caution,
    repeat_cautions,
    reversal_cautions,
    rule_caution,
    unknown_cautions,
)
from adaptive_eval.record.words import draws_questions
from adaptive_eval.scheduler.server_times import HeldServers
from adaptive_eval.store.records import NO_GRADING, GradingUse
from adaptive_eval.store.usage import TrialUsage
from scorio.moments import FloatArray
from scorio.rank import rank_scores

MOST_NEEDED = 1e12
"""Trials a question: a comparison that seems to need more is of equal scores, which differ by a rounding error."""


class OwnScore(NamedTuple):
    """What a model's own answers say of it, without outcomes of an earlier run."""

    score: float | None
    rank: int | None


NOT_APART = OwnScore(None, None)
"""There is no R0, or no answer to some question."""


def scores_without_prior(snapshot: Snapshot) -> dict[int, OwnScore]:
    """Each model's score and rank without R0; nothing where there is no R0."""
    if not snapshot.prior_depths.any():
        return {}
    scores = question_means(snapshot.judged, snapshot.weights).mean(axis=1)
    known = np.flatnonzero(np.isfinite(scores)).tolist()
    ranks = np.asarray(rank_scores(scores[known])).astype(int).tolist() if known else []
    return {model: OwnScore(float(scores[model]), rank) for model, rank in zip(known, ranks, strict=True)}


class Findings(NamedTuple):
    """What the latest look has found, as results.json says it: models from best to worst."""

    models: tuple[ModelRow, ...]
    pairs: tuple[PairRow, ...]
    trials_to_go: float


def findings_of(snapshot: Snapshot) -> Findings:
    """What was found, without what it takes a while to work out."""
    result, usages = snapshot.result, snapshot.usages
    alone = scores_without_prior(snapshot)
    return Findings(
        models=tuple(
            _model(snapshot, row, usages[row.model], alone.get(row.model, NOT_APART)) for row in result.models
        ),
        pairs=tuple(_pair(snapshot.subject, one) for one in result.comparisons),
        trials_to_go=result.trials_to_go,
    )


def build_results(snapshot: Snapshot) -> Results:
    """The results, which take a while with thousands of questions."""
    subject, result, usages = snapshot.subject, snapshot.result, snapshot.usages
    found, order = findings_of(snapshot), [row.model for row in result.models]
    early_end, models = _corrected(snapshot, found.models)
    reason, answered = result.reason, sum(row.trials for row in result.models)
    names = [subject.models[model] for model in order]
    metrics = tuple(metric_rows(subject.metrics, names, snapshot.judged[order], snapshot.weights))
    reversals = tuple((subject.models[one.better], _name(subject, one.worse)) for one in result.reversals)
    arrived = snapshot.arrived[order]
    waiting = (arrived - snapshot.judged[order]).sum(axis=-1)
    return Results(
        format=FORMAT,
        run=_run_info(snapshot, reason, finished=reason is not None and reason.ends(answered)),
        decisions=subject.decisions,
        weights=tuple(snapshot.weights.tolist()),
        models=models,
        pairs=found.pairs,
        reversals=reversals,
        adjusted_p=_reordered(result, order),
        looks=tuple(map(_look, snapshot.looks)),
        questions=CountedRows(subject.questions, arrived, waiting, snapshot.weights),
        warnings=(
            *rule_caution(subject.decisions),
            *judge_caution(subject.decisions),
            *prior_caution(subject.models, snapshot.prior_depths.tolist(), found.models, greedy=snapshot.greedy),
            *reversal_cautions(reversals),
            *metric_cautions(metrics),
            *snapshot.noticed,
            *unknown_cautions(subject.models, usages, result.models, Scale.of(snapshot.weights.tolist())),
            *repeat_cautions(subject.models, usages, subject.drawn),
            *cautions(subject.models, usages),
        ),
        cost=_cost(snapshot),
        trials_to_go=found.trials_to_go,
        servers=snapshot.servers,
        turns=snapshot.turns,
        batches=snapshot.batches,
        gate=_gate(snapshot, found.models, found.pairs, reversals),
        metrics=metrics,
        early_end=early_end,
    )


def _corrected(snapshot: Snapshot, rows: tuple[ModelRow, ...]) -> tuple[EarlyEnd | None, tuple[ModelRow, ...]]:
    """The rows with scores that are corrected for the early end of the run, and how they were."""
    ended = snapshot.ended
    if ended is None:
        return None, rows
    if ended.why_not is not None:
        return EarlyEnd(0, ended.why_not), rows
    again = ended.played_again()
    shift = dict(zip(snapshot.subject.models, again.shift.tolist(), strict=True))
    low, high = snapshot.weights.min(), snapshot.weights.max()

    def corrected(row: ModelRow) -> ModelRow:
        if row.score is None:
            return row
        return replace(row, corrected=_known(float(np.clip(row.score - shift[row.name], low, high))))

    return EarlyEnd(again.replays, spread=_known(again.spread)), tuple(map(corrected, rows))


def _gate(
    snapshot: Snapshot,
    models: Sequence[ModelRow],
    pairs: Sequence[PairRow],
    reversals: Sequence[tuple[str, str | None]],
) -> tuple[GateRow, ...]:
    """What the gate says, where there is one; an empty answer may have been worth all.

    What timed out or has no grade is in the bounds of the scores already.
    """
    asked = gate_of(snapshot.subject.decisions, snapshot.weights.tolist())
    if asked is None:
        return ()
    each = most_by_one(snapshot.arrived, snapshot.weights, drawn=draws_questions(snapshot.subject.decisions))
    lacking = [usage.signals["empty"] for usage in snapshot.usages]
    may_move = dict(zip(snapshot.subject.models, (each * lacking).tolist(), strict=True))
    return tuple(gate_rows(asked, models, pairs, reversals, may_move))


def most_by_one(arrived: NDArray[np.integer], weights: FloatArray, *, drawn: bool) -> FloatArray:
    """How far the score of each model with counts (L, M, K) may be off for one answer; where questions are drawn it is
    one of so many trials in all."""
    trials = arrived.sum(axis=-1)
    parts = trials.sum(axis=-1) if drawn else trials.shape[1] * trials.min(axis=-1)
    return np.asarray(np.ptp(weights) / np.maximum(parts, 1 if drawn else trials.shape[1]))


def build_unjudged(known: Beginning) -> Unjudged:
    """What is known of each question before the first look, and how the run has ended if it came to none."""
    reason = known.reason
    return Unjudged(
        format=UNJUDGED_FORMAT,
        run=_run_info(known, reason, finished=reason is not None and reason.ends(int(known.arrived.sum()))),
        weights=tuple(known.weights.tolist()),
        models=known.subject.models,
        questions=CountedRows(known.subject.questions, known.arrived, known.arrived.sum(axis=-1), known.weights),
        why=known.why,
    )


def _run_info(known: Snapshot | Beginning, reason: Reason | None, *, finished: bool) -> RunInfo:
    return RunInfo(
        name=known.subject.name,
        version=__version__,
        created=iso_time(known.subject.created),
        updated=iso_time(known.now),
        active_seconds=known.elapsed,
        status="finished" if finished else "stopped" if known.stopped or reason is not None else "running",
        reason=None if reason is None else str(reason),
    )


def _model(snapshot: Snapshot, row: ModelResult, usage: TrialUsage, alone: OwnScore) -> ModelRow:
    held = snapshot.held[row.model]
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
        trials=int(snapshot.judged[row.model].sum()) if row.model in snapshot.recorded else row.trials,
        set_aside=snapshot.set_aside.get(row.model),
        stored_trials=usage.trials,
        ungraded=usage.ungraded,
        repeats=usage.repeats,
        signals=dict(usage.signals),
        tokens=usage.tokens,
        usd=usage.usd,
        gpu_seconds=usage.gpu_seconds,
        sampling=snapshot.subject.sampling[row.model] if snapshot.subject.sampling else {},
        prior_depth=float(snapshot.prior_depths[row.model]),
        lowest=_known(row.lowest),
        highest=_known(row.highest),
        letters=row.letters,
        server_seconds=None if held is None else held.seconds,
        server_gpu_seconds=None if held is None else held.gpu_seconds,
        score_without_prior=alone.score,
        rank_without_prior=alone.rank,
        recorded=snapshot.recorded.get(row.model),
        grading=grading_cost([usage.grading]),
    )


def _pair(subject: RunSubject, one: ComparisonResult) -> PairRow:
    verdict, called = one.verdict, one.called
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
        trials_needed=_known(verdict.trials_needed) if called is None and verdict.trials_needed < MOST_NEEDED else None,
        sampled_z=_known(one.sampled_z),
        certifiable_delta=_known(one.certifiable_delta),
        called=None if called is None else CallRow(called.look, _known(called.z), _known(called.boundary)),
        by_trial=one.by_trial,
        variance_by_trial=one.variance_by_trial,
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


def _cost(snapshot: Snapshot) -> RunCost:
    result, usages, held = snapshot.result, snapshot.usages, snapshot.held
    servers = HeldServers(held, snapshot.subject.launched)
    requests = [usage.gpu_seconds for usage in usages]
    known = any(held) and all(one is not None or not usage.trials for one, usage in zip(held, usages, strict=True))
    return RunCost(
        trials=sum(usage.trials for usage in usages),
        fixed_trials=result.fixed_trials,
        tokens=sum(usage.tokens for usage in usages),
        usd=sum(usage.usd for usage in usages),
        gpu_seconds=sum(usage.gpu_seconds for usage in usages),
        **_fixed_cost(result.fixed_trials, [one for at, one in enumerate(usages) if at not in snapshot.recorded]),
        server_seconds=sum(one.seconds for one in held if one is not None) if known else None,
        server_gpu_seconds=sum(one.gpu_seconds for one in held if one is not None) if known else None,
        counted_gpu_seconds=counted_gpu_seconds(servers, requests, snapshot.beside),
        beside=snapshot.beside,
        grading=grading_cost(usage.grading for usage in usages),
        beside_fixed=None,  # a report works it out where it is asked for it
    )


def grading_cost(uses: Iterable[GradingUse]) -> GradingCost | None:
    """What grades have used that somebody was asked for; None where there were none."""
    used = reduce(GradingUse.plus, uses, NO_GRADING)
    in_vain = WastedCost(used.verdicts_in_vain, *used.in_vain) if used.in_vain.tokens else None
    return GradingCost(used.answers, *used.cost, in_vain) if used.answers or in_vain else None


def _fixed_cost(fixed: int, usages: Sequence[TrialUsage]) -> dict[str, float]:
    """What so many trials of all would have cost, as many of each, at what those of each cost on average."""
    if not all(usage.trials for usage in usages):
        return {}
    trials = fixed / len(usages)
    kinds = ("tokens", "usd", "gpu_seconds")
    return {f"fixed_{kind}": trials * sum(getattr(usage, kind) / usage.trials for usage in usages) for kind in kinds}


def _name(subject: RunSubject, model: int | None) -> str | None:
    return None if model is None else subject.models[model]


def iso_time(seconds: float) -> str:
    """Seconds since 1970 as a date and time, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
