"""State of a run at one moment, from which results are built."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from itertools import compress

import numpy as np
from numpy.typing import NDArray

from adaptive_eval import __version__
from adaptive_eval.config.first_round import unbounded_models
from adaptive_eval.config.run import RunConfig
from adaptive_eval.core.answer_alarms import AnswerAlarm
from adaptive_eval.core.answer_kinds import INCOMPLETE, AnswerKind
from adaptive_eval.core.controller import Controller
from adaptive_eval.core.plan import Plan
from adaptive_eval.core.result import Result
from adaptive_eval.core.settings import Bench
from adaptive_eval.core.stages import Extension
from adaptive_eval.core.types import Look, Reason
from adaptive_eval.endpoints.wire import sent_sampling
from adaptive_eval.machine.clocks import HeldTime
from adaptive_eval.machine.repeats import Sampled
from adaptive_eval.machine.usage import MIN_ANSWERS, AnswerFault, TrialUsage
from adaptive_eval.notes import (
    Event,
    OutcomesRecorded,
    ServerLaunched,
    count_kills,
    events_of_kind,
)
from adaptive_eval.notes.batches import PendingBatch
from adaptive_eval.questions import Question
from adaptive_eval.report.label_effect import RunLabels, correct_scores
from adaptive_eval.report.labelled import LabelledRun
from adaptive_eval.report.report_rows import group_rows, question_groups
from adaptive_eval.report.results import (
    BatchRow,
    Caution,
    GroupRow,
    OtherCostRow,
    RunInfo,
    ServerRow,
    setting,
)
from adaptive_eval.report.warnings import (
    alarm_cautions,
    decision_cautions,
    horizon_cautions,
    import_cautions,
    is_alarmed,
    joined_caution,
    loss_cautions,
    notice_cautions,
    price_cautions,
    recorded_caution,
    repeat_caution,
    uncounted_caution,
    unpaid_caution,
)
from scorio.moments import CountArray, FloatArray


@dataclass(frozen=True, slots=True)
class RunSubject:
    """Models, questions and settings of a run, in the order of the core's indices."""

    name: str
    models: tuple[str, ...]
    questions: tuple[str, ...]
    sampled: tuple[Sampled | None, ...]
    """How each model's answers are sampled; None if equal ones are normal, or texts are not seen."""
    created: float
    """Seconds since 1970."""
    decisions: Mapping[str, object] = field(default_factory=dict)
    """Sections of the configuration that say what is decided and how."""
    sampling: tuple[Mapping[str, object], ...] = ()
    """Sampling settings in the requests to each model; empty for recorded models."""
    launched: frozenset[int] = frozenset()
    """Models whose servers the run starts."""
    metrics: tuple[str, ...] = ()
    """Metrics for the report."""
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Label of each question, for each way to group them."""

    def find_repeats(self, usages: Sequence[TrialUsage]) -> list[Caution | None]:
        """The warning of each model whose answers repeat, or may do so."""
        return [repeat_caution(*row) for row in zip(self.models, usages, self.sampled, strict=True)]


@dataclass(frozen=True, eq=False)
class JudgedState:
    """State of the controller at a look that a report uses: copies, which the run no longer changes."""

    plan: Plan
    result: Result
    by_grades: Result | None
    """The result by the grades alone, if labels correct scores of `result`."""
    labelled: LabelledRun | None
    """The effect of labels; None without labels."""
    looks: tuple[Look, ...]
    arrived: NDArray[np.integer]
    """All outcomes (L, M, K), also those of the round in flight."""
    judged: NDArray[np.integer]
    """Outcomes (L, M, K) of complete rounds."""
    waiting: int
    """Outcomes that no round has asked for yet."""
    set_aside: Mapping[int, str]
    alarms: tuple[AnswerAlarm, ...]
    extensions: tuple[Extension, ...]
    groups: tuple[GroupRow, ...]
    repeats: tuple[Caution | None, ...]
    """The warning of each model whose answers repeat, or may do so."""
    void: frozenset[str]
    """Models of which no comparison is decided, since their answers repeat."""


@dataclass(frozen=True, eq=False)
class Snapshot(JudgedState):
    """State of a run at one moment, from which results are built."""

    subject: RunSubject
    run: RunInfo
    usages: tuple[TrialUsage, ...]
    noticed: tuple[Caution, ...]
    """Cautions about implausible answers, changed settings, imported trials and servers."""
    events: tuple[Event, ...]
    held: tuple[HeldTime | None, ...]
    """Time for which each model has held its servers; None if unknown."""
    beside: tuple[OtherCostRow, ...]
    """Spending that caps count besides the stored answers of the current models."""

    @property
    def bench(self) -> Bench:
        """Models and questions of the run."""
        return self.plan.bench

    @cached_property
    def prior_depths(self) -> FloatArray:
        """Outcomes of R0 per question in each model's score: none in one that labels correct."""
        prior, _ = prior_and_recorded_counts(self.bench)
        depths = np.asarray(prior.sum(axis=(1, 2)) / self.bench.questions)
        corrected = () if self.labelled is None else self.labelled.corrected
        return np.where([name in corrected for name in self.subject.models], 0.0, depths)

    @cached_property
    def recorded(self) -> Mapping[int, str]:
        """The run that the outcomes of each recorded model come from."""
        names = {event.model: event.run for event in events_of_kind(self.events, OutcomesRecorded)}
        return {model: names.get(self.subject.models[model], "") for model in sorted(self.bench.recorded)}


