"""The controller: told outcomes, it says which trials to run next, and when to stop.

How a run goes. Rounds are composed from looks. What is in flight has a fixed order, by a logical clock (`flight`); when
the batches that are due next are complete, they are committed, a look is taken on all that is committed, and what comes
next is composed from that look. Everything that is decided is a function of the configuration and of committed batches,
so neither the order of arrival, nor the batching of `tell`, nor a restart can change a look.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.core.compose import Now, next_round
from adaptive_eval.core.evidence import Estimates, Evidence, judged_pairs, update, weigh_evidence
from adaptive_eval.core.flight import Flight
from adaptive_eval.core.horizon import ContinuedSequential, Extension, carried_over
from adaptive_eval.core.judge import Memory
from adaptive_eval.core.opening import Opening
from adaptive_eval.core.plan import Plan
from adaptive_eval.core.policies import Leader, UnresolvedPairs, Weighted
from adaptive_eval.core.result import Result, conclude
from adaptive_eval.core.rounds import Batch, Round
from adaptive_eval.core.settings import require
from adaptive_eval.core.settled import wanted_again
from adaptive_eval.core.standing import (
    VERDICTS,
    JudgedLook,
    Supply,
    judge_look,
    pair_verdicts,
    tiers,
    trials_to_horizon,
)
from adaptive_eval.core.types import NO_COST, Ask, Cause, Cost, Look, Lost, Outcome, Reason, SetAside, Verdict
from adaptive_eval.core.ungraded import ScoreBounds, bounds_of, why_unjudgeable
from scorio.moments import CountArray, IntArray

SILENT = (
    "{timed_out} of the {trials} requests of a round ran out of time at every attempt, and time-outs count as answers "
    "only beside as many real ones: raise sampling.timeout if its answers take longer, or mend its server; the next "
    "start asks them again"
)
"""Why a model is set aside that hardly answers."""
ASKS_OPEN = (UnresolvedPairs, Weighted, Leader)
"""Policies that ask nobody who is in no open comparison."""
NOTHING_LOST: Mapping[int, Cost] = {}


class Controller:
    """Decides which trials to run (`ask`) by what came of those before (`tell`), until it is `finished`."""

    def __init__(self, plan: Plan, *, keep_looks: bool = True) -> None:
        bench = plan.bench
        self.plan = plan
        self._keep_looks = keep_looks
        """Without them, which are for people, a look takes a third less time, and only `latest_look` is described."""
        self.finished: Reason | None = None
        self.looks: list[Look] = []
        self._looks_taken = 0
        self.unhindered = 0.0
        """A cap of so many trials, and of nothing else, would have changed nothing so far, though caps bear on what is
        out of reach long before they are met."""
        self.set_aside: dict[int, Lost] = {}
        """Models that the run goes on without, and why: silent ones, and those that cannot be graded, found here."""
        self.extensions: list[Extension] = []
        """Changes of the horizon so far."""
        self._trials, self._pace = plan.trials, plan.pace
        if plan.earlier:
            self._trials, self._pace = plan.earlier[0].trials, plan.earlier[0].pace
        self._horizon = self._trials.max
        self._rule = plan.deciding_rule
        self._looked: list[Evidence] = []
        """What the looks under a horizon that is to change have seen."""
        self.counts = np.zeros((bench.models, bench.questions, bench.categories), dtype=np.int32)
        """Committed rounds: what estimates are made of."""
        self.ungraded = np.zeros((bench.models, bench.questions), dtype=np.int32)
        """Trials of committed rounds that the grader could not grade."""
        self.arrived = np.zeros_like(self.counts)
        """All outcomes that a round has taken, complete or not: for display only."""
        self.timed_out = np.zeros_like(self.counts)
        """Those of `counts` that timed out."""
        self._flight = Flight(bench, plan.budget)
        self._estimates = Estimates.nothing(bench)
        before = bench.prior_counts
        self._known_before = np.zeros(bench.models, np.int64) if before is None else before.sum(axis=(1, 2))
        pairs, _ = judged_pairs(bench.models, plan.objective.reference is not None, plan.objective.margin)
        self._memory = Memory.blank(len(pairs))
        self._aside_at_look = 0
        self.standing: JudgedLook | None = None
        self._compose_first()

    # -- the shell's side ---------------------------------------------------------------------------------------

    def ask(self, slots: int, model: int | None = None) -> list[Ask]:
        """At most `slots` trials to run now, of one model if it is named; none means: wait, or the run is finished."""
        return self._flight.ask(slots, model)

    def tell(self, events: Iterable[Outcome | SetAside]) -> list[Look]:
        """Take outcomes in, in any order and batching; returns the looks that they completed.

        A model is set aside where its event stands: what came before is judged with the model, however it is batched.
        """
        taken = len(self.looks)
        for event in events:
            if isinstance(event, SetAside):
                self._advance()
                self._lay_aside(event)
            else:
                self._place(event)
        self._advance()
        return self.looks[taken:]

    def ask_rounds(self) -> list[Round]:
        """Rounds that were not asked for yet, the oldest first: `ask` for a shell that moves whole arrays."""
        return self._flight.ask_rounds()

    def tell_batch(
        self, batch: Batch, counts: IntArray, costs: Sequence[Cost] | None = None, seconds: float = 0.0
    ) -> list[Look]:
        """Take in the whole of a batch of `ask_rounds`, as counts (M, K): what `tell` takes trial by trial.

        `costs` are those of a trial of each category; without them trials cost nothing. `seconds` is what all took.
        """
        taken = len(self.looks)
        self._take(batch, counts, costs, seconds)
        self._advance()
        return self.looks[taken:]

    def tell_round(self, one: Round, counts: IntArray, costs: Sequence[Sequence[Cost]] | None = None) -> list[Look]:
        """All batches of a round at once, as counts (L, M, K)."""
        taken = len(self.looks)
        require(counts.shape == self.counts.shape, "counts are (L, M, K)", counts.shape)
        for model, batch in one.batches.items():
            if model in self.set_aside:
                continue
            self._take(batch, counts[model], None if costs is None else costs[model], 0.0)
        self._advance()
        return self.looks[taken:]

    def _take(self, batch: Batch, counts: IntArray, costs: Sequence[Cost] | None, seconds: float) -> None:
        require(batch in self._flight.batches(batch.model), "counts are told of a batch in flight", batch.round_index)
        there = counts.shape == self.counts.shape[1:] and np.array_equal(counts.sum(axis=1), batch.extra)
        require(there, "counts (M, K) must add up to the trials of their batch", counts.shape)
        require(int(counts.min(initial=0)) >= 0, "counts must not be negative", counts.min())
        fresh = batch.missing == batch.size
        require(fresh, "a batch is told in counts or trial by trial, not both", self.in_flight)
        batch.take(counts, (NO_COST,) * self.plan.bench.categories if costs is None else costs, seconds)
        self.arrived[batch.model] += counts.astype(np.int32)

    def restore(self, outcomes: Iterable[Outcome], lost: Mapping[int, Cost] = NOTHING_LOST) -> list[Look]:
        """Take in the outcomes of an earlier run: those that are not needed now are kept until a round needs them.

        `lost` is what it has spent on answers that never came, by model.

        Before anything is asked: what is asked for is not looked for among them.
        """
        require(self.in_flight == 0, "the outcomes of an earlier run come before anything is asked", self.in_flight)
        taken = len(self.looks)
        for model, cost in lost.items():
            self._flight.account.lose(model, cost)
        known = list(outcomes)
        for outcome in known:
            self._check(outcome)
        self._place_all(self._flight.remember(known))
        self._advance()
        if lost:
            self._end_beyond_caps()
        return self.looks[taken:]

    def lose(self, model: int, cost: Cost) -> None:
        """Count what was spent on answers that were lost; a round that no longer fits the caps ends the run."""
        self._flight.account.lose(model, cost)
        self._end_beyond_caps()

    def _end_beyond_caps(self) -> None:
        """End the run where what was lost has left too little for the rounds in flight."""
        if self.finished is None and not self._flight.account.holds(*self._flight.used_and_missing()):
            self._flight.clear()
            self.finished = Reason.BUDGET

    def tick(self, elapsed: float, held: float = 0.0) -> bool:
        """Tell the time since the start in seconds, and the GPU seconds for which servers were held: whether the cap on
        either is reached, which ends the run as it stands, and what is in flight though it is finished."""
        budget = self.plan.budget
        caps = (
            (elapsed, budget.wall_seconds, Reason.WALL_TIME),
            (held, budget.held_gpu_seconds, Reason.GPU_TIME),
        )
        reached = [reason for used, cap, reason in caps if cap is not None and used >= cap]
        if reached and self.finished is None:
            self._flight.clear()
            self.finished = reached[0]
        return bool(reached)

    @property
    def rounds_issued(self) -> int:
        """How often there was something new to ask for."""
        return self._flight.rounds_issued

    @property
    def in_flight(self) -> int:
        """Trials that were asked for and not told."""
        return sum(batch.asked_and_missing() for batch in self._flight.batches())

    def outstanding(self, model: int) -> int:
        """Those of one model."""
        return sum(batch.asked_and_missing() for batch in self._flight.batches(model))

    @property
    def trials(self) -> NDArray[np.int64]:
        """(L,): trials of each model in committed rounds."""
        return np.asarray(self.counts.sum(axis=(1, 2), dtype=np.int64))

    @property
    def supply(self) -> Supply:
        """Trials still available."""
        trials = self.trials
        left = self._trials.max * self.plan.bench.questions - trials - self.ungraded.sum(axis=1)
        return Supply(trials, left, self._flight.account.affordable(), ~self._in_play(), self._known_before)

    def wanted_again(self) -> NDArray[np.bool_]:
        """(L,): models of which further trials may still be wanted, whatever comes; what serves the others may go."""
        flying = np.array([bool(self._flight.batches(model)) for model in range(self.plan.bench.models)])
        some = self.standing is None or self._extending or not isinstance(self.plan.policy, ASKS_OPEN)
        if self.finished is not None or some or self.standing is None:
            return self._in_play() & (self.finished is None)
        latch = self.plan.judging.latch
        return wanted_again(self.standing, self.supply, self.plan.objective, flying, latch=latch)

    def result(self) -> Result | None:
        """Everything that is known after the latest look; None before the first."""
        if self.standing is None:
            return None
        bounds, spent = self._bounds(self.timed_out), self._flight.account.spent()
        return conclude(self.plan, self.standing, self.supply, self.counts, bounds, self.finished, spent)

    def latest_look(self) -> Look | None:
        """The latest look as plain values, kept or not; None before the first."""
        return None if self.standing is None else self._described(self.standing)

    def _in_play(self) -> NDArray[np.bool_]:
        in_play = np.ones(self.plan.bench.models, dtype=bool)
        in_play[list(self.set_aside)] = False
        return in_play

    # -- taking outcomes in -------------------------------------------------------------------------------------

    def _check(self, outcome: Outcome) -> None:
        model, question, _, category, *_ = outcome
        models, questions, categories = self.counts.shape
        graded = category is None or 0 <= category < categories
        if not (0 <= model < models and 0 <= question < questions and graded):
            raise ValueError(
                f"an outcome is of one of {models} models, {questions} questions and {categories} categories, "
                f"each counted from 0, but got {outcome}"
            )

    def _place(self, outcome: Outcome) -> None:
        self._check(outcome)
        new = self._flight.place(outcome)
        if new is None:
            if outcome.model not in self.set_aside and self.finished is None:
                raise ValueError(f"no round in flight holds this trial: {outcome}")
        elif not new:
            raise ValueError(f"the same trial was told twice: {outcome}")
        elif outcome.category is not None:
            self.arrived[outcome.model, outcome.question, outcome.category] += 1

    def _place_all(self, outcomes: Iterable[Outcome]) -> None:
        for outcome in outcomes:
            self._place(outcome)

    def _lay_aside(self, event: SetAside) -> None:
        """Drop a model's part of the rounds in flight; what it has asked for stays paid for."""
        models = self.plan.bench.models
        require(0 <= event.model < models, f"a model is set aside by its number, 0 to {models - 1}", event)
        if event.model in self.set_aside:
            return
        self.set_aside[event.model] = Lost(event.cause, event.reason)
        for batch in self._flight.drop(event.model):
            came, lost = batch.size - batch.missing, batch.asked_and_missing()
            self._flight.account.settle(event.model, batch.size, came, batch.total_cost(), lost)

    def _lay_aside_ungradable(self, models: Iterable[int]) -> None:
        """Go on without models of which too much has no grade (see `ungraded`).

        What is in flight of them stays reserved at its worst: how much of it has come is chance.
        """
        before = self.plan.bench.prior_counts
        for model in models:
            counts = self.counts[model] if before is None else self.counts[model] + before[model]
            reason = why_unjudgeable(counts.sum(axis=-1), self.ungraded[model])
            if reason is None:
                continue
            self.set_aside[model] = Lost(Cause.GRADER, reason)
            for batch in self._flight.drop(model):
                self._flight.account.settle(model, batch.size, 0, NO_COST, lost=batch.size)

    # -- looks ----------------------------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Commit what is due and complete; after each time, look, and compose what that look asks for."""
        while self.finished is None:
            if self._pace.held and self.plan.first is None and not self._looks_taken:
                for extra in self._opening.start_clocks(self._flight, self.set_aside):
                    self._issue(extra)
            landed = self._flight.landed()
            if not landed and self._flight.batches():
                return
            if done := self._lay_silent_aside(landed):
                self._commit(done)
            # where everyone is set aside nothing is due any more, and what there is to show is that they were
            if done or len(self.set_aside) > self._aside_at_look:
                self._look()
            while self._extending and self._looks_taken >= self.plan.earlier[len(self.extensions)].looks:
                self._extend()
            self._compose()

    def _lay_silent_aside(self, done: Sequence[Batch]) -> list[Batch]:
        """Go on without the models whose time-outs in a round are too many to be answers; none of it counts."""
        for batch in done:
            if not batch.answers:
                reason = SILENT.format(timed_out=batch.timed_out, trials=batch.size)
                self._lay_aside(SetAside(batch.model, reason, Cause.SERVER))
                self.arrived[batch.model] = self.counts[batch.model]
        return [batch for batch in done if batch.model not in self.set_aside]

    def _commit(self, done: Sequence[Batch]) -> None:
        bench = self.plan.bench
        self._flight.commit(done)
        for batch in done:
            model = batch.model
            self.counts[model] += batch.categories(bench.categories).astype(np.int32)
            if batch.some_ungraded:
                self.ungraded[model] += batch.ungraded().astype(np.int32)
            if batch.timed_out:
                self.timed_out[model] += batch.categories(bench.categories, late=True).astype(np.int32)
        models = sorted({batch.model for batch in done})
        self._lay_aside_ungradable(models)
        known = self.counts if bench.prior_counts is None else self.counts + bench.prior_counts
        scored = (model for model in models if known[model].any(axis=-1).all())
        rows = np.fromiter(scored, dtype=np.intp)
        self._estimates = update(self._estimates, rows, self.counts, bench, self.plan.prior, self._horizon)

    def _bounds(self, timed_out: CountArray | None = None) -> ScoreBounds | None:
        """How far what is not known could move the estimates: what nobody graded, and time-outs, if they are given."""
        bench, prior, most = self.plan.bench, self.plan.prior, self._horizon
        return bounds_of(self._estimates, self.counts, self.ungraded, bench, prior, most, timed_out)

    def _look(self) -> None:
        plan, supply = self.plan, self.supply
        bounds = self._bounds()
        known, memory, rule = self._estimates, self._memory, self._rule
        standing = judge_look(known, memory, plan.objective, rule, plan.judging, supply, bounds, plan.estimator)
        if self._extending:
            self._looked.append(standing.evidence)
        self.standing, self._memory = standing, standing.memory
        self._aside_at_look = len(self.set_aside)
        self._looks_taken += 1
        self.unhindered = max(
            self.unhindered, int(self._flight.issued.sum()) + trials_to_horizon(standing, supply) + 1.0
        )
        if self._keep_looks:
            self.looks.append(self._described(standing))

    def _described(self, standing: JudgedLook) -> Look:
        supply = self.supply
        return Look(
            index=self._looks_taken - 1,
            trials=tuple(supply.trials.tolist()),
            order=tuple(standing.order.tolist()),
            tiers=tiers(standing),
            scores=tuple(standing.estimates.score.tolist()),
            sigmas=tuple(standing.estimates.sigma().tolist()),
            comparisons=pair_verdicts(standing, supply, self.plan.bench.questions),
        )

    @property
    def _extending(self) -> bool:
        """The horizon of now is not the last."""
        return len(self.extensions) < len(self.plan.earlier)

    def _extend(self) -> None:
        """Change the horizon, and look at what is there under the new one: what latched stays, the rest may reopen."""
        plan, before, looks = self.plan, self._trials.max, self._looks_taken
        following = (*((stage.trials, stage.pace) for stage in plan.earlier), (plan.trials, plan.pace))
        self._trials, self._pace = following[len(self.extensions) + 1]
        # what was asked for already comes, and is looked at: a horizon before that would have no error left for it
        self._horizon = max(self._trials.max, int(self._flight.issued.max()))
        known = np.flatnonzero(np.isfinite(self._estimates.noise))
        self._estimates = update(self._estimates, known, self.counts, plan.bench, plan.prior, self._horizon)
        now = weigh_evidence(self._estimates.on(plan.estimator), plan.objective.reference, plan.objective.margin)
        self._rule = carried_over(self._rule, self._looked, now, plan.judging.delta)
        undecided = (self._memory.call == 0) & ~self._memory.tie & (now.information > 0.0)
        left = boundary = np.empty(0)
        if isinstance(self._rule, ContinuedSequential):
            at_horizon = replace(now, information=np.ones(len(now.z)))
            left, boundary = self._rule.left(now)[undecided], self._rule.boundary(at_horizon)[undecided]
        self.extensions.append(Extension(before, self._trials.max, looks, left, boundary))
        self._looked = []
        self._look()

    # -- composing rounds -----------------------------------------------------------------------------------------

    def _compose_first(self) -> None:
        """The first round for everyone, and those that run ahead of the first look.

        Where trials are there already, none run ahead: the look at hand says for whom there should be any. And those
        need not be paid for: the caps count what they cost, but do not forbid to look at them.
        """
        flight, first, there = self._flight, self.plan.opening, self.plan.first
        if not flight.account.fits((first if there is None else np.maximum(first - there, 0)).sum(axis=1)):
            self.finished, self.unhindered = Reason.BUDGET, math.inf
            return
        self._issue(first)
        self._opening = Opening(flight.batches(), self._pace, self._trials.max)
        one_each = np.ones(flight.issued.shape, dtype=np.int32)
        for _ in range(self._pace.lookahead if there is None else 0):
            if int(flight.issued[0, 0]) == self._trials.max or not flight.account.fits(one_each.sum(axis=1)):
                break
            self._issue(one_each)

    def _compose(self) -> None:
        """Have in flight what the latest look asks for; where that is nothing, the run is finished."""
        assert self.standing is not None
        fits = True
        for _ in range(max(1 + self._pace.lookahead - self._flight.ticks, 0) if self._pace.in_step else 1):
            extra, fits = next_round(self.plan, self._flight, self._now(self.standing))
            self.unhindered = self.unhindered if fits else math.inf
            if not extra.any():
                break
            self._issue(extra)
        if not self._flight.batches() and self._extending:
            self._extend()
            self._compose()
        elif not self._flight.batches():
            self.finished = _reason(self.standing, fits)

    def _now(self, standing: JudgedLook) -> Now:
        held = self.trials + self._known_before
        return Now(standing, self._pace, self._trials.max, held, self._known_before, self._in_play())

    def _issue(self, extra: NDArray[np.int32]) -> None:
        looked = self._looks_taken > 0
        self._place_all(self._flight.issue(extra, in_step=self._pace.in_step, looked=looked))


def _reason(standing: JudgedLook, fits: bool) -> Reason:
    """Why there is no further round."""
    verdicts = {VERDICTS[each] for each in standing.verdicts.tolist()}
    if Verdict.OPEN in verdicts and not fits:
        return Reason.BUDGET
    if Verdict.OUT_OF_REACH in verdicts or Verdict.OPEN in verdicts:
        return Reason.OUT_OF_REACH
    return Reason.BLOCKED if Verdict.BLOCKED in verdicts else Reason.SETTLED
