"""A stored run: the newest report, with what was stored since.

Nothing is computed anew, and nothing that the run names is executed: a report is made by the run itself, at each look
and when it begins or ends. Readers add sums over what was stored later.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.base.errors import ConfigError, StoreError
from adaptive_eval.base.roster import Roster
from adaptive_eval.config.prepare import StoredSetup, stored_setup
from adaptive_eval.core.cheapest import Part
from adaptive_eval.core.types import Verdict
from adaptive_eval.graders.by_benchmark import graders_that_ask
from adaptive_eval.graders.rubric import Rubric
from adaptive_eval.machine.charges import ChargeKind
from adaptive_eval.machine.trial import JUDGING, RESERVED, UNGRADED
from adaptive_eval.notes import Event, count_kills
from adaptive_eval.report.build import grading_cost
from adaptive_eval.report.ending import status_at_end, was_killed_since
from adaptive_eval.report.gate import ENDED_FIRST, OPEN, UNDECIDED
from adaptive_eval.report.label_file import labels_digest
from adaptive_eval.report.other_costs import HeldServers, counted_gpu_seconds, extra_costs
from adaptive_eval.report.question_rows import CellCounts, CountedRows
from adaptive_eval.report.reader import RunReader
from adaptive_eval.report.results import Caution, ModelRow, OtherCostRow, Results
from adaptive_eval.report.results_file import from_json
from adaptive_eval.report.status import Used
from adaptive_eval.report.thresholds import kept_rubric
from adaptive_eval.report.trial_sums import StoredSums
from adaptive_eval.report.warnings import LOSS_KINDS, loss_cautions
from adaptive_eval.store.read import StoredReport
from scorio.moments import CountArray


@dataclass(frozen=True, slots=True, eq=False)
class RunCounts:
    """Counts (L, M, K) with the names of models and questions."""

    roster: Roster
    cells: CountArray
    """R0 and all complete rounds."""
    before: CountArray
    """Counts of R0 alone."""
    recorded: frozenset[str] = frozenset()
    """Models whose counts are those of an earlier run."""

    @property
    def own(self) -> NDArray[np.int64]:
        """Counts without R0."""
        return np.asarray(self.cells - self.before)

    def of(self, models: Sequence[str], questions: Sequence[str]) -> "RunCounts":
        """Select models and questions, in this order."""
        rows = list(map(self.roster.models.position, models))
        chosen = np.ix_(rows, list(map(self.roster.questions.position, questions)))
        recorded = self.recorded.intersection(models)
        return RunCounts(Roster.of(models, questions), self.cells[chosen], self.before[chosen], recorded)


class StoredRun:
    """A stored run at one moment, read once."""

    def __init__(
        self, reader: RunReader, setup: StoredSetup | None = None, events: Sequence[Event] | None = None
    ) -> None:
        self.reader = reader
        self._setup, self._events = setup, events

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
    def servers(self) -> HeldServers:
        """Time for which each model has held its servers."""
        held = self.reader.held_times()
        return HeldServers([held.get(name) for name in self.setup.roster.models], self.setup.config.launched)

    @property
    def other_costs(self) -> tuple[OtherCostRow, ...]:
        """Spending that caps count besides the stored answers of the current models."""
        return extra_costs(self.reader, self.setup.roster.models, self.servers, self.events)

    def results(self, *, running: bool, rows: bool = True, sums: bool = True) -> Results | None:
        """The newest report as of now; None before the first look.

        Without `rows` those of questions are left out, and without `sums` trials and costs are those of the report.
        """
        stored = self.reader.log.newest_report(cells=rows)
        if stored is None:
            return None
        results = from_json(stored.body)
        if results is None:
            raise StoreError(
                f"{self.reader.directory}: its report was written by another version of adaptive-eval; "
                "`adaptive-eval run` with its configuration makes a new one"
            )
        if {row.name for row in results.models} != set(self.setup.roster.models):
            return None  # it goes on with other models, and the report of its start is not made yet
        if rows:
            results = replace(results, questions=self._question_rows(results, stored))
        if sums and stored.seq < self.reader.log.database.last_seq():
            results = self._with_newer_sums(results)
        return self._with_current_status(
            results, self.reader.log.elapsed if sums else results.run.active_seconds, running=running
        )

    def used(self, sums: StoredSums, results: Results | None) -> Used:
        """What the run has used by these sums; the newest `results` have the cost of grades."""
        models, beside = self.setup.roster.models, self.other_costs
        spent = sums.spent(models)
        is_needed = results is None and graders_that_ask(self.setup.config.grader)
        uses = self.reader.grading_uses() if is_needed else {}
        before = grading_cost(use for name, use in uses.items() if name in models)
        held = [time for time in self.servers.times if time is not None]
        requests = [sums.spent([name]).gpu_seconds for name in models]
        return Used(
            spent,
            spent.trials - int(sums.counts.sum()),
            beside,
            before if results is None else results.cost.grading,
            sum((time.seconds for time in held), 0.0),
            sum((time.gpu_seconds for time in held), 0.0),
            counted_gpu_seconds(self.servers, requests, beside),
        )

    def counts(self) -> RunCounts:
        """Counts of the newest report. Graded trials of an incomplete round are left out, as in its scores: short
        answers arrive first, and are more often right."""
        stored, roster = self.reader.log.newest_report(cells=True), self.setup.roster
        if stored is None:
            nothing = np.zeros((len(roster.models), len(roster.questions), len(self.rubric.weights)), np.int64)
            return RunCounts(roster, nothing, nothing)
        cells, names = CellCounts.from_parts(stored.cells), self.reader.model_names
        reported = Roster.of([names[number] for number in cells.models], self.reader.log.questions())
        prior = np.zeros_like(cells.judged) if cells.prior is None else cells.prior
        config = self.setup.config
        recorded = frozenset(config.models[at].name for at in config.recorded)
        counts = RunCounts(reported, (cells.judged + prior).astype(np.int64), prior.astype(np.int64), recorded)
        present = [name for name in roster.models if name in reported.models]
        return counts.of(present, roster.questions)

    def _question_rows(self, results: Results, stored: StoredReport) -> CountedRows:
        cells, weights = CellCounts.from_parts(stored.cells), np.array(results.weights)
        names = [self.reader.model_names[number] for number in cells.models]
        order = [names.index(row.name) for row in results.models]
        return CountedRows([*self.reader.log.questions()], cells.arrived, cells.judged, weights, order)

    def _with_newer_sums(self, results: Results) -> Results:
        """The report with the trials, costs and losses of now."""
        account, uses = self.reader.log.account(), self.reader.grading_uses()
        numbers = {name: number for number, name in self.reader.model_names.items()}

        def updated(row: ModelRow) -> ModelRow:
            lines = [line for line in account if line.model == numbers.get(row.name)]
            answers = [line for line in lines if line.state not in (None, RESERVED)]
            costs = [line.cost for line in answers]
            costs += [line.verdicts for line in answers if line.state is not JUDGING]  # else they are reserved
            costs += [line.verdicts for line in lines if line.kind == ChargeKind.WASTED]
            return replace(
                row,
                stored_trials=sum(line.number for line in answers),
                ungraded=sum(line.number for line in answers if line.state is UNGRADED),
                tokens=sum(cost.tokens for cost in costs),
                usd=sum(cost.usd for cost in costs),
                gpu_seconds=sum(cost.gpu_seconds for cost in costs),
                grading=grading_cost([uses[row.name]] if row.name in uses else []),
            )

        rows = {row.name: updated(row) for row in results.models}
        beside = self.other_costs
        requests = [rows[name].gpu_seconds if name in rows else 0.0 for name in self.setup.roster.models]
        cost = replace(
            results.cost,
            trials=sum(row.stored_trials for row in rows.values()),
            tokens=sum(row.tokens for row in rows.values()),
            usd=sum(row.usd for row in rows.values()),
            gpu_seconds=sum(row.gpu_seconds for row in rows.values()),
            counted_gpu_seconds=counted_gpu_seconds(self.servers, requests, beside),
            beside=beside,
            grading=grading_cost(use for name, use in uses.items() if name in rows),
        )
        others = (caution for caution in results.warnings if caution.kind not in LOSS_KINDS)
        warnings = (*others, *loss_cautions(self.events))
        return replace(results, models=tuple(rows.values()), cost=cost, warnings=warnings)

    def _with_current_status(self, results: Results, elapsed: float, *, running: bool) -> Results:
        """The report with the current status: a run that was killed could not store it."""
        status, reason = results.run.status, results.run.reason
        if running:
            status, reason = "running", None
        elif status == "running" or was_killed_since(self.events):
            status, reason = status_at_end(self.events, results.cost.trials)
        kills = count_kills(self.events) + (status == "killed")
        run = replace(results.run, status=status, reason=reason, active_seconds=elapsed, kills=kills)
        gate = tuple(
            row if running or row.outcome != OPEN else replace(row, outcome=UNDECIDED, why=ENDED_FIRST)
            for row in results.gate
        )
        results = replace(results, run=run, gate=gate)
        return results if has_current_labels(results, self.reader.directory) else undecided_by_new_labels(results)


@contextmanager
def open_run(directory: Path, *, check_large: bool = True) -> Iterator[StoredRun]:
    """Open the run in `directory` at one moment; raises `StoreError` if there is none or it is damaged.

    Without `check_large`, large runs are not checked beforehand.
    """
    with RunReader.intact(directory, check_large=check_large) as reader:
        yield StoredRun(reader)


def read_counts(directory: Path) -> RunCounts:
    """Read the counts of a run's newest report."""
    with open_run(directory) as stored:
        return stored.counts()


