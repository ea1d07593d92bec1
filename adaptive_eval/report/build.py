"""Build `Results` from a snapshot. The snapshot is taken in the loop; the rest can run in any thread, since it takes a
while with thousands of questions."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np

from adaptive_eval.core.answer_kinds import AnswerKind
from adaptive_eval.core.cheapest import Part
from adaptive_eval.core.result import ComparisonResult, ModelResult, question_means
from adaptive_eval.core.types import VERDICTS_OF_LOOKS, Reason, Verdict
from adaptive_eval.machine.usage import NO_GRADING, GradingUse, TrialUsage
from adaptive_eval.questions.load import benchmark_named
from adaptive_eval.report.alarms import alarm_rows
from adaptive_eval.report.ending import Ending
from adaptive_eval.report.finding import main_findings
from adaptive_eval.report.gate import (
    NOT_ANSWERS,
    UNDECIDED,
    GatePart,
    Outcomes,
    gate_outcome,
    gate_rows,
    gate_terms,
    judged_model,
    plain_gate,
)
from adaptive_eval.report.lines import Scale
from adaptive_eval.report.other_costs import HeldServers, counted_gpu_seconds
from adaptive_eval.report.question_rows import CountedRows
from adaptive_eval.report.report_rows import BENCHMARK, metric_cautions, metric_rows
from adaptive_eval.report.results import (
    FORMAT,
    SET_ASIDE,
    UNJUDGED_FORMAT,
    CallRow,
    FrontierRow,
    GateRow,
    GradedPair,
    GradingCost,
    LookRow,
    ModelRow,
    PairRow,
    Results,
    RunCost,
    Unjudged,
    WastedCost,
    setting,
)
from adaptive_eval.report.snapshot import RunSubject, Snapshot, run_info, server_rows
from adaptive_eval.report.warnings import (
    elsewhere_cautions,
    incomplete_prior_cautions,
    is_alarmed,
    judge_caution,
    label_cautions,
    prior_caution,
    reversal_cautions,
    rule_caution,
    signal_cautions,
    unknown_cautions,
)
from adaptive_eval.report.words import draws_questions
from scorio.rank import rank_scores

MAX_TRIALS_NEEDED = 1e12
"""Trials per question. A comparison that seems to need more is between equal scores, up to a rounding error."""


def scores_without_prior(snapshot: Snapshot) -> dict[int, tuple[float, int]]:
    """Score and rank of each model without R0, if it has an answer to each question; empty if no score has any."""
    if not snapshot.prior_depths.any():
        return {}
    scores = snapshot.bench.mean(question_means(snapshot.judged, snapshot.bench.weights))
    for row in snapshot.result.models:  # labels correct the score, which has no R0 then
        if snapshot.labelled is not None and snapshot.subject.models[row.model] in snapshot.labelled.corrected:
            scores[row.model] = row.score
    scored = np.flatnonzero(np.isfinite(scores)).tolist()
    ranks = np.asarray(rank_scores(scores[scored])).astype(int).tolist() if scored else []
    return {model: (float(scores[model]), rank) for model, rank in zip(scored, ranks, strict=True)}


def look_results(snapshot: Snapshot) -> Results:
    """Build the results without the parts that take a while, and without warnings."""
    subject, result, usages = snapshot.subject, snapshot.result, snapshot.usages
    alone = scores_without_prior(snapshot)
    models = tuple(
        _model_row(snapshot, row, usages[row.model], *alone.get(row.model, (None, None))) for row in result.models
    )
    pairs = tuple(_pair_rows(snapshot))
    if is_alarmed(subject.decisions, snapshot.noticed):
        pairs = tuple(
            replace(pair, verdict=str(Verdict.BLOCKED), called=None, trials_needed=None, deciding_max=None)
            for pair in pairs
        )
    reversals = tuple(
        (subject.models[reversal.first], _model_name(subject, reversal.second)) for reversal in result.reversals
    )
    gate, of_benchmarks = _build_gate(snapshot, pairs, reversals)
    results = Results(
        format=FORMAT,
        run=snapshot.run,
        decisions=subject.decisions,
        weights=tuple(snapshot.bench.weights.tolist()),
        models=models,
        pairs=pairs,
        reversals=reversals,
        looks=(),
        questions=(),
        warnings=(),
        cost=_run_cost(snapshot),
        trials_to_go=result.trials_to_go,
        gate=gate,
        frontier=tuple(_frontier_rows(snapshot)),
        alarms=alarm_rows(snapshot.alarms, subject.models),
        groups=tuple(
            replace(row, gate=of_benchmarks.get((row.group, row.model)) if row.by == BENCHMARK else None)
            for row in snapshot.groups
        ),
        labelled=snapshot.labelled,
    )
    results = replace(results, pairs=tuple(_needing_more(results, pair) for pair in pairs))
    if snapshot.by_grades is None or snapshot.labelled is None:
        return results
    if _labels_decide(results, result.reason, is_lacking=bool(snapshot.set_aside)):
        results = replace(results, run=replace(results.run, reason=str(Reason.SETTLED)))
    graded = look_results(replace(snapshot, result=snapshot.by_grades, labelled=None, by_grades=None))
    return replace(results, labelled=replace(snapshot.labelled, by_grades=" ".join(main_findings(graded))))


def build_results(snapshot: Snapshot) -> Results:
    """Build the results, which takes a while with thousands of questions."""
    subject, result, usages, weights = snapshot.subject, snapshot.result, snapshot.usages, snapshot.bench.weights
    results, order = look_results(snapshot), [row.model for row in result.models]
    names, unsure = [subject.models[model] for model in order], AnswerKind(snapshot.plan.unsure.kinds)
    metrics = tuple(metric_rows(subject.metrics, names, snapshot.judged[order], weights))
    recorded = {model: int(snapshot.arrived[model].sum()) for model in snapshot.recorded}
    return replace(
        results,
        looks=tuple(
            LookRow(
                look.index + 1, sum(look.trials), **{str(verdict): look.count(verdict) for verdict in VERDICTS_OF_LOOKS}
            )
            for look in snapshot.looks
        ),
        questions=CountedRows(subject.questions, snapshot.arrived, snapshot.judged, weights, order),
        warnings=(
            *rule_caution(subject.decisions),
            *judge_caution(subject.decisions, results.models, results.corrected),
            *label_cautions(results.models, results.labelled),
            *prior_caution(subject.models, snapshot.prior_depths.tolist(), results.models, snapshot.events),
            *elsewhere_cautions(subject.models, snapshot.prior_depths.tolist(), snapshot.events),
            *incomplete_prior_cautions(subject.models, snapshot.bench),
            *reversal_cautions(results.reversals, subject.decisions),
            *metric_cautions(metrics),
            *snapshot.noticed,
            *unknown_cautions(subject.models, usages, result.models, Scale.of(weights.tolist()), unsure, recorded),
            *filter(None, snapshot.repeats),
            *signal_cautions(subject.models, usages, unsure),
        ),
        servers=server_rows(snapshot.events),
        metrics=metrics,
    )


def _labels_decide(results: Results, reason: Reason | None, *, is_lacking: bool) -> bool:
    """Whether labels decide every comparison of a run that ended for this reason; `is_lacking`: models were set
    aside."""
    if not results.corrected or reason in (None, Reason.ALARM) or (reason is Reason.BLOCKED and is_lacking):
        return False
    decided = {Verdict.RESOLVED, Verdict.TIED}.issuperset(pair.verdict for pair in results.pairs)
    return bool(results.pairs) and decided and gate_outcome(results.gate) != UNDECIDED


def _frontier_rows(snapshot: Snapshot) -> Iterator[FrontierRow]:
    names, alarmed = snapshot.subject.models, is_alarmed(snapshot.subject.decisions, snapshot.noticed)
    for row in snapshot.result.costs:
        part = str(Part.CANDIDATE if alarmed and row.part is Part.CHOSEN else row.part)
        if row.part is Part.DEARER and row.model in snapshot.set_aside:
            part = SET_ASIDE  # its cost may be unknown
        behind = None if row.behind is None else names[row.behind]
        yield FrontierRow(
            model=names[row.model],
            usd=finite_or_none(row.usd),
            usd_sigma=finite_or_none(row.usd_sigma),
            part=part,
            behind=behind,
        )


def _build_gate(
    snapshot: Snapshot, pairs: Sequence[PairRow], reversals: Sequence[tuple[str, str | None]]
) -> tuple[tuple[GateRow, ...], Outcomes]:
    """Outcomes of the run's gate and of those that benchmarks have; empty without a gate."""
    asked = gate_terms(snapshot.subject.decisions, snapshot.bench.weights.tolist())
    if asked is None:
        return (), {}
    if is_alarmed(snapshot.subject.decisions, snapshot.noticed):
        rows = (GateRow(judged_model(pair, asked.baseline), asked.baseline, UNDECIDED, NOT_ANSWERS) for pair in pairs)
        return tuple(rows), {}
    asked = asked._replace(goes_on=snapshot.run.status == "running", void=snapshot.void)
    names, parts = snapshot.subject.models, [GatePart(None, asked.delta), *_gated_benchmarks(snapshot)]
    gates = snapshot.result.gates if snapshot.bench.gates else list(plain_gate(asked, pairs, reversals, names))
    return gate_rows(asked, parts, names, pairs, gates)


