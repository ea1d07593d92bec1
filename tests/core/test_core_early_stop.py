"""The correction of scores for early stopping, from replays, compared with runs of a simple shell."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from adaptive_eval.core import Bench, Best, Budget, Controller, Outcome, Plan, Reason, Trials
from adaptive_eval.core import early_stop as module
from adaptive_eval.core.early_stop import EndedRun
from adaptive_eval.core.policies import Leader
from adaptive_eval.core.settings import Pace
from adaptive_eval.core.stages import StageBefore
from adaptive_eval.core.types import SetAside
from scorio.moments import FloatArray

W = np.array([0.0, 1.0])
RIGHT = np.array([[0.8, 0.6], [0.6, 0.4], [0.55, 0.35]])
"""(L, M): the chances of three models."""


def plan(**changed: object) -> Plan:
    base = Plan(Bench(3, 2, W), objective=Best(), policy=Leader(), trials=Trials(min=4, max=40))
    return replace(base, **changed)  # type: ignore[arg-type]


def carry_out(run_plan: Plan, rng: np.random.Generator, right: FloatArray = RIGHT) -> Controller:
    """A run, trial by trial."""
    controller = Controller(run_plan, followed=True)
    while controller.finished is None:
        requested = controller.ask(1000)
        controller.tell(Outcome(*ask[:3], int(rng.random() < right[ask.model, ask.question])) for ask in requested)
    return controller


def make_ended_run(run_plan: Plan, seed: int = 0) -> EndedRun:
    ended_run = EndedRun.from_controller(carry_out(run_plan, np.random.default_rng(seed)))
    assert ended_run is not None
    return ended_run


@pytest.mark.release
def test_shift_and_spread_are_those_of_errors_of_runs_of_such_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """The truth is estimated from separate runs with their own draws in the world of the posterior means."""
    run = make_ended_run(plan(trials=Trials(min=2, max=20)), 3)
    chances, rng = run._chances(), np.random.default_rng(8)
    draws = [run_scores(run.plan, chances[..., 1], rng) for _ in range(250)]
    opened, scores, sigmas = map(np.array, zip(*draws, strict=True))
    opened, errors = (values - (chances @ W).mean(axis=1) for values in (opened, scores))
    spread = math.sqrt(np.square(errors / sigmas).mean())
    slope = (errors * opened).mean(axis=0) / np.square(opened).mean(axis=0)
    residuals = errors - slope * opened
    truth, sure = residuals.mean(axis=0), residuals.std(axis=0) / math.sqrt(250.0)
    assert (np.abs(truth) > 3.0 * sure).any(), "a world where scores are off"
    for replays, together in ((400, True), (60, False)):
        monkeypatch.setattr(module, "can_stand_side_by_side", lambda plan, is_so=together: is_so)
        again, uncertain = run.replay(replays), math.sqrt(1.0 + 250.0 / replays)
        assert (np.abs(again.shift - truth) < 4.0 * sure * uncertain).all()
        assert again.spread == pytest.approx(spread, abs=4.0 * spread / math.sqrt(2.0 * errors.size) * uncertain)


def run_scores(
    run_plan: Plan, right: FloatArray, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The scores of a run after its first round and at its end, and their sigmas there."""
    controller, begun = Controller(run_plan, keep_looks=False), list[FloatArray]()
    while controller.finished is None:
        for asked in controller.ask_rounds():
            hits = rng.binomial(asked.extra, right)
            controller.tell_round(asked, np.stack([asked.extra - hits, hits], axis=-1).astype(np.int32))
        begun.append(controller.counts[..., 1] / controller.counts.sum(axis=-1))
    assert controller.last_look is not None
    return begun[0].mean(axis=1), begun[-1].mean(axis=1), controller.last_look.estimates.sigma()


@pytest.mark.slow
def test_the_shift_depends_on_the_run_alone() -> None:
    first, again, other = (make_ended_run(plan(), seed).replay(4).shift for seed in (1, 1, 2))
    assert first.tolist() == again.tolist() != other.tolist()
    assert np.isfinite(first).all() and first.any()


