"""The undecided pair in the headline: which one it is, what it would take, and that the next steps say the same."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from math import ceil

import pytest
from page_views import simulated_results, world

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.config.decisions import BudgetConfig
from adaptive_eval.core.answer_kinds import INCOMPLETE, AnswerKind
from adaptive_eval.core.types import Cause, Lost, Reason
from adaptive_eval.report.build import _needing_more
from adaptive_eval.report.ending import Ending, Restart
from adaptive_eval.report.finding import finding, main_findings
from adaptive_eval.report.labelled import LabelledModel, LabelledRun
from adaptive_eval.report.needs import round_up, undecided_pair, undecided_sentence
from adaptive_eval.report.next_steps import Advice, next_steps
from adaptive_eval.report.results import AlarmRow, Caution, GateRow, GroupRow, PairRow, Results

NAMES = ("ada", "bob", "cyd", "dan", "eve")


@cache
def judged() -> Results:
    """A run of five models at its second look."""
    return simulated_results(world(NAMES, 6), looks=2, trials={"min": 2, "max": 12})


def ended(verdicts: str = "rruo", reason: Reason = Reason.OUT_OF_REACH, needs: float | None = 20.0) -> Results:
    """A finished run with these verdicts of neighbours: (r)esolved, (t)ied, (u)ndecidable, (o)pen, (b)locked."""
    results = judged()
    words = {"r": "resolved", "t": "tied", "u": "out_of_reach", "o": "open", "b": "blocked"}
    pairs = tuple(
        replace(
            pair,
            verdict=words[verdict],
            trials_needed=None if verdict in "rt" else needs,
            deciding_max=None if needs is None or needs > 300.0 else 3.0 * needs,
            difference=0.02,
            certifiable_delta=0.03,
            called=None,
        )
        for pair, verdict in zip(results.pairs, verdicts, strict=True)
    )
    return replace(results, pairs=pairs, run=replace(results.run, status="finished", reason=str(reason)))


def advice(results: Results, *arguments: str, **more: Mapping[str, float]) -> Advice:
    """The first next step of a run that was started by `mine.yaml`, or with these arguments."""
    assert results.run.reason is not None
    given = {"caps": {"trials": 60}, "arguments": arguments or ("mine.yaml",), **more}
    ending = Ending(reason=Reason(results.run.reason), results=results, trials=9, **given)  # type: ignore[arg-type]
    return next(next_steps(ending))


@pytest.mark.parametrize(
    ("budget", "reason", "given", "doubled"),
    [
        ({"tokens": 50_000}, Reason.BUDGET, "--set budget.tokens=5e4", "--set budget.tokens=100000"),
        ({"usd": 20.0}, Reason.BUDGET, "--model A --budget 20usd", "--model A --budget 20usd --set budget.usd=40"),
        ({"wall_time": "2h", "usd": 1.0}, Reason.WALL_TIME, "--budget 2h", "--budget 2h --set budget.wall_time=14400s"),
        ({"wall_time": "2h", "usd": 1.0}, Reason.BUDGET, "--budget 2h", "--budget 2h --set budget.usd=2"),
        ({"gpu_hours": 3.0, "usd": 1.0}, Reason.GPU_TIME, "", "--set budget.gpu_hours=6"),
        ({}, Reason.BUDGET, "--set trials.min=2", "--set trials.min=2"),
    ],
)
def test_spent_caps_are_proposed_doubled(budget: dict[str, object], reason: Reason, given: str, doubled: str) -> None:
    caps = BudgetConfig.model_validate(budget).caps
    ending = Ending(reason=reason, results=None, trials=9, caps=caps, arguments=("mine.yaml", *given.split()))
    (step,) = next_steps(ending)
    assert shlex.split(step.command or "") == ["adaptive-eval", "run", "mine.yaml", *doubled.split()]


def named(pair: PairRow | None) -> tuple[str, str | None]:
    """The two models of a pair."""
    assert pair is not None
    return pair.first, pair.second


def test_an_open_pair_of_drawn_questions_needs_one_more_than_it_has() -> None:
    results = ended("rrro")
    trials = results.decisions["trials"]
    assert isinstance(trials, Mapping)
    drawn = replace(results, decisions={**results.decisions, "trials": {**trials, "max": 1, "draw": 5}})
    pair = replace(results.pairs[3], trials_needed=0.0)
    has = min(row.trials for row in results.models if row.name in (pair.first, pair.second))
    needed = _needing_more(drawn, pair).trials_needed
    assert needed is not None and needed * drawn.max_trials_per_model == pytest.approx(has + 1)


def test_headline_and_next_step_give_the_same_numbers() -> None:
    results = ended("rruu")
    third, fourth = results.pairs[2:]
    sentence = undecided_sentence(results)
    assert sentence is not None and finding(results) == (*main_findings(results), sentence)
    assert named(undecided_pair(results)) == (third.first, third.second)
    gap = f"{100 * abs(third.difference or 0.0):.1f} points"
    both = f"{third.first} and {third.second}"
    assert sentence.startswith(f"The comparison of {both} is undecided: they differ by {gap}. It needs about 60 ")
    assert sentence.endswith("model in total (trials.max is 12). 1 more comparison is undecided.")
    step = advice(replace(results, pairs=(*results.pairs[:3], replace(fourth, deciding_max=90.0))))
    assert step.text.endswith(" and trials.max to 90:") and step.command is not None and "trials.max=90" in step.command


def test_a_pair_that_a_cap_gave_up_needs_what_its_difference_takes() -> None:
    """Also if no `trials.max` probably decides it, since the other model has a recorded number of answers."""
    results = ended("rrru", needs=4.0)
    last = replace(results.pairs[3], deciding_max=None)
    rows = tuple(replace(row, recorded="run" if row.name == last.first else None) for row in results.models)
    for each in (results, replace(results, pairs=(*results.pairs[:3], last), models=rows)):
        sentence = undecided_sentence(each)
        assert sentence is not None and "It needs about 4 trials per question" in sentence
        assert re.fullmatch(r"raise budget\.trials to \d+:", advice(each).text)


@pytest.mark.parametrize(
    ("reason", "needs", "cap", "raised"),
    [
        (Reason.OUT_OF_REACH, 4.0, 60, r"budget\.trials to \d+"),  # a larger trials.max alone would ask nothing
        (Reason.OUT_OF_REACH, 9.0, 9000, r"trials\.max to 27 \([^)]*\)"),
        (Reason.OUT_OF_REACH, 20.0, 60, r"budget\.trials to \d{3,} and trials\.max to 60"),
        (Reason.BUDGET, 20.0, 60, r"budget\.trials to \d{3,} and trials\.max to 60"),  # else it would end again
        (Reason.BUDGET, 4.0, 60, r"budget\.trials to \d{3,}"),
    ],
)
def test_what_is_too_small_is_raised_and_nothing_else(reason: Reason, needs: float, cap: int, raised: str) -> None:
    results = ended("rrru", reason, needs)
    assert re.fullmatch(f"raise {raised}:", advice(results, caps={"trials": cap}).text)


def test_no_model_is_best_while_another_has_no_score() -> None:
    results = ended("rrrr")
    rows = tuple(replace(row, tier=row.rank, letters="abcde"[row.rank - 1]) for row in results.models)
    results = replace(results, models=rows)
    *scored, last = results.models
    assert " is best: " in main_findings(results)[0]
    headline = main_findings(replace(results, models=(*scored, replace(last, letters="ae"))))[0]
    assert headline.startswith("ada has the highest score, ") and headline.endswith(", and is not compared with eve.")
    (sentence,) = main_findings(replace(results, models=(*scored, replace(last, score=None))))
    assert "best" not in sentence and f"{last.name} has no score." in sentence


@pytest.mark.parametrize(
    ("pairs", "verdicts", "expected"),
    [
        (
            ["bob cyd"],
            ["tied"],
            r"ada has the highest score, [\d.]+%, and is not compared with bob, dan, cyd and 1 more.",
        ),
        (["ada bob"], ["resolved"], r"ada has .*, ahead of bob by .*, and is not compared with dan, cyd and eve."),
        (["ada bob", "cyd dan"], ["tied", "tied"], r"ada and bob are equal: .*; dan, cyd and eve are not compared .*"),
        (
            ["ada bob", "bob cyd", "ada dan"],
            ["tied", "tied", "resolved"],
            r"ada, bob and cyd are equal to neighbours: .*; eve is not .*",
        ),
        (["ada bob", "ada cyd"], ["open", "resolved"], r"ada and bob are ahead, .*; dan and eve are not compared .*"),
    ],
)
def test_a_headline_compares_models_that_comparisons_join(pairs: list[str], verdicts: list[str], expected: str) -> None:
    results = ended()
    rows = tuple(
        replace(results.pairs[0], first=names.split()[0], second=names.split()[1], verdict=verdict)
        for names, verdict in zip(pairs, verdicts, strict=True)
    )
    decisions = {**results.decisions, "objective": {"kind": "pairs"}}
    (headline,) = main_findings(replace(results, pairs=rows, decisions=decisions))
    assert re.fullmatch(expected, headline), headline


def test_repeated_answers_are_in_the_headline_and_no_reason_for_more_trials() -> None:
    results = ended("rrbb")
    name = results.pairs[2].second
    alarmed = replace(results, warnings=(Caution("repeats", name, "its server serves a cache"),))
    assert f"Alarm: answers of {name} come back word for word" in finding(alarmed)[0]
    typed = ("mine.yaml", "--set", "budget.usd=", "--set", "name=a=")
    step = advice(alarmed, *typed)
    assert step.text.startswith("more trials are of no use") and (step.command or "").endswith(" --ask-again")
    spent = advice(ended("uuuu", needs=1e6), *typed)
    assert "mine.yaml --set name=a= --fresh" in (spent.command or ""), "a new run has nothing to undo"


@pytest.mark.parametrize(("difference", "lead"), [(0.0, "level with bob ("), (0.02, "ahead of bob by 2.0 points (")])
def test_a_lead_of_nothing_is_no_lead(difference: float, lead: str) -> None:
    results = ended("uuuu")
    ada, bob = (row.name for row in results.models[:2])
    pairs = (replace(results.pairs[0], difference=difference), *results.pairs[1:])
    ranking, undecided = finding(replace(results, pairs=pairs))
    assert f", {lead.replace('bob', bob)}95% interval " in ranking and ada in ranking
    assert undecided.startswith(f"The comparison of {ada} and {bob} is undecided: ") and "; " not in undecided


def test_budget_that_ended_a_run_is_raised() -> None:
    results = ended("rrro", Reason.BUDGET, 4.0)
    step = advice(results, short_caps={"trials": 5000})
    assert step.text == "raise budget.trials to 5000:", "with less the run would not go on"
    unknown = ended("rrro", Reason.BUDGET, needs=None)
    stopped = replace(results, run=replace(results.run, status="stopped", reason=None))
    for open_, need in (
        (unknown, "an unknown number of further trials."),
        (stopped, "about 4 trials per question and model in total."),
    ):
        assert (undecided_sentence(open_) or "").endswith(f" It needs {need}")


def test_time_is_advised_for_what_is_open_and_for_servers_that_start_and_end() -> None:
    """Two of five models need twice as many answers, 5 of 4 in all of what there is; two servers start for a minute."""
    results = ended("rrro", Reason.GPU_TIME, 4.0)
    results = replace(results, run=replace(results.run, active_seconds=1000.4))
    results = replace(results, cost=replace(results.cost, counted_gpu_seconds=7200.0))
    further = sum(max(12 * 6 - row.stored_trials, 0) for row in results.models[3:]) / results.cost.trials
    restart = Restart(60.0, 120.0, 42.0)
    step = advice(results, caps={"gpu_hours": 0.1, "wall_time": 10}, restart=restart)  # type: ignore[arg-type]
    assert step.text == (
        f"raise budget.gpu_hours to {round_up(2.0 * (1.0 + further) + (120 + 2 * 42) / 3600):.15g} and "
        f"budget.wall_time to {ceil(1000.4 * (1.0 + further) + 60.0)}s:"
    )
    early = Ending(reason=Reason.GPU_TIME, results=None, trials=0, caps={"gpu_hours": 0.01}, restart=restart)
    assert next(next_steps(early)).text.startswith(f"raise budget.gpu_hours to {round_up(0.01 + 162 / 3600)}")
    late = Ending(reason=Reason.WALL_TIME, results=None, trials=0, caps={"wall_time": 90}, restart=restart)
    assert next(next_steps(late)).text.startswith("raise budget.wall_time to 240s")


def test_pair_that_no_plausible_number_of_answers_decides_is_said_to_be_so() -> None:
    results = ended("rrru", needs=5000.0)
    sentence, step = undecided_sentence(results), advice(results)
    assert sentence is not None and sentence.endswith(
        " It needs more than this run can give: about 5,000 trials per question and model in total (trials.max is 12)."
    )
    pair = results.pairs[3]
    assert pair.certifiable_delta is not None and pair.difference is not None
    width = abs(pair.difference) + pair.certifiable_delta
    assert step.text == "start over with a larger stopping.delta, if such a difference does not matter to you:"
    (delta,) = re.findall(r"--fresh --set stopping\.delta=([0-9.]+)$", step.command or "")
    assert width < float(delta) < 1.5 * width and "trials.max" not in (step.command or "")
    elsewhere = advice(results, "mine.yaml", "--run-dir", "runs/b3", "--set", "stopping.delta=0.01")
    assert elsewhere.command == f"adaptive-eval run mine.yaml --run-dir runs/b3-2 --set stopping.delta={delta}"


def test_a_pair_that_has_spent_its_error_needs_a_new_run() -> None:
    results = ended("rrru", needs=None)
    raised = replace(
        results,
        pairs=(*results.pairs[:3], replace(results.pairs[3], boundary=None)),
        warnings=(Caution("horizon", None, "trials.max was raised"),),
    )
    wider, more = next_steps(Ending(reason=Reason.OUT_OF_REACH, results=raised, trials=9, arguments=("mine.yaml",)))
    assert "stopping.delta=0.0" in (wider.command or "") and (more.command or "").endswith("--set trials.max=36")
    assert (undecided_sentence(raised) or "").endswith(" It needs more than this run can give.")
    alone = replace(raised, pairs=tuple(replace(pair, second=None) for pair in raised.pairs))
    larger = advice(alone)
    assert larger.text == "start over with a larger budget.trials and trials.max:", "no delta lets a value be tied"
    assert (larger.command or "").endswith("--fresh --set budget.trials=290 --set trials.max=36"), "which it may take"
    left = ended("rrru")
    assert advice(left).text.startswith("raise ")
    none = replace(left, pairs=(*left.pairs[:3], replace(left.pairs[3], deciding_max=None)))
    wider, more = next_steps(Ending(reason=Reason.OUT_OF_REACH, results=none, trials=9, arguments=("mine.yaml",)))
    assert wider.text.startswith("start over with a larger stopping.delta, if such a difference does not matter")
    assert (more.command or "").endswith("--fresh --set trials.max=60")


def test_pairs_with_different_needs_get_alternatives_that_say_what_each_decides() -> None:
    results = ended("rruu", needs=20.0)
    needs_new_run = replace(results.pairs[2], deciding_max=None, trials_needed=15.0, certifiable_delta=0.02)
    results = replace(results, pairs=(*results.pairs[:2], needs_new_run, results.pairs[3]))
    raised, wider, more = next_steps(
        Ending(reason=Reason.OUT_OF_REACH, results=results, trials=9, arguments=("mine.yaml",))
    )
    assert re.fullmatch(r"raise trials.max to 60 \(.*, for 1 of the undecided comparisons\):", raised.text)
    assert wider.text.startswith("or start over with a larger stopping.delta")
    assert (wider.command or "").endswith(" --fresh --set stopping.delta=0.062"), "as the second pair needs"
    assert more.text.startswith("or start over with a larger trials.max") and (more.command or "").endswith("max=60")


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


def test_ungraded_answers_that_block_a_pair_are_named_and_no_model_was_set_aside() -> None:
    results = ended("rrro")
    last = replace(results.pairs[3], verdict="blocked")
    rows = tuple(replace(row, ungraded=3 if row.name == last.second else 0) for row in results.models)
    blocked = replace(results, pairs=(*results.pairs[:3], last), models=rows)
    ending = Ending(reason=Reason.BLOCKED, results=blocked, trials=9)
    assert ending.exit_code == ExitCode.SPENT
    assert ending.why == f"Finished: undecided comparisons need grades for the ungraded answers of {last.second}."


def test_grades_that_say_the_same_as_labels_are_not_repeated() -> None:
    results = ended("rrrr", Reason.SETTLED)
    labelled = LabelledRun("digest", "numeric", by_grades=" ".join(main_findings(results)))
    same = finding(replace(results, labelled=labelled))[-1]
    assert same == "This is by scores corrected with 0 labels. The grades alone say the same."
    other = finding(replace(results, labelled=replace(labelled, by_grades="ada is best.")))[-1]
    assert other.endswith("The grades alone: ada is best.")


@pytest.mark.parametrize(
    ("share", "z", "delta", "labels", "labels_help"),
    [
        (0.9, 1.0, 0.0, 25, True),
        (0.9, 1.0, 0.0, 999, False),
        (0.2, 1.9, 0.0, 25, False),
        (0.9, 0.5, 0.0, 25, False),
        (0.9, 0.5, 0.12, 25, True),
    ],
)
def test_no_answers_mend_errors_of_labels(share: float, z: float, delta: float, labels: int, labels_help: bool) -> None:
    """`share`: the part of a pair's variance that its labels cause; without it, some pairs would still be undecided."""
    results, sigma = ended("uuuu"), 0.1
    shift = (share * sigma**2 / 2) ** 0.5
    labelled = tuple(
        LabelledModel(row.name, 400, labels, ((20, 0, 0), (0, 10, 0)), 0.5, 0.01, 0.5, sigma, 0.0, shift)
        for row in results.models
    )
    results = replace(
        results,
        labelled=LabelledRun("d", "math", models=labelled),
        models=tuple(replace(row, trials=400, stored_trials=400, labels=labels) for row in results.models),
        pairs=tuple(replace(pair, difference=z * sigma, z=z, sigma=sigma, boundary=2.0) for pair in results.pairs),
        decisions={**results.decisions, "stopping": {"delta": delta}},
    )
    step, sentence = advice(results), undecided_sentence(results)
    assert sentence is not None
    if labels_help:
        assert step.command is not None and step.command.startswith("adaptive-eval label RUN")
        assert step.text.startswith("label more answers of ") and " needs more labels of answers of " in sentence
        assert "(those of a model count once it has 20)" in sentence
        assert sentence.endswith(" 3 more comparisons are undecided.") and "trials" not in sentence
    else:
        assert "trials.max" in step.text and "labels" not in sentence


