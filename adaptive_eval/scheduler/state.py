"""State of a run, made from its stored records alone. Pure: no clock, no task, no file.

Records of all kinds are passed to `apply`: while the run goes on, once they are on disk; when a run is resumed, read or
imported, all at once. No other code restores anything. `decide` then tells the core the new facts, and returns what is
to be stored: looks and events.

The loss of an answer is applied as soon as it is noticed, since a cap must count it before anything else is asked. What
a run *intends*, such as to ask a model nothing more, is in `models`.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, filterfalse, islice
from typing import NamedTuple

from adaptive_eval.core.controller import Controller
from adaptive_eval.core.types import NO_COST, Ask, Cause, Cost, Look, Loss, Lost, Outcome, Reason, SetAside
from adaptive_eval.scheduler.alarms import Alarms, alarm_event
from adaptive_eval.scheduler.losses import loss_of, with_losses_in_place
from adaptive_eval.scheduler.model_states import GradedBenchmarks, ModelStates
from adaptive_eval.scheduler.spent import SpentByModel
from adaptive_eval.scheduler.trials import Step, TrialTable
from adaptive_eval.store import (
    AlarmRaised,
    AnswersLost,
    CommitBatch,
    Event,
    ModelSetAside,
    Regrade,
    Roster,
    RunBegun,
    RunReader,
    StoredOutcome,
    TrialRecord,
    VerdictsWasted,
    events_since_start,
)
from adaptive_eval.store.records import GradingUse, wasted_use
from adaptive_eval.store.spending import stored_cost
from adaptive_eval.supply.types import Lane

BEYOND = (
    "an answer used {} tokens with its prompt, and at most {} were reserved for it (prompt and max_tokens): its server "
    "does not keep to max_tokens, and no cap can hold; mend it and start over, or remove the caps"
)


class GradingSpent(NamedTuple):
    """Usage of the grades of a model's stored answers, in earlier starts."""

    model: str
    use: GradingUse


Place = tuple[str, str, int]
"""Model, question and trial."""


def trial_place(record: TrialRecord | Regrade) -> Place:
    """The model, question and trial of a record or a grade."""
    return record.model, record.question, record.trial


Record = StoredOutcome | TrialRecord | Regrade | GradingSpent | Event
"""A stored fact. Trials of earlier starts come without their texts, as `StoredOutcome`."""


class Decision(NamedTuple):
    """Consequences of new records, to be stored."""

    set_aside: Sequence[Event]
    """Models that are set aside, and answers without a grade."""
    looks: Sequence[Look]
    events: Sequence[Event]


