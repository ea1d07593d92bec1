"""Results in which the answers of some models decide nothing."""

from core_runs import Answers, plans, straight
from hypothesis import assume, given
from hypothesis import strategies as st
from test_core_cheapest import parts, play
from test_core_gate import carry_out, chances, gate_of_benchmarks
from test_core_result import correction, finished_run

from adaptive_eval.core import Plan, Reason, SetAside, Verdict
from adaptive_eval.core.cheapest import Part
from adaptive_eval.core.types import Cause

DECIDED = (Verdict.RESOLVED, Verdict.TIED)


@given(plans(), st.integers(0, 10**6), st.data())
def test_no_comparison_of_such_a_model_is_decided(plan: Plan, seed: int, data: st.DataObject) -> None:
    run = straight(plan, Answers(plan, seed))
    plain = run.result()
    assume(plain is not None)
    assert plain is not None
    of_void = data.draw(st.integers(0, plan.bench.models - 1))
    result = run.result(void=[of_void])
    assert result is not None
    others = {}
    for row in result.comparisons:
        pair = row.verdict
        if of_void in (pair.first, pair.second):
            assert pair.verdict is Verdict.BLOCKED and row.called is None
        else:
            others[frozenset(pair[:2])] = pair.verdict
    assert of_void not in {model for pair in result.reversals for model in (pair.first, pair.second)}
    before = {frozenset(row.verdict[:2]): row.verdict.verdict for row in plain.comparisons}
    if plan.objective.in_order:
        assert {pair for pair in before if of_void not in pair} <= others.keys(), "the others are compared as they were"
    assert all(verdict == before[pair] for pair, verdict in others.items() if pair in before)
    assert result.models[-1].model == of_void
    tables = [
        {row.model: row._replace(rank=1, tier=1, letters="") for row in found.models} for found in (plain, result)
    ]
    assert tables[0] == tables[1], "and no score changes"
    # a run that is told so goes on without the model: it looks again
    if plan.bench.asked[of_void] and run.finished is not Reason.ALARM:
        looks = run.tell([SetAside(of_void, "its answers repeat", Cause.ANSWERS)])
        told = run.result()
        assert told is not None and (looks or run.finished is not None)
        decided = {frozenset(row.verdict[:2]) for row in told.comparisons if row.verdict.verdict in DECIDED}
        assert not any(of_void in pair for pair in decided)
        assert not any(ask.model == of_void for ask in run.ask(10**6))


def test_no_gate_passes_against_such_a_baseline() -> None:
    run = carry_out(gate_of_benchmarks(models=3), chances((0.8, 0.7), (0.8, 0.75), (0.2, 0.3)), seed=1, keep_looks=True)
    plain = run.result()
    assert plain is not None and {row.call for row in plain.gates} == {1, -1}
    for void, expected in ([0], {0}), ([1], {0, -1}):
        result = run.result(void=void)
        assert result is not None and {row.call for row in result.gates} == expected


def test_such_a_model_is_not_chosen_as_the_cheapest() -> None:
    run = play([0.9, 0.88, 0.3], [1.0, 0.2, 0.1], seed=3)
    assert parts(run)[1] is Part.CHOSEN
    for void in range(3):
        result = run.result(void=[void])
        assert result is not None and result.costs
        chosen = [row.model for row in result.costs if row.part is Part.CHOSEN]
        assert void not in chosen and not (void == 0 and chosen)


def test_verdicts_by_labels_stand_between_the_other_models() -> None:
    run = finished_run()
    by_labels = correction([-0.2, 0.0, 0.0])
    for void in ([], [2]):
        result = run.result(by_labels, void)
        assert result is not None
        found = {(row.verdict.first, row.verdict.second): row.verdict.verdict for row in result.comparisons}
        assert found.get((0, 1), found.get((1, 0))) is Verdict.UNDECIDED_BY_LABELS
