"""What a gate says of a model with missing answers: nobody fails or passes because of them."""

from dataclasses import replace

import pytest

from adaptive_eval.core.result import GateResult
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
from adaptive_eval.report.results import GateRow, PairRow

ASKED = GateTerms("prod", 0.05)
FAILED = PairRow(
    first="prod", second="build", verdict="resolved", difference=0.10, sigma=0.014, z=3.5, rho=0.99, boundary=2.3,
    information=0.8, power=1.0, trials_needed=5.0, sampled_z=1.0, certifiable_delta=0.02,
)  # fmt: skip
PASSED = replace(FAILED, first="build", second="prod", difference=-0.01)


ON_VALUE = GateTerms(None, 0.05, value=0.8)
BELOW = replace(FAILED, first="build", second=None, z=-3.5, difference=-0.10)
ABOVE = replace(BELOW, z=3.5, difference=-0.01)


def row_of(pair: PairRow, reversals: tuple[tuple[str, str | None], ...] = (), asked: GateTerms = ASKED) -> GateRow:
    """What the gate says of the build."""
    names = ("prod", "build")
    plain_rows = list(plain_gate(asked, (pair,), reversals, names))
    (row,), of_benchmarks = gate_rows(asked, [GatePart(None, asked.delta)], names, (pair,), plain_rows)
    assert of_benchmarks == {}
    return row


def outcome(pair: PairRow, reversals: tuple[tuple[str, str | None], ...] = ()) -> tuple[str, str]:
    row = row_of(pair, reversals)
    assert (row.model, row.baseline) == ("build", "prod")
    return row.outcome, row.why


def test_a_call_passes_or_fails() -> None:
    assert outcome(FAILED) == ("FAIL", "worse than prod by more than 5 points")
    assert outcome(PASSED) == ("PASS", "not worse than prod by more than 5 points")
    assert outcome(PASSED, reversals=(("build", "prod"),))[0] == "UNDECIDED", "later trials have turned it"


@pytest.mark.parametrize(
    ("verdict", "expected"), [("open", "open"), ("out_of_reach", "UNDECIDED"), ("blocked", "UNDECIDED")]
)
def test_an_open_pair_is_undecided_only_once_the_run_is_over(verdict: str, expected: str) -> None:
    assert outcome(replace(FAILED, verdict=verdict))[0] == "UNDECIDED"
    row = row_of(replace(FAILED, verdict=verdict), asked=ASKED._replace(goes_on=True))
    assert row.outcome == expected
    assert gate_outcome([row, replace(row, outcome="PASS")]) == expected


def test_a_gate_on_a_value_passes_and_fails_by_the_sign_of_z() -> None:
    failed, passed = (row_of(pair, asked=ON_VALUE) for pair in (BELOW, ABOVE))
    assert failed == GateRow("build", None, "FAIL", "below 80.0% by more than 5 points")
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
    """No model needs to be set aside for that: incomplete or ungraded answers are enough."""
    assert outcome(replace(FAILED, verdict="blocked")) == (UNDECIDED, MISSING_DECIDE)
    assert "incomplete" in MISSING_DECIDE and "set aside" not in MISSING_DECIDE
    assert outcome(replace(FAILED, verdict="out_of_reach"))[1] != MISSING_DECIDE


def test_benchmarks_that_are_undecided_for_the_same_reason_are_named_once() -> None:
    parts = [GatePart(None, 0.05), GatePart("easy", 0.1), GatePart("hard", 0.1)]
    results = [GateResult(1, 0, 0, -1.0), GateResult(1, 1, 1, 3.0), GateResult(1, 2, 0, 1.0)]
    undecided = replace(FAILED, verdict="undecided_by_labels")
    (row,), outcomes = gate_rows(ASKED, parts, ("prod", "build"), (undecided,), results)
    assert row.why == "on all questions and hard: scores corrected by labels do not decide it"
    assert outcomes == {("easy", "build"): "PASS", ("hard", "build"): "UNDECIDED"}