def test_runs_side_by_side_open_and_end_as_single_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """With models of certain outcomes, all runs are the same run."""
    chances = np.stack([[[0.0, 1.0], [1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [1.0, 0.0]]])
    rng = np.random.default_rng(0)
    both = [simulate(plan(), chances, 2, rng) for simulate in (module._side_by_side, module._simulate_singly)]
    for together, alone in zip(*both, strict=True):
        assert together.tolist() == alone.tolist()


def test_a_run_without_an_early_stop_has_nothing_to_correct() -> None:
    assert EndedRun.from_controller(Controller(plan())) is None
    assert EndedRun.from_controller(carry_out(plan(trials=Trials(min=4, max=4)), np.random.default_rng(0))) is None


def test_recorded_models_are_as_they_were() -> None:
    counts = np.zeros((3, 2, 2))
    counts[2] = [[5, 5], [7, 3]]
    run = make_ended_run(plan(bench=Bench(3, 2, W, prior_counts=counts, recorded=frozenset({2}))))
    assert run.why_not is None
    again = run.replay(4)
    assert np.isnan(again.shift).tolist() == [False, False, True]
    assert np.isfinite(again.spread)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"bench": Bench(3, 2, W, prior_counts=np.ones((3, 2, 2)))}, "R0"),
        ({"trials": Trials(min=4, max=10**6)}, "more than"),
    ],
)
def test_runs_that_cannot_be_replayed_give_the_reason(changed: dict[str, object], why: str) -> None:
    run = replace(make_ended_run(plan()), plan=plan(**changed))
    assert run.why_not is not None and why in run.why_not


def test_a_run_whose_settings_were_changed_is_not_replayed() -> None:
    small = carry_out(plan(trials=Trials(min=4, max=8)), np.random.default_rng(0))
    longer = plan(before=StageBefore(small, (0, 1, 2)))
    run = EndedRun.from_controller(carry_out(longer, np.random.default_rng(1)))
    assert run is not None and run.why_not == "settings were changed after a look"


def test_a_run_with_a_model_set_aside_is_not_replayed() -> None:
    controller = Controller(plan())
    controller.tell([SetAside(2, "its server is gone")])
    rng = np.random.default_rng(0)
    while controller.finished is None:
        requested = controller.ask(1000)
        controller.tell(Outcome(*ask[:3], int(rng.random() < RIGHT[ask.model, ask.question])) for ask in requested)
    run = EndedRun.from_controller(controller)
    assert run is not None and run.why_not == "a model was set aside"


@pytest.mark.parametrize(
    ("reason", "affordable", "cap"),
    [
        (Reason.SETTLED, math.inf, lambda spent: None),
        (Reason.SETTLED, 30.9, lambda spent: spent + 30),
        (Reason.BUDGET, 30.9, lambda spent: spent),
        (Reason.WALL_TIME, math.inf, lambda spent: spent),
    ],
)
def test_replays_turn_caps_into_caps_on_trials(
    reason: Reason, affordable: float, cap: Callable[[int], int | None]
) -> None:
    run = replace(make_ended_run(plan()), reason=reason, affordable=affordable)
    run = replace(run, plan=plan(budget=Budget(usd=5.0)))
    again = run._replay_plan().budget
    assert again == Budget(trials=cap(int(run.counts.sum())))
    assert np.isfinite(run.replay(4).shift).all()


@pytest.mark.parametrize("seed", [0, 1])
def test_a_cap_on_trials_is_played_with_what_was_asked_ahead(seed: int) -> None:
    """Rounds of parked models stay reserved: otherwise the replays would end before the run did."""
    capped = plan(bench=Bench(4, 5, W), pace=Pace(lookahead=8, dedicated_servers=True), budget=Budget(trials=400))
    rng, controller = np.random.default_rng(seed), Controller(capped)
    while controller.finished is None:
        for asked in controller.ask_rounds():
            hits = rng.binomial(asked.extra, [[0.9], [0.88], [0.2], [0.1]])
            controller.tell_round(asked, np.stack([asked.extra - hits, hits], axis=-1))
    run = EndedRun.from_controller(controller)
    assert run is not None and run.parked > 0
    assert run._replay_plan().budget == capped.budget
