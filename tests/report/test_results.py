"""results.json has what the controller knows, in a stable format."""

import json
import math
import os
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fakes import results_of
from page_views import simulated_results, world
from played import Played, prepared
from pydantic import TypeAdapter
from result_rows import rows_in_file, rows_of

from adaptive_eval.base.errors import StoreError
from adaptive_eval.core import Bench, Controller, Outcome, Plan, Trials
from adaptive_eval.core.answer_kinds import answer_kinds
from adaptive_eval.core.result import ModelResult
from adaptive_eval.core.types import NO_COST, Cost, Verdict
from adaptive_eval.machine.repeats import Sampled
from adaptive_eval.machine.trial import DONE, AnswerFacts, Trial
from adaptive_eval.machine.usage import TrialUsage
from adaptive_eval.report.lines import Scale
from adaptive_eval.report.question_rows import question_posteriors
from adaptive_eval.report.results import FORMAT, Results
from adaptive_eval.report.results_file import is_intact, read_results, write_results
from adaptive_eval.report.snapshot import RunSubject
from adaptive_eval.report.status import standings
from adaptive_eval.report.warnings import repeat_caution, signal_cautions, unknown_cautions

MODELS = ("ada", "bob", "cyd")


def results_with(**how: object) -> Results:
    """Results of a run of three models."""
    return simulated_results(world(MODELS), **how)


@pytest.fixture(scope="module")
def results() -> Results:
    return results_with()


@pytest.mark.parametrize(
    "how",
    [{}, {"objective": {"kind": "precision", "half_width": 0.2}}, {"set_aside": "cyd"}],
    ids=lambda how: [*how][:1],
)
def test_the_file_is_strict_json_of_the_documented_schema(how: dict[str, object], tmp_path: Path) -> None:
    results = results_with(**how)
    path = write_results(tmp_path, results)
    content = json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert content["format"] == FORMAT
    assert TypeAdapter(Results).validate_json(path.read_bytes()) == replace(results, questions=())
    assert rows_in_file(tmp_path) == rows_of(results)
    assert set(content) - {"checksum"} == set(TypeAdapter(Results).json_schema()["properties"])
    assert is_intact(tmp_path)
    assert {row.name for row in results.models if row.score is None} == ({"cyd"} if "set_aside" in how else set())
    assert all((row.tier is None) == (row.score is None) for row in results.models)


def test_every_model_shows_its_comparisons_if_they_are_not_with_the_next() -> None:
    first, second, third = standings(results_with(objective="best", stopping={"rule": "anytime"}))
    assert str(first.clauses[0]) == f"better than {second.row.name} and {third.row.name}"
    assert str(second.clauses[0]) == str(third.clauses[0]) == f"worse than {first.row.name}"
    against = results_with(objective={"kind": "threshold", "value": 0.5})
    shown = {row.row.name: str(row.clauses[0]) for row in standings(against)}
    assert shown == {
        pair.first: f"{'above' if (pair.z or 0.0) > 0 else 'below'} 50.0%"
        if pair.verdict == "resolved"
        else f"{pair.verdict.replace('_', ' ')} against 50.0%"
        for pair in against.pairs
    }
    assert results_with(stopping={"rule": "published"}).warnings[0].kind == "peeking", "a rule for one look"
    precise = results_with(objective={"kind": "precision", "half_width": 0.2})
    assert [row.clauses[0].verdict for row in standings(precise)] == [Verdict.RESOLVED] * 3


def test_a_failed_write_leaves_the_old_file(results: Results, tmp_path: Path) -> None:
    path = write_results(tmp_path, results)
    before = path.read_bytes()
    (path.parent / f".{path.name}.{os.getpid()}.draft").mkdir()  # the draft cannot be opened
    with pytest.raises(StoreError, match=re.escape(str(path))):
        write_results(tmp_path, results)
    assert path.read_bytes() == before


def test_a_file_of_another_format_or_without_its_checksum_is_not_read(results: Results, tmp_path: Path) -> None:
    path = write_results(tmp_path, replace(results, format="adaptive-eval.results/3"))
    assert is_intact(tmp_path) and read_results(tmp_path) is None
    path.write_bytes(path.read_bytes().partition(b',"checksum"')[0] + b"}\n")
    assert is_intact(tmp_path) is False and read_results(tmp_path) is None


