"""The choice of the cheapest model that will do: how often it is too weak, what it names, and whom it asks."""

from collections.abc import Sequence

import core_runs
import numpy as np
import pytest
from core_runs import result_of, standing_of
from hypothesis import given
from hypothesis import strategies as st

from adaptive_eval.core import Best, Cheapest, Controller, Optimal, Plan, StageBefore
from adaptive_eval.core.answer_kinds import NOTHING_UNSURE, AnswerKind, UnsureGrades
from adaptive_eval.core.cheapest import NOBODY, Part, choose
from adaptive_eval.core.corrected import ScoreCorrection
from adaptive_eval.core.evidence import Evidence, judged_pairs
from adaptive_eval.core.settings import Bench, Margin, Pace, Trials
from adaptive_eval.core.tape import Tape
from adaptive_eval.core.types import VERDICTS, Ask, Cost, Reason, SetAside, Verdict
from adaptive_eval.simulate.worlds import binary
from adaptive_eval.study.drive import drive_rounds
from adaptive_eval.study.judged import judge_replay
from scorio.moments import FloatArray

W = np.array([0.0, 1.0])
QUESTIONS, DELTA, MAX = 20, 0.06, 40
OPEN, RESOLVED = VERDICTS.index(Verdict.OPEN), VERDICTS.index(Verdict.RESOLVED)


def chances(scores: Sequence[float]) -> FloatArray:
    """Probabilities (L, M, 2) of models with these scores, on questions of different difficulty."""
    spread = 0.4 * (np.arange(QUESTIONS) / (QUESTIONS - 1) - 0.5)
    return binary(np.clip(np.array(scores)[:, None] + spread, 0.0, 1.0))


def plan(models: int, delta: float = DELTA, **more: object) -> Plan:
    usual = {"objective": Cheapest(delta), "rule": Optimal(start=4 / MAX), "trials": Trials(min=4, max=MAX)}
    return Plan(Bench(models, QUESTIONS, W), **(usual | more))  # type: ignore[arg-type]


def play(
    scores: Sequence[float], usd: Sequence[float], seed: int, asked: Plan | None = None, *, keep_looks: bool = True
) -> Controller:
    """A whole run of models with these scores and costs of an answer."""
    controller = Controller(plan(len(scores)) if asked is None else asked, keep_looks=keep_looks)
    tape = Tape.from_chances(chances(scores), W, np.random.default_rng(seed))
    return drive_rounds(controller, tape, [[Cost(100, price)] * 2 for price in usd])


def parts(controller: Controller) -> dict[int, Part]:
    result = result_of(controller)
    return {row.model: row.part for row in result.costs}


def chosen(controller: Controller) -> int | None:
    return next((model for model, part in parts(controller).items() if part is Part.CHOSEN), None)


def chosen_at_once(scores: Sequence[float], usd: Sequence[float], seed: int) -> int | None:
    """The same of a new run, without the parts of a result that take a while."""
    look = play(scores, usd, seed, keep_looks=False).last_look
    assert look is not None and look.choice is not None
    return look.choice.candidate if look.choice.made else None


RISING = tuple(0.01 * (1 + model) for model in range(12))

# -- the promise -------------------------------------------------------------------------------------------------------

WORLDS = {
    "equal models": ([0.6] * 5, RISING),
    "the cheap one exactly delta behind": ([0.54, 0.6, 0.6], RISING),
    "the cheap one just more behind": ([0.535, 0.6], RISING),
    "many cheap ones at delta": ([0.54 - 1e-9] * 6 + [0.6], RISING),
    "many cheap bad ones": ([0.2, 0.3, 0.4, 0.5, 0.53, 0.6], RISING),
    "the best is the cheapest": ([0.6, 0.55, 0.5, 0.4], RISING),
    "equal costs": ([0.53, 0.53, 0.53, 0.6], [0.01] * 4),
}
WORST = {"the cheap one just more behind", "many cheap ones at delta"}
"""Where a wrong choice is likeliest, by one comparison and by many; the others are tried before a release."""


