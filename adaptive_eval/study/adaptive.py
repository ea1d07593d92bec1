"""What the paper leaves open: its gold standards reached adaptively, by each rule and each policy.

Every setup is a configuration of runs, replayed against known truth: a world, or recorded outcomes, which are drawn
without replacement and whose shares are the truth. All setups see the same draws. A run that stops by itself is held
against the fixed design that calls as many pairs of neighbours at its one look (`one_look`): that is what it saves.
"""

import os
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from multiprocessing import get_context
from typing import NamedTuple

import numpy as np

from adaptive_eval.core.controller import Controller
from adaptive_eval.core.tape import Tape
from adaptive_eval.core.types import Verdict
from adaptive_eval.errors import ConfigError
from adaptive_eval.study.drive import drive_rounds
from adaptive_eval.study.experiment import (
    Cell,
    Criterion,
    Curve,
    DataTable,
    Experiment,
    OnStudyProgress,
    Panel,
    StudyFigure,
    ignore_progress,
    part_of_progress,
)
from adaptive_eval.study.judged import EQUAL, judge_replay
from adaptive_eval.study.one_look import OneLook, one_look_at, smallest_fixed
from adaptive_eval.study.recorded import MOST_TRIALS
from adaptive_eval.study.replay import OutcomeSource, PreparedReplay, ReplayRequest, prepare_replay
from scorio.moments import FloatArray