def test_a_call_says_when_it_was_made_and_z_then(tmp_path: Path) -> None:
    played = Played(tmp_path / "run", prepared(tmp_path))
    played.finish()
    results = read_results(tmp_path / "run")
    assert results is not None
    calls = {frozenset((pair.first, pair.second)): pair.called for pair in results.pairs if pair.called is not None}
    assert calls
    names = list(played.plan.models)
    for members, call in calls.items():
        firsts = [
            (look.index + 1, comparison.z, comparison.boundary)
            for look in played.controller.looks
            for comparison in look.comparisons
            if comparison.verdict == "resolved" and {names[comparison.first], names[comparison.second or 0]} == members
        ]
        assert firsts and (call.look, call.z, call.boundary) == firsts[0]
        rows = {row.look: row for row in results.looks}
        assert rows[call.look].resolved > 0 and call.look in range(1, len(rows) + 1), "one count for all"
    assert all((pair.called is None) == (pair.verdict not in ("resolved", "tied")) for pair in results.pairs)


def test_trials_of_a_round_in_flight_are_in_the_questions_and_marked(tmp_path: Path) -> None:
    played = Played(tmp_path / "run", prepared(tmp_path))
    while not played.controller.looks:
        played.step(18)
    played.answer(played.controller.ask(4))
    played.publish()
    results = read_results(tmp_path / "run")
    assert results is not None
    judged = {row.name: row.trials for row in results.models}
    questions = rows_in_file(tmp_path / "run")
    for place, row in enumerate(results.models):
        trials = sum(question.trials[place] for question in questions)
        waiting = sum(question.not_judged[place] for question in questions)
        assert trials - waiting == judged[row.name]
    assert sum(sum(question.not_judged) for question in questions) >= 4
    assert all(
        sum(counts) == trials
        for question in questions
        for counts, trials in zip(question.counts, question.trials, strict=True)
    )
    played.close()


def test_the_interval_of_a_question_holds_for_partial_credit() -> None:
    rng = np.random.default_rng(0)
    counts, w = np.array([4, 7, 2]), np.array([-1.0, 0.5, 2.0])
    drawn = rng.dirichlet(counts + 1.0, 200_000) @ w
    mean, lo, hi = question_posteriors(counts[None], w)
    assert mean[0] == pytest.approx(drawn.mean(), abs=0.01)
    assert (lo[0], hi[0]) == pytest.approx(tuple(np.quantile(drawn, [0.025, 0.975])), abs=0.03)


def usage_with(*answers: tuple[str, str, int | None]) -> TrialUsage:
    """A usage of (question, flags, digest)."""
    usage = TrialUsage()
    for number, (question, flags, digest) in enumerate(answers):
        facts = AnswerFacts(digest, 1000, None, None, 0)
        trial = Trial(
            0, int(question[1:]), number, 0, DONE, Cost(10), category=0, kinds=answer_kinds(flags), facts=facts
        )
        usage.add(trial, range(10))
    return usage


LATE = ("q1", "timed_out", None)
NO_CALL = "Comparisons that they could reverse stay undecided"
WOULD_BE = "the score would be 25.00% if all of them were wrong, 35.00% if right"


def warned(usage: TrialUsage, *, sampled: bool = True) -> Counter[str]:
    repeats = repeat_caution("m", usage, Sampled(1.0) if sampled else None)
    cautions = [*filter(None, [repeats]), *signal_cautions(["m"], [usage])]
    return Counter(caution.kind for caution in cautions)


def test_repeated_answers_are_reported_for_sampled_models_only() -> None:
    served_from_a_cache = usage_with(*[("q1", "", 5)] * 6)
    assert warned(served_from_a_cache) == {"repeats": 1}
    assert warned(served_from_a_cache, sampled=False) == {}
    assert warned(usage_with(("q1", "", 5), ("q2", "", 5), ("q1", "", None), ("q1", "", None))) == {}


def test_answers_that_stand_in_the_reasoning_alone_are_pointed_at_before_all_do() -> None:
    others = [("q1", "", number) for number in range(95)]
    assert warned(usage_with(*others, *[("q1", "empty reasoning_only", 95 + number) for number in range(5)])) == {
        "reasoning_only": 1
    }
    assert warned(usage_with(*others, ("q1", "empty reasoning_only", 95))) == {}
    mixed = [("q1", "empty reasoning_only", 95), ("q1", "empty reasoning_only", 96), *[("q1", "empty", None)] * 3]
    assert warned(usage_with(*others, *mixed))["empty"] == 1