def test_a_gate_that_no_plausible_number_of_answers_decides_takes_a_larger_delta() -> None:
    """The delta of a tie says nothing of a gate, and that of all questions nothing of a benchmark's own gate."""
    results = ended("rrru", needs=5000.0)
    last = results.pairs[3]
    gate = (GateRow(last.first, None, "UNDECIDED", "too close"),)
    results = replace(results, pairs=(*results.pairs[:3], replace(last, second=None)), gate=gate)
    assert (advice(results).command or "").endswith("--fresh --set stopping.delta=DELTA")
    group = GroupRow("benchmark", "exact", 0.5, 3, last.first, 9, 0.5, 0.1, 0.3, 0.7, "UNDECIDED")
    step = advice(replace(results, groups=(group,)))
    assert "larger gates of the benchmarks that are undecided" in step.text and "delta=" not in (step.command or "")


def test_a_recording_with_too_few_trials_is_what_a_pair_lacks() -> None:
    """Trial by trial, both sides need as many, and the recorded one has only so many."""
    results = ended("rrru", needs=20.0)
    last = replace(results.pairs[3], by_trial=True)
    rows = tuple(replace(row, recorded="old" if row.name == last.second else None) for row in results.models)
    results = replace(results, pairs=(*results.pairs[:3], last), models=rows)
    assert "needs more than this run can give: about 20 trials" in (undecided_sentence(results) or "")
    assert advice(results).text.startswith(f"the recorded answers of {last.second} may be too few")