def _gated_benchmarks(snapshot: Snapshot) -> Iterator[GatePart]:
    bench = snapshot.bench
    for label, delta in bench.gates:
        first = int(np.argmax(np.asarray(bench.benchmark_of) == label))
        yield GatePart(benchmark_named(snapshot.subject.questions[first]), delta)


def build_unjudged(subject: RunSubject, ending: Ending, *, elapsed: float, now: float) -> Unjudged:
    """Build the results file of a run that has ended without a look."""
    reason, trials = ending.reason, ending.trials
    finished = reason is not None and reason.ends(trials)
    run = run_info(subject, elapsed, now, reason, finished=finished, stopped=True)
    return Unjudged(UNJUDGED_FORMAT, run, subject.models, trials, None if reason is None else ending.why)


def _model_row(
    snapshot: Snapshot, row: ModelResult, usage: TrialUsage, own_score: float | None, own_rank: int | None
) -> ModelRow:
    at, held, name = row.model, snapshot.held[row.model], snapshot.subject.models[row.model]
    labelled = () if snapshot.labelled is None else snapshot.labelled.models
    with_labels = next((labelled_model for labelled_model in labelled if labelled_model.name == name), None)
    means = usage.answer_means
    estimates = _finite_numbers(row, "score sigma lo hi bayes bayes_sigma sampled_sigma lowest highest")
    return ModelRow(
        **estimates,
        name=name,
        rank=row.rank,
        tier=None if estimates["score"] is None or name in snapshot.void else row.tier,
        trials=int(snapshot.judged[at].sum()) if at in snapshot.recorded else row.trials,
        set_aside=snapshot.set_aside.get(at),
        stored_trials=usage.trials,
        ungraded=usage.ungraded,
        repeats=usage.watch.repeated,
        signals=dict(usage.signals),
        tokens=usage.tokens,
        usd=usage.usd,
        gpu_seconds=usage.gpu_seconds,
        sampling=snapshot.subject.sampling[at] if snapshot.subject.sampling else {},
        prior_depth=float(snapshot.prior_depths[at]),
        letters=row.letters,
        server_seconds=None if held is None else held.seconds,
        server_gpu_seconds=None if held is None else held.gpu_seconds,
        score_without_prior=own_score,
        rank_without_prior=own_rank,
        recorded=snapshot.recorded.get(at),
        unsure=row.unsure,
        grading=grading_cost([usage.grading]),
        labels=0 if with_labels is None else with_labels.labels,
        usd_per_answer=means.usd_with_gpus(snapshot.plan.objective.gpu_hour),
        tokens_per_answer=means.tokens,
        seconds_per_answer=means.seconds,
    )