class RunState:
    """State of a run, made from its stored records."""

    def __init__(
        self,
        controller: Controller,
        roster: Roster,
        lanes: Sequence[Lane] = (),
        *,
        reserve: Cost | None = None,
        alarms: Alarms | None = None,
        graded: GradedBenchmarks | None = None,
    ) -> None:
        """`lanes`: empty if the run is only read; `reserve`: the cost reserved for a verdict, if answers are judged by
        requests; `graded`: if there are several benchmarks."""
        self.controller, self.alarms = controller, alarms or Alarms.judged()
        self.roster, self.lanes, self.reserve = roster, lanes, reserve
        self.capped = controller.plan.budget.bought
        """Whether a cap counts answers that were lost."""
        self.models = ModelStates(tuple(roster.models), controller.plan.bench.recorded, graded)
        self.trials = TrialTable(len(roster.models))
        self.spent = SpentByModel(len(roster.models))
        self.alarms.follow(self.spent.usages)
        self.awaiting: dict[Place, TrialRecord] = {}
        """Answers on disk that await their verdicts."""
        self._untold = UntoldFacts()

    @property
    def judged(self) -> bool:
        """Whether answers are judged by requests."""
        return self.reserve is not None

    # -- facts ----------------------------------------------------------------------------------------------------

    def apply(self, record: Record) -> None:
        """Apply one stored record, unless it is of a model that is no longer in the run."""
        name = getattr(record, "model", None)
        if name is not None and name not in self.roster.models:
            return
        match record:
            case StoredOutcome():
                self._apply_outcome(record)
            case TrialRecord():
                self._apply_trial(record)
            case Regrade():
                self._apply_verdict(record)
            case GradingSpent(model=name, use=use):
                self.spent.count_grading(self.roster.models.position(name), use)
            case Event():
                self._apply_event(record)

    def _apply_event(self, event: Event) -> None:
        self.models.apply(event)
        match event:
            case RunBegun():
                self._untold.set_aside.clear()
            case ModelSetAside(model=name):
                model = self.roster.models.position(name)
                self._untold.set_aside.append(SetAside(model, event.reason, event.cause))
            case AnswersLost(model=name, discarded=True):
                self.alarms.forget(name)
                self.controller.spend_outside_plan(event.answers, stored_cost(event))
                self.spent.lost_gpu_seconds[self.roster.models.position(name)] += event.gpu_seconds
            case AnswersLost(model=name) if self.capped:
                loss = loss_of(event, self.roster.models.position(name))
                self.spent.lost_gpu_seconds[loss.model] += loss.cost.gpu_seconds
                self._untold.lost.append(loss)
            case VerdictsWasted(model=name):
                self.spent.count_grading(self.roster.models.position(name), wasted_use(event))
            case AlarmRaised():
                self.alarms.raised.add((event.model, event.fault))

    def loss(self, model: int, answers: int, *, killed: bool) -> AnswersLost:
        """The loss of answers that were asked for: at the worst cost if a cap counts them, else at the mean one."""
        lane = self.lanes[model]
        if self.capped:
            cost, estimated = self.spent.worst_cost(model, lane.price.worst), None
        else:
            cost, estimated = self.spent.mean_cost(model), True
        return AnswersLost(lane.name, answers, *cost.times(answers), killed=killed, estimated=estimated)

    def placed(self, event: AnswersLost) -> AnswersLost:
        """A new loss, with where it counts if caps do: it is to be applied, and decided on, before anything else."""
        if not self.capped:
            return event
        loss = self.controller.new_loss(self.roster.models.position(event.model), stored_cost(event))
        return replace(event, looks=loss.looks, ended=(loss.ended and not event.killed) or None)

    def _apply_trial(self, record: TrialRecord) -> None:
        """Apply an answer with its texts, which has just come."""
        model, question = self.roster.cell(record.model, record.question)
        self.alarms.see(model, record)
        if record.awaits_verdict:
            self.awaiting[trial_place(record)] = record
            self.spent.spend(model, record.outcome())
            self._require_within_reserve(model, self.lanes[model].price.cost(record.answer))
            self.trials.move(model, question, (record.trial,), Step.AWAITS_VERDICT)
            return
        is_asked = self._is_asked(model, question, record.trial)
        if is_asked:
            self.spent.count_verdict(model, record)
        self._apply_graded(model, question, record.outcome(), is_asked)
        self._report_ungraded(model, record)

    def _apply_verdict(self, verdict: Regrade) -> None:
        """Apply the category of a stored answer, from a judge."""
        if (record := self.awaiting.pop(trial_place(verdict), None)) is not None:
            self.spent.usages[self.roster.models.position(record.model)].spend(record.outcome(), -1)
            self._apply_trial(record.judged(verdict))

    def _apply_outcome(self, outcome: StoredOutcome) -> None:
        if outcome.awaits_verdict:  # of an earlier start, and the caps did not allow a verdict
            self._untold.unjudged = True
            self.spent.spend(self.roster.models.position(outcome.model), outcome)
            self.controller.spend_outside_plan(0, outcome.cost)
            return
        model, question = self.roster.cell(outcome.model, outcome.question)
        self._apply_graded(model, question, outcome, self._is_asked(model, question, outcome.trial))

    def _is_asked(self, model: int, question: int, trial: int) -> bool:
        return self.trials.step(model, question, trial) is not None

    def _apply_graded(self, model: int, question: int, outcome: StoredOutcome, is_asked: bool) -> None:
        """Queue an answer for the core, now that it has its category; `is_asked`: in this start."""
        self.spent.spend(model, outcome)
        if self.capped and not self.judged:  # else there is a verdict in it
            self._require_within_reserve(model, outcome.cost)
        self.alarms.add(model, question, outcome)
        self.spent.usages[model].judge(outcome)
        if outcome.category is not None:
            self.models.graded.add(model, question)
        told = outcome.to_outcome(model, question)
        if is_asked:
            self.trials.move(model, question, (outcome.trial,), Step.GRADED)
            self._untold.outcomes.append(told)
        else:
            self.controller.keep((told,))
            self._untold.kept = True

    def _report_ungraded(self, model: int, one: TrialRecord | Regrade) -> None:
        if one.grader_error is not None:
            self._untold.events += self.models.ungraded(model, one.question, one.grader_error)

    def _require_within_reserve(self, model: int, cost: Cost) -> None:
        """Set aside a model whose answer used more than caps reserve for it."""
        if not (self.capped and self.lanes):
            return
        reserved = self.lanes[model].price.worst.tokens - (self.reserve or NO_COST).tokens
        if 0 < reserved < cost.tokens:
            why = BEYOND.format(cost.tokens, reserved)
            self._untold.events += self.models.set_aside(model, Lost(Cause.SERVER, why))

    # -- decisions ------------------------------------------------------------------------------------------------

    def decide(self, launched: Collection[int] = (), *, stopping: bool = False) -> Decision:
        """Tell the core the new facts, and return its decision.

        The run starts the servers of `launched` models itself.
        """
        untold, self._untold = self._untold, UntoldFacts(begun=True)
        over = untold.begun and self.controller.finished is not None
        looks = untold.tell_core(self.controller)
        if over:
            return Decision(untold.events, (), ())
        if untold.unjudged and not stopping:  # nobody pays for their verdicts
            self.controller.end_over_budget()
        set_aside = [*untold.events, *self.models.set_aside_by_core(self.controller)]
        events: list[Event] = []
        events += self.alarms.not_stored(alarm_event(self.roster, alarm) for alarm in self.controller.alarms)
        if looks and self.controller.finished is not Reason.ALARM:
            gone = self.models.recorded | self.controller.set_aside.keys()
            events += self.alarms.judge(gone)
            judged = self.controller.counts.sum(axis=2) + self.controller.ungraded
            is_last = self.controller.finished is not None
            events += self.alarms.find_later_repeats(gone, judged, is_last=is_last)
        if looks or not untold.begun:
            events += self.models.find_settled(self.controller, launched)
        return Decision(set_aside, looks, events)

    def want(self, asks: Iterable[Ask]) -> Iterator[Ask]:
        """Yield the core's trials, which are wanted from now on."""
        for ask in asks:
            self.trials.move(ask.model, ask.question, (ask.trial,), Step.WANTED)
            yield ask

    def is_owed(self, model: int) -> bool:
        """Whether a trial was asked of this model that the core was not told of."""
        return not self.models.is_gone(model) and self.trials.is_owed(model)