SIGNALS: dict[str, dict[str, int]] = {
    "ada": {"timed_out": 3},
    "bob": {"context_length": 2, "truncated": 1},
    "cyd": {"truncated": 2},
    "dan": {},
}


def incomplete(*names: str, recorded: str | None = None, unsure: AnswerKind = INCOMPLETE) -> list[Advice]:
    """The next steps of a run whose comparisons could turn on incomplete answers of these models; one of another run,
    called `old`, stands for one of them; `unsure`: kinds without a category of the rubric."""
    results = ended("bbbb", Reason.BLOCKED)
    rows = tuple(
        replace(
            row,
            unsure=3 if row.name in names else 0,
            signals={} if row.name == recorded else SIGNALS.get(row.name, {}),
            recorded="old" if row.name == recorded else None,
        )
        for row in results.models
    )
    pairs = tuple(pair for pair in results.pairs if {pair.first, pair.second} & {*names})
    counted = () if recorded is None else ("old",)
    results = replace(results, models=rows, pairs=pairs)
    ending = Ending(
        reason=Reason.BLOCKED, results=results, trials=9, arguments=("a.yaml",), counted=counted, unsure=unsure
    )
    return [*next_steps(ending)]


@pytest.mark.parametrize(
    ("names", "unsure", "remedy"),
    [
        (["cyd"], INCOMPLETE, "use a larger sampling.max_tokens"),
        (["bob"], INCOMPLETE, "use a server with a larger context, and then a larger sampling.max_tokens"),
        (["ada", "cyd"], INCOMPLETE, "use a larger sampling.max_tokens and a longer sampling.timeout"),
        (["ada", "bob"], AnswerKind.TIMED_OUT, "use a longer sampling.timeout"),  # the others have a category
    ],
)
def test_what_completes_answers_is_by_models_that_lack_them(names: list[str], unsure: AnswerKind, remedy: str) -> None:
    afresh, regrade = incomplete(*names, unsure=unsure)
    assert f"({remedy})" in afresh.text and (afresh.command or "").endswith("--fresh")
    assert regrade.command == "adaptive-eval regrade RUN --config a.yaml"