@pytest.mark.parametrize(
    ("world", "runs"),
    [
        *(pytest.param(world, 40, marks=pytest.mark.slow) for world in sorted(WORST)),
        *(pytest.param(world, 100, marks=pytest.mark.release) for world in WORLDS),
    ],
)
def test_a_choice_is_seldom_more_than_delta_behind_the_best(world: str, runs: int) -> None:
    scores, usd = WORLDS[world]
    too_weak = 0
    for seed in range(runs):
        model = chosen_at_once(scores, usd, seed)
        too_weak += model is not None and scores[model] < max(scores) - DELTA - 1e-12
    assert too_weak / runs <= 0.05 + 2.0 * np.sqrt(0.05 * 0.95 / runs)


def test_every_model_but_one_has_a_share_of_the_error() -> None:
    rule = plan(6).deciding_rule
    assert isinstance(rule, Optimal)
    assert rule.confidence == pytest.approx(1.0 - 0.05 / 5)


# -- what is chosen ----------------------------------------------------------------------------------------------------


def test_the_cheapest_model_within_delta_is_chosen_and_weaker_ones_are_ruled_out() -> None:
    controller = play([0.2, 0.75, 0.78, 0.4], [0.01, 0.02, 0.03, 0.04], 1, plan(4, 0.15))
    assert controller.finished is Reason.SETTLED
    assert parts(controller) == {0: Part.RULED_OUT, 1: Part.CHOSEN, 2: Part.DEARER, 3: Part.RULED_OUT}
    first = 4 * QUESTIONS
    assert controller.trials[0] == controller.trials[3] == first < controller.trials[1], "who cannot change it rests"
    assert judge_replay(0, controller, np.array([0.2, 0.75, 0.78, 0.4])).wrong == 0


def test_the_better_of_equal_costs_the_next_one_or_nothing_is_chosen() -> None:
    controller = play([0.6, 0.9, 0.2], [0.01] * 3, 1, plan(3, 0.1))
    assert chosen(controller) == 1
    controller = play([0.72, 0.82, 0.2], RISING[:3], 3, plan(3, 0.10))
    assert parts(controller)[0] is Part.UNDECIDED
    assert chosen(controller) == 1
    assert controller.finished is Reason.OUT_OF_REACH
    controller = play([0.6, 0.6, 0.6], RISING[:3], 1, plan(3, 0.01))
    assert chosen(controller) is None
    assert parts(controller)[0] is Part.CANDIDATE
    assert controller.finished is Reason.OUT_OF_REACH


def test_costs_are_those_of_the_first_round_with_their_standard_errors() -> None:
    controller, costs = Controller(plan(2)), {0: (0.01, 0.03), 1: (0.05, 0.05)}

    def cost(ask: Ask) -> Cost:
        return Cost(1, 9.0 if controller.looks else costs[ask.model][ask.trial % 2])

    result = result_of(core_runs.play(controller, lambda ask: ask.model, cost=cost))
    assert [(row.model, row.usd) for row in result.costs] == [(0, pytest.approx(0.02)), (1, pytest.approx(0.05))]
    trials = 4 * QUESTIONS
    within = trials * 0.01**2 / (trials - QUESTIONS)
    assert [row.usd_sigma for row in result.costs] == pytest.approx([np.sqrt(within / trials), 0.0])


def test_gpu_time_has_the_price_of_a_gpu_hour() -> None:
    controller = Controller(plan(2, objective=Cheapest(DELTA, 3600.0)))
    tape = Tape.from_chances(chances([0.6, 0.6]), W, np.random.default_rng(0))
    drive_rounds(controller, tape, [[Cost(1, 0.0, 0.5)] * 2, [Cost(1, 0.25, 0.0)] * 2])
    result = result_of(controller)
    assert {row.model: row.usd for row in result.costs} == {0: pytest.approx(0.5), 1: pytest.approx(0.25)}


