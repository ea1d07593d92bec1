"""Many simulated runs of one plan at once, as whole arrays instead of one controller each.

Each step commits the next round of every run, looks at all of them, and composes their next rounds. A look works on
whole arrays, so that a look at a hundred small runs takes hardly longer than at a single run. Models and pairs are
numbered consecutively across runs (`Evidence.benches`); runs do not affect each other. With many models most pairs are
called early; if calls latch, only the other pairs are looked at again. Each run has the same looks and trials as a
controller would on the same outcomes, which tests check. Decisions are made elsewhere in `core`. This module replaces
what a controller does between looks, if models go in step, start from nothing, and only trials are capped. Other runs
need a controller each.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from itertools import count
from math import inf
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.core.compose import checked_allocation, most_that_fit
from adaptive_eval.core.conclusions import why_no_further
from adaptive_eval.core.evidence import Estimates, IndexArray, judged_pairs, update, weigh_evidence
from adaptive_eval.core.in_flight import TrialArray
from adaptive_eval.core.judge import BoolArray, Criteria, LatchedVerdicts
from adaptive_eval.core.look import AvailableTrials, JudgedLook, describe, judge_look, likely_open
from adaptive_eval.core.plan import Plan
from adaptive_eval.core.policies import UnresolvedPairs, View, spread_over_open
from adaptive_eval.core.rules import judges_by_pair
from adaptive_eval.core.settings import Bench, Budget
from adaptive_eval.core.tape import Layers, Tape, TrialArrays
from adaptive_eval.core.types import PairVerdict, Reason
from scorio.moments import FloatArray, IntArray

MAX_CELLS = 1 << 16
"""The most questions, over all models and runs, that stand side by side: more would take memory without saving time."""


def can_stand_side_by_side(plan: Plan) -> bool:
    """Whether runs of a plan can be looked at together: they go in step from nothing, only trials are capped, and no
    pair's judgement depends on other pairs."""
    depends_on_pairs = (
        plan.judging.familywise or not judges_by_pair(plan.deciding_rule) or plan.objective.margin is not None
    )
    has_history = plan.first is not None or plan.bench.prior_counts is not None or plan.before is not None
    return (
        plan.pace.in_step
        and not depends_on_pairs
        and not has_history
        and not plan.source.by_question
        and replace(plan.budget, trials=None) == Budget()
    )


class StackedEnd(NamedTuple):
    """How one of the runs ended."""

    reason: Reason
    counts: IntArray
    """(L, M, K)."""
    comparisons: tuple[PairVerdict, ...]


class SummedTapes:
    """Counts by category of the first trials of each cell, on several tapes of one shape."""

    def __init__(self, tapes: Sequence[Tape], categories: int) -> None:
        self._layers = Layers[int](_summed(tapes, categories))

    def counts(self, rows: IndexArray, trials: IntArray) -> IntArray:
        """Counts (n, M, K) of the first `trials` (n, M), at least one each, of models numbered on from tape to tape."""
        model, question = np.broadcast_arrays(rows[:, None], np.arange(trials.shape[1]))
        but_last = self._layers.look_up(TrialArrays(model, question, trials - 1))
        return np.concatenate([but_last, (trials - but_last.sum(axis=-1))[..., None]], axis=-1, dtype=np.int32)


def _summed(tapes: Sequence[Tape], categories: int) -> Iterator[IntArray]:
    """After each trial, the counts (L, M, K - 1) of all categories but the last."""
    total = np.zeros(1, dtype=np.int32)
    for trial in count():
        layer = np.concatenate([tape.layer(trial) for tape in tapes])
        total = total + (layer[..., None] == np.arange(categories - 1, dtype=layer.dtype))
        yield total


