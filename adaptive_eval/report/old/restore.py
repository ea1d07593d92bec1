"""A stored run, with results recomputed from its trials: for runs that go on, were killed, or were imported.

If the rule or the policy is a plug-in, nothing is recomputed, since that would run code that the run names. Then the
results and looks are those that the run itself has stored.
"""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.base.errors import ConfigError, StoreError
from adaptive_eval.config.prepare import StoredSetup, stored_setup
from adaptive_eval.config.run import RunConfig
from adaptive_eval.core import Controller, Plan
from adaptive_eval.core.types import Verdict
from adaptive_eval.graders.by_benchmark import graders_that_ask
from adaptive_eval.graders.rubric import Rubric, open_rubric
from adaptive_eval.report.build import build_results
from adaptive_eval.report.ending import find_fatal_error, was_killed
from adaptive_eval.report.gate import ENDED_FIRST, OPEN, UNDECIDED
from adaptive_eval.report.label_effect import RunLabels, read_run_labels
from adaptive_eval.report.label_file import labels_digest
from adaptive_eval.report.old.history import stored_prior_counts
from adaptive_eval.report.old.other_costs import spent_before, spent_on_removed_models
from adaptive_eval.report.old.stages import stored_plan
from adaptive_eval.report.other_costs import counted_gpu_seconds, other_costs
from adaptive_eval.report.results import Caution, OtherCostRow, Results
from adaptive_eval.report.results_file import read_results
from adaptive_eval.report.run_counts import RunCounts
from adaptive_eval.report.snapshot import iso_time, run_subject, take_snapshot
from adaptive_eval.scheduler.state import RunState, apply_stored
from adaptive_eval.store import (
    Event,
    RunFinished,
    RunReader,
    RunStopped,
    TrialsRegraded,
    events_of_kind,
    events_since_start,
)
from adaptive_eval.store.looks import trials_at
from adaptive_eval.store.spending import HeldServers
from adaptive_eval.store.thresholds import kept_rubric


