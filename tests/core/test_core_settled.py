"""Models that can no longer be needed are never asked again; with dedicated servers they are parked, and none waits."""

import math
from collections.abc import Sequence
from dataclasses import replace
from heapq import heappop, heappush

import numpy as np
import pytest
from core_runs import BINARY, result_of
from numpy.typing import NDArray

from adaptive_eval.core import Ask, Controller, Judging, Look, Outcome, Plan, Reason, Uniform, UnresolvedPairs, Verdict
from adaptive_eval.core.objectives import Baseline, Best, Objective, Pairs, Ranking, TopK
from adaptive_eval.core.settings import MAX_SHARE_AHEAD, Bench, Budget, Pace, Trials
from adaptive_eval.core.tape import Tape
from adaptive_eval.core.types import Cost
from adaptive_eval.study.drive import drive

SKILLS = np.array([0.9, 0.72, 0.68, 0.5, 0.47, 0.2])
PACES = (Pace(), Pace(lookahead=2), Pace(share=0.5))


def plan_of(**choices: object) -> Plan:
    bench = Bench(models=len(SKILLS), questions=6, weights=BINARY)
    return Plan(bench, trials=Trials(min=4, max=40), **choices)  # type: ignore[arg-type]


def looks_wanted(plan: Plan, seed: int) -> list[np.ndarray]:
    """The models needed after each look; no other model is asked."""
    controller, rng, needed = Controller(plan), np.random.default_rng(seed), []
    not_wanted: set[int] = set()
    while controller.finished is None:
        requested = controller.ask(64)
        assert not {ask.model for ask in requested} & not_wanted
        outcomes = [Outcome(a.model, a.question, a.trial, int(rng.random() < SKILLS[a.model])) for a in requested]
        if controller.tell(outcomes) and controller.finished is None:
            needed.append(controller.needed_models())
            not_wanted = set(np.flatnonzero(~needed[-1]).tolist())
    return needed


@pytest.mark.parametrize(
    ("objective", "pace"),
    [
        *((Ranking(), pace) for pace in PACES),
        (Best(), PACES[2]),
        (TopK(2), PACES[0]),
        (Baseline(2), PACES[1]),
        (Pairs(((0, 1), (1, 2), (4, 5))), PACES[2]),
    ],
)
@pytest.mark.parametrize("seeds", [range(1), pytest.param(range(1, 6), marks=pytest.mark.release)], ids=["one", "more"])
def test_a_model_no_longer_needed_is_never_needed_again(objective: Objective, pace: Pace, seeds: range) -> None:
    plan = plan_of(objective=objective, pace=pace)
    for seed in seeds:
        needed = looks_wanted(plan, seed)
        for before, after in zip(needed, needed[1:], strict=False):
            assert not (after & ~before).any(), "settled is for good"


