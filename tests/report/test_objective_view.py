"""Displays describe an objective by its entry in the registry."""

import json

import pytest

from adaptive_eval.config.load import load_decisions
from adaptive_eval.core.registry import OBJECTIVES
from adaptive_eval.report.lines import Scale
from adaptive_eval.report.words import ObjectiveView, objective_view, promise_in_words

PERCENT = Scale(0.0, 1.0)
ASKED = {
    "ranking": {"in_order": True},
    "best": {},
    "top_k": {"first": 1},
    "cheapest": {"margin": 0.02},
    "baseline": {"baseline": "model-a"},
    "pairs": {},
    "precision": {"compares": False, "half_width": 0.02},
    "threshold": {"value": 0.6},
    "place": {"in_order": True},
}
NOTHING_MORE = {
    "compares": True,
    "in_order": False,
    "baseline": None,
    "first": None,
    "value": None,
    "half_width": None,
    "margin": None,
}


@pytest.mark.parametrize("kind", OBJECTIVES)
def test_an_objective_asks_for_what_its_options_say(kind: str) -> None:
    options = {option.name: option.example for option in OBJECTIVES[kind].options}
    asked = json.dumps({"kind": kind} | options)
    decisions = load_decisions(None, [f"objective={asked}"], ("model-a", "model-b"))
    assert objective_view(decisions.stated()) == ObjectiveView(**NOTHING_MORE | ASKED[kind])


def test_nothing_more_is_said_of_an_objective_that_is_a_plug_in() -> None:
    decisions = {"objective": {"kind": "ends:Ends", "options": {"value": 0.6}}}
    assert objective_view(decisions) == ObjectiveView(**NOTHING_MORE)


def test_a_plug_in_that_may_judge_has_no_promise_of_ours() -> None:
    """The rule itself, or an objective, which may bring one."""
    stopping = {"confidence": 0.95, "familywise": "none"}
    ours = promise_in_words({"stopping": stopping}, PERCENT)
    promise = promise_in_words({"stopping": {**stopping, "rule": "stern:Stern"}}, PERCENT)
    assert promise == "that of the plug-in; adaptive-eval adds none"
    unless = ", unless the plug-in objective has its own rule"
    assert promise_in_words({"stopping": stopping, "objective": {"kind": "ends:Ends"}}, PERCENT) == f"{ours}{unless}"