class StoredRun:
    """A stored run at one moment, read once; everything derived from it is computed on first use.

    Nothing that the run names is executed, no question is loaded, and no prompt is rendered.
    """

    def __init__(
        self, reader: RunReader, setup: StoredSetup | None = None, events: Sequence[Event] | None = None
    ) -> None:
        self.reader = reader
        self._setup = setup
        self._events = events

    @cached_property
    def setup(self) -> StoredSetup:
        """The newest configuration of the run, and its questions."""
        return stored_setup(self.reader.header()) if self._setup is None else self._setup

    @cached_property
    def events(self) -> Sequence[Event]:
        """All events of the run."""
        return self.reader.events() if self._events is None else self._events

    @cached_property
    def rubric(self) -> Rubric:
        """The rubric of the run with its frozen thresholds."""
        return kept_rubric(self.setup.config.rubric, self.events)

    @cached_property
    def plan(self) -> Plan:
        """The plan behind the looks; raises `StoreError` if it names a plug-in."""
        config = self.setup.config
        if config.plug_ins:
            raise StoreError(f"{self.reader.directory}: {_why_not_recomputed(config)}")
        return stored_plan(self.setup, self.reader, self.events)

    @cached_property
    def state(self) -> RunState:
        """State of the run after all stored records; raises `StoreError` if the run names a plug-in."""
        setup, reader = self.setup, self.reader
        controller = Controller(self.plan, outside_plan=spent_before(self.removed_models))
        state = RunState(controller, setup.roster)
        apply_stored(state, reader, self.events, judged=bool(graders_that_ask(setup.config.grader)))
        for end in events_of_kind(events_since_start(self.events), RunFinished):
            names = set(end.waited_for or ()).intersection(setup.roster.models)
            controller.count_overrun(map(setup.roster.models.position, names))
        requests = [usage.gpu_seconds for usage in state.spent.usages]
        controller.tick(reader.elapsed, counted_gpu_seconds(self.servers, requests, self.other_costs))
        return state

    @cached_property
    def removed_models(self) -> tuple[OtherCostRow, ...]:
        """Spending on models that the configuration no longer names."""
        return spent_on_removed_models(self.reader, self.setup.roster.models, self.events)

    @property
    def other_costs(self) -> tuple[OtherCostRow, ...]:
        """Spending that caps count besides the stored answers of the current models."""
        return other_costs(self.removed_models, self.setup.roster.models, self.servers.counted, self.events)

    @cached_property
    def servers(self) -> HeldServers:
        """Time for which each model has held its servers."""
        return stored_server_times(self.setup, self.reader)

    @cached_property
    def labels(self) -> RunLabels | None:
        """Labels of its answers."""
        return read_run_labels(cast(Any, self.reader), self.setup.config, self.setup.roster)

    def results(self, *, running: bool) -> Results | None:
        """Results as published at the end, or else recomputed; None before the first look."""
        return self.published() or self.recompute_results(running=running)

    def recompute_results(self, *, running: bool) -> Results | None:
        """Recompute the results as of the newest complete round; None before the first look."""
        setup, reader = self.setup, self.reader
        if setup.config.plug_ins:
            return _latest_published(self, running=running, rows=True)
        snapshot = take_snapshot(
            run_subject(setup.config, setup.questions, reader.created),
            self.state.controller,
            cast(Any, self.state.spent.usages),
            elapsed=reader.elapsed,
            now=time.time(),
            stopped=not running,
            events=self.events,
            held=self.servers.times,
            beside=self.other_costs,
            correct=not running,
            labels=self.labels,
        )
        if snapshot is None:
            return None
        results = build_results(snapshot)
        if running or results.run.status != "stopped" or not was_killed(self.events):
            return results
        return replace(results, run=replace(results.run, status="killed"))

    def latest(self, *, rows: bool) -> Results | None:
        """The results that a run in progress has published; None if they are not of the current models."""
        results = read_results(self.reader.directory, rows=rows)
        if results is None or {model.name for model in results.models} != set(self.setup.roster.models):
            return None
        return replace(results, run=replace(results.run, status="running", reason=None))

    def counts(self) -> "RunCounts":
        """Counts of the newest look.

        Graded trials of an incomplete round are left out, as in the run: short answers arrive first, and are more often
        right.
        """
        if self.setup.config.plug_ins:
            committed = _latest_look_counts(self)
            known = stored_prior_counts(self.setup, self.reader, self.events)
        else:
            controller = self.state.controller
            committed, known = controller.counts.astype(np.int64), controller.plan.bench.prior_counts
        recorded = list(self.setup.config.recorded)
        known = np.zeros_like(committed) if known is None else known
        before = known.copy()
        before[recorded] = 0
        names = frozenset(self.setup.config.models[at].name for at in recorded)
        return RunCounts(self.setup.roster, committed + known, before, names)

    def brief_results(self, *, running: bool, rows: bool) -> Results | None:
        """The results, with or without `rows` of questions.

        For a large unfinished run they are those of its newest look, since recomputing them from all trials takes
        minutes.
        """
        published = self.published(rows=rows)
        if published is None and self.is_large:
            return _latest_published(self, running=running, rows=rows)
        return published or self.recompute_results(running=running)

    @cached_property
    def is_large(self) -> bool:
        """Whether the run has so many trials that replaying them takes long."""
        return self.reader.is_large

    def published(self, *, rows: bool = True) -> Results | None:
        """Results as published when the run ended; None if something has happened since, or there are other labels."""
        last = self.events[-1] if self.events else None
        if not isinstance(last, RunFinished | RunStopped) or find_fatal_error(self.events) is not None:
            return None
        results = read_results(self.reader.directory, rows=rows)
        if results is None or results.run.status == "running":
            return None
        if results.cost.stored_trials != self.reader.trial_count():
            return None
        return results if _has_labels_of(results, self.reader.directory) else None