def _pair_rows(snapshot: Snapshot) -> Iterator[PairRow]:
    subject, corrected = snapshot.subject, () if snapshot.labelled is None else snapshot.labelled.corrected
    comparisons = () if snapshot.by_grades is None else snapshot.by_grades.comparisons
    graded = {frozenset((row.first, row.second)): row for row in (_pair_row(subject, pair) for pair in comparisons)}
    for comparison in snapshot.result.comparisons:
        row = _pair_row(subject, comparison)
        by_grades = graded.get(frozenset((row.first, row.second)))
        if by_grades is not None and (row.first in corrected or row.second in corrected):
            row = replace(row, by_grades=GradedPair(by_grades.first, by_grades.verdict, by_grades.difference))
        if by_grades is not None and row.trials_needed is not None:  # which trials are asked follows from the grades
            row = replace(row, trials_needed=max(row.trials_needed, by_grades.trials_needed or 0.0))
            if row.deciding_max is not None:
                row = replace(row, deciding_max=max(row.deciding_max, by_grades.deciding_max or 0.0))
        yield row


def _pair_row(subject: RunSubject, comparison: ComparisonResult) -> PairRow:
    verdict, called, needed = comparison.verdict, comparison.called, finite_or_none(comparison.verdict.trials_needed)
    numbers = _finite_numbers(comparison, "difference sigma sampled_z certifiable_delta deciding_max")
    more = verdict.verdict is not Verdict.UNDECIDED_BY_LABELS  # else labels are needed, not trials
    return PairRow(
        **numbers | _finite_numbers(verdict, "z rho boundary information power"),
        first=subject.models[verdict.first],
        second=_model_name(subject, verdict.second),
        verdict=str(verdict.verdict),
        trials_needed=needed if called is None and more and verdict.trials_needed < MAX_TRIALS_NEEDED else None,
        called=None
        if called is None
        else CallRow(called.look, finite_or_none(called.z), finite_or_none(called.boundary)),
        by_trial=comparison.by_trial,
        variance_by_trial=comparison.variance_by_trial,
    )


