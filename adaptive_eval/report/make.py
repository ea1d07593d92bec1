"""Makes the reports of a run in progress: at each look, and at the beginning and the end of each start."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from adaptive_eval.base.roster import Names
from adaptive_eval.config.run import RunConfig
from adaptive_eval.machine.alarms import SEARCH_GROWTH
from adaptive_eval.machine.machine import Machine
from adaptive_eval.machine.usage import AnswerFault, TrialUsage
from adaptive_eval.questions import Question
from adaptive_eval.report.build import build_results
from adaptive_eval.report.label_effect import RunLabels
from adaptive_eval.report.other_costs import HeldServers, extra_costs
from adaptive_eval.report.question_rows import CellCounts
from adaptive_eval.report.reader import RunReader
from adaptive_eval.report.results import Caution, Results
from adaptive_eval.report.results_file import to_json, write_results
from adaptive_eval.report.snapshot import (
    JudgedState,
    complete,
    prior_and_recorded_counts,
    run_subject,
    take_state,
)
from adaptive_eval.report.trial_sums import sums_to_store
from adaptive_eval.report.warnings import REPEATS_UNCLEAR, repeat_caution
from adaptive_eval.store.read import LogReader, StoredReport
from adaptive_eval.store.write import RunStore


class Reporter:
    """Makes the reports of a run: drafts in the event loop, and reports from them in the writing thread."""

    def __init__(
        self,
        config: RunConfig,
        questions: Sequence[Question],
        created: float,
        labels: Callable[[], RunLabels | None] = lambda: None,
    ) -> None:
        """`created`: when the run was begun, in seconds since 1970; `labels`: those of its answers now."""
        self._config, self._labels = config, labels
        self._subject = run_subject(config, questions, created)
        self.latest: Results | None = None
        """The newest report that was stored."""
        self._repeats: dict[str, tuple[int, Caution | None]] = {}
        """The warning of each model whose answers repeat, with the number of answers at the last search."""

    def draft(self, machine: Machine, *, is_over: bool) -> "Draft | None":
        """Copy what the machine has decided; None before the first look. `is_over`: this start has ended."""
        controller = machine.controller
        usages = [usage_of(machine, number) for number in machine.setting.roster]
        state = take_state(
            self._subject,
            controller,
            self._find_repeats(machine, usages, is_over=is_over),
            self._labels(),
        )
        if state is None:
            return None
        return Draft(self, state, usages, controller.taker.taken - 1, machine.setting.roster, is_over)

    def _find_repeats(self, machine: Machine, usages: Sequence[TrialUsage], *, is_over: bool) -> list[Caution | None]:
        """Search again, at the end or once a model has `SEARCH_GROWTH` times as many answers as at the last search.
        Only what has raised an alarm is certain, and stays so whatever the later answers are."""
        cautions = list[Caution | None]()
        for name, number, usage, sampled in zip(
            self._subject.models, machine.setting.roster, usages, self._subject.sampled, strict=True
        ):
            searched, _ = self._repeats.get(name, (0, None))
            if is_over or not searched <= usage.trials < SEARCH_GROWTH * searched:
                self._repeats[name] = usage.trials, repeat_caution(name, usage, sampled)
            _, caution = self._repeats[name]
            alarm = machine.alarms.repeating.get(number)
            if alarm is None and caution is not None:  # answers that no look has judged may not count
                caution = replace(caution, kind=REPEATS_UNCLEAR)
            elif alarm is not None and (caution is None or caution.kind != AnswerFault.REPEATED):
                caution = Caution(AnswerFault.REPEATED, name, alarm)
            cautions.append(caution)
        return cautions

    def build(self, state: JudgedState, usages: Sequence[TrialUsage], reader: RunReader, *, is_over: bool) -> Results:
        """Build a report from what was decided and from all that is stored."""
        subject, config, events = self._subject, self._config, reader.events()
        held = reader.held_times()
        servers = HeldServers([held.get(name) for name in subject.models], config.launched)
        snapshot = complete(
            subject,
            state,
            usages,
            elapsed=reader.log.elapsed,
            now=time.time(),
            stopped=is_over,
            events=events,
            held=servers.times,
            beside=extra_costs(reader, Names(subject.models), servers, events),
        )
        return build_results(snapshot)


def usage_of(machine: Machine, model: int) -> TrialUsage:
    """A copy of a model's sums, with its answers that wait for a verdict."""
    usage, account = machine.alarms.usages.get(model, TrialUsage()).copy(), machine.account.models[model]
    usage.trials = account.answers
    usage.tokens, usage.usd, usage.gpu_seconds = account.paid.cost.plus(account.replaced.cost)
    return usage


@dataclass
class Draft:
    """Decisions at one moment; the writing thread calls it to make the report."""

    reporter: Reporter
    state: JudgedState
    usages: Sequence[TrialUsage]
    look: int
    """The number of the newest one."""
    roster: Sequence[int]
    """The numbers of the models in the store."""
    is_over: bool
    """This start has ended."""
    results: Results | None = None

    def __call__(self, log: LogReader) -> StoredReport:
        """Make the report, with all rows that are written."""
        state, reader = self.state, RunReader(log)
        self.results = self.reporter.build(state, self.usages, reader, is_over=self.is_over)
        prior, _ = prior_and_recorded_counts(state.plan.bench)
        counted = np.asarray(prior, np.int64) if prior.any() else None
        cells = CellCounts(tuple(self.roster), state.arrived, state.judged, counted)
        body, sums = to_json(self.results), sums_to_store(reader)
        return StoredReport(self.look, log.database.last_seq(), body, cells.to_parts(), sums)

    def publish(self, log: RunStore) -> None:
        """Write results.json, once the report is stored."""
        self.reporter.latest = self.results
        if self.results is not None:
            write_results(log.directory, self.results)