def test_recorded_answers_are_completed_where_they_come_from() -> None:
    repeat, grade = incomplete("bob", recorded="bob")
    assert "come from old: " in repeat.text and "ask bob in this run" in repeat.text and "use " not in repeat.text
    own, repeat, grade_both = incomplete("bob", "cyd", recorded="bob")
    assert "(use a larger sampling.max_tokens)" in own.text and "come from old: " in repeat.text
    for step in grade, grade_both:
        assert "the answers of old again" in step.text and step.command == "adaptive-eval run a.yaml --fresh"
    own, grade = incomplete("cyd", recorded="bob")
    assert "(use a larger sampling.max_tokens)" in own.text and "regrade" not in (grade.command or "")


@pytest.mark.parametrize(
    ("rule", "difference", "certifiable", "now", "delta"),
    [
        ("near_best", 0.02, 0.07, 0.02, "0.078"),
        ("near_best", 0.06, 0.05, 0.02, "DELTA"),
        ("near_best", 0.2, 0.05, 0.02, "DELTA"),
        ("optimal", 0.02, 0.07, 0.02, "0.12"),
    ],
)
def test_a_lead_makes_the_delta_smaller_within_which_the_best_is_picked(
    rule: str, difference: float, certifiable: float, now: float, delta: str
) -> None:
    results = ended("rrru", needs=None)
    last = replace(results.pairs[3], difference=difference, certifiable_delta=certifiable, boundary=None)
    decisions = {**results.decisions, "objective": {"kind": "best"}, "stopping": {"rule": rule, "delta": now}}
    results = replace(results, pairs=(*results.pairs[:3], last), decisions=decisions)
    steps = next_steps(Ending(reason=Reason.OUT_OF_REACH, results=results, trials=9, arguments=("mine.yaml",)))
    assert any((step.command or "").endswith(f"--set stopping.delta={delta}") for step in steps)