def _needing_more(results: Results, pair: PairRow) -> PairRow:
    """A pair that needs more trials per question than it has, if it is open."""
    has = [row.trials for row in results.models if row.name in (pair.first, pair.second) and row.recorded is None]
    if pair.trials_needed is None or pair.verdict != Verdict.OPEN or not has:
        return pair
    per_question = results.max_trials_per_model / (results.setting("trials", "max") or 1)
    has_at_least = min(has) / per_question
    more = has_at_least + 1.0 / per_question if draws_questions(results.decisions) else math.floor(has_at_least) + 1.0
    return replace(pair, trials_needed=max(pair.trials_needed, more))


def _finite_numbers(of: object, names: str) -> dict[str, Any]:
    return {name: finite_or_none(getattr(of, name)) for name in names.split()}


def finite_or_none(value: float) -> float | None:
    """Return the number, or None for nan and infinity, which JSON does not have."""
    return value if math.isfinite(value) else None


def _run_cost(snapshot: Snapshot) -> RunCost:
    result, usages, held = snapshot.result, snapshot.usages, snapshot.held
    cap = setting(snapshot.subject.decisions, "budget", "trials")
    of_removed = sum(row.trials for row in snapshot.beside)
    servers = HeldServers(held, snapshot.subject.launched)
    requests = [usage.gpu_seconds for usage in usages]
    has_server_times = any(held) and all(
        held_time is not None or not usage.trials for held_time, usage in zip(held, usages, strict=True)
    )
    other_times = [
        sum(getattr(row, of) or 0.0 for row in snapshot.beside) for of in ("server_seconds", "server_gpu_seconds")
    ]
    return RunCost(
        trials=sum(usage.trials for usage in usages),
        allowed_trials=result.fixed_trials if cap is None else min(result.fixed_trials, int(cap) - of_removed),
        max_trials=result.fixed_trials,
        tokens=sum(usage.tokens for usage in usages),
        usd=sum(usage.usd for usage in usages),
        gpu_seconds=sum(usage.gpu_seconds for usage in usages),
        server_seconds=other_times[0] + sum(held_time.seconds for held_time in held if held_time is not None)
        if has_server_times
        else None,
        server_gpu_seconds=other_times[1] + sum(held_time.gpu_seconds for held_time in held if held_time is not None)
        if has_server_times
        else None,
        counted_gpu_seconds=counted_gpu_seconds(servers, requests, snapshot.beside),
        beside=snapshot.beside,
        grading=grading_cost(usage.grading for usage in usages),
    )


def grading_cost(uses: Iterable[GradingUse]) -> GradingCost | None:
    """Total cost of grades by a judge or a verifier; None if there were none."""
    used = reduce(GradingUse.plus, uses, NO_GRADING)
    in_vain = WastedCost(used.wasted_verdicts, *used.wasted) if used.wasted.tokens else None
    return GradingCost(used.answers, *used.cost, in_vain) if used.answers or in_vain else None


def _model_name(subject: RunSubject, model: int | None) -> str | None:
    return None if model is None else subject.models[model]
