"""The objective cheapest needs the cost of every model's answers, in USD."""

from pathlib import Path

import pytest
from checked_text import check_text

from adaptive_eval.config.prepare import prepare
from adaptive_eval.core.objectives import Cheapest, Objective, Threshold
from adaptive_eval.report.words import decisions_in_words

HEAD = """
questions: {world: coins}
grader: math
prompt: "{prompt}"
models:
  - {name: one, model: coin-01, simulate: true, price: {input: 1, output: 2}}
"""
SECOND = "  - {name: two, model: coin-02, simulate: true, price: {input: 3, output: 4}}\n"
BARE = "  - {name: two, model: coin-02, simulate: true}\n"
FREE = "  - {name: two, model: coin-02, simulate: true, price: {input: 0, output: 0}}\n"
OWN = "  - {name: two, model: coin-02, simulate: true, gpus: 2}\n"
ASKED = "objective: {kind: cheapest, delta: 5%}\n"
GPUS = "objective: {kind: cheapest, gpu_hour: 2.5}\n"
COMMAND = "  - {name: two, command: [./agent]}\n"
JUDGE = 'grader: {kind: judge, server: {base_url: "http://127.0.0.1:1/v1", model: judge, %s}}'


def judged(server: str) -> str:
    return HEAD.replace("grader: math", JUDGE % server)


def problems(text: str) -> list[str]:
    return [str(problem) for problem in check_text(text, Path("run.yaml"), (), {}).problems]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (HEAD + BARE + ASKED, "cheapest compares what answers cost, but two has no price above 0"),
        *((HEAD + two + ASKED, "two has no price above 0") for two in (FREE, OWN)),
        (HEAD + SECOND + ASKED + "stopping: {delta: 2%}\n", "stopping.delta is not for the objective cheapest"),
        (HEAD + SECOND + ASKED + "stopping: {familywise: holm}\n", "shares one error among all models"),
        (HEAD + SECOND + "objective: {kind: best, gpu_hour: 2}\n", "is only for the objective cheapest"),
        (HEAD + SECOND + "objective: {kind: cheapest, delta: 100%}\n", "must be a difference of scores"),
        (judged("price: {input: 1, output: 1}") + SECOND + ASKED, "would count the verdicts of the judge as a cost"),
        (judged("gpus: 1") + OWN + GPUS, "remove price and gpus of its server"),
    ],
)
def test_what_cannot_be_compared_is_refused(text: str, says: str) -> None:
    assert any(says in problem for problem in problems(text)), problems(text)


def test_what_commands_report_and_free_verdicts_can_be_compared() -> None:
    for models in (HEAD + COMMAND, judged("price: {input: 0, output: 0}") + SECOND, judged("gpus: 1") + SECOND):
        assert not any("cheapest" in problem for problem in problems(models + ASKED)), models


SAID = "The cheapest model that is not more than %d points behind any other is chosen."


@pytest.mark.parametrize(
    ("text", "objective", "said"),
    [
        (SECOND + ASKED, Cheapest(0.05), SAID % 5),
        (SECOND + "objective: cheapest\n", Cheapest(0.02), SAID % 2),
        (OWN + GPUS, Cheapest(0.02, 2.5), SAID % 2),
        (SECOND + "objective: {kind: threshold, value: 62%}\n", Threshold(0.62), "Every score is compared with 62.0%."),
    ],
)
def test_prices_make_costs_and_the_report_says_it_in_the_units_of_its_scores(
    text: str, objective: Objective, said: str
) -> None:
    config = check_text(HEAD + text, Path("run.yaml"), (), {}).config
    assert config is not None, problems(HEAD + text)
    assert decisions_in_words(config, {}, began_at=1, imported=False).objective == said
    plan = prepare(config).plan
    assert plan.objective == objective
    assert plan.judging.delta == 0.0
