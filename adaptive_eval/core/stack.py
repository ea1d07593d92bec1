"""Many simulated runs of one plan at once, as whole arrays instead of one controller each.

Each step commits the next round of every run, looks at all of them, and composes their next rounds. A look works on
whole arrays, so that a look at a hundred small runs takes hardly longer than at a single run. Models and pairs are
numbered consecutively across runs (`Evidence.benches`); runs do not affect each other. Each run has the same looks and
trials as a controller would on the same outcomes, which tests check. Decisions are made elsewhere in `core`. This
module replaces what a controller does between looks, for plans by which most runs are simulated
(`can_stand_side_by_side`). Other runs need a controller each.
"""

from collections.abc import Iterator, Sequence
from dataclasses import fields
from itertools import count
from math import inf
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.core.conclusions import why_no_further
from adaptive_eval.core.evidence import Estimates, IndexArray, judged_pairs, update, weigh_evidence
from adaptive_eval.core.in_flight import TrialArray
from adaptive_eval.core.judge import Criteria, LatchedVerdicts
from adaptive_eval.core.look import AvailableTrials, JudgedLook, describe, judge_look
from adaptive_eval.core.plan import Plan
from adaptive_eval.core.policies import UnresolvedPairs, View, spread_over_open
from adaptive_eval.core.rules import judges_by_pair
from adaptive_eval.core.settings import Bench, Budget
from adaptive_eval.core.tape import Layers, Tape, TrialArrays
from adaptive_eval.core.types import PairVerdict, Reason
from scorio.moments import IntArray

MAX_CELLS = 1 << 16
"""The most questions, over all models and runs, that stand side by side: more would take memory without saving time."""


def can_stand_side_by_side(plan: Plan) -> bool:
    """Whether runs of a plan can be looked at together: they go in step from nothing, without caps, nothing runs ahead
    of a look, each model of an open pair gets a round by weights, and no pair's judgement depends on other pairs."""
    depends_on_pairs = (
        plan.judging.familywise or not judges_by_pair(plan.deciding_rule) or plan.objective.margin is not None
    )
    has_history = plan.first is not None or plan.bench.prior_counts is not None or plan.before is not None
    return (
        plan.pace.in_step
        and not plan.pace.lookahead
        and isinstance(plan.policy, UnresolvedPairs)
        and not depends_on_pairs
        and not has_history
        and not plan.source.by_question
        and plan.budget == Budget()
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
        self._runs = np.arange(runs)
        """Numbers of the runs that are still going."""
        self._trials = np.zeros((runs, bench.models, bench.questions), dtype=np.int32)
        """Trials in committed rounds."""
        self._counts = np.zeros((runs * bench.models, bench.questions, bench.categories), dtype=np.int32)
        self._estimates = Estimates.nothing(Bench(runs * bench.models, bench.questions, bench.weights))
        first, _ = judged_pairs(bench.models, plan.objective.reference is not None, None, runs)
        self._memory = LatchedVerdicts.blank(len(first))
        self._ends: dict[int, StackedEnd] = {}

    def ends(self) -> list[StackedEnd]:
        """Play all runs to their ends, and return these in the order of the tapes."""
        extra = np.broadcast_to(self._plan.opening, self._trials.shape)
        while len(self._runs):
            self._commit(extra)
            look = self._judge(self._estimates, self._memory, self._trials)
            self._memory = look.memory
            extra = self._next_rounds(look)
            goes_on = np.asarray(extra.any(axis=(1, 2)))
            for number in np.flatnonzero(~goes_on).tolist():
                self._end(number)
            self._keep(goes_on)
            extra = extra[goes_on]
        return [self._ends[number] for number in range(len(self._ends))]

    def _commit(self, extra: TrialArray) -> None:
        """Commit a round (R, L, M) of every run."""
        plan, bench = self._plan, self._plan.bench
        self._trials += extra
        rows = np.flatnonzero(extra.any(axis=2))
        run, model = np.divmod(rows, bench.models)
        committed = self._trials.reshape(-1, bench.questions)[rows]
        self._counts[rows] = self._tapes.counts(self._runs[run] * bench.models + model, committed)
        bayes = plan.estimator == "bayes"
        self._estimates = update(self._estimates, rows, self._counts, bench, plan.prior, plan.trials.max, bayes=bayes)

    def _judge(self, estimates: Estimates, memory: LatchedVerdicts, trials: IntArray) -> JudgedLook:
        """A look at runs with these committed trials (R, L, M)."""
        compared, reference = estimates.on(self._plan.estimator), self._plan.objective.reference
        evidence = weigh_evidence(compared, reference, benches=len(trials))
        return judge_look(estimates, [evidence], memory, self._criteria, _available(self._plan, trials))

    def _next_rounds(self, look: JudgedLook) -> TrialArray:
        """The next rounds (R, L, M) for all open pairs; that of a run without any is empty."""
        plan, questions, policy = self._plan, self._plan.bench.questions, self._plan.policy
        assert isinstance(policy, UnresolvedPairs)
        trials = self._trials.reshape(-1, questions)
        left = plan.trials.max * questions - trials.sum(axis=1, dtype=np.int64)
        view = View(
            open_pairs=look.open_pairs(),
            power=look.open_power(),
            order=look.order,
            in_play=np.ones(len(trials), dtype=bool),
            issued=trials,
            trial_var=look.estimates.trial_var,
            sizes=np.clip(left, 0, questions),
            question_weights=plan.bench.question_weights,
        )
        weights = policy.weights(view.trial_var.reshape(self._trials.shape), view.question_weights)
        return spread_over_open(view, weights.reshape(trials.shape)).astype(np.int32).reshape(self._trials.shape)

    def _end(self, number: int) -> None:
        """Note how a run has ended, by a look at all its pairs alone; it finds nothing more to call or to tie."""
        runs, bench = len(self._runs), self._plan.bench
        own = np.arange(runs) == number
        look = self._judge(_of_runs(self._estimates, own), _of_runs(self._memory, own), self._trials[own])
        self._ends[int(self._runs[number])] = StackedEnd(
            reason=why_no_further(look, True, ()),
            counts=self._counts[np.repeat(own, bench.models)],
            comparisons=describe(
                look, look.pairs, look.verdicts, _available(self._plan, self._trials[own]), bench.questions
            ),
        )

    def _keep(self, goes_on: NDArray[np.bool_]) -> None:
        """Remove the other runs."""
        self._counts = self._counts[np.repeat(goes_on, self._plan.bench.models)]
        self._estimates, self._memory = _of_runs(self._estimates, goes_on), _of_runs(self._memory, goes_on)
        self._runs, self._trials = self._runs[goes_on], self._trials[goes_on]


def _available(plan: Plan, committed: IntArray) -> AvailableTrials:
    """Trials left for runs with these committed trials (R, L, M)."""
    trials = committed.sum(axis=2, dtype=np.int64).ravel()
    no_model, no_trials = np.zeros(len(trials), dtype=bool), np.zeros_like(trials)
    remaining = plan.trials.max * plan.bench.questions - trials
    return AvailableTrials(trials, remaining, inf, no_model, no_trials, no_model, no_trials)


def _of_runs(values: Any, chosen: NDArray[np.bool_]) -> Any:
    """Estimates or verdicts of the chosen runs (R,); every array has a row for each model or pair."""
    rows = np.repeat(chosen, len(getattr(values, fields(values)[0].name)) // len(chosen))
    return type(values)(**{field.name: getattr(values, field.name)[rows] for field in fields(values)})
