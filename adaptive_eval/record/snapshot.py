"""What results are built from: what a run is about, and what is known of it at one moment."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.config.run import RunConfig, launched_models
from adaptive_eval.core.controller import Controller
from adaptive_eval.core.early_stop import EndedRun
from adaptive_eval.core.result import Result
from adaptive_eval.core.rules import Rule
from adaptive_eval.core.settings import Bench
from adaptive_eval.core.types import Look, Reason
from adaptive_eval.endpoints.wire import sent_sampling
from adaptive_eval.questions import Question
from adaptive_eval.record.pending import batch_rows
from adaptive_eval.record.results import BatchRow, Caution, OtherCostRow, ServerRow, TurnsRow
from adaptive_eval.record.sites import OF_ONE_MODEL
from adaptive_eval.record.warnings import (
    alarm_cautions,
    decision_cautions,
    horizon_cautions,
    import_cautions,
    loss_cautions,
    notice_cautions,
    opponent_caution,
    recorded_caution,
    uncounted_caution,
    unwanted_cautions,
)
from adaptive_eval.store import (
    Event,
    HeldTime,
    OutcomesRecorded,
    PriorTaken,
    ServerDied,
    ServerLaunched,
    SitePlaced,
    events_of_kind,
)
from adaptive_eval.store.repeats import SamplingFreedom
from adaptive_eval.store.usage import TrialUsage
from scorio.moments import CountArray, FloatArray


@dataclass(frozen=True, slots=True)
class RunSubject:
    """What a run is about, in the order of the core's numbers."""

    name: str
    models: tuple[str, ...]
    questions: tuple[str, ...]
    drawn: tuple[SamplingFreedom | None, ...]
    """How freely the answers of each model are drawn; None where they may all be alike, or are not seen."""
    created: float
    """Seconds since 1970."""
    decisions: Mapping[str, object] = field(default_factory=dict)
    """The sections of the configuration that say what is decided, and how."""
    sampling: tuple[Mapping[str, object], ...] = ()
    """What the requests to each model carry, where there were any."""
    launched: frozenset[int] = frozenset()
    """Models whose servers the run starts."""
    metrics: tuple[str, ...] = ()
    """That reports are asked for."""


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """What results are built from, as it was at one moment: copies, which the run no longer changes."""

    subject: RunSubject
    result: Result
    rule: Rule
    weights: FloatArray
    looks: tuple[Look, ...]
    arrived: NDArray[np.integer]
    """(L, M, K): every outcome, those of the round in flight too."""
    judged: NDArray[np.integer]
    """(L, M, K): those of complete rounds."""
    prior_depths: FloatArray
    """(L,): outcomes of R0 a question."""
    greedy: bool
    """R0 is of greedy answers, not of an earlier run."""
    recorded: Mapping[int, str]
    """Of each model that is never asked, the run that its outcomes come from."""
    set_aside: Mapping[int, str]
    usages: tuple[TrialUsage, ...]
    elapsed: float
    now: float
    """Seconds since 1970."""
    stopped: bool
    noticed: tuple[Caution, ...]
    """About answers that cannot be right, changed settings, imported trials and the servers."""
    servers: tuple[ServerRow, ...]
    turns: tuple[TurnsRow, ...]
    held: tuple[HeldTime | None, ...]
    """How long each model has held its servers, where that is known."""
    batches: tuple[BatchRow, ...]
    beside: tuple[OtherCostRow, ...] = ()
    """What caps count besides the stored answers of today's models."""
    ended: EndedRun | None = None
    """Where scores are to be corrected for what its looks have ended."""


@dataclass(frozen=True, slots=True, eq=False)
class Beginning:
    """What is known before the first look, as it was at one moment."""

    subject: RunSubject
    weights: FloatArray
    arrived: NDArray[np.integer]
    """(L, M, K): every outcome."""
    elapsed: float
    now: float
    """Seconds since 1970."""
    stopped: bool
    reason: Reason | None = None
    """Why the run has come to its end without a look."""
    why: str | None = None
    """The same in a sentence, and what can be done about it."""

    @property
    def ended(self) -> bool:
        """Whether nothing more happens until the run is started again."""
        return self.stopped or self.reason is not None