GOLD = ("coins",)
"""The paper's, two models of which are equal."""
SETUPS: dict[str, tuple[str, ...]] = {
    "default": (),
    "rule optimal": ("stopping.rule=optimal",),
    "rule anytime": ("stopping.rule=anytime",),
    "rule intervals": ("stopping.rule=intervals",),
    "rule zscore": ("stopping.rule=zscore",),
    "preset published": ("preset=published",),
    "policy unresolved_pairs": ("allocation.policy=unresolved_pairs",),
    "policy uniform": ("allocation.policy=uniform",),
    "familywise holm": ("stopping.familywise=holm",),
}
"""What each changes of the default, as in a configuration."""
ONE_LOOK_A_ROUND = ("trials.favour=answers",)
LEAST_TRIALS = 5
"""One more than are given before the first look."""
FIXED_DRAWS = 8
"""Of the fixed design, for each of the setups."""
FEW = 8
"""Draws that are worth a process of their own."""
PROMISED = 0.10
"""Of exact ties, the share that may be called, by rules that hold at any look."""
PEEKING = frozenset({"rule zscore", "preset published"})
"""Whose 95% is that of a single look: what they call between ties is only told."""
COLUMNS = (
    "data", "setup", "cost", "calls", "fixed N, as many", "saved", "any wrong", "ties called", "tau-b", "tau-b, fixed",
    "covered", "looks",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class AdaptiveRequest:
    """Which data, and how often each setup is replayed."""

    data: Sequence[str] = GOLD
    replicates: int = 100
    trials: int | None = None
    top: int | None = None
    seed: int = 0


class ReplayedSetup(NamedTuple):
    """The mean over the replicates of one setup on one set of data."""

    data: str
    setup: str
    cost: float
    """Trials as a share of the fixed design with the most trials."""
    called: float
    any_wrong: float
    """The share of runs with a call for a model that is truly worse or equal."""
    ties: float
    """Calls between equals, a run."""
    tau_b: float
    covered: float
    looks: float


class StudiedData(NamedTuple):
    """One set of data: the fixed design at each N, and every setup."""

    source: OutcomeSource
    most: int
    fixed: OneLook
    """Means over the replicates."""
    setups: list[ReplayedSetup]


def study_adaptive(request: AdaptiveRequest, on_progress: OnStudyProgress = ignore_progress) -> Experiment:
    """Run the study of adaptive sampling."""
    if not request.data:
        raise ConfigError("there is nothing to study; name worlds, .npz files or runs")
    parts = len(request.data)
    studied = [
        _studied(what, request, part_of_progress(on_progress, number / parts, (number + 1) / parts))
        for number, what in enumerate(request.data)
    ]
    rows = tuple(row for one in studied for row in _rows(one))
    return Experiment(
        name="adaptive",
        title="The gold standards reached adaptively, by rule and policy",
        settings={
            "data": ", ".join(one.source.name for one in studied),
            "replicates": request.replicates,
            "trials": ", ".join(str(one.most) for one in studied),
            "seed": request.seed,
        },
        tables=(DataTable("adaptive", "by setup", COLUMNS, rows), _curves(studied)),
        figures=tuple(_figure(one) for one in studied),
        criteria=tuple(criterion for one in studied for criterion in _criteria(one, request.replicates)),
        notes=(
            "Cost is the share of the fixed design's trials, which gives every question all of them. Fixed N, as many: "
            "the N at which that design, looked at once, calls as many pairs of neighbours; saved: the trials that the "
            "adaptive runs needed fewer than it. Any wrong: runs that called a pair the wrong way round, or called "
            "equals. Tau-b, fixed: that of the fixed design with as many trials as the adaptive runs.",
        ),
    )


def _studied(what: str, request: AdaptiveRequest, on_progress: OnStudyProgress) -> StudiedData:
    prepared = _prepared(what, request.trials, request.top)
    source, most = prepared["default"].source, prepared["default"].plan.trials.max
    jobs = [_Job(what, request.trials, request.top, request.seed, draw) for draw in range(request.replicates)]
    fixed, found = [], []
    for done, (one, setups) in enumerate(_performed(jobs), start=1):
        fixed.append(one)
        found.append(setups)
        on_progress(done / request.replicates, f"{source.name}: {done} of {request.replicates}")
    means = np.mean(np.array(found), axis=0).tolist()
    return StudiedData(
        source=source,
        most=most,
        fixed=OneLook(*np.mean(np.array(fixed), axis=0)),
        setups=[ReplayedSetup(source.name, name, *mean) for name, mean in zip(SETUPS, means, strict=True)],
    )


class _Job(NamedTuple):
    """One draw of the outcomes, on which everything is replayed."""

    what: str
    trials: int | None
    top: int | None
    seed: int
    draw: int


_Performed = tuple[OneLook, list[tuple[float, ...]]]


def _performed(jobs: Sequence[_Job]) -> Iterator[_Performed]:
    """In their order; many are shared among the cores."""
    processes = min(os.cpu_count() or 1, len(jobs) // FEW)
    if processes < 2:
        yield from map(_perform, jobs)
        return
    # spawned, not forked: the caller may have threads
    pool = ProcessPoolExecutor(processes, get_context("spawn"), initializer=_ignore_interrupts)
    try:
        yield from pool.map(_perform, jobs, chunksize=2)
    finally:
        pool.shutdown(cancel_futures=True)


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that shows the progress


def _perform(job: _Job) -> _Performed:
    prepared = _prepared(job.what, job.trials, job.top)
    source, most = prepared["default"].source, prepared["default"].plan.trials.max

    # its curve has to be surer than the setups are: it is read where it comes to what they call
    drawn = [source.tape(np.random.default_rng([job.seed, job.draw, more])) for more in range(FIXED_DRAWS)]
    fixed = [one_look_at(one, source.truth, len(source.questions), most) for one in drawn]
    return OneLook(*np.mean(np.array(fixed), axis=0)), [
        _replayed(one, source.tape(np.random.default_rng([job.seed, job.draw]))) for one in prepared.values()
    ]


@lru_cache(maxsize=4)
def _prepared(what: str, trials: int | None, top: int | None) -> dict[str, PreparedReplay]:
    """Every setup on some data, with one look a round."""
    alone = ReplayRequest(what, overrides=ONE_LOOK_A_ROUND, top=top)
    most = _most(prepare_replay(alone).source, trials)
    capped = (*ONE_LOOK_A_ROUND, f"trials.max={most}")
    return {name: prepare_replay(replace(alone, overrides=(*changes, *capped))) for name, changes in SETUPS.items()}


def _most(source: OutcomeSource, wanted: int | None) -> int:
    """No more than were recorded."""
    held = None if source.recorded is None else int(source.recorded.min())
    most = wanted if wanted is not None else MOST_TRIALS if held is None else min(held, MOST_TRIALS)
    if held is not None and most > held:
        raise ConfigError(
            f"--trials must be at most {held}, as many as {source.name} has of every question, got {most}"
        )
    if most < LEAST_TRIALS:
        raise ConfigError(
            f"there must be at least {LEAST_TRIALS} trials of every question, so that a run can stop before the last, "
            f"got {most} of {source.name}"
        )
    return most


def _replayed(prepared: PreparedReplay, tape: Tape) -> tuple[float, ...]:
    truth = prepared.source.truth
    controller = drive_rounds(Controller(prepared.plan), tape)
    found, result = judge_replay(0, controller, truth), controller.result()
    assert result is not None
    calls = [one.verdict for one in result.comparisons if one.verdict.verdict is Verdict.RESOLVED]
    ties = sum(
        one.worse is not None and abs(truth[one.better] - truth[one.worse]) <= EQUAL
        for one in calls
        if not one.reversed
    )
    return found.cost, found.called, float(found.wrong > 0), ties, found.tau_b, found.covered, found.looks


# -- what is shown ---------------------------------------------------------------------------------------------------


def _pairs_tied(truth: FloatArray) -> int:
    """Neighbours in the true order that are equal."""
    return int((np.abs(np.diff(np.sort(truth))) <= EQUAL).sum())


def _as_many(one: StudiedData, row: ReplayedSetup) -> float | None:
    """The fixed N that calls as many; where all are equal there is nothing to call."""
    if _pairs_tied(one.source.truth) == len(one.source.truth) - 1:
        return None
    return smallest_fixed(one.fixed.called, row.called)


def _rows(one: StudiedData) -> Iterator[tuple[Cell, ...]]:
    fixed = one.fixed
    for row in one.setups:
        as_many = _as_many(one, row)
        saved = None if as_many is None else 1.0 - row.cost * one.most / as_many
        at_same_cost = float(np.interp(row.cost * one.most, np.arange(1, one.most + 1), fixed.tau_b))
        yield (
            row.data, row.setup, row.cost, row.called, as_many, saved, row.any_wrong, row.ties, _known(row.tau_b),
            _known(at_same_cost), row.covered, row.looks,
        )  # fmt: skip
    last = float(fixed.tau_b[-1])
    yield (
        one.source.name, f"fixed N = {one.most}, one look", 1.0, float(fixed.called[-1]), float(one.most), 0.0,
        float(fixed.any_wrong[-1]), float(fixed.ties[-1]), _known(last), _known(last), None, 1.0,
    )  # fmt: skip


def _known(value: float) -> float | None:
    return None if np.isnan(value) else value


def _curves(studied: Sequence[StudiedData]) -> DataTable:
    rows: list[tuple[Cell, ...]] = []
    for one in studied:
        for n, values in enumerate(zip(*one.fixed, strict=True), start=1):
            rows.append((one.source.name, n, *(_known(float(value)) for value in values)))
    columns = ("data", "trials", "calls", "wrong calls", "any wrong", "ties called", "tau_b")
    return DataTable("adaptive_fixed", "the fixed design, looked at once", columns, tuple(rows), shown=False)


def _figure(one: StudiedData) -> StudyFigure:
    """What a design that looks once comes to at each N, and where the adaptive setups end."""
    trials = tuple(map(float, range(1, one.most + 1)))
    panels = []
    for title, up, curve, name in (
        (f"{one.source.name}: pairs called", "pairs of neighbours", one.fixed.called, "called"),
        (f"{one.source.name}: agreement with the truth", "tau-b", one.fixed.tau_b, "tau_b"),
    ):
        if np.isnan(curve).all():
            continue
        line = Curve("fixed N, one look", trials, tuple(map(float, curve)))
        ends = (Curve(row.setup, (row.cost * one.most,), (float(getattr(row, name)),)) for row in one.setups)
        panels.append(Panel(title, "trials a question, on average", up, (line, *ends)))
    return StudyFigure(f"adaptive_{one.source.name}", tuple(panels))


def _criteria(one: StudiedData, replicates: int) -> Iterator[Criterion]:
    """What rules promise of equals, and what is saved."""
    tied = _pairs_tied(one.source.truth)
    for row in one.setups:
        where = f"{one.source.name}, {row.setup}"
        if tied:
            rate = row.ties / tied
            limit = PROMISED + 2.0 * float(np.sqrt(PROMISED * (1.0 - PROMISED) / (replicates * tied)))
            holds = None if row.setup in PEEKING else bool(rate <= limit)
            required = "promises one look alone" if holds is None else f"<= {PROMISED:g} + 2 s.e."
            yield Criterion(f"{where}: calls for each pair of equals", rate, required, holds)
        as_many = _as_many(one, row)
        if as_many is not None and row.setup == "default":
            saved = 1.0 - row.cost * one.most / as_many
            yield Criterion(f"{where}: trials saved at as many calls", saved, "> 0", bool(saved > 0.0))