def test_distant_models_settle_early_unless_the_policy_may_still_ask_them() -> None:
    needed = looks_wanted(plan_of(policy=UnresolvedPairs()), 1)
    half = needed[len(needed) // 2]
    assert not half[-1], "the last one is far from all others"
    assert half.any()
    for changed in (plan_of(policy=Uniform()), plan_of(judging=Judging(latch=False, futility=None))):
        assert all(mask.all() for mask in looks_wanted(changed, 1))


class Silent:
    """A policy of one's own that does not say that it serves open comparisons alone."""

    allocate = staticmethod(UnresolvedPairs().allocate)


class Declared(Silent):
    only_open = True


def test_a_custom_policy_releases_models_only_if_it_declares_only_open() -> None:
    silent, declared = (looks_wanted(plan_of(policy=policy), 1) for policy in (Silent(), Declared()))
    assert all(mask.all() for mask in silent), "who does not say so may ask anybody"
    assert not declared[-1].all(), "and who does is believed, as a built-in is"


HELD = Pace(lookahead=1, dedicated_servers=True)


@pytest.mark.parametrize("pace", [*PACES, HELD, Pace(share=0.7, opening=6)], ids=str)
def test_no_look_is_taken_before_awaited_outcomes_arrive(pace: Pace) -> None:
    """One awaited model answers late, as from a batch service: no look is taken before its outcomes arrive."""
    controller, rng = Controller(plan_of(pace=pace)), np.random.default_rng(0)
    held_back, late = list[Ask](), -1
    while controller.finished is None:
        requested = controller.ask(64)
        if not requested:
            assert controller.awaited() == [late], "all others have come"
            requested, held_back, late = held_back, [], -1
        elif late < 0:
            late = int(rng.choice(controller.awaited()))
        awaited = late in controller.awaited()
        held_back += [ask for ask in requested if ask.model == late]
        answered = [ask for ask in requested if ask.model != late]
        right = rng.random(len(answered)) < SKILLS[[ask.model for ask in answered]]
        looks = controller.tell(Outcome(*ask[:3], grade) for ask, grade in zip(answered, right.tolist(), strict=True))
        assert not (awaited and looks)


FOUR_SKILLS, OF_EIGHT = (0.95, 0.6, 0.55, 0.05), 8
DRAWN = np.random.default_rng(3).random((len(FOUR_SKILLS), OF_EIGHT, 90))
THREE_AHEAD = Pace(lookahead=3, dedicated_servers=True)


def controller(worst_cost: Sequence[Cost] = (), **choices: object) -> Controller:
    bench = Bench(len(FOUR_SKILLS), OF_EIGHT, BINARY, worst_cost=worst_cost)
    return Controller(Plan(bench, pace=THREE_AHEAD, trials=Trials(min=4, max=60), **choices))  # type: ignore[arg-type]


def answer(ask: Ask, seconds: float = 1.0) -> Outcome:
    return Outcome(*ask[:3], int(DRAWN[ask[:3]] < FOUR_SKILLS[ask.model]), seconds=seconds)


def carry_out(run: Controller, slots: int, *, wrong_take: float = 1.0, seed: int = 0) -> list[Look]:
    """Each model has this many slots; answers arrive when done, and wrong ones take longer."""
    rng, flying = np.random.default_rng(seed), list[tuple[float, Ask]]()
    now, looks = 0.0, list[Look]()
    while run.finished is None:
        for model in range(len(FOUR_SKILLS)):
            room = slots - sum(ask.model == model for _, ask in flying)
            for ask in run.ask(room, model):
                right = DRAWN[ask[:3]] < FOUR_SKILLS[ask.model]
                flying.append((now + rng.exponential() * (1.0 if right else wrong_take), ask))
        flying.sort(key=lambda entry: entry[0])
        now, ask = flying.pop(0)
        looks += run.tell([answer(ask)])
    run.tell(answer(ask) for _, ask in flying)
    return looks


@pytest.mark.parametrize(("slots", "wrong_take"), [(1, 1.0), (40, 10.0)])
def test_looks_depend_neither_on_slots_nor_on_how_long_wrong_answers_take(slots: int, wrong_take: float) -> None:
    reference = carry_out(controller(), 7)
    run = controller()
    assert carry_out(run, slots, wrong_take=wrong_take, seed=slots) == reference
    assert run.arrived.sum() == run.counts.sum() + run.parked.sum()


def test_a_model_in_no_open_comparison_is_paused_and_its_late_answers_are_kept() -> None:
    run = controller()
    looks: list[Look] = []
    waiting = run.ask(10**6)
    while not any(map(run.is_paused, range(len(FOUR_SKILLS)))):
        looks += run.tell([answer(waiting.pop(0))])
        waiting += run.ask(10**6)
    (model, *_) = [model for model in range(len(FOUR_SKILLS)) if run.is_paused(model)]
    assert run.finished is None and run.ask(10**6, model) == []
    assert run.last_look is not None and [*map(run.is_paused, range(4))] == (~run.last_look.in_open_pairs()).tolist()
    late, before = [ask for ask in waiting if ask.model == model], run.trials[model]
    assert late and not run.tell(map(answer, late)), "no look waits for them"
    assert run.trials[model] == before and run.parked[model].sum() >= len(late)
    with pytest.raises(ValueError, match="told twice"):
        run.tell([answer(late[0])])


def test_under_a_cap_on_trials_models_are_parked_as_without_one_and_the_cap_holds() -> None:
    """Parked trials stay reserved: how many of them were sent makes no difference."""
    free, enough = controller(), controller(budget=Budget(trials=len(FOUR_SKILLS) * OF_EIGHT * 60))
    assert carry_out(enough, 40) == carry_out(free, 40) and enough.parked.sum() == free.parked.sum() > 0
    few = 2 * int(free.counts.sum())
    ended = [controller(budget=Budget(trials=few)) for _ in range(2)]
    looks = [carry_out(run, slots, seed=slots) for run, slots in zip(ended, (2, 40), strict=True)]
    assert looks[0] == looks[1] and ended[0].finished is ended[1].finished
    assert ended[1].parked.sum() > ended[0].parked.sum() > 0 and all(run.arrived.sum() <= few for run in ended)


@pytest.mark.slow
def test_a_cap_on_trials_is_left_to_the_comparisons_that_looks_leave_open() -> None:
    """Asked ahead without limit, all of the cap was reserved before the first look, and every comparison out of reach:
    half as many were called."""
    trials, answers, held = Trials(min=4, max=80), Pace(), Pace(lookahead=12, opening=12, dedicated_servers=True)
    called, unspent = {answers: 0, held: 0}, list[float]()
    for seed in range(6):
        rng, budget = np.random.default_rng(seed), Budget(trials=1000)
        right = np.clip(np.linspace(0.3, 0.7, 4)[:, None] + rng.normal(0.0, 0.1, 12), 0.02, 0.98)
        chances, bench = np.stack([1.0 - right, right], axis=-1), Bench(4, 12, BINARY)
        for pace in called:
            tape = Tape.from_chances(chances, bench.weights, np.random.default_rng(seed))
            run = drive(Controller(Plan(bench, pace=pace, trials=trials, budget=budget)), tape)
            called[pace] += run.looks[-1].count(Verdict.RESOLVED)
            assert run.looks[0].trials == (4 * 12,) * 4, "twice its opening is not paid for"
        unspent.append(float(run.available.reserved.sum()))
    assert called[held] >= 0.9 * called[answers] > 9 and max(unspent) <= MAX_SHARE_AHEAD * 1000


@pytest.mark.parametrize(("ahead", "payable"), [(12, math.inf), (12, 48 * 30), (5, 20 * 30), (0, 3 * 30), (0, 0)])
def test_at_most_a_quarter_of_a_capped_budget_is_asked_ahead(ahead: int, payable: float) -> None:
    assert Pace(lookahead=12, dedicated_servers=True).rounds_ahead(payable, 30) == ahead
    assert Pace(lookahead=12).rounds_ahead(payable, 30) == 12, "a lookahead that was chosen"


@pytest.mark.parametrize("cap", [10**9, 40_000])
def test_under_a_cap_on_tokens_models_are_parked_unless_their_reserve_takes_too_much_of_it(cap: int) -> None:
    """Sent trials stay reserved at their worst cost, but looks pay only for the trials they use."""
    runs = [controller(budget=Budget(tokens=cap), worst_cost=(Cost(100, 0.0, 0.0),) * 4) for _ in range(2)]
    looks = [carry_out(run, slots, seed=slots) for run, slots in zip(runs, (40, 2), strict=True)]
    assert looks[0] == looks[1] and runs[0].finished is runs[1].finished
    if cap > 10**6:
        assert (
            looks[0] == carry_out(free := controller(), 40, seed=40) and runs[0].parked.sum() == free.parked.sum() > 0
        )
    reserves = np.array([run.available.reserved.sum() for run in runs]) * 100
    assert all(reserves <= MAX_SHARE_AHEAD * cap)


def test_what_is_needed_again_comes_back_however_little_a_cap_has_left() -> None:
    """A model may be parked while the cap has much left, and be needed when it has not."""
    for seed in range(40):
        rng = np.random.default_rng(seed)
        models, worst = int(rng.integers(3, 7)), Cost(int(rng.integers(50, 300)), 0.0, 0.0)
        bench = Bench(models, 6, BINARY, worst_cost=(worst,) * models)
        budget = Budget(tokens=int(models * 6 * worst.tokens * rng.uniform(8, 40)))
        run = Controller(Plan(bench, pace=THREE_AHEAD, trials=Trials(min=4, max=60), budget=budget))
        right, flying = rng.uniform(0.2, 0.8, models), list[Ask]()
        while run.finished is None:
            for model in (model for model in range(models) if not run.is_paused(model)):
                flying += run.ask(6, model)
            assert flying, "a model that is needed is parked"
            ask = flying.pop(int(rng.integers(len(flying))))
            category, tokens = int(rng.random() < right[ask.model]), int(rng.uniform(0.3, 1.0) * worst.tokens)
            run.tell([Outcome(*ask[:3], category, Cost(tokens, 0.0, 0.0), seconds=float(rng.exponential()))])


def test_nothing_is_asked_for_once_all_is_decided_whatever_the_caps() -> None:
    """What was asked ahead and is no longer needed is not waited for."""
    worst = (Cost(100, 0.0, 0.0),) * 2
    bench = Bench(2, OF_EIGHT, BINARY, worst_cost=worst)
    plan = Plan(bench, pace=Pace(lookahead=12, dedicated_servers=True), trials=Trials(min=4, max=60))
    decided = set[int]()
    for budget in (Budget(), Budget(tokens=30_000)):
        run = Controller(replace(plan, budget=budget))
        while run.finished is None:
            run.tell(Outcome(*ask[:3], int(ask.model), Cost(90, 0.0, 0.0)) for ask in run.ask(16))
        assert run.finished is Reason.SETTLED and len(run.looks) == 1
        decided.add(int(run.trials.sum()))
    assert len(decided) == 1


@pytest.mark.parametrize("wrong_take", [1.0, 10.0])
def test_the_overrun_of_models_that_were_waited_for_enters_scores_and_calls_stand(wrong_take: float) -> None:
    run = controller()
    carry_out(run, 40, wrong_take=wrong_take)
    before, late = run.result(), run.parked.copy()
    assert before is not None and late.sum() > 0
    (waited, *_) = np.flatnonzero(late.sum(axis=(1, 2))).tolist()
    run.count_overrun([waited])
    after = result_of(run)
    assert run.overrun.sum() == late[waited].sum() and not run.parked[waited].any()
    assert after.trials == before.trials + late[waited].sum()
    rows, old = ({row.model: row for row in result.models} for result in (after, before))
    assert rows[waited].sigma < old[waited].sigma
    assert all(rows[model] == old[model] for model in rows if model != waited and rows[model].rank == old[model].rank)
    then, now = ({p.verdict[:2]: p.called for p in result.comparisons} for result in (before, after))
    assert all(then[pair] == now[pair] for pair in then.keys() & now.keys())
    assert run.last_look is not None
    called = run.last_look.memory.call.reshape(-1)
    signs = dict(
        zip(zip(*(side.tolist() for side in run.plan.judged_pairs), strict=True), called.tolist(), strict=True)
    )
    for better, worse in now:  # the order may have changed, and with it who is next to whom
        assert worse is not None
        sign = signs[better, worse] if better < worse else -signs[worse, better]
        assert sign == (0 if now[better, worse] is None else 1)
    assert not any(pair.verdict.verdict is Verdict.OPEN for pair in after.comparisons), "nothing more is asked"


def ended_with_answers_in_flight(plan: Plan, grades: NDArray[np.integer]) -> Controller:
    """A run of three models with 40 slots to its end, and what was in flight; a negative number is no grade."""

    def outcome(ask: Ask) -> Outcome:
        return Outcome(*ask[:3], None if grades[ask[:3]] < 0 else int(grades[ask[:3]]), seconds=1.0)

    run, flying = Controller(replace(plan, pace=THREE_AHEAD)), list[Ask]()
    while run.finished is None:
        flying += run.ask(40)
        run.tell([outcome(flying.pop(0))])
    run.tell(map(outcome, flying))
    return run


@pytest.mark.parametrize("seed", [1, 9, 41])
def test_why_a_run_ended_is_told_of_the_look_with_its_overrun(seed: int) -> None:
    """Ungraded answers blocked a pair; with the trials that came later it is out of reach, whatever their grades."""
    rng, skills = np.random.default_rng(seed), np.array([0.79, 0.83, 0.80])
    grades = (rng.random((3, OF_EIGHT, 90)) < skills[:, None, None]).astype(int)
    is_ungraded = rng.random(grades.shape) < 0.03
    grades[2][is_ungraded[2]] = -1
    run = ended_with_answers_in_flight(Plan(Bench(3, OF_EIGHT, BINARY), trials=Trials(min=4, max=30)), grades)
    assert run.finished is Reason.BLOCKED
    run.count_overrun(range(3))
    result = result_of(run)
    assert result.reason is Reason.OUT_OF_REACH
    assert Verdict.BLOCKED not in {pair.verdict.verdict for pair in result.comparisons}


def close_models(seed: int) -> Controller:
    """An ended run of three models that hardly differ, all of whose answers have come."""
    right = np.random.default_rng(seed).random((3, OF_EIGHT, 150)) < np.array([0.6, 0.59, 0.55])[:, None, None]
    bench, judging = Bench(3, OF_EIGHT, BINARY), Judging(delta=0.1)
    return ended_with_answers_in_flight(Plan(bench, trials=Trials(min=4, max=60), judging=judging), right.astype(int))


@pytest.mark.parametrize("seed", [5, 10])
def test_overrun_that_leaves_neighbours_without_a_verdict_is_left_out(seed: int) -> None:
    """It turned the order of two equal models, one of which nothing had compared with the third."""
    run = close_models(seed)
    before = result_of(run)
    run.count_overrun(range(3))
    assert before.reason is Reason.SETTLED and run.parked.any()
    assert result_of(run) == before


@pytest.mark.parametrize("seed", [1, 40])
def test_a_larger_horizon_is_advised_by_what_a_run_goes_on_from(seed: int) -> None:
    """With overrun a pair may seem to need less than the run has, or that the run would give it up again at once."""
    run = close_models(seed)
    before = {frozenset(row.verdict[:2]): row.deciding_max for row in result_of(run).comparisons}
    run.count_overrun(range(3))
    assert run.finished is Reason.OUT_OF_REACH and run.overrun.any()
    after = {frozenset(row.verdict[:2]): row.deciding_max for row in result_of(run).comparisons}
    common = [pair for pair in before.keys() & after.keys() if max(before[pair], after[pair]) < math.inf]
    assert common and all(before[pair] == after[pair] for pair in common)


def test_overrun_counts_only_after_the_end() -> None:
    run = controller()
    run.tell(map(answer, run.ask(10**6)))
    run.count_overrun(range(len(FOUR_SKILLS)))
    assert run.finished is None and not run.overrun.any()


@pytest.mark.slow
def test_the_overrun_is_unbiased_when_wrong_answers_take_ten_times_as_long() -> None:
    """What was sent until a look ended it, and is waited for, is no choice of short answers; what had come by then is:
    a model whose last requests were cut off has no overrun."""
    model, slots = 2, 12
    waited, came = [], []
    for seed in range(50):
        rng, run = np.random.default_rng(seed), controller()
        flying, room, now, cut = list[tuple[float, Ask, int]](), [slots] * len(FOUR_SKILLS), 0.0, False
        while run.finished is None or flying:
            for at in range(len(FOUR_SKILLS)):
                for ask in run.ask(room[at], at):
                    right, room[at] = int(rng.random() < FOUR_SKILLS[at]), room[at] - 1
                    heappush(flying, (now + rng.exponential() * (1.0 if right else 10.0), ask, right))
            now, ask, right = heappop(flying)
            room[ask.model] += 1
            run.tell([Outcome(*ask[:3], right, seconds=1.0)])
            if not cut and run.is_paused(model):
                cut, in_time = True, run.parked[model].sum(axis=0)
        run.count_overrun(range(len(FOUR_SKILLS)))
        if cut and run.overrun[model].any():
            waited.append(run.overrun[model].sum(axis=0))
            came.append(in_time)
    assert abs(_off(waited, FOUR_SKILLS[model])) < 3.0
    assert _off(came, FOUR_SKILLS[model]) > 3.0


def _off(counts: list[np.ndarray], share: float) -> float:
    """How many standard errors the share of right trials is above this share."""
    surplus = np.array([right - share * (wrong + right) for wrong, right in counts])
    return float(surplus.mean() / (surplus.std() / math.sqrt(len(surplus))))
