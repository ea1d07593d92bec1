"""The undecided pair in the headline: which one it is, what it would take, and that the next steps say the same."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from types import MappingProxyType

import pytest
from page_views import simulated_results, world

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.config.decisions import BudgetConfig
from adaptive_eval.core.types import Reason
from adaptive_eval.report.ending import Ending
from adaptive_eval.report.finding import finding, main_findings
from adaptive_eval.report.labelled import LabelledModel, LabelledRun
from adaptive_eval.report.next_steps import Advice, next_steps
from adaptive_eval.report.results import Caution, GateRow, PairRow, Results
from adaptive_eval.report.undecided import labels_needed, undecided_pair, undecided_sentence

NAMES = ("ada", "bob", "cyd", "dan", "eve")


@cache
def judged(budget: int | None) -> Results:
    """A run of five models at its second look."""
    return simulated_results(world(NAMES, 6), looks=2, trials={"min": 2, "max": 12}, budget={"trials": budget})


def ended(
    verdicts: str = "rruo",
    reason: Reason = Reason.OUT_OF_REACH,
    needs: float | None = 20.0,
    budget: int | None = None,
    horizon: int | None = 40,
) -> Results:
    """A finished run with these verdicts of neighbours: (r)esolved, (t)ied, (u)ndecidable, (o)pen."""
    results = judged(budget)
    words = {"r": "resolved", "t": "tied", "u": "out_of_reach", "o": "open"}
    pairs = tuple(
        replace(
            pair,
            verdict=words[verdict],
            trials_needed=None if verdict in "rt" else needs,
            horizon_needed=horizon if verdict == "u" else None,
            called=None,
        )
        for pair, verdict in zip(results.pairs, verdicts, strict=True)
    )
    return replace(results, pairs=pairs, run=replace(results.run, status="finished", reason=str(reason)))


def advice(results: Results, *arguments: str, short_caps: Mapping[str, float] = MappingProxyType({})) -> Advice:
    """The first next step of a run that was started by `mine.yaml`, or with these arguments."""
    assert results.run.reason is not None
    ending = Ending(
        reason=Reason(results.run.reason),
        results=results,
        trials=9,
        caps={"trials": 60},
        short_caps=short_caps,
        arguments=arguments or ("mine.yaml",),
    )
    return next(iter(next_steps(ending, "RUN")))


@pytest.mark.parametrize(
    ("budget", "reason", "given", "doubled"),
    [
        ({"tokens": 50_000}, Reason.BUDGET, "--set budget.tokens=5e4", "--set budget.tokens=100000"),
        ({"usd": 20.0}, Reason.BUDGET, "--model A --budget 20usd", "--model A --set budget.usd=40"),
        ({"usd": 20.0}, Reason.BUDGET, "--max-trials 9", "--max-trials 9 --set budget.usd=40"),
        ({"wall_time": "2h", "usd": 1.0}, Reason.WALL_TIME, "--budget 2h", "--set budget.wall_time=14400s"),
        ({"wall_time": "2h", "usd": 1.0}, Reason.BUDGET, "--budget 2h", "--budget 2h --set budget.usd=2"),
        ({"gpu_hours": 3.0, "usd": 1.0}, Reason.GPU_TIME, "", "--set budget.gpu_hours=6"),
        ({}, Reason.BUDGET, "--set trials.min=2", "--set trials.min=2"),
    ],
)
def test_a_spent_cap_of_the_run_is_proposed_twice_as_large(
    budget: dict[str, object], reason: Reason, given: str, doubled: str
) -> None:
    caps = BudgetConfig.model_validate(budget).caps
    ending = Ending(reason=reason, results=None, trials=9, caps=caps, arguments=("mine.yaml", *given.split()))
    (step,) = next_steps(ending, "RUN")
    assert shlex.split(step.command or "") == ["adaptive-eval", "run", "mine.yaml", *doubled.split()]


def named(pair: PairRow | None) -> tuple[str, str | None]:
    """The two models of a pair."""
    assert pair is not None
    return pair.first, pair.second


def test_headline_and_next_step_give_the_same_numbers() -> None:
    results = ended("rruu")
    third, fourth = results.pairs[2:]
    sentence = undecided_sentence(results)
    assert sentence is not None and finding(results) == (*main_findings(results), sentence)
    assert named(undecided_pair(results)) == (third.first, third.second)
    gap = f"{100 * abs(third.difference or 0.0):.1f} points"
    both = f"{third.first} and {third.second}"
    assert sentence.startswith(
        f"There are too few answers to tell {both} apart: they differ by {gap}; 1 more comparison "
    )
    rows = {row.name: row for row in results.models}
    further = sum(40 * 6 - rows[name].stored_trials for name in {third.first, third.second, str(fourth.second)})
    chance = "give both comparisons at least a 50% chance of a decision."
    assert f" Up to {further:,} more answers {chance}" in sentence
    step = advice(results)
    assert "raise trials.max to 40" in step.text and step.command is not None and "trials.max=40" in step.command


@pytest.mark.parametrize(("difference", "lead"), [(0.0, "level with bob ("), (0.02, "ahead of bob by 2.0 points (")])
def test_a_lead_of_nothing_is_no_lead(difference: float, lead: str) -> None:
    """Two models far apart, too, may have too few answers: this is not called close."""
    results = ended("uuuu")
    ada, bob = (row.name for row in results.models[:2])
    pairs = (replace(results.pairs[0], difference=difference), *results.pairs[1:])
    ranking, undecided = finding(replace(results, pairs=pairs))
    assert f", {lead.replace('bob', bob)}95% interval " in ranking and ada in ranking
    assert undecided.startswith("There are too few answers to tell these two apart; 3 more")


def test_budget_that_ended_a_run_is_raised_by_what_open_pairs_need() -> None:
    results = ended("rrro", Reason.BUDGET, 10.0, budget=60)
    last = results.pairs[3]
    rows = {row.name: row for row in results.models}
    further = sum(10 * 6 - rows[name].stored_trials for name in (last.first, str(last.second)))
    sentence, step = undecided_sentence(results), advice(results)
    assert (
        sentence is not None
        and " is still open, since the budget ended the run: they differ by 25.0 points" in sentence
    )
    assert sentence.endswith(f"About {further} more answers give them a 50% chance of a decision.")
    raised = step.text.removeprefix("raise budget.trials to ").removesuffix(":")
    assert int(raised) >= results.cost.trials + further
    beyond = undecided_sentence(replace(results, pairs=(*results.pairs[:3], replace(last, trials_needed=99.0))))
    assert beyond is not None and "that trials.max allows would decide them only if the difference grows" in beyond
    two = ended("rroo", Reason.BUDGET, 10.0, budget=60)
    assert "give both comparisons a 50% chance of a decision" in (undecided_sentence(two) or "")
    far = replace(two.pairs[3], trials_needed=99.0)
    assert "give them a 50% chance" in (undecided_sentence(replace(two, pairs=(*two.pairs[:3], far))) or "")


def test_raised_budget_covers_the_next_round() -> None:
    """However few answers the open pair seems to need: with less the run would not go on."""
    results = ended("rrro", Reason.BUDGET, 10.0, budget=60)
    step = advice(results, short_caps={"trials": 5000})
    _, _, raised = (step.command or "").partition("--set budget.trials=")
    assert 5000 < int(raised) < 5500 and step.text == f"raise budget.trials to {int(raised):,}:"
    unknown = replace(results, pairs=tuple(replace(pair, verdict="blocked") for pair in results.pairs))
    step = advice(unknown, short_caps={"trials": 5000})
    assert step.text == "raise budget.trials to 5,000 or more, for the next round:"


def test_pair_that_no_plausible_number_of_answers_decides_is_said_to_be_so() -> None:
    results = ended("rrru", needs=5000.0, horizon=None)
    sentence, step = undecided_sentence(results), advice(results)
    assert sentence is not None and sentence.endswith(
        " At this difference, deciding them would take far more answers than this run: about 5,000 trials per question."
    )
    width = results.pairs[3].certifiable_delta
    assert width is not None and step.text.startswith(
        "deciding this comparison would take far more answers than this run; "
    )
    (delta,) = re.findall(r"--fresh --set stopping\.delta=([0-9.]+)$", step.command or "")
    assert width <= float(delta) <= 1.1 * width and "trials.max" not in (step.command or "")
    elsewhere = advice(results, "mine.yaml", "--run-dir", "runs/b3", "--set", "stopping.delta=0.01")
    assert elsewhere.command == f"adaptive-eval run mine.yaml --run-dir runs/b3-2 --set stopping.delta={delta}"
    both = ended("rruu", needs=20.0)
    both = replace(both, pairs=(*both.pairs[:3], replace(both.pairs[3], trials_needed=5000.0, horizon_needed=None)))
    assert advice(both).text == "raise trials.max to 40 (1 comparison would stay undecided):"
    assert "give them at least a 50% chance of a decision" in (undecided_sentence(both) or "")


def test_a_chance_for_other_pairs_names_them() -> None:
    """The pair that the headline names has spent its error."""
    results = ended("uurr", horizon=40)
    first, second = results.pairs[:2]
    spent = replace(first, trials_needed=20.0, horizon_needed=None)
    results = replace(results, pairs=(spent, *results.pairs[1:]))
    assert "raise trials.max to 40 (for a 50% chance of a decision)" in advice(results).text
    sentence = undecided_sentence(results)
    assert sentence is not None and f" give {second.first} and {second.second} at least a 50% chance " in sentence
    results = ended("uuur", horizon=40)
    sentence = undecided_sentence(replace(results, pairs=(spent, *results.pairs[1:])))
    assert sentence is not None and " give 2 other comparisons at least a 50% chance " in sentence


def test_unknown_need_is_not_given_as_a_number() -> None:
    sentence = undecided_sentence(ended("rrro", Reason.BUDGET, needs=None))
    assert sentence is not None and sentence.endswith(" How many answers would decide them is not known yet.")


def test_a_pair_that_has_spent_its_error_needs_a_new_run() -> None:
    results = ended("rrru", needs=None, horizon=None)
    raised = replace(
        results,
        pairs=(*results.pairs[:3], replace(results.pairs[3], boundary=None)),
        warnings=(Caution("horizon", None, "trials.max was raised"),),
    )
    step = advice(raised)
    assert (
        step.text
        == "start over, since a larger trials.max would decide nothing more in this run; set trials.max to 24:"
    )
    assert "In a new run" not in (undecided_sentence(results) or "")
    assert advice(results).text.startswith("deciding this comparison would take far more answers")
    plausible = ended("rrru", needs=20.0, horizon=None)
    assert advice(plausible).text == "start over; set trials.max to 40:", "whether this run could go on is unknown"
    assert "--fresh" in (advice(plausible).command or "")
    assert "In a new run up to " in (undecided_sentence(plausible) or "")


@pytest.mark.parametrize(("verdicts", "at"), [("uruu", 0), ("rruo", 2), ("turr", 1)])
def test_highest_undecided_pair_of_the_ranking_is_named(verdicts: str, at: int) -> None:
    results = ended(verdicts)
    assert named(undecided_pair(results)) == named(results.pairs[at])


def test_nothing_is_added_while_a_run_goes_on_or_when_all_is_decided() -> None:
    results = ended()
    assert undecided_sentence(replace(results, run=replace(results.run, status="running", reason=None))) is None
    assert undecided_sentence(ended("rtrr", Reason.SETTLED)) is None
    alarmed = replace(results, run=replace(results.run, status="stopped", reason=str(Reason.ALARM)))
    assert undecided_sentence(alarmed) is None


def test_stopped_run_says_how_many_answers_its_open_pairs_still_need() -> None:
    results = ended("rrro", needs=10.0)
    stopped = replace(results, run=replace(results.run, status="stopped", reason=None))
    sentence = undecided_sentence(stopped)
    assert sentence is not None and sentence.endswith(" more answers give them a 50% chance of a decision.")


def test_ungraded_answers_that_block_a_pair_are_named_and_no_model_was_set_aside() -> None:
    results = ended("rrro")
    last = replace(results.pairs[3], verdict="blocked")
    rows = tuple(replace(row, ungraded=3 if row.name == last.second else 0) for row in results.models)
    blocked = replace(results, pairs=(*results.pairs[:3], last), models=rows)
    ending = Ending(reason=Reason.BLOCKED, results=blocked, trials=9)
    assert ending.exit_code == ExitCode.SPENT
    assert ending.why == f"Finished: the blocked comparisons need grades for the ungraded answers of {last.second}."


def test_grades_that_say_the_same_as_labels_are_not_repeated() -> None:
    results = ended("rrrr", Reason.SETTLED)
    labelled = LabelledRun("digest", "numeric", by_grades=" ".join(main_findings(results)))
    same = finding(replace(results, labelled=labelled))[-1]
    assert same == "This is by scores corrected with 0 labels. The grades alone say the same."
    other = finding(replace(results, labelled=replace(labelled, by_grades="ada is best.")))[-1]
    assert other.endswith("The grades alone: ada is best.")


@pytest.mark.parametrize(("share", "labels_help"), [(0.9, True), (0.2, False)])
def test_where_the_error_is_that_of_labels_no_answers_are_advised(share: float, labels_help: bool) -> None:
    """`share`: the part of a pair's variance that its labels cause."""
    results = ended("uuuu")
    sigma = min(pair.sigma or 0.0 for pair in results.pairs)
    shift = (share * sigma**2 / 2) ** 0.5 if share < 0.5 else max(pair.sigma or 0.0 for pair in results.pairs)
    models = tuple(
        LabelledModel(row.name, 400, 30, ((20, 0, 0), (0, 10, 0)), 0.5, 0.01, 0.5, sigma, 0.0, shift)
        for row in results.models
    )
    results = replace(results, labelled=LabelledRun("d", "math", models=models))
    step, sentence = advice(results), undecided_sentence(results)
    assert sentence is not None
    if labels_help:
        assert step.command is not None and step.command.startswith("adaptive-eval label RUN")
        assert " more answers, with a reserve for the pair that needs most" in step.text
        assert "because of labels" in sentence and "more answers" not in sentence
    else:
        assert "trials.max" in step.text and "labels" not in sentence