def take_snapshot(
    subject: RunSubject,
    controller: Controller,
    usages: Sequence[TrialUsage],
    *,
    elapsed: float,
    now: float,
    stopped: bool,
    events: Sequence[Event] = (),
    held: Sequence[HeldTime | None] = (),
    beside: Sequence[OtherCostRow] = (),
    correct: bool = False,
) -> Snapshot | None:
    """What is known after the latest look, None before the first; `events` are all that were recorded.

    `held` says how long each model has held its servers, where anybody knows; `beside`, what else caps count; with
    `correct` scores of a run that has ended are corrected for its early end, which may take seconds.
    """
    result = controller.result()
    if result is None:
        return None
    bench = controller.plan.bench
    names = {event.model: event.run for event in events_of_kind(events, OutcomesRecorded)}
    prior, recorded = prior_and_recorded_counts(bench)
    return Snapshot(
        subject=subject,
        result=result,
        rule=controller.plan.deciding_rule,
        weights=bench.weights,
        looks=tuple(controller.looks),
        arrived=controller.arrived + recorded,
        judged=controller.counts + recorded,
        prior_depths=prior.sum(axis=(1, 2)) / bench.questions,
        greedy=any(event.greedy for event in events_of_kind(events, PriorTaken)[-1:]),
        recorded={model: names.get(subject.models[model], "") for model in sorted(bench.recorded)},
        set_aside={model: lost.reason for model, lost in controller.set_aside.items()},
        usages=tuple(usage.copy() for usage in usages),
        elapsed=elapsed,
        now=now,
        stopped=stopped,
        noticed=(
            *alarm_cautions(subject.models, usages, events),
            *horizon_cautions(controller.plan.deciding_rule, controller.extensions, events),
            *decision_cautions(events),
            *uncounted_caution(int(controller.counts_with_kept.sum()), int(controller.arrived.sum()), events),
            *import_cautions(events),
            *recorded_caution(subject.models, events),
            *opponent_caution(events),
            *notice_cautions(events),
            *loss_cautions(events),
            *unwanted_cautions(events),
        ),
        servers=server_rows(events),
        turns=turns_rows(events),
        held=tuple(held) or (None,) * len(subject.models),
        batches=batch_rows(events),
        beside=tuple(beside),
        ended=EndedRun.of(controller) if correct else None,
    )


def prior_and_recorded_counts(bench: Bench) -> tuple[CountArray, NDArray[np.integer]]:
    """What was known beforehand (L, M, K): R0, which counts beside a model's own trials, and what stands for them."""
    if bench.prior_counts is None:
        nothing = np.broadcast_to(np.int32(0), (bench.models, bench.questions, bench.categories))  # a single number
        return nothing, nothing
    asked = bench.asked[:, None, None]
    return np.where(asked, bench.prior_counts, 0), np.where(asked, 0, bench.prior_counts).astype(np.int64)


def server_rows(events: Sequence[Event]) -> tuple[ServerRow, ...]:
    """The servers that came up."""
    rows: dict[str, ServerRow] = {}
    for one in events_of_kind(events, ServerLaunched):
        starts = rows[one.model].starts + 1 if one.model in rows else 1
        rows[one.model] = ServerRow(one.model, one.command, one.version, starts)
    return tuple(rows.values())


def turns_rows(events: Sequence[Event]) -> tuple[TurnsRow, ...]:
    """The places that models have shared; one that served a single model was not shared."""
    swaps: dict[str, list[ServerLaunched]] = {}
    dead: set[str | None] = set()
    # each model has sites of its own with these names
    own = {one.on for one in events_of_kind(events, SitePlaced) if one.on.startswith(OF_ONE_MODEL)}
    for one in events:
        if isinstance(one, ServerDied):
            dead.add(one.on)
        elif isinstance(one, ServerLaunched) and one.on is not None and one.on not in own:
            if one.on not in dead:  # else it comes back, and nobody else was there
                swaps.setdefault(one.on, []).append(one)
            dead.discard(one.on)
    rows = (
        TurnsRow(on, len({one.model for one in here}), len(here), sum(one.seconds for one in here))
        for on, here in swaps.items()
    )
    return tuple(row for row in rows if row.models > 1)


def subject_of(config: RunConfig, questions: Sequence[Question], created: float) -> RunSubject:
    """The subject of a run that was begun at `created`, in seconds since 1970."""
    return RunSubject(
        name=config.name,
        models=tuple(model.name for model in config.models),
        questions=tuple(question.id for question in questions),
        drawn=tuple(SamplingFreedom.of(model.sampling) for model in config.models),
        created=created,
        decisions=config.stated(),
        sampling=tuple(sent_sampling(model, model.sampling) for model in config.models),
        launched=launched_models(config.models),
        metrics=config.report.metrics,
    )