@pytest.mark.parametrize("against_a_value", [False, True])
def test_where_all_is_labelled_the_grader_is_what_is_wrong(against_a_value: bool) -> None:
    results = ended("rrru", Reason.SETTLED, needs=None)
    last = replace(results.pairs[3], verdict="undecided_by_labels")
    last = replace(last, second=None if against_a_value else last.second)
    rows = tuple(replace(row, labels=row.stored_trials) for row in results.models)
    results = replace(results, pairs=(*results.pairs[:3], last), models=rows)
    ending = Ending(reason=Reason.SETTLED, results=results, trials=9, arguments=("mine.yaml",))
    lacking = f"grades with fewer mistakes for answers of {', '.join(filter(None, named(last)))}"
    assert f" need {lacking}, " in ending.why and f" It needs {lacking}, " in (undecided_sentence(results) or "")
    regrade, afresh = next_steps(ending)
    assert regrade.command == "adaptive-eval regrade RUN --config mine.yaml"
    assert (afresh.command or "").endswith(" --fresh --set trials.min=6 --set trials.max=24")
    assert "label more" in afresh.text


def test_the_end_of_a_run_says_as_many_trials_as_the_headline() -> None:
    results = ended("rruu", Reason.SETTLED, needs=20.0)
    third, last = results.pairs[2:]
    by_labels = replace(third, verdict="undecided_by_labels", trials_needed=None)
    results = replace(results, pairs=(*results.pairs[:2], by_labels, replace(last, deciding_max=30.0)))
    ending = Ending(reason=Reason.SETTLED, results=results, trials=9)
    assert ending.why.endswith(" and about 30 trials per question and model in total (trials.max is 12).")