class UntoldFacts:
    """Facts that the core was not told yet."""

    def __init__(self, *, begun: bool = False) -> None:
        """`begun`: the core has been told of the records of earlier starts."""
        self.begun = begun
        self.outcomes: list[Outcome] = []
        self.kept = False
        """Whether the core has kept outcomes that no round had asked for when they came."""
        self.set_aside: list[SetAside] = []
        self.lost: list[Loss] = []
        self.unjudged = False
        self.events: list[Event] = []

    def tell_core(self, controller: Controller) -> Sequence[Look]:
        """Tell the core these facts; returns the looks that it takes."""
        taken = len(controller.looks)
        if not self.begun:
            controller.restore((), self.lost)
            controller.tell(self.set_aside)
            return controller.looks[controller.first_look :]
        controller.lose(self.lost)
        untold = [*self.outcomes, *(self.set_aside if controller.finished is None else ())]
        if untold:  # what was asked ahead comes when the run is finished, too
            controller.tell(untold)
        if self.kept:
            controller.take(())
        return controller.looks[taken:]


# -- what is applied --------------------------------------------------------------------------------------------------


def stored_records(reader: RunReader, *, judged: bool) -> Iterator[Record]:
    """All stored records of a run; `judged`: grades take requests."""
    yield from _with_grading_spent(reader, with_losses_in_place(reader.events(), reader.look_times()), judged=judged)
    yield from reader.outcomes()


def apply_stored(state: RunState, reader: RunReader, events: Sequence[Event], *, judged: bool) -> None:
    """Bring the state of a reader to where the latest start of the run has left it.

    Models that this start has set aside are applied at their place among the trials, where the core decided on them,
    and losses in their order. Verdicts that are missing are still under way.
    """
    events = list(with_losses_in_place(events, reader.look_times()))
    latest = events_since_start(events)
    before, late = events[: len(events) - len(latest)], filter(_is_in_order, latest)
    at_once = chain(before, filterfalse(_is_in_order, latest))
    for record in _with_grading_spent(reader, at_once, judged=judged):
        state.apply(record)
    outcomes, taken = reader.outcomes(), 0
    for event in late:
        if isinstance(event, AnswersLost):
            state.apply(event)
            continue
        until = max(reader.count_until(event.at), taken)
        _apply_outcomes(state, islice(outcomes, until - taken))
        state.decide()
        state.apply(event)
        state.decide()
        taken = until
    _apply_outcomes(state, outcomes)
    state.decide()


def _is_in_order(event: Event) -> bool:
    return isinstance(event, AnswersLost | ModelSetAside)


def _apply_outcomes(state: RunState, outcomes: Iterable[StoredOutcome]) -> None:
    for outcome in outcomes:
        if not outcome.awaits_verdict:
            state.apply(outcome)
        elif outcome.model in state.roster.models:
            state.spent.spend(state.roster.models.position(outcome.model), outcome)


def _with_grading_spent(reader: RunReader, events: Iterable[Event], *, judged: bool) -> Iterator[Record]:
    """These events, then the cost of grading by model."""
    yield from (event for event in events if not (judged and isinstance(event, VerdictsWasted)))
    if judged:  # with what was used for no grade
        yield from (GradingSpent(model, use) for model, use in reader.grading_uses().items())


def committed_records(batch: CommitBatch) -> Iterator[Record]:
    """The records of a commit, except losses, which were applied when they were noticed."""
    yield from batch.trials
    yield from batch.verdicts
    yield from (event for event in batch.events if not isinstance(event, AnswersLost))
