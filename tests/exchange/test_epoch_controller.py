"""Whatever the order in which a harness comes with epochs, and however few places it has, the comparison ends."""

import pytest
from harness import Harness
from hypothesis import given, settings
from hypothesis import strategies as st
from thoroughness import examples

from adaptive_eval.errors import ConfigError
from adaptive_eval.exchange.epochs import EpochController, rubric_of

POLICIES = ("unresolved_pairs", "weighted", "uniform")


@settings(max_examples=examples(25))
@given(
    skills=st.lists(st.sampled_from([0.05, 0.5, 0.55, 0.95]), min_size=1, max_size=4),
    questions=st.integers(1, 7),
    places=st.integers(1, 20),
    policy=st.sampled_from(POLICIES),
    lookahead=st.integers(0, 3),
    errors=st.sampled_from([0.0, 0.02, 0.3, 1.0]),
    disorder=st.sampled_from([0, 3, 30]),
    seed=st.integers(0, 1000),
)
def test_every_comparison_ends_and_runs_only_what_was_asked_for(
    skills: list[float],
    questions: int,
    places: int,
    policy: str,
    lookahead: int,
    errors: float,
    disorder: int,
    seed: int,
) -> None:
    objective = {"kind": "ranking"} if len(skills) > 1 else {"kind": "precision", "half_width": 0.1}
    decided = {
        "objective": objective,
        "trials": {"min": 2, "max": 10},
        "allocation": {"policy": policy, "lookahead": lookahead},
    }
    harness = Harness(skills, questions, 12, places, decided, errors=errors, disorder=disorder, seed=seed)
    harness.run()
    for lane, epochs in zip(harness.lanes, harness.controller.models, strict=True):
        assert lane.ran + lane.skipped == 12 * questions
        assert lane.ran == len(epochs.done) + epochs.lost
    results = harness.controller.results()
    if results is not None and errors == 0.0:
        assert results.run.reason is not None
        assert not any(row.set_aside for row in results.models)
        assert sum(row.trials for row in results.models) == sum(
            len(epochs.done) for epochs in harness.controller.models
        )


def test_in_its_own_order_and_without_errors_nothing_gives_way() -> None:
    harness = Harness([0.9, 0.5, 0.45], 8, 30, 3, {"trials": {"max": 30}})
    harness.run()
    assert [epochs.skipped for epochs in harness.controller.models] == [0, 0, 0]
    ran = [lane.ran for lane in harness.lanes]
    assert ran[0] < ran[1] and sum(ran) < 3 * 8 * 30  # the leader is told apart early


def test_the_epoch_after_it_serves_the_trial_of_one_that_failed() -> None:
    harness = Harness([0.9, 0.2], 5, 20, 100, {"trials": {"max": 16}}, errors=0.1, seed=3)
    harness.run()
    results = harness.controller.results()
    assert results is not None and results.run.reason == "settled"
    assert sum(epochs.lost for epochs in harness.controller.models) > 0
    assert sum(row.trials for row in results.models) == sum(len(epochs.done) for epochs in harness.controller.models)


def test_a_model_that_always_fails_is_set_aside_and_the_others_are_ranked() -> None:
    harness = Harness([0.9, 0.2, 0.5], 5, 20, 4, {"trials": {"max": 16}})
    harness.controller.complete = (  # type: ignore[method-assign]
        lambda model, epoch, category, usual=harness.controller.complete: (
            None if model == 2 else usual(model, epoch, category)
        )
    )
    harness.run()
    results = harness.controller.results()
    assert results is not None
    assert [row.name for row in results.models if row.set_aside] == ["model-2"]
    assert results.pairs[0].verdict == "resolved"
    assert "5 epochs in succession ended without a score for sample q" in str(harness.controller.why_over(2))
    assert harness.lanes[2].ran <= 5 * 5


def test_the_budget_holds_whatever_the_harness_does() -> None:
    for seed in range(5):
        decided: dict[str, object] = {
            "budget": {"trials": 70},
            "trials": {"min": 2, "max": 20},
            "allocation": {"policy": "weighted"},
            "stopping": {"futility": False, "confidence": 0.999},
        }
        harness = Harness([0.5, 0.5], 6, 24, 2, decided, disorder=20, seed=seed)
        harness.run()
        assert sum(lane.ran for lane in harness.lanes) <= 70
        assert "budget" in str(harness.controller.why_over(0))


@pytest.mark.parametrize(
    ("given_settings", "told"),
    [
        ({"trials": {"max": 30}}, "trials.max is 30, but there are 20 epochs"),
        ({"budget": {"usd": 3.0}}, "budget.usd cannot be kept here"),
        ({"objective": {"kind": "baseline", "baseline": "nobody"}}, "nobody"),
        ({"stopping": {"rule": "sequentail"}}, "sequentail|must be a rule"),
    ],
)
def test_settings_that_cannot_work_are_refused(given_settings: dict[str, object], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        EpochController(["a", "b"], ["q1"], 20, given_settings)


def test_settings_are_read_as_in_a_file() -> None:
    controller = EpochController(
        ["a", "b"], ["q1"], 20, {"objective": "best", "stopping": {"delta": "2%"}, "trials": {"epochs": 10}}
    )
    decisions = controller.decisions
    assert (decisions.objective.kind, decisions.stopping.delta, decisions.trials.max) == ("best", 0.02, 10)
    assert decisions.allocation.policy == "unresolved_pairs"
    assert EpochController(["a", "b"], ["q1"], 20, {"allocation": "uniform"}).decisions.allocation.policy == "uniform"
    assert EpochController(["a", "b"], ["q1"], 20, {"allocation": {"lookahead": 1}}).decisions.trials.max == 20
    assert rubric_of({"trials": {"min": 100}}, ["a", "b"]).names == ("wrong", "correct")