def take_state(
    subject: RunSubject,
    controller: Controller,
    repeats: Sequence[Caution | None],
    labels: RunLabels | None = None,
) -> JudgedState | None:
    """Copy the state after the latest look; None before the first. `labels` correct scores and verdicts."""
    graded = result = controller.result()
    if result is None:
        return None
    labelled, correction, on_parts = (
        (None, None, {}) if labels is None else correct_scores(labels, subject.models, controller)
    )
    if correction is not None:
        result = controller.result(correction)
        assert result is not None
    _, recorded = prior_and_recorded_counts(controller.plan.bench)
    order = [row.model for row in result.models]
    return JudgedState(
        plan=controller.plan,
        result=result,
        by_grades=None if correction is None else graded,
        labelled=labelled,
        looks=tuple(controller.looks),
        arrived=controller.arrived + recorded,
        judged=controller.counts + recorded,
        waiting=controller.waiting,
        set_aside={model: lost.reason for model, lost in controller.set_aside.items()},
        alarms=tuple(controller.alarms),
        extensions=tuple(controller.extensions),
        groups=tuple(group_rows(controller.plan, controller.counts, subject.models, subject.groups, order, on_parts)),
        repeats=tuple(repeats),
        void=frozenset(compress(subject.models, controller.void)),
    )


def complete(
    subject: RunSubject,
    state: JudgedState,
    usages: Sequence[TrialUsage],
    *,
    elapsed: float,
    now: float,
    stopped: bool,
    events: Sequence[Event] = (),
    held: Sequence[HeldTime | None] = (),
    beside: Sequence[OtherCostRow] = (),
) -> Snapshot:
    """All from which a report is built, from what was decided and what was spent."""
    plan, bench, reason = state.plan, state.plan.bench, state.result.reason
    explained = {alarm.model for alarm in state.alarms if not _is_about_grader(alarm, usages[alarm.model])}
    stop_on = setting(subject.decisions, "stopping", "on_alarm")
    alarms = tuple(
        alarm_cautions(
            subject.models,
            usages,
            events,
            explained,
            stop_on=stop_on,
            set_aside=[at for at in state.set_aside if subject.models[at] not in state.void],
            recorded=bench.recorded,
        )
    )
    if reason not in (None, Reason.ALARM) and is_alarmed(subject.decisions, alarms):
        reason, stopped = None, True
    finished = reason is not None and reason.ends(sum(row.trials for row in state.result.models))
    stored = sum(usage.trials for usage, asked in zip(usages, bench.asked, strict=True) if asked)
    return Snapshot(
        **vars(state),
        subject=subject,
        run=run_info(subject, elapsed, now, reason, finished=finished, stopped=stopped, events=events),
        usages=tuple(usages),
        noticed=(
            *alarms,
            *horizon_cautions(plan.deciding_rule, state.extensions, events),
            *decision_cautions(events),
            *price_cautions(events),
            *joined_caution(plan),
            *(uncounted_caution(stored, state.waiting) if reason is None and not stopped else ()),
            *import_cautions(events),
            *recorded_caution(subject.models, events),
            *notice_cautions(events),
            *unpaid_caution(events),
            *loss_cautions(events),
            *(Caution("unbounded", None, text) for text in unbounded_models(plan, subject.models)),
        ),
        events=tuple(events),
        held=tuple(held) or (None,) * len(subject.models),
        beside=tuple(beside),
    )


