"""What every display says of a run in words: findings, objectives, pairs, orders, and what to be careful about."""

import json
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from page_views import simulated, world

from adaptive_eval.config.load import load_decisions
from adaptive_eval.core import Anytime, Extension, Rule, ZScore
from adaptive_eval.core.registry import OBJECTIVES
from adaptive_eval.core.sequential import Sequential
from adaptive_eval.graders.judge import Judge
from adaptive_eval.notes import AnswersLost, Change, ServerLaunched, SettingsChanged
from adaptive_eval.report.changes import Limit
from adaptive_eval.report.finding import pairing_in_words, pairing_sentences
from adaptive_eval.report.findings import find, findings_of_view
from adaptive_eval.report.lines import Scale
from adaptive_eval.report.needs import cost_to_go_on
from adaptive_eval.report.next_steps import Advice
from adaptive_eval.report.records import ComparisonCount, Spending
from adaptive_eval.report.results import PairRow
from adaptive_eval.report.status import Used
from adaptive_eval.report.view import order_sentence
from adaptive_eval.report.warnings import decision_cautions, horizon_cautions, loss_cautions, price_cautions
from adaptive_eval.report.words import ObjectiveView, objective_view, promise_in_words
from adaptive_eval.show.markdown import markdown, pull_request, summary
from adaptive_eval.show.page.sent import page_view


@pytest.mark.parametrize("objective", ["ranking", "best", {"kind": "baseline", "baseline": "b"}])
def test_every_display_draws_the_same_findings(objective: object) -> None:
    view = simulated(world("abcd", 6), objective=objective, trials={"min": 4, "max": 8})
    found = findings_of_view(view)
    assert page_view(view).findings == found and found.headline and found.ended and found.promise
    for text in (markdown(view), pull_request(view), summary(view)):
        plain = re.sub(r"\\([^a-zA-Z0-9\s])", r"\1", text)
        for sentence in (*found.headline, found.ended, found.cost, found.promise):
            assert sentence in plain, sentence


def test_a_gate_that_has_said_its_end_says_it_once() -> None:
    gate = {"kind": "baseline", "baseline": "b", "gate": True}
    view = simulated(world("ab", 8), objective=gate, stopping={"delta": "4%"})
    found = findings_of_view(view)
    assert found.ended is None and found.state in ("PASS", "FAIL") and found.headline[0].startswith(found.state)
    assert summary(view).count(found.headline[0]) == 1


def test_before_the_first_look_there_is_the_end_what_was_used_and_what_to_do() -> None:
    step = Advice("raise the budget")
    used = Used(Spending(5, 150, 0.5, 0.0), ungraded=1)
    found = find(None, used, 3.0, "Killed: the process died.", [step])
    graded = ("There is no look yet: 4 trials are graded.", "1 more answer has no grade.")
    assert (found.state, found.headline) == ("killed", graded)
    assert found.cost == "5 trials, 150 tokens, $0.50, 3s" and found.steps == (step,)
    assert find(None, Used(), None).state == "running" and not find(None, Used(), None).cost


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
NOTHING_MORE = {"compares": True, "in_order": False}
NOTHING_MORE |= dict.fromkeys(("baseline", "first", "value", "half_width", "margin"))


def test_a_limit_below_what_is_used_is_said_in_tenths_of_seconds_and_without_powers_of_ten() -> None:
    time, dollars = Limit("budget.wall_time", 1.0, None, 3.46394204, "s"), Limit("budget.usd", 0.00001, 2e6, 0.5)
    assert "budget.wall_time is 1s, but this run has used 3.5s. To continue, add:\n  --set budget.wall_time=4s" in (
        time.problem
    )
    assert "is 0.00001, but this run has used or reserved 0.5 (budget.usd was 2,000,000). " in dollars.problem
    assert dollars.problem.endswith("--set budget.usd=2000000")


@pytest.mark.parametrize("kind", OBJECTIVES)
def test_an_objective_asks_for_what_its_options_say(kind: str) -> None:
    options = {option.name: option.example for option in OBJECTIVES[kind].options}
    asked = json.dumps({"kind": kind} | options)
    decisions = load_decisions(None, [f"objective={asked}"], ("model-a", "model-b"))
    assert objective_view(decisions.stated()) == ObjectiveView(**NOTHING_MORE | ASKED[kind])