def has_current_labels(results: Results, directory: Path) -> bool:
    """Whether results use the labels that a run has now."""
    used = None if results.labelled is None else results.labelled.digest
    try:
        return used == labels_digest(directory)
    except ConfigError:  # a damaged file: results say what is wrong with it
        return results.labelled is not None and results.labelled.problem is not None


def undecided_by_new_labels(results: Results) -> Results:
    """The results where labels were given after they were written: nothing is decided."""
    undecided = str(Verdict.UNDECIDED_BY_LABELS)
    pairs = tuple(
        replace(pair, verdict=undecided, called=None) if pair.verdict in (Verdict.RESOLVED, Verdict.TIED) else pair
        for pair in results.pairs
    )
    gate = tuple(replace(row, outcome=UNDECIDED, why=NEW_LABELS) for row in results.gate)
    models = tuple(replace(row, tier=1, letters="") for row in results.models)
    frontier = tuple(replace(row, part=UNDECIDED_PARTS.get(row.part, row.part)) for row in results.frontier)
    caution = Caution("new_labels", None, f"{NEW_LABELS}; `adaptive-eval label RUN --show` applies them")
    warnings = (caution, *results.warnings)
    return replace(results, models=models, pairs=pairs, gate=gate, frontier=frontier, warnings=warnings)


UNDECIDED_PARTS = {str(Part.CHOSEN): str(Part.CANDIDATE), str(Part.RULED_OUT): str(Part.UNDECIDED)}
"""Replacements for parts in the choice if nothing is decided."""
NEW_LABELS = "the labels have changed since these results were written, and may change them"