@pytest.mark.parametrize(
    ("trials", "row", "text"),
    [
        (
            [("q1", "timed_out", None), ("q1", "timed_out truncated", None), ("q2", "", None)],
            (0.25, 0.35, 2),
            "of 40 scored answers 2 timed out at every attempt or were cut off at a limit before they were right; "
            f"{WOULD_BE}. {NO_CALL}",
        ),
        ([LATE], (math.nan, math.nan, 0), "of 1 answers 1 timed out at every attempt, and are in no score"),
        ([("q1", "", None)], (0.3, 0.3, 0), None),
        ([LATE], (0.3, 0.3, 0), None),  # the rubric has a category for it
    ],
)
def test_unknown_grades_are_reported_with_the_scores_they_could_lead_to(
    trials: list[tuple[str, str, int | None]], row: tuple[float, float, int], text: str | None
) -> None:
    cautions = list(unknown_cautions(["m"], [usage_with(*trials)], [row_between(*row)], Scale(0.0, 1.0)))
    assert [caution.text for caution in cautions] == ([] if text is None else [text])
    usage = usage_with(LATE)
    usage.trials, usage.ungraded = 44, 2
    (caution,) = unknown_cautions(["m"], [usage], [row_between(0.25, 0.35, 1)], Scale(0.0, 1.0))
    assert caution.kind == "unknown" and caution.model == "m"
    assert (
        f"of 40 scored answers 1 timed out at every attempt and of 44 answers 2 could not be graded; {WOULD_BE}"
        in caution.text
    )
    assert caution.text.endswith("The next start grades them again")


def row_between(lowest: float, highest: float, unsure: int) -> ModelResult:
    return ModelResult(0, 1, 1, "a", lowest, *[0.1] * 6, trials=40, lowest=lowest, highest=highest, unsure=unsure)


def test_equal_scores_need_no_number_of_trials() -> None:
    trials = Trials(min=10, max=80)
    controller = Controller(Plan(Bench(models=2, questions=3, weights=np.array([0.0, 1.0])), trials=trials))
    right = [(1, 2, 3), (3, 2, 1)]  # 0.1 + 0.2 + 0.3 is not 0.3 + 0.2 + 0.1, as floating point has it
    requests = controller.ask(60)
    controller.tell(Outcome(ask[0], ask[1], ask[2], int(ask[2] < right[ask[0]][ask[1]])) for ask in requests)
    subject = RunSubject("equal", ("a", "b"), ("x", "y", "z"), sampled=(Sampled(1.0),) * 2, created=1.0e9)
    results = results_of(subject, controller, [TrialUsage(), TrialUsage()])
    assert results is not None
    (pair,) = results.pairs
    assert pair.z is not None and 0.0 < abs(pair.z) < 1e-12, "equal but for the last digit"
    assert pair.trials_needed is None
    assert Scale(0.0, 1.0).width(-1e-17) == "0.00%" and Scale(0.0, 9.0).width(-1e-17) == "0.0000", "without a minus"
    assert Scale(0.0, 1.0).width(-0.01) == "-1.00%"


def answered(seconds: float, tokens: int, usd: float = 0.0, flags: str = "", verdict: Cost = NO_COST) -> Trial:
    """A stored answer with its time, its completion tokens and its price."""
    facts = AnswerFacts(1, 100, None, None, tokens)
    kinds = answer_kinds(flags) if flags else 0
    return Trial(0, 0, 0, 0, DONE, Cost(tokens, usd), verdict, 1, kinds, seconds, facts=facts)


def test_price_tokens_and_seconds_per_answer_are_means_over_complete_answers() -> None:
    def used(*trials: Trial) -> TrialUsage:
        usage = TrialUsage()
        for trial in trials:
            usage.add(trial)
        return usage

    judged = answered(2.0, 100, 0.01, verdict=Cost(60, 0.03))
    usage = used(judged, answered(4.0, 300, 0.03), answered(90.0, 0, 0.0, "timed_out"))
    assert usage.usd == pytest.approx(0.07), "with that of the judge"
    assert usage.answer_means == pytest.approx((0.02, 200.0, 3.0, None)), "which is no price of the model"
    priced = used(*(answered(1.0, tokens, 0.1) for tokens in (0, 100, 0, 0)))
    assert priced.answer_means == pytest.approx((0.1, 100.0, 1.0, None)), "also where no tokens are known"
    imported = answered(0.0, 0)
    assert used(imported).answer_means == (None,) * 4
    assert used(imported, answered(3.0, 80)).answer_means == (None, 80.0, 3.0, None), "of the answers that have them"