def _is_about_grader(alarm: AnswerAlarm, usage: TrialUsage) -> bool:
    """Whether incomplete answers do not explain that the grader finds nothing, since complete ones hold nothing for it
    either."""
    late = AnswerKind.TIMED_OUT  # which `answers` leaves out
    incomplete = sum(number for kinds, number in usage.kinds.items() if kinds & INCOMPLETE and not kinds & late)
    is_unread = usage.answers.fault is AnswerFault.UNREAD and usage.answers.number - incomplete >= MIN_ANSWERS
    return is_unread and bool(alarm.kind & INCOMPLETE)


def run_info(
    subject: RunSubject,
    elapsed: float,
    now: float,
    reason: Reason | None,
    *,
    finished: bool,
    stopped: bool,
    events: Sequence[Event] = (),
) -> RunInfo:
    """Build the head of the results file."""
    return RunInfo(
        name=subject.name,
        version=__version__,
        created=_iso_time(subject.created),
        updated=_iso_time(now),
        active_seconds=elapsed,
        status="finished" if finished else "stopped" if stopped or reason is not None else "running",
        reason=None if reason is None else str(reason),
        kills=count_kills(events),
    )


def _iso_time(seconds: float) -> str:
    """Format seconds since 1970 as a date and time in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def prior_and_recorded_counts(bench: Bench) -> tuple[CountArray, NDArray[np.integer]]:
    """Counts (L, M, K) of R0, which is added to a model's own trials, and of the outcomes of recorded models."""
    if bench.prior_counts is None:
        nothing = np.broadcast_to(np.int32(0), (bench.models, bench.questions, bench.categories))  # a single number
        return nothing, nothing
    asked = bench.asked[:, None, None]
    return np.where(asked, bench.prior_counts, 0), np.where(asked, 0, bench.prior_counts).astype(np.int64)


def server_rows(events: Sequence[Event]) -> tuple[ServerRow, ...]:
    """Servers that were launched and became ready."""
    rows: dict[str, ServerRow] = {}
    for event in events_of_kind(events, ServerLaunched):
        starts = rows[event.model].starts + 1 if event.model in rows else 1
        rows[event.model] = ServerRow(event.model, event.command, event.version, starts)
    return tuple(rows.values())


def batch_rows(pending: Iterable[PendingBatch]) -> tuple[BatchRow, ...]:
    """Pending batches, the oldest first."""
    rows = (BatchRow(batch.model, batch.batch, len(batch.requests), batch.since or batch.planned) for batch in pending)
    return tuple(sorted(rows, key=lambda row: (row.since, row.model)))


def run_subject(config: RunConfig, questions: Sequence[Question], created: float) -> RunSubject:
    """Subject of a run that began at `created`, in seconds since 1970."""
    return RunSubject(
        name=config.name,
        models=tuple(model.name for model in config.models),
        questions=tuple(question.id for question in questions),
        sampled=tuple(model.sampled for model in config.models),
        created=created,
        decisions=config.stated(),
        sampling=tuple(
            sent_sampling(model, model.sampling) if model.gets_sampling else model.inspect_options
            for model in config.models
        ),
        launched=frozenset(config.launched),
        metrics=config.report.metrics,
        groups=question_groups(config, questions),
    )
