"""With dedicated servers, models without open comparisons are parked: nothing waits for them or gets lost."""

import math
from heapq import heappop, heappush

import numpy as np
import pytest

from adaptive_eval.core import Bench, Budget, Controller, Outcome, Pace, Plan, Trials
from adaptive_eval.core.settings import MAX_SHARE_AHEAD
from adaptive_eval.core.tape import Tape
from adaptive_eval.core.types import Ask, Look, Reason, Verdict
from adaptive_eval.study.drive import drive

SKILLS, QUESTIONS = (0.95, 0.6, 0.55, 0.05), 8
DRAWN = np.random.default_rng(3).random((len(SKILLS), QUESTIONS, 90))
HELD = Pace(lookahead=3, dedicated_servers=True)


def controller(**choices: object) -> Controller:
    bench = Bench(len(SKILLS), QUESTIONS, np.array([0.0, 1.0]))
    return Controller(Plan(bench, pace=HELD, trials=Trials(min=4, max=60), **choices))  # type: ignore[arg-type]


def answer(ask: Ask, seconds: float = 1.0) -> Outcome:
    return Outcome(*ask[:3], int(DRAWN[ask[:3]] < SKILLS[ask.model]), seconds=seconds)


def carry_out(run: Controller, slots: int, *, wrong_take: float = 1.0, seed: int = 0) -> list[Look]:
    """Each model has this many slots; answers arrive when done, and wrong ones take longer."""
    rng, flying = np.random.default_rng(seed), list[tuple[float, Ask]]()
    now, looks = 0.0, list[Look]()
    while run.finished is None:
        for model in range(len(SKILLS)):
            room = slots - sum(ask.model == model for _, ask in flying)
            for ask in run.ask(room, model):
                right = DRAWN[ask[:3]] < SKILLS[ask.model]
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
    while not any(map(run.is_paused, range(len(SKILLS)))):
        looks += run.tell([answer(waiting.pop(0))])
        waiting += run.ask(10**6)
    (model, *_) = [model for model in range(len(SKILLS)) if run.is_paused(model)]
    assert run.finished is None and run.ask(10**6, model) == []
    late, before = [ask for ask in waiting if ask.model == model], run.trials[model]
    assert late and not run.tell(map(answer, late)), "no look waits for them"
    assert run.trials[model] == before and run.parked[model].sum() >= len(late)
    with pytest.raises(ValueError, match="told twice"):
        run.tell([answer(late[0])])


def test_under_a_cap_on_trials_models_are_parked_as_without_one_and_the_cap_holds() -> None:
    """Parked trials stay reserved: how many of them were sent makes no difference."""
    free, enough = controller(), controller(budget=Budget(trials=len(SKILLS) * QUESTIONS * 60))
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
        chances, bench = np.stack([1.0 - right, right], axis=-1), Bench(4, 12, np.array([0.0, 1.0]))
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


def test_nothing_is_parked_under_a_cap_on_tokens() -> None:
    """Parking would reserve sent trials at their worst cost, but looks pay only for the trials they use."""
    run = controller(budget=Budget(tokens=10**9))
    carry_out(run, 40)
    assert not run.parked.any() and run.arrived.sum() == run.counts.sum()


@pytest.mark.parametrize("wrong_take", [1.0, 10.0])
def test_the_overrun_of_models_that_were_waited_for_enters_scores_and_calls_stand(wrong_take: float) -> None:
    run = controller()
    carry_out(run, 40, wrong_take=wrong_take)
    before, late = run.result(), run.parked.copy()
    assert before is not None and late.sum() > 0
    (waited, *_) = np.flatnonzero(late.sum(axis=(1, 2))).tolist()
    run.count_overrun([waited])
    after = run.result()
    assert after is not None and run.overrun.sum() == late[waited].sum() and not run.parked[waited].any()
    assert after.trials == before.trials + late[waited].sum()
    rows, old = ({row.model: row for row in result.models} for result in (after, before))
    assert rows[waited].sigma < old[waited].sigma
    assert all(rows[model] == old[model] for model in rows if model != waited and rows[model].rank == old[model].rank)
    then, now = (
        {(p.verdict.first, p.verdict.second): p.called for p in result.comparisons} for result in (before, after)
    )
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


@pytest.mark.parametrize("seed", [1, 9, 41])
def test_why_a_run_ended_is_told_of_the_look_with_its_overrun(seed: int) -> None:
    """Ungraded answers blocked a pair; with the trials that came later it is out of reach, whatever their grades."""
    rng, skills = np.random.default_rng(seed), np.array([0.79, 0.83, 0.80])
    right = rng.random((3, QUESTIONS, 90)) < skills[:, None, None]
    is_ungraded = rng.random(right.shape) < 0.03
    is_ungraded[:2] = False

    def outcome(ask: Ask) -> Outcome:
        return Outcome(*ask[:3], None if is_ungraded[ask[:3]] else int(right[ask[:3]]), seconds=1.0)

    run = Controller(Plan(Bench(3, QUESTIONS, np.array([0.0, 1.0])), pace=HELD, trials=Trials(min=4, max=30)))
    flying: list[Ask] = []
    while run.finished is None:
        flying += run.ask(40)
        run.tell([outcome(flying.pop(0))])
    run.tell(map(outcome, flying))
    assert run.finished is Reason.BLOCKED
    run.count_overrun(range(3))
    result = run.result()
    assert result is not None and result.reason is Reason.OUT_OF_REACH
    assert Verdict.BLOCKED not in {pair.verdict.verdict for pair in result.comparisons}


def test_overrun_counts_only_after_the_end() -> None:
    run = controller()
    run.tell(map(answer, run.ask(10**6)))
    run.count_overrun(range(len(SKILLS)))
    assert run.finished is None and not run.overrun.any()


@pytest.mark.slow
def test_the_overrun_is_unbiased_when_wrong_answers_take_ten_times_as_long() -> None:
    """What was sent until a look ended it, and is waited for, is no choice of short answers; what had come by then is:
    a model whose last requests were cut off has no overrun."""
    model, slots = 2, 12
    waited, came = [], []
    for seed in range(50):
        rng, run = np.random.default_rng(seed), controller()
        flying, room, now, cut = list[tuple[float, Ask, int]](), [slots] * len(SKILLS), 0.0, False
        while run.finished is None or flying:
            for at in range(len(SKILLS)):
                for ask in run.ask(room[at], at):
                    right, room[at] = int(rng.random() < SKILLS[at]), room[at] - 1
                    heappush(flying, (now + rng.exponential() * (1.0 if right else 10.0), ask, right))
            now, ask, right = heappop(flying)
            room[ask.model] += 1
            run.tell([Outcome(*ask[:3], right, seconds=1.0)])
            if not cut and run.is_paused(model):
                cut, in_time = True, run.parked[model].sum(axis=0)
        run.count_overrun(range(len(SKILLS)))
        if cut and run.overrun[model].any():
            waited.append(run.overrun[model].sum(axis=0))
            came.append(in_time)
    assert abs(_off(waited, SKILLS[model])) < 3.0
    assert _off(came, SKILLS[model]) > 3.0


def _off(counts: list[np.ndarray], share: float) -> float:
    """How many standard errors the share of right trials is above this share."""
    surplus = np.array([right - share * (wrong + right) for wrong, right in counts])
    return float(surplus.mean() / (surplus.std() / math.sqrt(len(surplus))))