# -- an independent choice ---------------------------------------------------------------------------------------------


def plainly(calls: dict[tuple[int, int], int], verdicts: dict[tuple[int, int], int], cost: list[float]) -> list[int]:
    """The models that may be the candidate by the words of the promise, tried one by one from the cheapest; the last is
    the candidate. `calls` and `verdicts` are by the model with delta and its rival."""
    models = range(len(cost))
    out = [m for m in models[1:] if any(calls[m, other] < 0 for other in models if other != m)]
    tried: list[int] = []
    for model in sorted((m for m in models if m not in out), key=lambda m: (cost[m], m)):
        tried.append(model)
        missing = [other for other in models if other not in (model, *out) and calls[model, other] <= 0]
        if all(verdicts[model, other] == OPEN for other in missing):
            return tried
    return tried


@given(st.integers(2, 6), st.integers(0, 10**6))
def test_the_candidate_is_the_first_that_is_neither_ruled_out_nor_stuck(models: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    first, second = judged_pairs(models, False, Margin(None, DELTA))
    pairs = len(first)
    call = rng.choice([-1, 0, 0, 1], pairs).astype(np.int8)
    verdict = np.where(call != 0, RESOLVED, rng.choice([OPEN, OPEN, VERDICTS.index(Verdict.OUT_OF_REACH)], pairs))
    z = np.abs(rng.normal(size=pairs))  # no open pair points against a model
    z = np.where(call < 0, -z, z)
    one = np.ones(pairs)
    evidence = Evidence(models, False, first, second, z, one, z, one, margin=Margin(None, DELTA))
    cost = rng.permutation(models) + 1.0
    choice = choose(evidence, call, verdict, np.arange(models), np.stack([cost, cost], axis=1))
    rows = list(zip(first.tolist(), second.tolist(), strict=True))[pairs // 3 :]
    calls = dict(zip(rows, call[pairs // 3 :].tolist(), strict=True))
    tried = plainly(calls, dict(zip(rows, verdict[pairs // 3 :].tolist(), strict=True)), cost.tolist())
    out = {m for m in range(1, models) if any(calls[m, other] < 0 for other in range(models) if other != m)}
    assert {m for m in range(models) if choice.ruled_out_by[m] != NOBODY} == out
    stuck_all = choice.candidate == tried[0] and len(tried) == models - len(out)
    assert choice.candidate == tried[-1] or stuck_all
    lacking = [m for m in range(models) if m not in out and m != choice.candidate and calls[choice.candidate, m] <= 0]
    assert choice.made == (not lacking)
    assert {frozenset(pair) for pair in choice.pairs.tolist()} <= {frozenset(pair) for pair in rows}
    assert len(choice.pairs) == models - 1


# -- whom it asks ------------------------------------------------------------------------------------------------------


def test_a_candidate_that_is_likely_to_be_ruled_out_goes_on_against_one_model() -> None:
    controller = Controller(plan(4, 0.02))
    right = np.array([[0.55], [0.6], [0.62], [0.66]])
    counts = np.zeros((4, QUESTIONS, 2), dtype=np.int64)
    counts[:, :, 1] = np.where(np.arange(QUESTIONS) < np.rint(right * QUESTIONS), 4, 0)
    counts[:, :, 0] = 4 - counts[:, :, 1]
    told = [(batch, counts[batch.model]) for batch in controller.ask_batches()]
    controller.tell_counts(told, [[Cost(1, price)] * 2 for price in RISING[:4]])
    look = standing_of(controller)
    assert [sorted(pair) for pair in look.open_pairs().tolist()] == [[0, 3]]


# -- what keeps a choice from being made -------------------------------------------------------------------------------


def test_a_cheaper_model_that_was_set_aside_leaves_the_run_blocked() -> None:
    controller = Controller(plan(3, 0.15))
    controller.tell([SetAside(0, "its server is gone")])
    core_runs.play(controller, lambda ask: int(ask.model > 0), cost=lambda ask: Cost(1, RISING[ask.model]))
    assert controller.finished is Reason.BLOCKED
    assert chosen(controller) is None


@pytest.mark.parametrize("unsure", [NOTHING_UNSURE, UnsureGrades(int(AnswerKind.TRUNCATED), 1)])
def test_cut_answers_neither_rule_a_model_out_nor_choose_it(unsure: UnsureGrades) -> None:
    """The cheap model's wrong answers are cut off; the other one is right always."""

    def grade(ask: Ask) -> tuple[int, int]:
        is_cut = ask.model == 0 and ask.question < 16
        return int(not is_cut), int(AnswerKind.TRUNCATED) * is_cut

    run = Controller(plan(2, 0.3, unsure=unsure, stops_on_alarm=False))
    core_runs.play(run, grade, cost=lambda ask: Cost(1, RISING[ask.model]))
    part = parts(run)[0]
    assert part is Part.RULED_OUT if unsure is NOTHING_UNSURE else part not in (Part.RULED_OUT, Part.CHOSEN)


def test_labels_that_lower_a_score_take_the_choice_back() -> None:
    controller = play([0.75, 0.78, 0.3], RISING[:3], 1, plan(3, 0.15))
    assert chosen(controller) == 0
    lower = np.array([[-0.3], [0.0], [0.0]])
    result = result_of(controller, ScoreCorrection(lower, np.zeros((3, 1))))
    assert next(row.part for row in result.costs if row.model == 0) is not Part.CHOSEN


# -- settings that change ----------------------------------------------------------------------------------------------


def test_a_larger_horizon_goes_on_with_the_costs_and_calls_that_there_are() -> None:
    scores, usd = [0.2, 0.70, 0.75], RISING[:3]
    before = play(scores, usd, 4, plan(3, 0.08, trials=Trials(min=4, max=8)))
    earlier = result_of(before)
    wider = plan(3, 0.08, trials=Trials(min=4, max=60), before=StageBefore(before, (0, 1, 2)))
    controller = play(scores, [9.0, 1.0, 1.0], 4, wider)
    result = result_of(controller)
    assert [row.usd for row in result.costs] == [row.usd for row in earlier.costs]
    assert parts(controller)[0] is Part.RULED_OUT


def test_another_objective_before_leaves_the_costs_of_all_trials() -> None:
    scores, usd = [0.2, 0.70, 0.75], RISING[:3]
    before = play(scores, usd, 4, plan(3, objective=Best(), trials=Trials(min=4, max=8)))
    on = plan(3, trials=Trials(min=4, max=8), before=StageBefore(before, (0, 1, 2), verdicts_stand=False))
    controller = Controller(on)
    assert controller.available.costs is not None
    assert controller.available.costs[:, 0] == pytest.approx(usd)


@pytest.mark.parametrize("pace", [Pace(lookahead=1), Pace(dedicated_servers=True, lookahead=2), Pace(share=0.7)])
def test_it_decides_at_every_pace(pace: Pace) -> None:
    assert chosen(play([0.2, 0.75, 0.78], RISING[:3], 1, plan(3, 0.2, pace=pace))) == 1


def test_drawn_questions_are_compared_with_delta_too() -> None:
    rng = np.random.default_rng(0)
    right = np.array([0.1, 0.7, 0.7])[:, None] + rng.uniform(-0.1, 0.1, 1000)
    asked = Plan(
        Bench(3, 1000, W), objective=Cheapest(0.15), rule=Optimal(start=0.1), trials=Trials(min=1, max=1), drawn=100
    )
    tape = Tape.from_chances(binary(right), W, rng)
    controller = drive_rounds(Controller(asked), tape, [[Cost(1, price)] * 2 for price in RISING[:3]])
    assert parts(controller)[0] is Part.RULED_OUT
    assert chosen(controller) == 1