def test_without_a_command_steps_name_what_to_change() -> None:
    def texts(results: Results) -> list[str]:
        return [step.text for step in next_steps(Ending(reason=Reason.OUT_OF_REACH, results=results, trials=9))]

    results = ended("rrbb")
    cautions = (Caution("repeats", results.pairs[2].second, "its server serves a cache"),)
    ask_again, count_them = texts(replace(results, warnings=cautions))
    assert ask_again.endswith(", and request them again: run the same command again with --ask-again")
    assert count_them.endswith(" let them count: run the same command again with stopping.on_alarm: never")
    raised, wider = texts(ended("rrru", needs=20.0))
    assert re.fullmatch(
        r"raise trials.max to 60 \(up to [0-9,]+ more answers of cyd and eve\), then run the same command again", raised
    )
    assert wider.startswith("or start over with a larger stopping.delta, if such a difference does not matter")
    assert "stopping.delta: 0.0" in wider
    assert " matter to you (stopping.delta: 0." in texts(ended("rrru", needs=5000.0))[0]


@pytest.mark.parametrize(
    ("errors", "steps"),
    [
        ((), ["if the grader ran out of time or its server failed, ", "if you change the grader, "]),
        (("it is down\nmore",), ["if the grader ran out of time or its server failed, ", "if you change the grader, "]),
        (("the judge's votes differ: {}",), ["the judge's votes differ, and none has a majority: "]),
        (("the judge's votes differ", "it is down"), ["if the grader ran out of time", "the judge's votes differ, "]),
    ],
)
def test_the_steps_for_missing_grades_follow_from_the_errors(errors: tuple[str, ...], steps: list[str]) -> None:
    results = ended("rrrb")
    results = replace(results, models=tuple(replace(row, ungraded=1) for row in results.models))
    ending = Ending(reason=Reason.OUT_OF_REACH, results=results, trials=9, grader_errors=errors)
    texts = [step.text for step in next_steps(ending)]
    assert [text.startswith(step) for text, step in zip(texts, steps, strict=True)] == [True] * len(steps), texts
    assert ("(its error: it is down)" in texts[0]) is any("it is down" in error for error in errors)