def _latest_published(stored: StoredRun, *, running: bool, rows: bool) -> Results | None:
    """Latest results that the run itself wrote; None before the first look, or if models or grades changed since."""
    config, results = stored.setup.config, read_results(stored.reader.directory, rows=rows)
    if results is None or {model.name for model in results.models} != set(stored.setup.roster.models):
        return None
    if _was_regraded_since(results.run.updated, stored.events):
        return None
    killed = "killed" if was_killed(stored.events) else "stopped"
    status = "running" if running else killed if results.run.status == "running" else results.run.status
    run = replace(results.run, status=status, reason=None if running else results.run.reason)
    if not _has_labels_of(results, stored.reader.directory):
        results = _undecided_by_new_labels(results)
    gate = tuple(
        row if running or row.outcome != OPEN else replace(row, outcome=UNDECIDED, why=ENDED_FIRST)
        for row in results.gate
    )
    return replace(results, run=run, gate=gate, warnings=(*results.warnings, *_plug_in_caution(config, results)))


def _has_labels_of(results: Results, directory: Path) -> bool:
    """Whether results are by the labels that a run has now."""
    used = None if results.labelled is None else results.labelled.digest
    try:
        return used == labels_digest(directory)
    except ConfigError:  # a damaged file: results say what is wrong with it
        return results.labelled is not None and results.labelled.problem is not None


def _undecided_by_new_labels(results: Results) -> Results:
    """The results where labels were given after they were written, and cannot be applied here: nothing is decided."""
    undecided = str(Verdict.UNDECIDED_BY_LABELS)
    pairs = tuple(
        replace(pair, verdict=undecided, called=None) if pair.verdict in (Verdict.RESOLVED, Verdict.TIED) else pair
        for pair in results.pairs
    )
    gate = tuple(replace(row, outcome=UNDECIDED, why=NEW_LABELS) for row in results.gate)
    models = tuple(replace(row, tier=1, letters="") for row in results.models)
    caution = Caution("new_labels", None, f"{NEW_LABELS}; `adaptive-eval run` with its configuration applies them")
    return replace(results, models=models, pairs=pairs, gate=gate, warnings=(caution, *results.warnings))


NEW_LABELS = "labels were given after these results were written, and may change them"


def _was_regraded_since(updated: str, events: Sequence[Event]) -> bool:
    """Whether grades changed after that time, or within the same second as the last event."""
    regraded = events_of_kind(events, TrialsRegraded)
    return any(iso_time(one.at) > updated or (iso_time(one.at) == updated and one is events[-1]) for one in regraded)


def _why_not_recomputed(config: RunConfig) -> str:
    """Why results cannot be recomputed: plug-ins of the run are not loaded."""
    named = ", ".join(f"{key}: {name}" for key, name in config.plug_ins.items())
    return (
        f"the run was decided by plug-ins ({named}), which are not loaded to read it; `adaptive-eval run` with a "
        "configuration of yours that names them loads them"
    )


def _plug_in_caution(config: RunConfig, results: Results) -> Iterator[Caution]:
    if config.plug_ins:
        wrote = f"these are the results that the run itself wrote at {results.run.updated}"
        yield Caution("plug_in", None, f"{_why_not_recomputed(config)}; {wrote}")


def stored_server_times(setup: StoredSetup, reader: RunReader) -> HeldServers:
    """Time for which each model of a stored run has held its servers."""
    held = reader.held_times()
    return HeldServers([held.get(name) for name in setup.roster.models], setup.config.launched)


def _latest_look_counts(stored: StoredRun) -> NDArray[np.int64]:
    """Counts (L, M, K) of each model's first rounds, as many as the newest look has."""
    reader, roster = stored.reader, stored.setup.roster
    shape = len(roster.models), len(roster.questions), len(open_rubric(stored.setup.config.rubric).weights)
    counts, rounds = np.zeros(shape, dtype=np.int64), Counter[tuple[str, int]]()
    for one in reader.round_counts():
        rounds[one.model, one.round] += one.trials
    judged, last, trials = trials_at(reader.latest_look()), dict[str, int](), Counter[str]()
    for (model, number), size in sorted(rounds.items()):  # rounds are completed in order
        trials[model] += size
        if trials[model] <= judged.get(model, 0):
            last[model] = number
    for one in reader.round_counts():
        if one.model in roster.models and one.round <= last.get(one.model, -1):
            counts[*roster.cell(one.model, one.question), one.category] += one.trials
    return counts