def test_a_plug_in_that_may_judge_has_no_promise_of_ours_and_nothing_more_is_said_of_its_objective() -> None:
    """The rule itself, or an objective, which may bring one."""
    decisions = {"objective": {"kind": "ends:Ends", "options": {"value": 0.6}}}
    assert objective_view(decisions) == ObjectiveView(**NOTHING_MORE)
    stopping = {"confidence": 0.95, "familywise": "none"}
    ours = promise_in_words({"stopping": stopping}, PERCENT)
    promise = promise_in_words({"stopping": {**stopping, "rule": "stern:Stern"}}, PERCENT)
    assert promise == "that of the plug-in; adaptive-eval adds none"
    unless = ", unless the plug-in objective has its own rule"
    assert promise_in_words({"stopping": stopping, "objective": {"kind": "ends:Ends"}}, PERCENT) == f"{ours}{unless}"


@pytest.mark.parametrize(("kind", "rule"), [("best", "optimal"), ("top_k", "anytime"), ("ranking", "optimal")])
def test_one_error_for_all_is_promised_of_a_pick_alone_and_of_all_comparisons_otherwise(kind: str, rule: str) -> None:
    shared = {"confidence": 0.98, "familywise": "holm", "rule": rule}
    promise = promise_in_words({"stopping": shared, "objective": {"kind": kind}}, PERCENT)
    each = promise_in_words({"stopping": {**shared, "familywise": "none"}, "objective": {"kind": kind}}, PERCENT)
    assert promise is not None and each is not None and each.startswith("for each comparison: at most 2% risk of ")
    if kind == "ranking":
        assert promise == each.replace("for each comparison", "for all comparisons together")
    else:
        assert promise.startswith("at most 2% risk that a picked model is worse than one left out")
        assert promise.endswith("it covers the pick, not all comparisons together")


APART = PairRow("ada", "bob", "open", 0.1, 0.05, 2.0, 0.97, 2.2, 0.5, 0.8, 30.0, 1.5, None)
TOGETHER = replace(APART, second="cyd", by_trial=True, variance_by_trial=0.25)


def test_each_pair_that_is_judged_trial_by_trial_has_its_sentence() -> None:
    sentence = "ada and cyd are compared trial by trial, which takes 0.25 times the trials of independent models."
    assert pairing_sentences([APART, TOGETHER]) == (sentence,)
    ending = "which takes, since they are negatively correlated, 1.20 times the trials of independent models"
    assert pairing_in_words(1.2).endswith(ending)


SERVER = {"base_url": "http://127.0.0.1:9/v1", "model": "judge"}


def sentence_of(*counts: ComparisonCount, **section: object) -> str | None:
    grader = Judge.model_validate({"kind": "judge", "server": SERVER, **section})
    reader: Any = SimpleNamespace(comparisons=lambda: list(counts))
    return order_sentence(reader, SimpleNamespace(grader=grader))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("towards", "leaning"),
    [(1.0, ", by 25.0% in favour of the first place"), (-1.0, ", by 25.0% in favour of the second place"), (0.0, "")],
)
def test_how_often_the_order_decides_is_said_and_for_which_place(towards: float, leaning: str) -> None:
    counts = ComparisonCount(0.0, 0.0, 30), ComparisonCount(1.0, towards, 10)
    of_order = "25.0% depend on the order of the two answers, and count as ties"
    assert sentence_of(*counts, compare_to="baseline") == f"Of 40 comparisons {of_order}{leaning}."
    assert sentence_of(compare_to="baseline") is None and sentence_of(counts[0]) is None, "nothing was compared"


NOTHING = np.empty(0)
UNKNOWN = "it is unknown whether what the rule promises about repeated looks still holds"


class Mute(ZScore):
    """A custom rule with p-values, which says nothing of a changed horizon."""

    def p_value(self, evidence: Any, sign: int) -> Any:
        return np.ones_like(evidence.z)

    def at_level(self, alpha: float) -> "Mute":
        return self