def test_answers_of_logs_are_requested_again_only_by_an_import_that_can_run() -> None:
    results = ended("rrrr", Reason.SETTLED)
    alarm = AlarmRow(results.models[0].name, "truncated", 9, 10, 0, 10, 5, "since answer 5, 9 of 10 answers are cut")
    ending = Ending(reason=Reason.ALARM, results=replace(results, alarms=(alarm,)), trials=9, imported=True)
    runnable = replace(ending, arguments=("mine.yaml",))
    for logs, is_asked in ((ending, False), (runnable, True), (replace(runnable, lacks_questions=True), False)):
        commands = [f"{step.text} {step.command}" for step in next_steps(logs)]
        assert any("--ask-again" in command for command in commands) is is_asked


@pytest.mark.parametrize(
    ("cause", "step"),
    [
        (Cause.BUDGET, "raise budget.trials to 120:"),
        (Cause.GRADER, "if the grader ran out of time or its server failed, "),
        (Cause.SERVER, "start the servers, or fix the cause"),
    ],
)
@pytest.mark.parametrize("reason", [Reason.OUT_OF_REACH, Reason.BLOCKED])
def test_what_brings_a_model_back_depends_on_why_it_was_set_aside(reason: Reason, cause: Cause, step: str) -> None:
    results = ended("rrrb", reason)
    name = results.pairs[3].second
    rows = tuple(replace(row, set_aside="why" if row.name == name else None) for row in results.models)
    results = replace(results, models=rows)
    text = advice(results, lost={name: Lost(cause, "why")}).text  # type: ignore[dict-item]
    assert text.startswith(step)
    assert (f"({name}: why)" in text) == (cause is Cause.SERVER and reason is Reason.OUT_OF_REACH)


