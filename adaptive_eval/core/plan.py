"""The plan of a run: everything besides the outcomes that decisions depend on."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.core.account import BudgetAccount
from adaptive_eval.core.answer_kinds import NOTHING_UNSURE, UnsureGrades
from adaptive_eval.core.evidence import Estimator, IndexArray, Prior, judged_pairs
from adaptive_eval.core.evidence_source import DrawnQuestions, EvidenceSource, OneTrialEach, TrialByTrial
from adaptive_eval.core.gates import SeveralGates
from adaptive_eval.core.judge import Judging, rule_shared_among
from adaptive_eval.core.objectives import Objective, Ranking
from adaptive_eval.core.optimal import Optimal, Spacing
from adaptive_eval.core.policies import BUILT_IN, Policy, Weighted
from adaptive_eval.core.rules import Correctable, Rule, is_correctable, is_giving_up
from adaptive_eval.core.sequential import Coupled, Sequential
from adaptive_eval.core.settings import (
    MAX_ROUND_FACTOR,
    MIN_BLOCK_SIZE,
    Bench,
    Budget,
    Pace,
    Trials,
    brief_repr,
    require,
    require_type,
)
from adaptive_eval.core.stages import StageBefore


def affordable_opening(bench: Bench, trials: Trials, pace: Pace, budget: Budget, capped: bool | None) -> int:
    """Trials per question of the first round: the pace's opening if the caps pay for it twice, else `trials.min`.
    `capped` is the answer recorded when the run took its first look."""
    size = pace.first_round(trials.min, trials.max)
    if capped is None:
        account = BudgetAccount(budget, bench.worst_cost)
        capped = not account.fits(np.where(bench.asked, 2 * size * bench.questions, 0))
    return trials.min if capped else size


FIELD_TYPES: Mapping[str, type] = {
    "bench": Bench,
    "judging": Judging,
    "trials": Trials,
    "pace": Pace,
    "budget": Budget,
}


@dataclass(frozen=True, slots=True, repr=False)
class Plan:
    """The settings of a run for the core; the defaults are those of the configuration file.

    Examples:
        >>> from adaptive_eval.core import Bench, Best, Budget, Judging, Plan
        >>> bench = Bench(models=3, questions=30, weights=[0.0, 1.0])
        >>> plan = Plan(bench, objective=Best(), judging=Judging(delta=0.02), budget=Budget(trials=5000))
        >>> plan.trials.max, plan.prior
        (80, 'self')
    """

    bench: Bench
    _: KW_ONLY
    objective: Objective = field(default_factory=Ranking)
    rule: Rule = field(default_factory=Optimal)
    policy: Policy = field(default_factory=Weighted)
    judging: Judging = field(default_factory=Judging)
    prior: Prior = "self"
    trials: Trials = field(default_factory=Trials)
    pace: Pace = field(default_factory=Pace)
    budget: Budget = field(default_factory=Budget)
    first: NDArray[np.integer] | None = field(default=None, compare=False)
    """(L, M): trials of every model and question that are there before the first look; the first look takes all of
    them, like a look at a design with fixed numbers of trials."""
    before: StageBefore | None = field(default=None, compare=False, repr=False)
    """The run as it stood when its settings were changed, from which this plan goes on."""
    capped_opening: bool | None = None
    """Whether caps allowed only `trials.min` in the first round, even if raised since. None before the first look."""
    estimator: Estimator = "average"
    """The scores that are compared."""
    coupled: bool = False
    """Whether trial i of a question has the same seed for every model (`TrialByTrial`)."""
    unsure: UnsureGrades = NOTHING_UNSURE
    """Which graded answers could be in another category."""
    says_nothing: int = 0
    """Bits of `AnswerKind`: an alarm is raised if most answers of a model are of one of these kinds."""
    stops_on_alarm: bool = True
    """Whether an alarm about a model's answers ends the run (`answer_alarms`)."""
    drawn: int = 0
    """Block size of drawn questions: they stand in random order and are asked in blocks, one trial of each.
    0: every question is asked before the first look."""

    def __repr__(self) -> str:
        return brief_repr(self)

    def __post_init__(self) -> None:
        for name, kind in FIELD_TYPES.items():
            require_type(getattr(self, name), kind, f"{name} of a plan")
        if not hasattr(self.objective, "comparisons"):
            raise TypeError(
                f"objective of a plan must have `comparisons`, as Ranking() has, but got {self.objective!r}"
            )
        if self.before is not None:
            self.before.check(self.bench.models)
        self._check_first()
        self._check_coupled()
        self._check_drawn()
        self._check_gates()
        rule = self.deciding_rule
        correctable = not self.judging.familywise or isinstance(rule, Correctable)
        require(correctable, "familywise needs a rule with p-values, as optimal and anytime have", rule)
        family = self.objective.family(self.bench.models)
        if not isinstance(family, int):
            self._check_pairs(family)
        pairs = self.objective.comparisons(np.arange(self.bench.models))
        self._check_pairs(pairs)
        require(len(pairs) > 0 or self.bench.models == 1, "an objective must compare something", self.objective)

    def _check_pairs(self, pairs: IndexArray) -> None:
        models = self.bench.models
        first, second = pairs[:, 0], pairs[:, 1]
        if self.objective.reference is not None:
            right = second == models
        else:
            right = (second >= 0) & (second < models) & (second != first)
        wrong = pairs[~(right & (first >= 0) & (first < models))].tolist()
        require(not wrong, f"{self.objective} must compare two of the models 0 to {models - 1}", wrong[:1])

    def _check_coupled(self) -> None:
        if not self.coupled:
            return
        require(self.prior == "self", "coupled needs the prior self, which is centred at the differences", self.prior)
        require(self.estimator == "average", "coupled compares averages", self.estimator)
        bench, counts = self.bench, self.bench.prior_counts
        if counts is not None:
            rule = "coupled compares trial by trial, and of R0 there are only counts"
            require(not counts[bench.asked].any(), rule, counts)
            has_trials = not bench.recorded or bench.recorded_trials is not None
            require(has_trials, "coupled needs the recorded_trials of recorded models", bench.recorded_trials)

    def _check_gates(self) -> None:
        margin, deltas = self.objective.margin, tuple(delta for _, delta in self.bench.gates)
        parts = () if margin is None else margin.parts
        if margin is not None:
            on_value = self.objective.reference is not None
            rule = "a gate on a value has the number of models as its baseline, any other gate a model"
            require(on_value == (margin.baseline == self.bench.models), rule, margin)
            require(not (on_value and margin.parts), "gates of benchmarks compare with a baseline", margin)
        require(parts == deltas, f"the parts of a gate must be those of the benchmarks, {deltas}", parts)
        if parts:
            correctable = isinstance(self.deciding_rule, SeveralGates)
            require(correctable, "gates of benchmarks need a rule with p-values", self.rule)
            require(not self.judging.familywise, "gates of benchmarks share their error already", self.judging)
            by_trial = self.source.by_trial
            require(not by_trial, "gates of benchmarks compare models whose seeds are their own", self.coupled)

    def _check_drawn(self) -> None:
        if not self.drawn:
            return
        min_size = min(MIN_BLOCK_SIZE, self.bench.questions)
        rule = f"drawn must be {min_size} to {self.bench.questions} questions, as many as there are at most"
        require(min_size <= self.drawn <= self.bench.questions, rule, self.drawn)
        require(
            self.trials == Trials(min=1, max=1),
            "drawn questions have one trial each: trials must be (1, 1)",
            self.trials,
        )
        require(
            self.objective.reference is None,
            "drawn needs an objective that compares models with each other",
            self.objective,
        )
        require(self.estimator == "average", "drawn compares averages", self.estimator)
        weights = self.bench.question_weights
        require(weights is None, "drawn needs questions that weigh alike: they are a sample of all", weights)
        require(self.pace.in_step, "drawn needs a pace at which all models go in step", self.pace)
        has_outcomes = self.bench.prior_counts is not None or self.first is not None
        require(
            not has_outcomes and not self.coupled,
            "drawn may not be used with earlier outcomes or with shared seeds",
            self,
        )

    @property
    def source(self) -> EvidenceSource:
        """Where evidence comes from."""
        objective, bench = self.objective, self.bench
        if self.drawn:
            return DrawnQuestions(self.drawn)
        if objective.reference is None and self.coupled and objective.compares:
            return TrialByTrial()
        weighs = bench.prior_counts is not None or bench.question_weights is not None
        has_gates = objective.margin is not None and bool(objective.margin.parts)
        once = self.trials.max == 1 and objective.reference is None and self.estimator == "average"
        return OneTrialEach() if once and not weighs and not has_gates else EvidenceSource()

    def _check_first(self) -> None:
        if self.first is None:
            return
        shape = (self.bench.models, self.bench.questions)
        require(self.first.shape == shape, f"first must have shape {shape}", self.first.shape)
        require(bool(self.first.min() >= 0), "first must not be negative", self.first.min())
        of_recorded = self.first[~self.bench.asked].sum()
        require(not of_recorded, "first must have no trials of recorded models", of_recorded)
        mean_trials = self.opening.sum(axis=1).max() / self.bench.questions
        rule = "first, with at least trials.min a question, must not exceed trials.max on average"
        require(bool(mean_trials <= self.trials.max), f"{rule}, which is {self.trials.max}", float(mean_trials))

    @property
    def spacing(self) -> Spacing | None:
        """Spacing of a pair's looks up to the horizon; None if unknown.

        They are at most twice the largest round apart, since trials go where they tell most, and there are at most two
        of them for one trial per question of both models; a user-defined policy may use smaller rounds.
        """
        trials, pace = self.trials, self.pace
        if pace.share or self.bench.recorded:
            return None
        round_factor = MAX_ROUND_FACTOR if pace.in_step and self.budget.currency != "trials" else 1.0
        one_round = self.source.least_round(self.bench) / (trials.max * self.bench.questions)
        finest = 0.5 * one_round if isinstance(self.policy, BUILT_IN) else 0.0
        return Spacing(0.0, 2.0 * round_factor * one_round, finest)

    @property
    def judged_pairs(self) -> tuple[IndexArray, IndexArray]:
        """The first and the second of every pair that is judged."""
        return judged_pairs(self.bench.models, self.objective.reference is not None, self.objective.margin)

    @property
    def opening(self) -> NDArray[np.int32]:
        """(L, M): the first round: `trials.min` or the pace's opening of every question, or the trials that are there,
        or the first block of drawn questions."""
        shape = (self.bench.models, self.bench.questions)
        if self.drawn:
            return self.source.next_round(np.zeros(shape, dtype=np.int32), self.bench)
        opening = np.full(shape, self.opening_size, dtype=np.int32)
        first = opening if self.first is None else np.maximum(opening, self.first.astype(np.int32))
        first[~self.bench.asked] = 0
        return first

    @property
    def has_capped_opening(self) -> bool:
        """Whether caps made the first round smaller than the pace's opening."""
        return self.opening_size < self.pace.first_round(self.trials.min, self.trials.max)

    @property
    def opening_size(self) -> int:
        """Trials per question of the first round, if there is none yet and questions are not drawn."""
        return affordable_opening(self.bench, self.trials, self.pace, self.budget, self.capped_opening)

    @property
    def departed(self) -> int:
        """Models that were compared at earlier looks, and are no longer in the run."""
        if self.before is None or not self.before.verdicts_stand:
            return 0
        earlier = self.before.run.plan
        return earlier.departed + earlier.bench.models - len(self.before.last_places(standing=True))

    @property
    def deciding_rule(self) -> Rule:
        """The objective's own rule, else the configured one, in its form for this plan.

        `optimal` in its form that gives up does not fit pairs that share an error, since Holm's procedure needs
        p-values, nor gates of several benchmarks, nor pairs whose trials share seeds, which know most long before the
        horizon (benchmarks/coupling.md), nor an unknown spacing of looks: there its test that gives nothing up decides.
        """
        rule = self.rule if self.objective.rule is None else self.objective.rule
        if isinstance(rule, Optimal) and rule.spacing is None:
            spacing = self.spacing
            # a pair that may be certified as tied has a reason to go on; a gate has no others that could reopen a pair
            rests = not self.judging.delta and self.objective.margin is None
            rule = rule.ties if spacing is None else replace(rule, spacing=spacing, rests=rests)
        margin = self.objective.margin
        if margin is not None and margin.baseline is None:  # any model but the best may be the wrong choice
            mistakes = self.bench.models + self.departed - 1
            rule = rule_shared_among(mistakes, rule) if isinstance(rule, Optimal) or is_correctable(rule) else rule
        by_trial = self.source.by_trial
        if is_giving_up(rule) and (self.judging.familywise or by_trial or (margin is not None and margin.parts)):
            rule = rule.ties
        if margin is not None and margin.parts and isinstance(rule, Correctable):
            return SeveralGates(rule, 1 + len(margin.parts))
        return Coupled.from_rule(rule) if by_trial and isinstance(rule, Sequential) else rule
