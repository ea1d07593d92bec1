"""What a gate says of a model with missing answers: nobody fails or passes because of them."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from adaptive_eval.report.build import max_effect_per_answer
from adaptive_eval.report.gate import (
    MISSING_DECIDE,
    UNDECIDED,
    GatePart,
    GateTerms,
    gate_outcome,
    gate_rows,
    outcome_in_words,
    plain_gate,
)
from adaptive_eval.report.lines import Scale
from adaptive_eval.report.results import GateRow, ModelRow, PairRow

ASKED = GateTerms("prod", 0.05)
MODEL = ModelRow(
    name="build", rank=2, tier=1, score=0.70, sigma=0.01, lo=0.68, hi=0.72, bayes=0.69, bayes_sigma=0.01,
    sampled_sigma=0.05, trials=300, set_aside=None, stored_trials=300, ungraded=0, repeats=0, signals={}, tokens=0,
    usd=0.0, gpu_seconds=0.0, sampling={}, prior_depth=0.0,
)  # fmt: skip
PROD = replace(MODEL, name="prod", rank=1, score=0.80)
FAILED = PairRow(
    first="prod", second="build", verdict="resolved", difference=0.10, sigma=0.014, z=3.5, rho=0.99, boundary=2.3,
    information=0.8, power=1.0, trials_needed=5.0, sampled_z=1.0, certifiable_delta=0.02,
)  # fmt: skip
PASSED = replace(FAILED, first="build", second="prod", difference=-0.01)
NOTHING = {"build": 0.0, "prod": 0.0}


ON_VALUE = GateTerms(None, 0.05, value=0.8)
BELOW = replace(FAILED, first="build", second=None, z=-3.5, difference=-0.10)
ABOVE = replace(BELOW, z=3.5, difference=-0.01)


def row_of(
    pair: PairRow,
    build: ModelRow = MODEL,
    prod: ModelRow = PROD,
    may_move: Mapping[str, float] = NOTHING,
    reversals: tuple[tuple[str, str | None], ...] = (),
    asked: GateTerms = ASKED,
) -> GateRow:
    """What the gate says of the build."""
    names = ("prod", "build")
    plain_rows = list(plain_gate(asked, (prod, build), (pair,), reversals, names))
    (row,), of_benchmarks = gate_rows(asked, [GatePart(None, asked.delta, 1.0)], names, (pair,), plain_rows, may_move)
    assert of_benchmarks == {}
    return row


def outcome(
    pair: PairRow,
    build: ModelRow = MODEL,
    prod: ModelRow = PROD,
    may_move: Mapping[str, float] = NOTHING,
    reversals: tuple[tuple[str, str | None], ...] = (),
) -> tuple[str, str]:
    row = row_of(pair, build, prod, may_move, reversals)
    assert (row.model, row.baseline) == ("build", "prod")
    return row.outcome, row.why


def test_the_gate_says_whose_answers_could_explain_a_call() -> None:
    doubtful = replace(MODEL, lowest=0.6, highest=0.76), replace(PROD, lowest=0.79, highest=0.8)
    for build, prod, moved, names in [
        (MODEL, PROD, 0.06, ("build",)),
        (doubtful[0], PROD, 0.0, ("build",)),
        (doubtful[0], doubtful[1], 0.0, ("build", "prod")),
        (MODEL, PROD, 0.01, ()),
    ]:
        row = row_of(FAILED, build, prod, NOTHING | {"build": moved})
        assert row.doubted == names and all(name in row.why for name in names)


def test_a_call_passes_or_fails() -> None:
    assert outcome(FAILED) == ("FAIL", "worse than prod by more than 5 points")
    assert outcome(PASSED, replace(MODEL, score=0.79)) == ("PASS", "not worse than prod by more than 5 points")
    assert outcome(PASSED, reversals=(("build", "prod"),))[0] == "UNDECIDED", "later trials have turned it"


@pytest.mark.parametrize(
    ("verdict", "expected"), [("open", "open"), ("out_of_reach", "UNDECIDED"), ("blocked", "UNDECIDED")]
)
def test_an_open_pair_is_undecided_only_once_the_run_is_over(verdict: str, expected: str) -> None:
    assert outcome(replace(FAILED, verdict=verdict))[0] == "UNDECIDED"
    asked = ASKED._replace(goes_on=True)
    row = row_of(replace(FAILED, verdict=verdict), asked=asked)
    assert row.outcome == expected
    assert gate_outcome([row, replace(row, outcome="PASS")]) == expected


@pytest.mark.parametrize(
    ("moved", "highest", "expected"), [(0.02, 0.74, "FAIL"), (0.049, 0.74, "FAIL"), (0.06, 0.76, "UNDECIDED")]
)
def test_nobody_fails_for_empty_answers_or_time_outs_that_could_explain_it(
    moved: float, highest: float, expected: str
) -> None:
    """It is ten points behind; with five points more it would not be worse by more than five."""
    assert outcome(FAILED, may_move=NOTHING | {"build": moved})[0] == expected
    assert outcome(FAILED, replace(MODEL, highest=highest, lowest=0.7))[0] == expected
    assert outcome(FAILED, prod=replace(PROD, lowest=0.80 - (highest - 0.70), highest=0.8))[0] == expected
    below = row_of(BELOW, may_move={"build": moved}, asked=ON_VALUE)
    assert (below.outcome, below.doubted) == (expected, ("build",) if expected == "UNDECIDED" else ())


def test_nobody_passes_because_the_baseline_did_not_answer() -> None:
    level = replace(MODEL, score=0.80)
    assert outcome(PASSED, level, may_move=NOTHING | {"prod": 0.01})[0] == "PASS"
    assert outcome(PASSED, level, may_move=NOTHING | {"prod": 0.06})[0] == "UNDECIDED"


def test_an_answer_moves_a_score_by_its_share_of_the_trials() -> None:
    """A drawn question has one trial, and many have none."""
    counts = np.array([[[1, 1], [0, 4], [3, 0]], [[0, 1], [1, 0], [0, 0]]])
    weights = np.array([0.0, 2.0])
    assert max_effect_per_answer(counts, weights, drawn=False).tolist() == pytest.approx([2 / 6, 2 / 3])
    assert max_effect_per_answer(counts[1:], weights, drawn=True).tolist() == pytest.approx([2 / 2])
    heavy = np.array([2.0, 0.5, 0.5])  # two trials of the first: 2 * (2 / 3) / 2; of the other model one
    assert max_effect_per_answer(counts, weights, drawn=False, g=heavy).tolist() == pytest.approx([2 / 3, 4 / 3])


def test_a_gate_on_a_value_passes_and_fails_by_the_sign_of_z() -> None:
    failed = row_of(BELOW, asked=ON_VALUE)
    assert failed == GateRow("build", None, "FAIL", "below 80.0% by more than 5 points")
    passed = row_of(ABOVE, replace(MODEL, score=0.79), asked=ON_VALUE)
    assert passed == GateRow("build", None, "PASS", "not below 80.0% by more than 5 points")
    strict = ON_VALUE._replace(delta=0.0)
    assert [outcome_in_words(outcome, strict) for outcome in ("PASS", "FAIL")] == ["above 80.0%", "below 80.0%"]
    assert row_of(BELOW, asked=ON_VALUE, reversals=(("build", None),)).outcome == "UNDECIDED"
    assert row_of(replace(BELOW, verdict="out_of_reach"), asked=ON_VALUE).outcome == "UNDECIDED"


def test_a_margin_is_told_in_points_where_scores_are_in_percent() -> None:
    assert outcome_in_words("FAIL", GateTerms("prod", 0.01)) == "worse than prod by more than 1 point"
    terms = GateTerms("prod", 0.25, Scale.of((-1.0, 3.0)))
    assert outcome_in_words("FAIL", terms) == "worse than prod by more than 0.25"


def test_a_gate_that_missing_answers_block_says_that_they_could_decide_it() -> None:
    """No model needs to be set aside for that: cut or ungraded answers are enough."""
    blocked, cut = replace(FAILED, verdict="blocked"), replace(MODEL, cut=9)
    assert outcome(blocked, cut) == (UNDECIDED, MISSING_DECIDE)
    assert "cut off" in MISSING_DECIDE and "set aside" not in MISSING_DECIDE
    assert outcome(replace(FAILED, verdict="out_of_reach"), cut)[1] != MISSING_DECIDE
