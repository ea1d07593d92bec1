"""The controller: given outcomes, it chooses the trials to run next, and decides when to stop.

Rounds are composed from looks. Batches in flight have a fixed order, by a logical clock (`in_flight`). When the batches
that are due next are complete, they are committed, a look is taken at everything committed, and the next round is
composed from that look. Every decision is a function of the configuration and of committed batches, so neither the
order of arrival, nor the batching of `tell`, nor a restart can change a look.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import deepcopy

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.core.answer_alarms import AnswerAlarm, AnswerHistory
from adaptive_eval.core.answer_kinds import AnswerKind
from adaptive_eval.core.compose import RoundComposer
from adaptive_eval.core.conclusions import SILENT, UNPAID, needed_models, why_no_further
from adaptive_eval.core.corrected import ScoreCorrection
from adaptive_eval.core.early_outcomes import EarlyOutcomes
from adaptive_eval.core.in_flight import BatchesInFlight, DroppedBatches, clock_seconds
from adaptive_eval.core.look import JudgedLook
from adaptive_eval.core.look_taker import LookTaker
from adaptive_eval.core.pair_trials import AvailableTrials
from adaptive_eval.core.plan import Plan
from adaptive_eval.core.policies import asks_only_open
from adaptive_eval.core.result import Result, conclude
from adaptive_eval.core.rounds import Batch
from adaptive_eval.core.settings import require
from adaptive_eval.core.stages import Extension, StageBefore
from adaptive_eval.core.types import NO_COST, Ask, Cause, Cost, Look, Lost, Outcome, Reason, SetAside
from scorio.moments import IntArray, over_categories

Judged = Mapping[int, IntArray]
"""By model, how many trials (M,) of each question a look judges."""
FindVoid = Callable[[Judged, Collection[int], bool], Mapping[int, str]]
"""Models whose answers are no samples, and why: by what a look judges, the models that were not set aside for another
reason, and whether the run would end."""


class Controller:
    """Decides which trials to run (`ask`) from the outcomes of earlier ones (`tell`), until it is `finished`.

    Examples:
        Model 1 is right at every trial and model 0 at none:

        >>> from adaptive_eval.core import Bench, Controller, Outcome, Plan, Trials
        >>> controller = Controller(Plan(Bench(models=2, questions=5, weights=[0.0, 1.0]), trials=Trials(min=4, max=8)))
        >>> while controller.finished is None:
        ...     looks = controller.tell(Outcome(a.model, a.question, a.trial, a.model) for a in controller.ask(64))
        >>> controller.finished.value, controller.trials.tolist(), looks[-1].order
        ('settled', [20, 20], (1, 0))
    """

    def __init__(
        self,
        plan: Plan,
        *,
        keep_looks: bool = True,
        outside_plan: tuple[int, Cost] = (0, NO_COST),
        settles_losses: bool = True,
        find_void: FindVoid | None = None,
    ) -> None:
        """Create the controller of a plan.

        `outside_plan`: trials outside the plan and their cost, which counts against the caps from the start.
        `keep_looks`: keep what a result, and a plan whose `before` this run is, read of them.
        `settles_losses`: requested trials of a model that is set aside count as lost at once. Otherwise `lose` reports
        each loss, and `take` each answer that still arrives.
        `find_void`: finds models whose answers are no samples before each look, and when the run would end."""
        self.plan = plan
        self._settles_losses, self._find_void = settles_losses, find_void
        self.finished: Reason | None = None
        self.short_caps: Mapping[str, float] = {}
        """Once the budget has ended the run: the caps that do not cover the next round, by currency, with the amounts
        that would."""
        self._unpaid = np.zeros(plan.bench.models, dtype=np.int64)
        """(L,): missing trials of models that are set aside because the caps do not cover them."""
        self.taker = LookTaker(plan, keep=keep_looks)
        self.looks = self.taker.looks
        """The looks, those of earlier stages first, with the models of those stages.

        Without `keep_looks` it stays empty, there is no `result`, and only `latest_look` is described."""
        self.first_look = self.taker.taken
        """The number of the first look under this plan."""
        self.set_aside: dict[int, Lost] = {}
        """Models that the run continues without, and why; silent and ungradable models are added here."""
        self.void = np.zeros(plan.bench.models, dtype=bool)
        """(L,): those of them whose answers are no samples, so that nothing is decided about them."""
        self._tally = self.taker.tally
        self._flight = BatchesInFlight(plan.bench, plan.budget, plan.objective.gpu_hour)
        drawn = not plan.source.asks_all
        self._histories = [AnswerHistory(model, plan.bench, drawn=drawn) for model in range(plan.bench.models)]
        self.alarms: list[AnswerAlarm] = []
        """Alarms about the answers of models, at most one of each kind for a model."""
        self._flight.account.spend_elsewhere(*outside_plan)
        self._aside_at_look = 0
        self._gone: list[Batch] = []
        """Batches whose outcomes have arrived, though their round will never be complete."""
        self._dropped: dict[int, DroppedBatches] = {}
        """Batches of models that were set aside, which come back with them at the next stage."""
        self._joining: set[int] = set()
        """Models that have joined, until their first round is complete."""
        self._settled: list[list[int]] | None = None
        """By model and question, how many trials are committed; None if that was not needed since the last commit."""
        self.overrun: IntArray = np.zeros(self._tally.counts.shape, dtype=np.int32)
        """(L, M, K): the part of `counts` that no look has judged (`count_overrun`)."""
        if plan.before is None:
            self._compose_first()
        else:
            self._take_over(plan.before)

    # -- the shell's side ---------------------------------------------------------------------------------------

    def ask(self, slots: int, model: int | None = None) -> list[Ask]:
        """Trials to run now: at most `slots`, of one model if it is given. None: wait, or the run is finished."""
        return self._flight.ask(slots, model) if self.finished is None else []

    def is_paused(self, model: int) -> bool:
        """Whether no open comparison needs this model now, so that none of its requests should be sent."""
        return self.finished is not None or self._flight.is_parked(model)

    def tell(self, events: Iterable[Outcome | SetAside]) -> list[Look]:
        """Take in outcomes, in any order and batching; returns the looks that they completed.

        A `SetAside` takes effect at its position: what precedes it is judged with the model, in any batching.
        """
        old_looks = len(self.looks)
        for event in events:
            if isinstance(event, SetAside):
                self._advance()
                self._drop_model(event)
            else:
                self._place(event)
        self._advance()
        if self._flight.early:
            self._keep_within_caps()
        self._end_once_spent()
        return self.looks[old_looks:]

    def ask_batches(self) -> list[Batch]:
        """Batches that were not asked for yet, oldest first: for a shell of whole arrays, which never calls `ask`."""
        return self._flight.ask_batches() if self.finished is None else []

    def tell_counts(
        self,
        told: Iterable[tuple[Batch, IntArray]],
        costs: Sequence[Sequence[Cost]] | None = None,
        seconds: float = 0.0,
    ) -> list[Look]:
        """Take in whole batches of `ask_batches` as counts (M, K), instead of trial by trial; those of models that were
        set aside since are left out.

        `costs` has the cost of a trial by model and category; the default is free. `seconds` is the total of all
        answers of a batch.
        """
        old_looks = len(self.looks)
        told = [(batch, counts) for batch, counts in told if batch.model not in self.set_aside]
        for batch, counts in told:
            self._check_counts(batch, counts)
        for batch, counts in told:
            batch.take(counts, (NO_COST,) * len(counts.T) if costs is None else costs[batch.model], seconds)
        if self._flight.in_parts and not self._flight.account.is_open:
            self._end_beyond_caps()  # a first round that was opened in parts, told as a whole, may have cost too much
        self._advance()
        self._end_once_spent()
        return self.looks[old_looks:]

    def _check_counts(self, batch: Batch, counts: IntArray) -> None:
        require(not self.plan.coupled, "trials with shared seeds are told one by one, not in counts", batch.round_index)
        require(batch in self._flight.expected(batch.model), "counts are told of a batch in flight", batch.round_index)
        is_untouched = batch.missing == batch.size
        require(is_untouched, "a batch is told in counts or trial by trial, not both", batch.size - batch.missing)
        require(counts.shape == self.counts.shape[1:], "counts (M, K) must be those of their batch", counts.shape)
        is_complete = np.array_equal(over_categories(counts), batch.slots.extra)
        require(is_complete, "counts must add up to the trials of their batch", counts.shape)
        require(int(counts.min()) >= 0, "counts must not be negative", counts.min())

    def spend_outside_plan(self, trials: int, cost: Cost) -> None:
        """Count the cost of models no longer in the run, or of answers that no round has requested and that cannot be
        taken in. Call it before restoring an earlier run."""
        self._flight.account.spend_elsewhere(trials, cost)

    def keep(self, outcomes: Iterable[Outcome]) -> None:
        """Keep outcomes without looking at them yet: `take` does that."""
        check, keep = self._tally.check, self._flight.early.keep
        for outcome in outcomes:
            check(outcome)
            if self.plan.before is None or not self._was_taken(outcome):
                keep(outcome)

    def _was_taken(self, outcome: Outcome) -> bool:
        """Whether a round has taken an outcome already, which the stage before had kept."""
        model, question, trial, *_ = outcome
        if self._settled is None:
            self._settled = (over_categories(self._tally.counts) + self._tally.ungraded).tolist()
        if trial < self._settled[model][question]:
            return True
        return any(batch.has(question, trial) for batch in self._flight.expected(model))

    def take(self, outcomes: Iterable[Outcome]) -> list[Look]:
        """Take in outcomes that no round may need yet and that will not be told again: they are kept until a round
        needs them. Returns the looks that they completed."""
        old_looks = len(self.looks)
        self.keep(outcomes)
        self._flight.take_known()
        self._advance()
        if self._flight.early:
            self._keep_within_caps()
        return self.looks[old_looks:]

    def look_again(self) -> None:
        """Take a look without new trials, at which nothing is called: a stage that is replayed keeps its number of
        looks."""
        self._look(calls_stand=True)

    def forget_arrivals(self) -> None:
        """Forget all outcomes that no look has counted: their trials are to be asked, as in a simulation."""
        flight = self._flight
        for batch in flight.all_batches():
            batch.forget()
        flight.early = EarlyOutcomes()

    def end_over_budget(self) -> None:
        """End the run as it stands, because the caps do not cover the remaining cost of trials that are there.

        Rounds in flight stay, for a stage with higher caps."""
        if self.finished is None:
            self._end_short_of(self._unpaid)

    def _end_short_of(self, trials: NDArray[np.int64]) -> None:
        """End the run because the caps do not cover trials in flight and these further ones of each model."""
        short_caps = self._flight.caps_short_of(trials)
        if not self.taker.taken and self.plan.first is None:  # one number, whatever the answers so far have cost
            whole = self._flight.worst_totals(self.plan.opening.sum(axis=1))
            short_caps = {currency: max(total, whole[currency]) for currency, total in short_caps.items()}
        self.short_caps = short_caps
        self.finished = Reason.BUDGET

    def lose(self, cost: Cost) -> None:
        """Count the cost of answers that never arrived."""
        self._flight.account.spend_elsewhere(0, cost)
        self._keep_within_caps()

    def _keep_within_caps(self) -> None:
        """Make the rounds in flight fit the caps, counting everything bought.

        If kept trials leave too little room, models that hold up enough others are set aside.
        """
        has_fixed_side = self.plan.objective.reference is not None or bool(self.plan.bench.recorded)
        others = 1 if has_fixed_side else 2
        while self.finished is None and not self._flight.within_caps():
            late = self._flight.holding_up(others) or self._unpaid_newcomers()
            if not late:
                self._end_beyond_caps()
            for model in late:
                self._drop_model(SetAside(model, UNPAID, Cause.BUDGET))
            self._advance()

    def _unpaid_newcomers(self) -> list[int]:
        """Models that join and hold up even one other, which is compared with models that looks have judged."""
        late = self._flight.holding_up(1)
        judged = self._in_play() & (self._tally.counts.sum(axis=(1, 2)) > 0)
        judged[late] = False
        return late if judged.any() and self._joining.issuperset(late) else []

    def _end_beyond_caps(self) -> None:
        """End the run if too little is left for the rounds in flight."""
        if not self._flight.within_caps():
            self.end_over_budget()

    def _end_once_spent(self) -> None:
        """End the run if unbounded trials have used more than is left."""
        if self._flight.account.is_open:
            self._end_beyond_caps()

    def tick(self, elapsed: float, held_gpu_seconds: float = 0.0) -> bool:
        """Record the seconds since the start and the GPU seconds of held servers.

        Returns whether a cap on either is reached. Then the run ends, settled if its latest look has decided everything
        and only waits for more, and requests in flight must be cancelled even if it had finished before."""
        budget = self.plan.budget
        caps = (
            (elapsed, budget.wall_seconds, Reason.WALL_TIME),
            (held_gpu_seconds, budget.held_gpu_seconds, Reason.GPU_TIME),
        )
        reached = [reason for used, cap, reason in caps if cap is not None and used >= cap]
        if reached and self.finished is None:
            look = self.last_look
            has_decided = look is not None and why_no_further(look, True, self.set_aside.values()) is Reason.SETTLED
            stands = has_decided and not self._set_aside_void(is_last=True)
            self._gone += self._flight.clear()
            self.finished = Reason.SETTLED if stands else reached[0]
        return bool(reached)

    @property
    def rounds_issued(self) -> int:
        """How often new trials were issued."""
        return self._flight.rounds_issued

    @property
    def in_flight(self) -> int:
        """Trials that were requested and have not arrived; none of a finished run is awaited."""
        return sum(batch.asked_and_missing() for batch in self._flight.batches()) if self.finished is None else 0

    @property
    def extensions(self) -> Sequence[Extension]:
        """Changes of the horizon so far."""
        return self.taker.extensions

    def most_issued(self, model: int) -> int:
        """The most trials of any question that a model was issued."""
        return int(self._flight.issued[model].max())

    @property
    def counts(self) -> IntArray:
        """(L, M, K): outcomes of committed rounds, from which estimates are made."""
        return self._tally.counts

    @property
    def ungraded(self) -> IntArray:
        """(L, M): trials of committed rounds that the grader could not grade."""
        return self._tally.ungraded

    @property
    def arrived(self) -> IntArray:
        """(L, M, K): all outcomes in issued rounds, complete or not; for display only."""
        return self.counts + self._arrived_in((*self._flight.all_batches(), *self._gone))

    @property
    def parked(self) -> IntArray:
        """(L, M, K): the part of `arrived` in parked batches, which no look waits for."""
        return self._arrived_in(self._flight.parked_batches())

    def _arrived_in(self, batches: Iterable[Batch]) -> IntArray:
        arrived = np.zeros_like(self.counts)
        for batch in batches:
            arrived[batch.model] += batch.categories(self.plan.bench.categories)
        return arrived

    @property
    def waiting(self) -> int:
        """Graded outcomes of an earlier run that no round has asked for."""
        return self._flight.early.graded

    @property
    def trials(self) -> NDArray[np.int64]:
        """(L,): trials of each model in committed rounds."""
        return self._tally.trials

    @property
    def available(self) -> AvailableTrials:
        """Trials still available."""
        trials = self.trials
        bench = self.plan.bench
        committed = trials + self.ungraded.sum(axis=1)
        remaining = self.plan.trials.max * bench.questions - committed
        remaining[~bench.asked] = 0
        affordable, before = self._flight.account.affordable(), self._tally.prior_outcomes
        reserved = self._flight.issued.sum(axis=1) - committed
        costs = self._flight.account.first_costs
        return AvailableTrials(
            trials, remaining, affordable, ~self._in_play(), before, ~bench.asked, reserved, self.void, costs
        )

    def needed_models(self) -> NDArray[np.bool_]:
        """(L,): models that may still need trials. The servers of all others can be released."""
        look, bench = self.last_look, self.plan.bench
        if self.finished is not None or look is None or not asks_only_open(self.plan.policy):
            return self._in_play() & bench.asked & (self.finished is None)
        flying = np.array([bool(self._flight.batches(model)) for model in range(bench.models)])
        available, latch = self.available, self.plan.judging.latch
        needed = needed_models(look, available, self.plan.objective, flying, latch=latch)
        return needed & bench.asked & (flying | (available.remaining > 0))

    def awaited(self) -> list[int]:
        """Models whose missing trials the next look waits for."""
        return self._flight.awaited()

    def count_overrun(self, models: Iterable[int]) -> None:
        """Count these models' trials beyond the last look, once the run is finished. As with the overrun of a group
        sequential trial, they enter scores and intervals, and calls stand.

        Only models whose requests have all arrived count: missing answers would have been slow, and wrong more often.
        Trials with shared seeds count only together with other models' trials, and are left out. So are all if they
        place models of a settled run otherwise, next to each other without a verdict.
        """
        unjudged = [batch for batch in self._flight.parked_batches() if batch.missing < batch.size]
        counted = set(models) - {batch.model for batch in unjudged if not batch.has_enough_answers}
        unjudged = [batch for batch in unjudged if batch.model in counted]
        if self.finished is None or self.plan.source.by_trial or not unjudged:
            return
        bench = self.plan.bench
        judged, settled_by = deepcopy(self._tally, {id(bench): bench}), self.last_look  # one bench for both
        self._tally.commit(unjudged)
        self.taker.include_overrun(self.available)
        assert self.last_look is not None
        reason = why_no_further(self.last_look, True, self.set_aside.values())
        if self.finished is Reason.SETTLED and reason is not Reason.SETTLED:
            self._tally = self.taker.tally = judged
            self.taker.last_look = settled_by
            return
        self.overrun = self._tally.counts - judged.counts
        for model in sorted({batch.model for batch in unjudged}):
            for batch in self._flight.drop(model):
                self._flight.account.settle(batch, batch.size - batch.missing, batch.total_cost())
        if self.finished is Reason.BLOCKED:  # more answers have shown another reason
            self.finished = reason

    @property
    def last_look(self) -> JudgedLook | None:
        """The latest look; None before the first."""
        return self.taker.last_look

    def result(self, correction: ScoreCorrection | None = None) -> Result | None:
        """The result of the latest look; None before the first. Needs `keep_looks`. A `correction` for errors of the
        grader changes nothing in what is asked."""
        keeps = self.taker.keep
        require(keeps, "result() needs the looks of the run: make the controller with keep_looks=True", keeps)
        if self.last_look is None:
            return None
        spent = self._flight.account.spent()
        return conclude(self.taker, self.last_look, self.available, self.finished, spent, correction)

    def latest_look(self) -> Look | None:
        """The latest look as plain values, kept or not; None before the first."""
        return None if self.last_look is None else self.taker.describe(self.last_look, self.available)

    def _in_play(self) -> NDArray[np.bool_]:
        in_play = np.ones(self.plan.bench.models, dtype=bool)
        if self.set_aside:
            in_play[list(self.set_aside)] = False
        return in_play

    # -- taking outcomes in -------------------------------------------------------------------------------------

    def _place(self, outcome: Outcome) -> None:
        self._tally.check(outcome)
        new = self._flight.place(outcome)
        if new is None:
            if outcome.model not in self.set_aside and self.finished is None:
                raise ValueError(f"no round in flight holds this trial: {outcome}")
        elif not new:
            raise ValueError(f"the same trial was told twice: {outcome}")

    def _drop_model(self, event: SetAside) -> None:
        """Drop a model's batches in flight; what was asked for stays paid for."""
        models = self.plan.bench.models
        require(0 <= event.model < models, f"a model is set aside by its number, 0 to {models - 1}", event)
        if event.model in self.set_aside:
            return
        self.set_aside[event.model] = Lost(event.cause, event.reason)
        dropped = self._drop_batches(event.model)
        self._gone += dropped
        for batch in dropped:
            self._unpaid[event.model] += batch.missing if event.cause is Cause.BUDGET else 0
            arrived, lost = batch.size - batch.missing, batch.asked_and_missing() if self._settles_losses else 0
            self._flight.account.settle(batch, arrived, batch.total_cost(), lost)

    def _drop_batches(self, model: int) -> Sequence[Batch]:
        spent = self._flight.account.spent_on(model)
        dropped = self._flight.drop(model)
        self._dropped[model] = DroppedBatches(dropped, spent)
        return dropped

    # -- looks ----------------------------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Commit complete batches that are due; after each commit, look, and compose what that look asks for."""
        while self.finished is None:
            if self._flight.account.is_open and self._flight.in_parts:  # each part is reserved by those before it
                if not self._flight.release_more():
                    self.end_over_budget()
                if self._flight.in_parts or self.finished is not None:
                    return
            if self.plan.pace.dedicated_servers and self.plan.first is None and not self.taker.taken:
                for extra in self._flight.start_clocks(self.plan.trials.max):
                    self._issue(extra)
            complete = self._flight.complete_and_due()
            if not complete and self._flight.batches():
                if not self._flight.release_more():
                    self.end_over_budget()
                return
            if done := self._set_aside_silent(complete):
                self._commit(done)
                if self._raise_alarms(done):
                    self._end_by_alarm()
                    return
                self._set_aside_void()
            # once every model is set aside nothing is due any more, and a last look shows that they were
            if done or len(self.set_aside) > self._aside_at_look:
                self._look()
            self._go_on()

    def _set_aside_silent(self, done: Sequence[Batch]) -> list[Batch]:
        """Set aside models with too many time-outs in a round for these to count as answers; none of it counts."""
        for batch in done:
            if not batch.has_enough_answers and batch.model not in self.set_aside:
                reason = SILENT.format(timed_out=batch.timed_out, trials=batch.size)
                self._drop_for_answers(batch.model, Lost(Cause.SERVER, reason), done)
        return [batch for batch in done if batch.model not in self.set_aside]

    def _commit(self, done: Sequence[Batch]) -> None:
        """Commit batches, and set aside models with too many ungraded trials (see `tally`)."""
        self._flight.commit(done)
        self._tally.commit(done)
        self._settled = None
        for batch in done:
            if batch.model in self._joining:
                self._joining.remove(batch.model)
                if self.plan.pace.dedicated_servers:
                    self._flight.ticks_per_trial[batch.model] = clock_seconds(batch)
        self._set_aside_ungradable(sorted({batch.model for batch in done}))

    def _set_aside_ungradable(self, models: Iterable[int]) -> None:
        for model, reason in self._tally.ungradable(models):
            self._drop_for_answers(model, Lost(Cause.GRADER, reason))

    def _drop_for_answers(self, model: int, lost: Lost, done: Sequence[Batch] = ()) -> None:
        """Set aside a model because of its answers in rounds that are `done`, or committed already.

        With `settles_losses`, its trials in flight stay reserved at the worst case, arrived or not: how many have
        arrived is chance.
        """
        self.set_aside[model] = lost
        self._gone = [batch for batch in self._gone if batch.model != model]  # its outcomes are forgotten
        for batch in self._drop_batches(model):
            if self._settles_losses and batch not in done:
                self._flight.account.settle(batch, 0, NO_COST, lost=batch.size)
            else:
                self._flight.account.settle(batch, batch.size - batch.missing, batch.total_cost())

    def _set_aside_void(self, *, is_last: bool = False) -> bool:
        """Set aside models whose answers are no samples; returns whether there are any that were not. `is_last`: the
        run would end."""
        if self._find_void is None:
            return False
        judged = over_categories(self._tally.counts) + self._tally.ungraded
        asked = np.flatnonzero(self.plan.bench.asked).tolist()
        in_play = [model for model in asked if model not in self.set_aside or self.void[model]]
        void = self._find_void({model: judged[model] for model in asked}, in_play, is_last)
        new = [model for model in void if not self.void[model]]
        for model in new:
            self.void[model] = True
            if model not in self.set_aside:
                self._drop_for_answers(model, Lost(Cause.ANSWERS, void[model]))
        return bool(new)

    def _raise_alarms(self, done: Sequence[Batch]) -> bool:
        """Raise alarms about the models of these batches; returns whether they end the run.

        Their models are set aside. Trials since a change of a server count no more, nor do calls based on them.
        """
        look, before = self.taker.taken + 1, len(self.alarms)
        for batch in done:
            self._histories[batch.model].add(batch, look)
        for model in sorted({batch.model for batch in done} - self.set_aside.keys()):
            history = self._histories[model]
            alarm = (
                history.find_change()
                or history.find_incomplete(self.plan.unsure)
                or history.find_silence(AnswerKind(self.plan.says_nothing))
            )
            if alarm is None or any(row.model == model and row.kind & alarm.kind for row in self.alarms):
                continue
            self.alarms.append(alarm)
            if not self.plan.stops_on_alarm:
                continue
            self.set_aside[model] = Lost(Cause.ANSWERS, alarm.reason)
            if alarm.is_change:
                self._flight.drop(model)  # what has arrived since is forgotten
                self._tally.withdraw(model, history, alarm.before_of)
                self.taker.withdraw(model, history.first_look_at(alarm.before_of))
        return self.plan.stops_on_alarm and len(self.alarms) > before

    def _end_by_alarm(self) -> None:
        """End the run with a last look, at which nothing is called anew."""
        self._gone += self._flight.clear()
        self._look(calls_stand=True)
        self.finished = Reason.ALARM

    def _look(self, *, calls_stand: bool = False) -> None:
        self.taker.take(self.available, calls_stand=calls_stand)
        self._aside_at_look = len(self.set_aside)

    # -- composing rounds -----------------------------------------------------------------------------------------

    def _take_over(self, before: StageBefore) -> None:
        """Go on from the stage before: look again under the new settings, and ask models that join for a first round.

        Models that were set aside come back with the rounds that they had in flight, except those with an alarm, which
        stands: what a model has answered is the same under any settings.
        """
        flight, places = self._flight, before.last_places()
        new_numbers = {place: model for model, place in places.items()}
        for model, (run, old_number) in places.items():
            self._histories[model].take_over(run._histories[old_number])
        for run, _ in before.stages():
            known = [alarm for alarm in run.alarms if (run, alarm.model) in new_numbers]
            self.alarms += [alarm._replace(model=new_numbers[run, alarm.model]) for alarm in known]
        away = {model: place for model, place in places.items() if before.models[model] is None}
        for model, (run, old_number) in away.items():
            trials = over_categories(run.counts[old_number]) + run.ungraded[old_number]
            flight.bring_back(model, run._flight, old_number, trials, run._dropped)
        flight.take_over(before.run._flight, before.models, before.run._dropped)
        self.keep(before.returning)
        self._set_aside_ungradable(range(len(before.models)))
        if self.alarms and self.plan.stops_on_alarm:
            self.set_aside |= {alarm.model: Lost(Cause.ANSWERS, alarm.reason) for alarm in self.alarms}
            self._end_by_alarm()
            return
        self._set_aside_void()
        self._look()
        for model in np.flatnonzero(self.plan.bench.asked & self._in_play()).tolist():
            if not flight.issued[model].any():  # it is new, or no budget has covered its first round
                self._join(model)
        self._go_on()
        self._advance()  # rounds in flight may be complete
        self._keep_within_caps()

    def _join(self, model: int) -> None:
        """Ask a model that joins for its first round, or set it aside if the caps do not cover that."""
        first = np.zeros_like(self._flight.issued)
        first[model] = self.plan.opening[model]
        trials, account = first.sum(axis=1), self._flight.account
        if not account.may_fit(trials):
            self._unpaid += trials
            self._drop_model(SetAside(model, UNPAID, Cause.BUDGET))
            return
        in_parts = not account.fits(trials, times=2)
        self._joining.add(model)
        self._issue(first)
        if in_parts:
            self._flight.open_in_parts(model)
            self._flight.release_more()

    def _compose_first(self) -> None:
        """Issue the first round for every model, and the rounds that run ahead of the first look.

        If the caps do not cover its worst case twice, so that losses do not end the run, it is asked in parts, each as
        far as the caps allow given the cost of those before. If trials are there already, no round runs ahead: their
        look decides who gets more. Those trials count, but are looked at even if they exceed a cap, unless others are
        missing.
        """
        flight, plan, first, imported = self._flight, self.plan, self.plan.opening, self.plan.first
        new_trials = (first if imported is None else np.maximum(first - imported, 0)).sum(axis=1)
        needed = first.sum(axis=1) if new_trials.any() else new_trials
        fits_at_once = flight.account.fits(needed, times=2)
        if not flight.account.may_fit(new_trials, besides=int((needed - new_trials).sum())):
            self._end_short_of(needed)
            return
        self._issue(first)
        if not fits_at_once:
            flight.open_in_parts()
            if imported is None:  # else when those trials have told their cost
                flight.release_more()
        round_of_all = plan.bench.questions * int(plan.bench.asked.sum())
        ahead = plan.pace.rounds_ahead(flight.account.affordable(), round_of_all)
        for _ in range(ahead if imported is None else 0):
            next_round = plan.source.next_round(flight.issued, plan.bench)
            if int(flight.issued[:, -1].max()) == plan.trials.max or not flight.account.fits(next_round.sum(axis=1)):
                break
            self._issue(next_round)

    def _go_on(self) -> None:
        """Issue what the latest look asks for, or end the run, unless a model turns out to be void: then look again."""
        self._compose()
        while self.finished is not None and self._set_aside_void(is_last=True):
            if self.finished in (Reason.SETTLED, Reason.OUT_OF_REACH, Reason.BLOCKED):
                self.finished = None
                self._look()
                self._compose()
            else:
                self._look(calls_stand=True)

    def _compose(self) -> None:
        """Issue what the latest look asks for; if nothing is in flight then, the run is finished."""
        assert self.last_look is not None
        fits, pace = True, self.plan.pace
        if pace.dedicated_servers and asks_only_open(self.plan.policy):
            needed = self.last_look.in_open_pairs() | (self.trials == 0)
            if needed.any() and not self._flight.may_park(needed):
                needed = needed | (self._flight.sizes > 0)  # what is in flight goes on; what is needed comes back
            self._flight.park(needed)
        # the outcomes of a recorded model stay what they are
        asked, before = self.plan.bench.asked, np.where(self.plan.bench.asked, self._tally.prior_outcomes, 0)
        joining = np.isin(np.arange(self.plan.bench.models), list(self._joining))
        composer = RoundComposer(
            plan=self.plan,
            flight=self._flight,
            last_look=self.last_look,
            seen_trials=self.trials + before,
            prior_trials=before,
            in_play=self._in_play() & asked & ~joining,
            joining=joining,
        )
        for _ in range(max(1 + pace.lookahead - self._flight.ticks, 0) if pace.in_step else self.plan.trials.max):
            extra, fits = composer.next_round()
            if not extra.any():
                break
            self._issue(extra)
        if not fits and not self._flight.batches():
            self._compose_in_parts(composer.round_in_parts())
        if self.finished is None and not self._flight.batches():
            self.finished = why_no_further(self.last_look, fits, self.set_aside.values())
            if self.finished is Reason.BUDGET:
                totals = self._flight.account.probable_totals(composer.smallest_round() + self._unpaid)
                self.short_caps = self.plan.budget.short_of(totals.tolist())

    def _compose_in_parts(self, extra: NDArray[np.int32]) -> None:
        """Issue a round that the caps do not cover at its worst, but probably do, to be asked in parts."""
        if extra.any():
            self._issue(extra)
            self._flight.open_in_parts()
            if not self._flight.release_more():
                self.end_over_budget()

    def _issue(self, extra: NDArray[np.int32]) -> None:
        looked, pace = self.taker.taken > 0, self.plan.pace
        self._flight.issue(extra, in_step=pace.in_step, looked=looked, fixed_time=pace.share > 0.0)
