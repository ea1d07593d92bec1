"""The choice of the cheapest model that will do, in words."""

from dataclasses import replace
from functools import cache
from math import nan
from types import SimpleNamespace
from typing import Any

import pytest
from page_views import model_verdicts, simulated, simulated_results, world

from adaptive_eval.core.cheapest import Part
from adaptive_eval.core.types import Cost
from adaptive_eval.endpoints.types import Answer
from adaptive_eval.machine.trial import DONE, GradeDetails, Trial
from adaptive_eval.machine.usage import TrialUsage
from adaptive_eval.report import build
from adaptive_eval.report.choice import choice_sentence, costs_alike
from adaptive_eval.report.results import FrontierRow, Results
from adaptive_eval.report.status import standings
from adaptive_eval.report.stored import undecided_by_new_labels
from adaptive_eval.report.words import promise_line
from adaptive_eval.show.markdown import markdown
from adaptive_eval.show.summary import untimed_findings

NAMES = ("ada", "bob", "cyd", "dan")
DEAR = FrontierRow("ada", 0.02, 0.0001, "dearer", None)
ALIKE = FrontierRow("bob", 0.0021, 0.0001, "dearer", None)
CHOSEN = FrontierRow("cyd", 0.002, 0.0001, "chosen", None)
CHEAP = FrontierRow("dan", 0.001, 0.0001, "undecided", None)
OUT = replace(CHEAP, part="ruled_out", behind="ada")


@cache
def judged() -> Results:
    results = simulated_results(world(NAMES, 6), looks=2, trials={"min": 2, "max": 12})
    scores = dict(zip(NAMES, (0.9, 0.88, 0.86, 0.5), strict=True))
    models = tuple(replace(row, name=name, score=scores[name]) for row, name in zip(results.models, NAMES, strict=True))
    asked = {"kind": "cheapest", "delta": 0.05}
    return replace(results, models=models, decisions={**results.decisions, "objective": asked}, pairs=())


def with_rows(*rows: FrontierRow) -> Results:
    return replace(judged(), frontier=rows)


def test_a_choice_says_what_it_saves_and_what_may_be_as_cheap_or_cheaper() -> None:
    results = with_rows(OUT, CHOSEN, ALIKE, DEAR)
    assert choice_sentence(results) == (
        "cyd (86.0%) is the cheapest within 5 points of the best. The highest score has ada (90.0%), at "
        "about 10 times the cost in the first round. cyd, bob cost about the same: any of them may be the cheapest."
    )
    within = "cheapest within 5 points of the best"
    assert model_verdicts(results) == ("costs more", "costs more", within, "more than 5 points behind ada")
    promise = promise_line(results)
    assert promise is not None and "the model chosen is more than 5 points behind the best" in promise
    cheaper = choice_sentence(with_rows(CHEAP, CHOSEN, DEAR))
    assert "It is not known whether dan, which costs less, will do as well." in cheaper
    none = choice_sentence(with_rows(CHEAP, replace(CHOSEN, part="candidate"), DEAR))
    assert none.startswith("No model is chosen") and "dan, cyd may do" in none


def test_every_display_has_the_means_over_all_answers() -> None:
    means = dict(zip(NAMES, (0.0199, 0.0033, 0.0044, 0.0055), strict=True))
    results = with_rows(OUT, CHOSEN, replace(ALIKE, usd=0.003), DEAR)
    results = replace(results, models=tuple(replace(row, usd_per_answer=means[row.name]) for row in results.models))
    assert {row.name: row.usd_per_answer for row, _ in standings(results)} == means
    view = simulated(world(NAMES, 6), looks=2, trials={"min": 2, "max": 12})
    shown = [*untimed_findings(results, None)], markdown(replace(view, results=results)).splitlines()
    for lines in shown:
        assert any("cyd" in line and "0.0044" in line for line in lines)
        assert not any("tier " in line for line in lines), "the others are not compared with each other"
    (line,) = (line for line in shown[1] if line.startswith("| cyd") and "±" in line)
    assert line.split("|")[2].strip() == "$0.00200 ± $0.00020" and "cheapest within" in line


@pytest.mark.parametrize(
    ("usd", "gpu_seconds", "gpu_hour", "expected"),
    [
        (0.1, 0.0, 3.6, 0.1),
        (0.0, 20.0, 3.6, 0.02),
        (0.1, 20.0, 3.6, 0.12),
        (0.1, 20.0, None, 0.1),
        (0.0, 9.0, 0.0, None),
    ],
)
def test_an_answer_of_a_server_of_yours_has_the_price_of_its_gpu_time(
    usd: float, gpu_seconds: float, gpu_hour: float | None, expected: float | None
) -> None:
    usage, answer = TrialUsage(), Answer("2", "stop", 1, "http://a/v1", 1.0, completion_tokens=3)
    graded = GradeDetails({"is_correct": True})
    for number in range(2):
        cost, verdict = Cost(9, usd, gpu_seconds), Cost(5, 7.0, 7.0)
        usage.add(Trial(0, 0, number, 0, DONE, cost, verdict, 1, seconds=1.0, answer=answer, grade=graded))
    assert usage.answer_means.usd_with_gpus(gpu_hour) == (None if expected is None else pytest.approx(expected))


def test_of_a_model_that_is_set_aside_nothing_is_said_about_its_cost() -> None:
    rows = [SimpleNamespace(model=at, usd=nan, usd_sigma=nan, part=Part.DEARER, behind=None) for at in range(2)]
    subject = SimpleNamespace(models=NAMES, decisions=judged().decisions)
    result = SimpleNamespace(costs=rows)
    snapshot: Any = SimpleNamespace(subject=subject, noticed=(), result=result, set_aside={1: "its server is gone"})
    assert [row.part for row in build._frontier_rows(snapshot)] == ["dearer", "set_aside"]
    gone = replace(ALIKE, usd=None, part="set_aside")
    assert model_verdicts(with_rows(OUT, CHOSEN, gone, DEAR))[1] == "set aside"


@pytest.mark.parametrize(("sigma", "alike"), [(0.0, False), (0.0001, True), (None, False)])
def test_costs_are_alike_within_the_noise_of_both(sigma: float | None, alike: bool) -> None:
    one, other = (replace(row, usd_sigma=sigma) for row in (CHOSEN, ALIKE))
    assert costs_alike(one, other) is alike
    assert costs_alike(one, replace(other, usd=one.usd))
    assert not costs_alike(one, replace(other, usd=None))


def test_new_labels_take_the_choice_back() -> None:
    results = undecided_by_new_labels(with_rows(OUT, CHOSEN, DEAR))
    assert [row.part for row in results.frontier] == ["undecided", "candidate", "dearer"]