class RunStack:
    """Runs side by side; arrays have a row for each run (R), or for each model of each (R L)."""

    def __init__(self, plan: Plan, tapes: SummedTapes, runs: int) -> None:
        """Each of the `runs` has a tape of its own."""
        bench = plan.bench
        self._plan, self._tapes = plan, tapes
        self._criteria = Criteria(plan.objective, plan.deciding_rule, plan.judging, plan.estimator, p_values=False)
        self._shape = (bench.models, bench.questions)
        self._runs = np.arange(runs)
        """Numbers of the runs that are still going."""
        self._cap = inf if plan.budget.trials is None else float(plan.budget.trials)
        """The most trials of each run."""
        self._issued = np.zeros((runs, *self._shape), dtype=np.int32)
        self._there = np.zeros_like(self._issued)
        """Trials in committed rounds."""
        self._counts = np.zeros((runs * bench.models, bench.questions, bench.categories), dtype=np.int32)
        self._estimates = Estimates.nothing(Bench(runs * bench.models, bench.questions, bench.weights))
        first, _ = judged_pairs(bench.models, plan.objective.reference is not None, None, runs)
        self._memory = LatchedVerdicts.blank(len(first))
        self._flying: list[deque[TrialArray]] = [deque() for _ in range(runs)]
        self._ends: dict[int, StackedEnd] = {}

    def ends(self) -> list[StackedEnd]:
        """Play all runs to their ends, and return these in the order of the tapes."""
        self._compose_first()
        while len(self._runs):
            self._commit()
            available = self._available()
            look = self._look(available)
            fits = self._compose(look)
            self._end_idle_runs(available, fits)
        return [self._ends[number] for number in range(len(self._ends))]

    # -- one step ----------------------------------------------------------------------------------------------------

    def _commit(self) -> None:
        """Commit the next round of every run."""
        batch = np.stack([flying.popleft() for flying in self._flying])
        self._there += batch
        models, questions = self._shape
        rows = np.flatnonzero(batch.any(axis=2))
        run, model = np.divmod(rows, models)
        committed = self._there.reshape(-1, questions)[rows]
        self._counts[rows] = self._tapes.counts(self._runs[run] * models + model, committed)
        plan, bayes = self._plan, self._plan.estimator == "bayes"
        old, counts = self._estimates, self._counts
        self._estimates = update(old, rows, counts, plan.bench, plan.prior, plan.trials.max, bayes=bayes)

    def _available(self) -> AvailableTrials:
        """Trials left for every run and each of its pairs."""
        questions = self._shape[1]
        trials, issued = (of.sum(axis=2, dtype=np.int64) for of in (self._there, self._issued))
        affordable = np.maximum(self._cap - issued.sum(axis=1), 0.0)
        of_pairs = np.repeat(affordable, len(self._memory.call) // len(self._runs))
        reserved, trials = (issued - trials).ravel(), trials.ravel()
        no_model, no_trials = np.zeros(len(trials), dtype=bool), np.zeros_like(trials)
        remaining = self._plan.trials.max * questions - trials
        return AvailableTrials(trials, remaining, of_pairs, no_model, no_trials, no_model, reserved)

    def _look(self, available: AvailableTrials) -> JudgedLook:
        """A look at every pair whose verdict may change: if verdicts latch, those that are neither called nor tied."""
        memory, runs = self._memory, len(self._runs)
        if not self._plan.judging.latch:
            look = self._judge(self._estimates, memory, available, runs)
            self._memory = look.memory
            return look
        among = np.flatnonzero((memory.call == 0) & ~memory.tie)
        open_available = replace(available, affordable=np.asarray(available.affordable)[among])
        open_verdicts = LatchedVerdicts(**{field.name: getattr(memory, field.name)[among] for field in fields(memory)})
        look = self._judge(self._estimates, open_verdicts, open_available, runs, among)
        self._memory = LatchedVerdicts(**{field.name: getattr(memory, field.name).copy() for field in fields(memory)})
        for field in fields(memory):
            getattr(self._memory, field.name)[among] = getattr(look.memory, field.name)
        return look

    def _judge(
        self,
        estimates: Estimates,
        memory: LatchedVerdicts,
        available: AvailableTrials,
        runs: int = 1,
        among: IndexArray | None = None,
    ) -> JudgedLook:
        """A look at the pairs of these runs, or at those at the positions `among`."""
        compared, reference = estimates.on(self._plan.estimator), self._plan.objective.reference
        evidence = weigh_evidence(compared, reference, benches=runs, among=among)
        return judge_look(estimates, [evidence], memory, self._criteria, available)

    def _compose_first(self) -> None:
        """Issue the first round of every run, and the rounds that run ahead of the first look."""
        plan, runs = self._plan, self._runs.tolist()
        rounds, one_each = [plan.opening], np.ones(self._shape, dtype=np.int32)
        if rounds[0].sum() > self._cap:
            nothing = np.zeros((*self._shape, plan.bench.categories), dtype=np.int32)
            self._ends = {number: StackedEnd(Reason.BUDGET, nothing, ()) for number in runs}
            self._drop(runs)
            return
        issued = rounds[0].copy()
        while len(rounds) <= plan.pace.lookahead and issued[0, 0] < plan.trials.max:
            issued += one_each
            if issued.sum() > self._cap:
                break
            rounds.append(one_each)
        for number in runs:
            for extra in rounds:
                self._issue(number, extra)

    def _compose(self, look: JudgedLook) -> BoolArray:
        """Issue what the look asks for; returns of each run whether the cap allows all of it."""
        fits = np.ones(len(self._runs), dtype=bool)
        rounds = np.array([1 + self._plan.pace.lookahead - len(flying) for flying in self._flying])
        going = rounds > 0
        while going.any():
            extra, fit = self._next_rounds(look, going)
            fits = np.where(going, fit, fits)
            going &= extra.any(axis=(1, 2))
            for number in np.flatnonzero(going).tolist():
                self._issue(number, extra[number])
            rounds[going] -= 1
            going &= rounds > 0
        return fits

    def _next_rounds(self, look: JudgedLook, going: BoolArray) -> tuple[TrialArray, BoolArray]:
        """One more round (R, L, M) of the runs that are going, and whether the cap allows all of it."""
        pairs, power = look.open_pairs(), look.open_power()
        run_of = pairs[:, 0] // self._shape[0]
        trials = self._issued.sum(axis=2, dtype=np.int64)
        ahead = np.array([bool(flying) for flying in self._flying])
        selected = going[run_of]
        if ahead.any():
            committed = self._there.sum(axis=2, dtype=np.int64).ravel()
            selected &= ~ahead[run_of] | likely_open(look, committed, trials.ravel(), self._plan.judging.delta)
        pairs, power, run_of = pairs[selected], power[selected], run_of[selected]
        view = self._view(look, pairs, power, trials)
        policy = self._plan.policy
        # this policy gives each model of an open pair trials by weights, so that all runs can be served at once
        if not isinstance(policy, UnresolvedPairs):
            return self._compose_singly(
                view, run_of, going, np.zeros_like(self._issued), np.ones(len(going), dtype=bool)
            )
        of_runs = view.trial_var.reshape(self._issued.shape)
        weights = policy.weights(of_runs, view.question_weights).reshape(view.issued.shape)
        extra = spread_over_open(view, weights).astype(np.int32).reshape(self._issued.shape)
        fits = trials.sum(axis=1) + extra.sum(axis=(1, 2)) <= self._cap
        return self._compose_singly(view, run_of, ~fits & going, extra, fits)

    def _view(self, look: JudgedLook, pairs: IndexArray, power: FloatArray, trials: NDArray[np.int64]) -> View:
        """The policy's view of all runs."""
        plan, questions = self._plan, self._shape[1]
        sizes = np.full(trials.size, questions)
        return View(
            open_pairs=pairs,
            power=power,
            order=look.order,
            in_play=np.ones(trials.size, dtype=bool),
            issued=self._issued.reshape(-1, questions),
            trial_var=look.estimates.trial_var,
            sizes=np.clip(plan.trials.max * questions - trials.ravel(), 0, sizes),
            question_weights=plan.bench.question_weights,
        )

    def _compose_singly(
        self, view: View, run_of: IndexArray, selected: BoolArray, extra: TrialArray, fits: BoolArray
    ) -> tuple[TrialArray, BoolArray]:
        """Compose some runs' rounds again, each by itself and as far as the cap allows."""
        models = self._shape[0]
        reference = len(view.in_play)
        for number in np.flatnonzero(selected).tolist():
            begins, is_own = number * models, run_of == number
            pairs = view.open_pairs[is_own]
            pairs = np.where(pairs == reference, models, pairs - begins)
            run_extra, fits[number] = self._fitting(
                number, _single_view(view, slice(begins, begins + models), pairs, is_own)
            )
            extra[number] = 0 if run_extra is None else run_extra
        return extra, fits

    def _fitting(self, number: int, view: View) -> tuple[TrialArray | None, bool]:
        """A run's round for as many of its comparisons as fit within the cap."""
        cap_left = self._cap - self._issued[number].sum()

        def allocate(chosen: IndexArray) -> TrialArray:
            chosen_view = replace(view, open_pairs=view.open_pairs[chosen], power=view.power[chosen])
            return checked_allocation(self._plan.policy, chosen_view)

        worth = np.argsort(-view.power, kind="stable")
        return most_that_fit(worth, allocate, lambda extra: bool(extra.sum() <= cap_left))

    def _issue(self, number: int, extra: TrialArray) -> None:
        self._issued[number] += extra
        self._flying[number].append(extra)

    # -- ends --------------------------------------------------------------------------------------------------------

    def _end_idle_runs(self, available: AvailableTrials, fits: BoolArray) -> None:
        done = [number for number, flying in enumerate(self._flying) if not flying]
        for number in done:
            # a look at all pairs of the run alone; it finds nothing more to call or to tie
            run_available, is_run = (
                available_to(available, number, len(self._runs)),
                np.arange(len(self._runs)) == number,
            )
            estimates, memory = (
                select_benches(arrays, is_run, len(self._runs)) for arrays in (self._estimates, self._memory)
            )
            look = self._judge(estimates, memory, run_available)
            self._ends[int(self._runs[number])] = StackedEnd(
                reason=why_no_further(look, bool(fits[number]), ()),
                counts=self._counts.reshape(len(self._runs), *self._shape, -1)[number].copy(),
                comparisons=describe(look, look.pairs, look.verdicts, run_available, self._shape[1]),
            )
        self._drop(done)

    def _drop(self, done: Sequence[int]) -> None:
        """Remove finished runs."""
        if not done:
            return
        runs = len(self._runs)
        keep = np.ones(runs, dtype=bool)
        keep[list(done)] = False
        self._counts = self._counts[np.repeat(keep, self._shape[0])]
        self._estimates = select_benches(self._estimates, keep, runs)
        self._memory = select_benches(self._memory, keep, runs)
        self._runs, self._issued, self._there = self._runs[keep], self._issued[keep], self._there[keep]
        self._flying = [self._flying[number] for number in np.flatnonzero(keep).tolist()]


def available_to(available: AvailableTrials, number: int, benches: int) -> AvailableTrials:
    """Trials left for one of several runs."""
    models, affordable = len(available.trials) // benches, np.asarray(available.affordable)
    rows = slice(number * models, (number + 1) * models)
    run_affordable = float(affordable[number * (len(affordable) // benches)])
    arrays = (getattr(available, name)[rows] for name in ("set_aside", "prior_outcomes", "recorded", "reserved"))
    return AvailableTrials(available.trials[rows], available.remaining[rows], run_affordable, *arrays)


def _single_view(view: View, rows: slice, pairs: IndexArray, is_own: BoolArray) -> View:
    """The policy's view of a single run, with its own model numbers."""
    order = view.order[rows] - rows.start
    arrays = {name: getattr(view, name)[rows] for name in ("in_play", "issued", "trial_var", "sizes")}
    return replace(view, open_pairs=pairs, power=view.power[is_own], order=order, **arrays)


def select_benches(values: Any, keep: NDArray[np.bool_], benches: int) -> Any:
    """Estimates or verdicts of the benches that are kept; every array has a row for each model or pair."""
    rows = np.repeat(keep, len(getattr(values, fields(values)[0].name)) // benches)
    return type(values)(**{field.name: getattr(values, field.name)[rows] for field in fields(values)})
