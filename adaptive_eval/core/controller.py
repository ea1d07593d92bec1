"""The controller: told outcomes, it says which trials to run next, and when to stop.

How a run goes. Rounds are composed from looks; a round is complete when every trial of every model still in play has
come; then it is committed, a look is taken on all committed rounds, and the next round is composed from that look.
With a lookahead of d, d further rounds are in flight meanwhile. Everything that is decided is a function of the
configuration and of committed rounds, so neither the order of arrival, nor batching, nor a restart can change a look.
"""

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.core.evidence import Estimates, Evidence, IndexArray, judged_pairs, update, weigh
from adaptive_eval.core.horizon import Continued, Extension, carried_over
from adaptive_eval.core.judge import Memory
from adaptive_eval.core.plan import Plan
from adaptive_eval.core.policies import View
from adaptive_eval.core.result import Result, conclude
from adaptive_eval.core.rounds import Batch, Purse, Round
from adaptive_eval.core.settings import require
from adaptive_eval.core.standing import (
    VERDICTS,
    Standing,
    Supply,
    likely_open,
    pair_verdicts,
    stand,
    tiers,
    trials_to_horizon,
)
from adaptive_eval.core.types import NO_COST, Ask, Cause, Cost, Look, Lost, Outcome, Reason, SetAside, Verdict
from adaptive_eval.core.ungraded import Bounds, bounds_of, why_unjudgeable
from scorio.moments import CountArray, FloatArray, IntArray

