"""Updates for the display of a run in progress: events and looks as they are stored, and the status at any moment."""

import time
from collections.abc import Mapping, Sequence

from adaptive_eval.base.roster import Names
from adaptive_eval.config.run import RunConfig
from adaptive_eval.core.types import NO_COST, Cost, Look
from adaptive_eval.endpoints.types import EndpointStats
from adaptive_eval.machine.charges import Charge, sum_costs
from adaptive_eval.machine.clocks import HeldTime, RunClock
from adaptive_eval.machine.machine import Machine
from adaptive_eval.machine.notes import event_of
from adaptive_eval.machine.records import DISCARDED, LookTaken, Note
from adaptive_eval.machine.supply import Supply
from adaptive_eval.machine.usage import TrialUsage
from adaptive_eval.notes.batches import pending_batches
from adaptive_eval.notes.event import Event
from adaptive_eval.report.build import grading_cost
from adaptive_eval.report.make import Reporter
from adaptive_eval.report.other_costs import HeldServers, counted_gpu_seconds, extra_costs, other_costs
from adaptive_eval.report.reader import RunReader, loss_of
from adaptive_eval.report.records import Spending
from adaptive_eval.report.snapshot import batch_rows
from adaptive_eval.report.status import CurrentTraffic, Status, Used, results_in_progress, used_caps
from adaptive_eval.report.words import promise_of
from adaptive_eval.running.watching import Display
from adaptive_eval.supplies.opening import RunServers


class LiveStatus:
    """Follows a run in progress, and tells its display."""

    def __init__(
        self,
        config: RunConfig,
        names: Sequence[str],
        reader: RunReader,
        clock: RunClock,
        reporter: Reporter,
        display: Display,
    ) -> None:
        """`names`: of models, by number; `reader`: of the run, with a connection of its own."""
        self._reader = reader
        self._config, self.names, self._clock, self._display = config, list(names), clock, display
        self._roster = Names(model.name for model in config.models)
        self._numbers = [self.names.index(name) for name in self._roster]
        self._launched = frozenset(config.launched)
        self.events: list[Event] = reader.events()
        """All events of the run."""
        servers = self._servers()
        rows = extra_costs(reader, self._roster, servers, self.events)
        self._removed = [row for row in rows if row.what in ("left", "baseline")]
        self._before = 0, 0
        """Trials and tokens of earlier starts."""
        self.machine: Machine | None = None
        self.reporter = reporter
        self.supplies: Mapping[int, Supply] = {}
        self.servers = RunServers()

    # -- the driver's observer -------------------------------------------------------------------------------------

    def on_look(self, look: LookTaken) -> None:
        """Show a look."""
        looks: Sequence[Look] = () if self.machine is None else self.machine.controller.looks
        self._display.looked([candidate for candidate in looks if candidate.index == look.number])

    def on_note(self, note: Note) -> None:
        """Keep and show an event."""
        if note.kind != DISCARDED:  # its charge says the same
            self.tell(event_of(note, self.names, time.time()))

    def on_charge(self, charge: Charge) -> None:
        """Keep and show answers that were lost."""
        if charge.model >= 0:
            self.tell(loss_of(charge, self.names[charge.model], time.time()))

    def show_beginning(self, after: int) -> None:
        """Show the events after this sequence number, which were stored before anybody watched."""
        for event in self._reader.events(after):
            self._display.happened(event)

    def tell(self, event: Event) -> None:
        """Keep and show an event."""
        event = self._reader.with_example(event)
        self.events.append(event)
        self._display.happened(event)

    def follow(self, machine: Machine | None) -> None:
        """Follow a machine that has come to the end of the log; None if the start is stopped before."""
        self.machine = machine
        trials, paid = self._stored()
        self._before = trials, sum(cost.tokens for cost in paid)

    # -- the status ------------------------------------------------------------------------------------------------

    def take(self) -> Status:
        """The status now."""
        machine, elapsed = self.machine, self._clock.elapsed()
        trials, paid = self._stored()
        usage, usages = sum_costs(paid), self._usages()
        servers = self._servers()
        times = [held for held in servers.times if held is not None]
        beside = other_costs(self._removed, self._roster, servers.counted, self.events)
        used = Used(
            Spending(trials, *usage),
            trials - sum(model.trials - model.ungraded for model in usages),
            beside,
            grading_cost(model.grading for model in usages),
            sum(held.seconds for held in times),
            sum(held.gpu_seconds for held in times),
            counted_gpu_seconds(servers, [cost.gpu_seconds for cost in paid], beside),
        )
        latest = self.reporter.latest
        return Status(
            looks=0 if machine is None else len(machine.controller.looks),
            results=None if latest is None else results_in_progress(latest),
            caps=() if machine is None else used_caps(machine.setting.plan.budget, used, elapsed),
            traffic=self._traffic(),
            used=used,
            new_trials=max(trials - self._before[0], 0),
            new_tokens=max(usage.tokens - self._before[1], 0),
            elapsed=elapsed,
            promise=promise_of(self._config),
            batches=batch_rows(pending_batches(self.events)),
        )

    def _stored(self) -> tuple[int, list[Cost]]:
        """Number of the stored answers, and their cost by model, with all verdicts on them."""
        if self.machine is None:
            return 0, [NO_COST] * len(self._numbers)
        accounts = [self.machine.account.models[number] for number in self._numbers]
        paid = [account.paid.cost.plus(account.replaced.cost) for account in accounts]
        return sum(account.answers for account in accounts), paid

    def _usages(self) -> list[TrialUsage]:
        """Sums over the graded answers of each model, and those on which the grader has failed."""
        usages = {} if self.machine is None else self.machine.alarms.usages
        return [usages.get(number, TrialUsage()) for number in self._numbers]

    def _servers(self) -> HeldServers:
        held = self._clock.held_times()
        times = [HeldTime(*held[name]) if name in held else None for name in self._roster]
        return HeldServers(times, self._launched)

    def _traffic(self) -> CurrentTraffic:
        stats = [self._stats(number) for number in self._numbers]
        replicas = [replica for model_stats in stats for replica in model_stats.replicas]
        return CurrentTraffic(
            in_flight=0 if self.machine is None else sum(self.machine.in_flight.values()),
            retries=sum(model_stats.retries for model_stats in stats),
            errors=sum(sum(model_stats.errors.values()) for model_stats in stats),
            healthy_replicas=sum(replica.healthy for replica in replicas),
            replicas=len(replicas),
        )

    def _stats(self, number: int) -> EndpointStats:
        supply = self.supplies.get(number)
        return EndpointStats() if supply is None else supply.stats(number)