def test_the_labels_that_a_gate_needs_go_by_the_distance_from_its_limit() -> None:
    """Equal scores are far from a gate that allows 15 points less."""
    results = ended("uuuu")
    pair = replace(results.pairs[0], difference=0.01, sigma=0.1, z=1.6, boundary=2.0)
    labelled = LabelledRun(
        "d",
        "math",
        models=tuple(
            LabelledModel(name, 200, 40, ((20, 0, 0), (0, 20, 0)), 0.5, 0.01, 0.5, 0.07, 0.0, 0.06)
            for name in (pair.first, pair.second)
            if name is not None
        ),
    )
    results = replace(results, labelled=labelled)
    assert labels_needed(results, pair).further is None
    # 0.0072 / (0.08^2 - 0.0028) = 2: twice the 80 labels
    gated = replace(results, gate=(GateRow(pair.first, pair.second, "UNDECIDED", "the labels"),))
    assert labels_needed(gated, pair).further == 80


@pytest.mark.parametrize("baseline", [True, False])
def test_a_gate_that_no_plausible_number_of_answers_decides_takes_a_larger_delta(baseline: bool) -> None:
    """The delta of a tie says nothing of a gate."""
    results = ended("rrru", needs=5000.0, horizon=None)
    last = replace(results.pairs[3], second=results.pairs[3].second if baseline else None)
    gate = (GateRow(last.first, last.second, "UNDECIDED", "too close"),)
    step = advice(replace(results, pairs=(*results.pairs[:3], last), gate=gate))
    assert step.text.startswith("deciding this comparison would take far more answers than this run; ")
    assert (step.command or "").endswith("--fresh --set stopping.delta=DELTA")