TrialArray = NDArray[np.int32]
SILENT = (
    "{timed_out} of the {trials} requests of a round ran out of time at every attempt, and time-outs count as answers "
    "only beside as many real ones: raise sampling.timeout if its answers take longer, or mend its server; the next "
    "start asks them again"
)
"""Why a model is set aside that hardly answers."""
NOTHING_LOST: Mapping[int, Cost] = {}
MOST_PER_ROUND = 4.0
"""A cheap model gets at most this many times the trials of the dearest in a round."""


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
        self._issued = np.zeros((bench.models, bench.questions), dtype=np.int32)
        self._rounds: deque[Round] = deque()
        self._composed = 0
        self._asked_rounds = 0
        self._purse = Purse(plan.budget, bench.worst_cost)
        self._estimates = Estimates.nothing(bench)
        before = bench.prior_counts
        self._known_before = np.zeros(bench.models, np.int64) if before is None else before.sum(axis=(1, 2))
        pairs, _ = judged_pairs(bench.models, plan.objective.reference is not None, plan.objective.margin)
        self._memory = Memory.blank(len(pairs))
        self._aside_at_look = 0
        self.standing: Standing | None = None
        self._bank: dict[tuple[int, int, int], Outcome] = {}
        self._compose_first()

    # -- the shell's side ---------------------------------------------------------------------------------------

    def ask(self, slots: int, model: int | None = None) -> list[Ask]:
        """At most `slots` trials to run now, of one model if it is named; none means: wait, or the run is finished."""
        asks: list[Ask] = []
        for batch in self._batches(model):
            if len(asks) >= slots:
                break
            asks.extend(batch.asks(slots - len(asks)))
        return asks

    def tell(self, events: Iterable[Outcome | SetAside]) -> list[Look]:
        """Take outcomes in, in any order and batching; returns the looks that they completed."""
        taken = len(self.looks)
        for event in events:
            if isinstance(event, SetAside):
                self._lay_aside(event)
            else:
                self._place(event)
        self._advance()
        return self.looks[taken:]

    def ask_rounds(self) -> list[Round]:
        """Rounds that were not asked for yet, the oldest first: `ask` for a shell that moves whole arrays."""
        asked = [one for one in self._rounds if one.index >= self._asked_rounds]
        for one in asked:
            self._asked_rounds = one.index + 1
            for batch in one.batches.values():
                batch.ask_all()
        return asked

    def tell_round(self, counts: IntArray, costs: Sequence[Sequence[Cost]] | None = None) -> list[Look]:
        """Take in the whole of the oldest round in flight, as counts (L, M, K): what `tell` takes trial by trial.

        `costs` are those of a trial of each model and category; without them trials cost nothing.
        """
        taken = len(self.looks)
        require(bool(self._rounds), "counts are told of a round in flight", self.finished)
        rows = np.array(sorted(self._rounds[0].batches), dtype=np.intp)
        there = counts.shape == self.counts.shape and np.array_equal(
            counts.sum(axis=2)[rows], self._rounds[0].extra[rows]
        )
        require(there, "counts (L, M, K) must add up to the trials of the oldest round in flight", counts.shape)
        require(int(counts.min(initial=0)) >= 0, "counts must not be negative", counts.min())
        fresh = all(batch.missing == batch.size for batch in self._rounds[0].batches.values())
        require(fresh, "a round is told in counts or trial by trial, not both", self.in_flight)
        free = (NO_COST,) * self.plan.bench.categories
        for model, batch in self._rounds[0].batches.items():
            batch.take(counts[model], free if costs is None else costs[model])
        self.arrived[rows] += counts[rows].astype(np.int32)
        self._advance()
        return self.looks[taken:]

    def restore(self, outcomes: Iterable[Outcome], lost: Mapping[int, Cost] = NOTHING_LOST) -> list[Look]:
        """Take in the outcomes of an earlier run: those that are not needed now are kept until a round needs them.

        `lost` is what it has spent on answers that never came, by model.

        Before anything is asked: what is asked for is not looked for among them.
        """
        require(self.in_flight == 0, "the outcomes of an earlier run come before anything is asked", self.in_flight)
        taken = len(self.looks)
        for model, cost in lost.items():
            self._purse.lose(model, cost)
        for outcome in outcomes:
            self._check(outcome)
            self._bank[outcome[:3]] = outcome
        for batch in self._batches(None):
            self._fill(batch)
        self._advance()
        if lost:
            self._end_beyond_caps()
        return self.looks[taken:]

    def lose(self, model: int, cost: Cost) -> None:
        """Count what was spent on answers that were lost; a round that no longer fits the caps ends the run."""
        self._purse.lose(model, cost)
        self._end_beyond_caps()

    def _end_beyond_caps(self) -> None:
        """End the run where what was lost has left too little for the rounds in flight."""
        if self.finished is None and not self._purse.holds(*self._in_rounds()):
            self._rounds.clear()
            self.finished = Reason.BUDGET

    def _in_rounds(self) -> tuple[FloatArray, NDArray[np.int64]]:
        """What the trials of the rounds in flight have used so far, and of each model those that are missing."""
        came, missing = np.zeros(4), np.zeros(self.plan.bench.models, dtype=np.int64)
        for batch in self._batches(None):
            came += (batch.size - batch.missing, *batch.total_cost())
            missing[batch.model] += batch.missing
        return came, missing

    def tick(self, elapsed: float) -> None:
        """Tell the time since the start in seconds: at the cap on wall time the run is finished as it stands."""
        cap = self.plan.budget.wall_seconds
        if self.finished is None and cap is not None and elapsed >= cap:
            self._rounds.clear()
            self.finished = Reason.WALL_TIME

    @property
    def in_flight(self) -> int:
        """Trials that were asked for and not told."""
        return sum(batch.asked_and_missing() for batch in self._batches(None))

    def outstanding(self, model: int) -> int:
        """Those of one model."""
        return sum(batch.asked_and_missing() for batch in self._batches(model))

    @property
    def trials(self) -> NDArray[np.int64]:
        """(L,): trials of each model in committed rounds."""
        return np.asarray(self.counts.sum(axis=(1, 2), dtype=np.int64))

    @property
    def supply(self) -> Supply:
        """What is left to be had."""
        trials = self.trials
        left = self._trials.max * self.plan.bench.questions - trials - self.ungraded.sum(axis=1)
        return Supply(trials, left, self._purse.affordable(), ~self._in_play(), self._known_before)

    def result(self) -> Result | None:
        """Everything that is known after the latest look; None before the first."""
        if self.standing is None:
            return None
        bounds, spent = self._bounds(self.timed_out), self._purse.spent()
        return conclude(self.plan, self.standing, self.supply, self.counts, bounds, self.finished, spent)

    def latest_look(self) -> Look | None:
        """The latest look as plain values, kept or not; None before the first."""
        return None if self.standing is None else self._described(self.standing)

    def _in_play(self) -> NDArray[np.bool_]:
        in_play = np.ones(self.plan.bench.models, dtype=bool)
        in_play[list(self.set_aside)] = False
        return in_play

    # -- taking outcomes in -------------------------------------------------------------------------------------

    def _batches(self, model: int | None) -> Sequence[Batch]:
        if model is None:
            return [batch for one in self._rounds for batch in one.batches.values()]
        return [one.batches[model] for one in self._rounds if model in one.batches]

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
        for one in self._rounds:
            batch = one.batches.get(outcome.model)
            new = batch.place(outcome) if batch is not None else None
            if new is not None:
                if not new:
                    raise ValueError(f"the same trial was told twice: {outcome}")
                if outcome.category is not None:
                    self.arrived[outcome.model, outcome.question, outcome.category] += 1
                return
        if outcome.model not in self.set_aside and self.finished is None:
            raise ValueError(f"no round in flight holds this trial: {outcome}")

    def _lay_aside(self, event: SetAside) -> None:
        """Drop a model's part of the rounds in flight; what it has asked for stays paid for."""
        models = self.plan.bench.models
        require(0 <= event.model < models, f"a model is set aside by its number, 0 to {models - 1}", event)
        if event.model in self.set_aside:
            return
        self.set_aside[event.model] = Lost(event.cause, event.reason)
        for one in self._rounds:
            batch = one.batches.pop(event.model, None)
            if batch is not None:
                came, lost = batch.size - batch.missing, batch.asked_and_missing()
                self._purse.settle(event.model, batch.size, came, batch.total_cost(), lost)

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
            for one in self._rounds:
                batch = one.batches.pop(model, None)
                if batch is not None:
                    self._purse.settle(model, batch.size, 0, NO_COST, lost=batch.size)

    def _fill(self, batch: Batch) -> None:
        """Give a batch those of its trials that are known from an earlier run."""
        if not self._bank:
            return
        for model, question, trial in list(batch.expected()):
            outcome = self._bank.pop((model, question, trial), None)
            if outcome is not None:
                self._place(outcome)

    # -- looks ----------------------------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Commit complete rounds one by one; after each, look, and compose what that look asks for."""
        while self.finished is None and self._rounds and self._rounds[0].complete:
            self._lay_silent_aside(self._rounds[0])
            done = self._rounds.popleft()
            self._commit(done)
            # a round whose models were all set aside has nothing to show but that they were
            if done.batches or len(self.set_aside) > self._aside_at_look:
                self._look()
            while self._extending and self._looks_taken >= self.plan.earlier[len(self.extensions)].looks:
                self._extend()
            self._compose()

    def _lay_silent_aside(self, done: Round) -> None:
        """Go on without the models whose time-outs in this round are too many to be answers; none of it counts."""
        for model, batch in list(done.batches.items()):
            if not batch.answers:
                reason = SILENT.format(timed_out=batch.timed_out, trials=batch.size)
                self._lay_aside(SetAside(model, reason, Cause.SERVER))
                self.arrived[model] = self.counts[model]

    def _commit(self, done: Round) -> None:
        bench = self.plan.bench
        for model, batch in done.batches.items():
            self.counts[model] += batch.categories(bench.categories).astype(np.int32)
            if batch.some_ungraded:
                self.ungraded[model] += batch.ungraded().astype(np.int32)
            if batch.timed_out:
                self.timed_out[model] += batch.categories(bench.categories, late=True).astype(np.int32)
            self._purse.settle(model, batch.size, batch.size, batch.total_cost())
        self._lay_aside_ungradable(sorted(done.batches))
        known = self.counts if bench.prior_counts is None else self.counts + bench.prior_counts
        scored = (model for model in sorted(done.batches) if known[model].any(axis=-1).all())
        rows = np.fromiter(scored, dtype=np.intp)
        self._estimates = update(self._estimates, rows, self.counts, bench, self.plan.prior, self._trials.max)

    def _bounds(self, timed_out: CountArray | None = None) -> Bounds | None:
        """How far what is not known could move the estimates: what nobody graded, and time-outs, if they are given."""
        bench, prior, most = self.plan.bench, self.plan.prior, self._trials.max
        return bounds_of(self._estimates, self.counts, self.ungraded, bench, prior, most, timed_out)

    def _look(self) -> None:
        plan, supply = self.plan, self.supply
        bounds = self._bounds()
        standing = stand(self._estimates, self._memory, plan.objective, self._rule, plan.judging, supply, bounds)
        if self._extending:
            self._looked.append(standing.evidence)
        self.standing, self._memory = standing, standing.memory
        self._aside_at_look = len(self.set_aside)
        self._looks_taken += 1
        self.unhindered = max(self.unhindered, int(self._issued.sum()) + trials_to_horizon(standing, supply) + 1.0)
        if self._keep_looks:
            self.looks.append(self._described(standing))

    def _described(self, standing: Standing) -> Look:
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
        known = np.flatnonzero(np.isfinite(self._estimates.noise))
        self._estimates = update(self._estimates, known, self.counts, plan.bench, plan.prior, self._trials.max)
        now = weigh(self._estimates, plan.objective.reference, plan.objective.margin)
        self._rule = carried_over(self._rule, self._looked, now, plan.judging.delta)
        undecided = (self._memory.call == 0) & ~self._memory.tie & (now.information > 0.0)
        left = boundary = np.empty(0)
        if isinstance(self._rule, Continued):
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
        plan, there = self.plan, self.plan.first
        first, shape = plan.opening, self._issued.shape
        if not self._purse.fits((first if there is None else np.maximum(first - there, 0)).sum(axis=1)):
            self.finished, self.unhindered = Reason.BUDGET, math.inf
            return
        self._issue(first)
        one_each = np.ones(shape, dtype=np.int32)
        for _ in range(self._pace.lookahead if there is None else 0):
            if int(self._issued[0, 0]) == self._trials.max or not self._purse.fits(one_each.sum(axis=1)):
                break
            self._issue(one_each)

    def _compose(self) -> None:
        """Fill the pipeline of 1 + lookahead rounds from the latest look; with no round left, the run is finished."""
        assert self.standing is not None
        fits = True
        while len(self._rounds) <= self._pace.lookahead:
            extra, fits = self._next_round(self.standing)
            self.unhindered = self.unhindered if fits else math.inf
            if not extra.any():
                break
            self._issue(extra)
        if not self._rounds and self._extending:
            self._extend()
            self._compose()
        elif not self._rounds:
            self.finished = _reason(self.standing, fits)

    def _next_round(self, standing: Standing) -> tuple[TrialArray, bool]:
        """The policy's next round for as many open comparisons as fit, and whether all of them did.

        A round that runs ahead of looks is for those that are likely to stay open until then. Where not all fit, those
        go first that are most likely to be settled for the money. How many of them fit is found by bisection: a round
        for more of them never costs less.
        """
        pairs, power = standing.open_pairs(), standing.open_power()
        if self._rounds:
            issued = self._issued.sum(axis=1) + self._known_before
            stay = likely_open(standing, self.trials + self._known_before, issued, self.plan.judging.delta)
            pairs, power = pairs[stay], power[stay]
        prices = np.append(self._purse.prices(), 0.0)
        worth = np.argsort(-power / prices[pairs].sum(axis=1), kind="stable")
        extra = np.zeros_like(self._issued)
        fitting, too_many = 0, len(pairs) + 1
        served = len(pairs)
        while served > fitting:
            chosen = np.sort(worth[:served])
            tried = self._allocate(standing, pairs[chosen], power[chosen], prices[:-1])
            if self._purse.fits(tried.sum(axis=1)):
                extra, fitting = tried, served
            else:
                too_many = served
            served = (fitting + too_many) // 2
        return extra, fitting == len(pairs)

    def _allocate(self, standing: Standing, pairs: IndexArray, power: FloatArray, prices: FloatArray) -> TrialArray:
        """The policy's round for these comparisons."""
        view = View(
            open_pairs=pairs,
            power=power,
            order=standing.order,
            in_play=self._in_play(),
            issued=self._issued,
            trial_var=standing.estimates.trial_var,
            sizes=self._sizes(pairs, prices),
        )
        extra = np.asarray(self.plan.policy.allocate(view))
        allowed = extra.shape == view.issued.shape and extra.min() >= 0 and np.all(extra.sum(axis=1) <= view.sizes)
        require(bool(allowed), f"{self.plan.policy} must give each model 0 to view.sizes trials", extra)
        return extra.astype(np.int32)

    def _sizes(self, pairs: IndexArray, prices: FloatArray) -> NDArray[np.int64]:
        """Trials a model may get in a round: M, or its growth; cheap models more, as the square root of the price.

        For a pair, n proportional to 1/sqrt(price) gives the most information for the money.
        """
        bench, issued = self.plan.bench, self._issued.sum(axis=1)
        base = np.maximum(bench.questions, np.floor(self._pace.growth * issued))
        members = pairs[pairs < bench.models]
        dearest = prices[members].max() if len(members) else 1.0
        sizes = np.rint(base * np.clip(np.sqrt(dearest / prices), 1.0, MOST_PER_ROUND)).astype(np.int64)
        sizes[~self._in_play()] = 0
        return np.asarray(np.clip(self._trials.max * bench.questions - issued, 0, sizes))

    def _issue(self, extra: TrialArray) -> None:
        one = Round(self._composed, self._issued, extra)
        self._composed += 1
        self._issued = self._issued + extra
        self._purse.reserve(extra.sum(axis=1))
        self._rounds.append(one)
        for batch in one.batches.values():
            self._fill(batch)


def _reason(standing: Standing, fits: bool) -> Reason:
    """Why there is no further round."""
    verdicts = {VERDICTS[each] for each in standing.verdicts.tolist()}
    if Verdict.OPEN in verdicts and not fits:
        return Reason.BUDGET
    if Verdict.OUT_OF_REACH in verdicts or Verdict.OPEN in verdicts:
        return Reason.OUT_OF_REACH
    return Reason.BLOCKED if Verdict.BLOCKED in verdicts else Reason.SETTLED