def horizon_caution(rule: Rule, extension: Extension) -> str:
    (caution,) = horizon_cautions(rule, [extension], [])
    assert caution.text.startswith("trials.max was raised from 8 to 32 after look 5: ")
    return caution.text


@pytest.mark.parametrize(
    ("rule", "ending"),
    [(Anytime(), "the rule does not depend on it, and its promise holds"), (ZScore(), UNKNOWN), (Mute(), UNKNOWN)],
)
def test_a_caution_explains_rules_that_have_no_error_left_or_that_this_is_what_is_left(rule: Rule, ending: str) -> None:
    assert horizon_caution(rule, Extension(8, 32, 5, False)).endswith(ending)
    caution = horizon_caution(Sequential(), Extension(8, 32, 5, True))
    assert "the promise holds, but comparisons that were undecided then need stronger evidence" in caution


def test_settings_that_are_changed_after_looks_are_mentioned() -> None:
    for looks, said in ((1, "1 look"), (2, "2 looks")):
        (caution,) = decision_cautions([SettingsChanged(9, looks, (Change("stopping.delta", 0.1, 0.0),))])
        assert caution.text.startswith(f"changed after {said} (")
    was, now = ([{"name": "easy", "weight": 2.0, "gate": gate}] for gate in (0.05, 0.5))
    (caution,) = decision_cautions([SettingsChanged(9, 1, (Change("benchmarks", was, now),))])
    assert "benchmarks.easy.gate: 0.05 → 0.5; later looks" in caution.text


def test_prices_that_come_after_answers_are_mentioned() -> None:
    was, now = ([{"name": "ada", "gpus": 1.0, "price": price}] for price in (None, {"input": 1.0}))
    (caution,) = price_cautions([SettingsChanged(9, looks, (Change("models", was, now),)) for looks in (0, 1)])
    assert "1 look" in caution.text and "models.ada.price; answers before that keep the cost that" in caution.text


def test_gpu_time_is_told_where_caps_count_it_by_requests_and_not_where_servers_are_held() -> None:
    lost = [AnswersLost(name, 8, 7816, 0.0, 1800.0, killed=True) for name in ("ada", "bob")]
    lost.append(AnswersLost("cyd", 2, 0, 0.0, 1800.0))
    cautions = loss_cautions([*lost, ServerLaunched("bob"), ServerLaunched("cyd")])
    texts = {caution.model: caution.text for caution in cautions}
    assert "7,816 tokens and 0.5 GPU hours" in texts["ada"]
    assert "7,816 tokens for them" in texts["bob"] and "GPU" not in texts["bob"]
    assert texts["cyd"] == "2 answers requested, but never received"
    assert "(8 were in flight when an earlier start ended)" in texts["ada"], "killed, or stopped with a batch"


def test_what_a_resumed_run_takes_is_without_answers_it_has_already() -> None:
    """The rest of an unfinished round, and what was asked ahead of the last look, is there."""
    view = simulated(world("ab", 8), looks=1, trials={"min": 4, "max": 80})
    assert view.results is not None
    seen = tuple(replace(row, stored_trials=row.trials) for row in view.results.models)
    pairs = tuple(replace(pair, verdict="open") for pair in view.results.pairs)
    results = replace(view.results, models=seen, pairs=pairs, trials_to_go=60.0)

    def taken(ahead: int, **changed: Any) -> str | None:
        rows = [replace(row, stored_trials=row.trials + ahead, **changed) for row in seen]
        return cost_to_go_on(replace(results, models=tuple(rows), cost=replace(results.cost, trials=100, tokens=1000)))

    assert (taken(0) or "").startswith("resuming takes about 60 more answers (600 tokens")
    assert (taken(20) or "").startswith("resuming takes about 20 more answers (200 tokens")
    assert taken(30) == "resuming begins with 60 stored answers, and may need no others"
    assert (taken(20, ungraded=20) or "").startswith("resuming takes about 60 more answers"), "they are not in scores"
    assert (taken(30, recorded="runs/earlier") or "").startswith("resuming takes about 60 more answers")