@pytest.mark.parametrize(("reason", "is_settled"), [(None, False), (Reason.BUDGET, False), (Reason.SETTLED, True)])
def test_a_new_build_is_for_a_new_run_once_the_gate_is_settled(reason: Reason | None, is_settled: bool) -> None:
    results = ended("rrrr", Reason.SETTLED)
    results = replace(results, gate=(GateRow(*named(results.pairs[0]), "PASS", ""),))
    first, *_ = next_steps(Ending(reason=reason, results=results, trials=9, gated=True, asked=False))
    assert ("this start requested nothing" in first.text) == is_settled
    unjudged = next_steps(Ending(reason=Reason.BUDGET, results=None, trials=0, gated=True, asked=False))
    assert not any("new build" in step.text for step in unjudged)


@pytest.mark.parametrize(
    ("kind", "change"), [("threshold", "objective.value=VALUE"), ("precision", "objective.half_width=WIDTH")]
)
@pytest.mark.parametrize("needs", [5000.0, None])
def test_a_score_that_no_plausible_number_decides_is_too_close(needs: float | None, kind: str, change: str) -> None:
    results = ended("rrru", needs=needs)
    last, decisions = replace(results.pairs[3], second=None), {**results.decisions, "objective": {"kind": kind}}
    others = tuple(replace(pair, z=pair.z if kind == "threshold" else None) for pair in results.pairs[:3])
    last = replace(last, z=last.z if kind == "threshold" else None)
    results = replace(results, pairs=(*others, last), decisions=decisions)
    assert (advice(results).command or "").endswith(f"--fresh --set {change}")
    few = replace(results, pairs=(*results.pairs[:3], replace(last, trials_needed=20.0)))
    assert (advice(few).command or "").endswith("--fresh --set budget.trials=440 --set trials.max=60")
