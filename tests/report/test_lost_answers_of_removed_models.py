"""Spending on models that the configuration no longer names."""

import pytest

from adaptive_eval.core.types import NO_COST, Cost
from adaptive_eval.machine.charges import NO_MODEL
from adaptive_eval.machine.clocks import HeldTime
from adaptive_eval.machine.trial import DONE, RESERVED
from adaptive_eval.report.other_costs import removed_model_costs
from adaptive_eval.store.read import AccountLine

ACCOUNT = [
    AccountLine(2, DONE, "", 18, Cost(540, 0.18, 9.0), Cost(60, 0.02, 1.0)),
    AccountLine(2, RESERVED, "", 3, Cost(300, 0.3, 0.0), NO_COST),
    AccountLine(2, None, "killed", 1, Cost(100, 0.1, 0.0), NO_COST),
]


def test_answers_in_flight_and_charges_of_a_removed_model_count_as_lost() -> None:
    (row,) = removed_model_costs(ACCOUNT, {2: "cyd"}, {}, ())
    assert (row.what, row.model, row.trials, row.answers) == ("left", "cyd", 18, 4)
    assert (row.tokens, row.usd, row.gpu_seconds) == (1000, pytest.approx(0.6), 10.0)
    assert row.counted_gpu_seconds == 10.0


def test_time_of_launched_servers_counts_instead_of_that_of_requests() -> None:
    (row,) = removed_model_costs(ACCOUNT, {2: "cyd"}, {"cyd": HeldTime(30.0, 60.0)}, {"cyd"})
    assert (row.gpu_seconds, row.counted_gpu_seconds) == (10.0, 60.0)
    assert (row.server_seconds, row.server_gpu_seconds) == (30.0, 60.0)


def test_charges_of_no_model_are_separate_and_left_out_once_withdrawn() -> None:
    charges = [
        AccountLine(NO_MODEL, None, "baseline", 2, NO_COST, Cost(125)),
        AccountLine(NO_MODEL, None, "regrade", 3, NO_COST, Cost(0)),
    ]
    (row,) = removed_model_costs(charges, {NO_MODEL: ""}, {}, ())
    assert (row.what, row.model, row.tokens) == ("baseline", None, 125)
