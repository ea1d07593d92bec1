"""Shared by the tests of the decision core: predetermined answers, random plans, and misbehaving shells."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import binom

from adaptive_eval.core import Anytime, Controller, Judging, NearBest, Optimal, Plan, Rule, StageBefore, ZScore
from adaptive_eval.core.answer_kinds import AnswerKind
from adaptive_eval.core.controller import FindVoid
from adaptive_eval.core.corrected import ScoreCorrection
from adaptive_eval.core.look import JudgedLook
from adaptive_eval.core.objectives import Baseline, Best, Objective, Pairs, PrecisionOf, Ranking, Threshold, TopK
from adaptive_eval.core.policies import Policy, Uniform, UnresolvedPairs, Weighted
from adaptive_eval.core.result import Result
from adaptive_eval.core.rounds import Batch
from adaptive_eval.core.sequential import Sequential
from adaptive_eval.core.settings import Bench, Budget, Pace, Trials
from adaptive_eval.core.types import NO_COST, Ask, Cost, Look, Outcome, SetAside, Verdict
from scorio.moments import IntArray
from scorio.sinf import difference_values, paired_counts, paired_moments

BINARY = np.array([0.0, 1.0])
"""The weights of wrong and right."""
seeds = st.integers(0, 2**20)
RUBRICS = ([0.0, 1.0], [1.0, 0.0], [0.0, 0.0, 0.5, 1.0], [-1.0, 0.25, 3.0])
RULES: tuple[Rule, ...] = (Optimal(), Sequential(), ZScore(), Anytime(), NearBest(0.05), Sequential(0.8, kappa=0.5))
POLICIES: tuple[Policy, ...] = (Weighted(), UnresolvedPairs(), Uniform())


def never_called(bench: Bench, **settings: object) -> Plan:
    """A plan by which nothing is ever called or given up, with `Uniform` as its policy if no other is given."""
    usual = {"rule": ZScore(99.0), "policy": Uniform(), "judging": Judging(futility=None), "prior": "uniform"}
    return Plan(bench, **(usual | settings))  # type: ignore[arg-type]


def allowed(promise: float, runs: int) -> float:
    """The share of runs below which a rate at the promise lies with probability 0.999."""
    return float(binom.ppf(0.999, runs, promise) / runs)


def unit(*key: int) -> float:
    """A number in [0, 1) that depends on the key alone."""
    return int.from_bytes(blake2b(repr(key).encode(), digest_size=6).digest(), "big") / 2**48


class Answers:
    """The outcome of each trial, determined by its place alone; some trials have the worst cost."""

    def __init__(self, plan: Plan, seed: int, skill: Callable[[int, int], float] | None = None) -> None:
        self.plan = plan
        self.seed = seed
        self._best = int(np.argmax(plan.bench.weights))
        self._others = [category for category in range(plan.bench.categories) if category != self._best]
        self._skill = skill or (lambda model, question: 0.2 + 0.15 * model + 0.5 * unit(seed, question))

    def of(self, trials: Iterable[Ask]) -> list[Outcome]:
        """The outcomes of these trials."""
        return [self._outcome(ask) for ask in trials]

    def _outcome(self, ask: Ask) -> Outcome:
        place = (self.seed, ask.model, ask.question, ask.trial)
        right = unit(*place) < self._skill(ask.model, ask.question)
        category = self._best if right else self._others[int(unit(*place, 1) * len(self._others))]
        share = min(1.0, 1.2 * unit(*place, 2))
        worst = self.plan.bench.worst_cost[ask.model]
        cost = Cost(int(share * worst.tokens), share * worst.usd, share * worst.gpu_seconds)
        seconds = 2.0 ** (ask.model % 3) * 4.0 * unit(*place, 3)
        return Outcome(ask.model, ask.question, ask.trial, category, cost, seconds=seconds)


class Faulty(Answers):
    """Answers of which a share is cut off, or timed out, or (None) has no grade; and most of those of the last model
    from its seventh trial on."""

    def __init__(self, plan: Plan, seed: int, fault: AnswerKind | None, share: float) -> None:
        super().__init__(plan, seed)
        self._share = share
        self._fault = fault

    def of(self, trials: Iterable[Ask]) -> list[Outcome]:
        return [self._spoiled(outcome) if self._is_bad(outcome) else outcome for outcome in super().of(trials)]

    def _spoiled(self, outcome: Outcome) -> Outcome:
        if self._fault is None:
            return outcome._replace(category=None)
        category = self._others[0] if self._fault is AnswerKind.TIMED_OUT else outcome.category
        return outcome._replace(kinds=int(self._fault), category=category)

    def _is_bad(self, outcome: Outcome) -> bool:
        last = outcome.model == self.plan.bench.models - 1 and outcome.trial >= 6
        return bool(np.random.default_rng((self.seed, *outcome[:3])).random() < self._share + 0.8 * last)


def straight(plan: Plan, answers: Answers, looks: int | None = None, find_void: FindVoid | None = None) -> Controller:
    """The simplest shell: ask for everything and tell everything to the end, or one by one up to a number of looks."""
    controller = Controller(plan, find_void=find_void)
    while controller.finished is None:
        requested = controller.ask(1 << 30)
        assert requested, "stalled"
        if looks is None:
            controller.tell(answers.of(requested))
            continue
        for outcome in answers.of(requested):
            controller.tell([outcome])
            if len(controller.looks) == looks:
                return controller
    return controller


def play(
    run: Controller,
    grades: Callable[[Ask], int | None | tuple[int | None, int]] | NDArray[Any],
    looks: float = math.inf,
    cost: Callable[[Ask], Cost] = lambda ask: NO_COST,
) -> Controller:
    """Tell a run the grade of every trial, or the grade and the kinds of its answer, up to a number of looks or to its
    end. In an array (L, M, N) a negative number is no grade."""
    while run.finished is None and len(run.looks) < looks:
        outcomes = []
        for ask in run.ask(1 << 20):
            graded = grades(ask) if callable(grades) else int(grades[ask[:3]])
            category, kinds = graded if isinstance(graded, tuple) else (graded, 0)
            grade = None if category is None or category < 0 else category
            outcomes.append(Outcome(*ask[:3], grade, cost(ask), kinds=int(kinds)))
        run.tell(outcomes)
    return run


def play_chances(run: Controller, chances: NDArray[np.float64] | float, rng: np.random.Generator) -> Controller:
    """Tell a run whole rounds of trials that are right with these chances, to its end."""
    while run.finished is None:
        for batch in run.ask_batches():
            of_model = np.broadcast_to(chances, run.ungraded.shape)[batch.model]
            tell_right(run, batch, rng.binomial(batch.slots.extra, of_model))
    return run


def tell_right(run: Controller, batch: Batch, right: IntArray) -> list[Look]:
    """Tell a run how many trials (M,) of a batch are right, and that the others are wrong."""
    return run.tell_counts([(batch, np.stack([batch.slots.extra - right, right], axis=-1))])


def result_of(run: Controller, correction: ScoreCorrection | None = None) -> Result:
    """The result of a run that has one."""
    result = run.result() if correction is None else run.result(correction)
    assert result is not None
    return result


def look_of(run: Controller) -> Look:
    """The last look of a run that has one, as it is reported."""
    look = run.latest_look()
    assert look is not None
    return look


def standing_of(run: Controller) -> JudgedLook:
    """The last look of a run that has one, with its evidence."""
    assert run.last_look is not None
    return run.last_look


def verdicts_of(run: Controller, look: int = -1) -> dict[tuple[int, int | None], Verdict]:
    """The verdicts of a look, by the better and the worse model."""
    return {pair[:2]: pair.verdict for pair in run.looks[look].comparisons}


def after(run: Controller, plan: Plan, models: Sequence[int | None] | None = None, stands: bool = True) -> Plan:
    """The plan, going on from a run; by default with the same models."""
    numbers = range(run.plan.bench.models) if models is None else models
    return replace(plan, before=StageBefore(run, tuple(numbers), stands))


def paired_z(first: NDArray[Any], second: NDArray[Any], horizon: float) -> float:
    """z of the differences between two models on the trials (M, N) of shared seeds, where 1 is right and 0 wrong."""
    weights = np.array([0.0, 1.0])
    differences = difference_values(weights)
    moments = paired_moments(paired_counts(first, second, differences), weights, differences.values, horizon)
    return float(moments.mean / np.sqrt(moments.var))


class Shell:
    """A shell that asks in random slots, tells in random batches and orders, and is restarted at random."""

    def __init__(self, plan: Plan, answers: Answers, rng: np.random.Generator, restarts: float = 0.0) -> None:
        self.controller = Controller(plan)
        self.flying: list[Ask] = []
        self.outcomes: list[Outcome] = []
        self._answers = answers
        self._rng = rng
        self._restarts = restarts

    def run(self) -> Controller:
        """Until it is finished."""
        while self.controller.finished is None:
            self.step()
        return self.controller

    def step(self) -> list[Look]:
        """Ask, tell or start again; trials in flight of a model that was set aside are dropped."""
        self.flying = [ask for ask in self.flying if ask.model not in self.controller.set_aside]
        if self._rng.random() < self._restarts:
            self._restart()
        if self._rng.random() < 0.5:
            self._ask()
            return []
        return self._tell()

    def _ask(self) -> None:
        models = self.controller.plan.bench.models
        model = int(self._rng.integers(models)) if self._rng.random() < 0.3 else None
        requested = self.controller.ask(int(self._rng.integers(0, 20)), model)
        assert model is None or all(ask.model == model for ask in requested)
        self.flying += requested
        assert self.controller.in_flight == len(self.flying)

    def _tell(self) -> list[Look]:
        if not self.flying:
            self.flying += self.controller.ask(7)
            assert self.flying or self.controller.finished is not None, "stalled"
        order = self._rng.permutation(len(self.flying))
        count = int(self._rng.integers(1, 30))
        outcomes = self._answers.of(self.flying[place] for place in order[:count])
        self.flying = [self.flying[place] for place in order[count:]]
        self.outcomes += outcomes
        return self.controller.tell(iter(outcomes))

    def _restart(self) -> None:
        before = self.controller
        self.controller = Controller(before.plan)
        order = self._rng.permutation(len(self.outcomes))
        looks = restore(self.controller, [self.outcomes[place] for place in order])
        assert looks == self.controller.looks[len(Controller(before.plan).looks) :]
        assert exact(self.controller.looks) == exact(before.looks)
        self.flying = []


def restore(controller: Controller, outcomes: Iterable[Outcome]) -> list[Look]:
    """Take in the outcomes of an earlier run, as a start does; returns the looks that follow."""
    return [*controller.take(outcomes), *controller.tell(())]


def exact(looks: Sequence[Look]) -> list[str]:
    """Looks to the last bit, nan being equal to nan."""
    return [repr(look) for look in looks]


def drained(controller: Controller, answers: Answers, events: Iterable[SetAside] = ()) -> Controller:
    """Continue the run to its end after these events."""
    controller.tell(events)
    while controller.finished is None:
        requested = controller.ask(1 << 30)
        assert requested, "stalled"
        controller.tell(answers.of(requested))
    assert controller.ask(10) == []
    assert controller.in_flight == 0
    return controller


def objectives(models: int) -> st.SearchStrategy[Objective]:
    """Every objective that these models allow."""
    choices: list[Objective] = [Ranking(), Best(), Threshold(0.5), PrecisionOf(0.12)]
    if models > 1:
        choices += [TopK(1), TopK(models - 1), Baseline(models - 1), Pairs(((0, models - 1),))]
    return st.sampled_from(choices)


@st.composite
def benches(draw: st.DrawFn, most_models: int = 5, most_questions: int = 5) -> Bench:
    """Small benches: unequal prices, rubrics of 2 to 4 categories, outcomes known beforehand, clusters."""
    models = draw(st.integers(1, most_models))
    questions = draw(st.integers(1, most_questions))
    weights = np.array(draw(st.sampled_from(RUBRICS)))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    costs = tuple(
        Cost(int(rng.integers(0, 50)), float(rng.choice([0.0, 0.1, 0.7])), float(rng.exponential()))
        for _ in range(models)
    )
    prior = rng.integers(0, 4, (models, questions, len(weights))) if draw(st.booleans()) else None
    labels = np.unique(rng.integers(0, 3, questions), return_inverse=True)[1] if draw(st.booleans()) else None
    return Bench(models, questions, weights, costs, prior, labels)


@st.composite
def plans(draw: st.DrawFn, capped: bool = True, most_models: int = 5) -> Plan:
    """Small plans of every kind."""
    bench = draw(benches(most_models=most_models))
    objective = draw(objectives(bench.models))
    rule = draw(st.sampled_from(RULES))
    correctable = hasattr(rule, "p_value") and not isinstance(objective, PrecisionOf)
    trials = draw(st.integers(1, 4))
    futility = draw(st.sampled_from([None, 0.15]))
    return Plan(
        bench,
        objective=objective,
        rule=rule,
        policy=draw(st.sampled_from(POLICIES)),
        judging=Judging(
            draw(st.sampled_from([0.0, 0.05])),
            futility,
            correctable and draw(st.booleans()),
            latch=draw(st.sampled_from([True, True, False])),
        ),
        prior=draw(st.sampled_from(["uniform", "self"])),
        trials=Trials(min=trials, max=trials + draw(st.integers(0, 12))),
        pace=draw(paces()),
        budget=draw(budgets(bench)) if capped else Budget(),
        estimator=draw(st.sampled_from(["average", "average", "bayes"])),
    )


@st.composite
def paces(draw: st.DrawFn) -> Pace:
    """Paces with all models in step, or each in its own rounds."""
    lookahead = draw(st.integers(0, 3))
    if draw(st.booleans()):
        return Pace(lookahead)
    share, opening = draw(st.sampled_from([0.2, 0.5, 1.0])), draw(st.integers(0, 6))
    if draw(st.booleans()):
        return Pace(lookahead=lookahead, opening=opening, dedicated_servers=True)
    return Pace(share=share, opening=opening)


@st.composite
def budgets(draw: st.DrawFn, bench: Bench) -> Budget:
    """Caps on some quantities, from less than the first round to more than the whole run."""
    trial_count = draw(st.floats(0.05, 1.5)) * 16 * bench.questions
    worst = np.array([(1.0, *cost) for cost in bench.worst_cost]).sum(axis=0) * trial_count
    caps = [cap if draw(st.booleans()) and cap > 0.0 else None for cap in worst.tolist()]
    trials, tokens, usd, gpu_seconds = caps
    return Budget(
        None if trials is None else max(1, int(trials)),
        None if tokens is None else max(1, int(tokens)),
        usd,
        gpu_seconds,
    )
