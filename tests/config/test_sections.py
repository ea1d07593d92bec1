"""What goes with recorded models, drawn questions and the objective cheapest, and what does not."""

import numpy as np
import pytest
import yaml
from checked_text import config_in, problems_in

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.config.checks import may_draw
from adaptive_eval.config.planning import RunFacts, make_plan
from adaptive_eval.config.prepare import prepare
from adaptive_eval.core.objectives import Cheapest, Objective, Threshold
from adaptive_eval.core.types import NO_COST
from adaptive_eval.report.words import decisions_in_words, run_in_words

COINS = "questions: {world: coins}\ngrader: math\n%smodels:\n%s"
RECORDED = "- {name: coin-01, recorded: runs/old}\n"
NEW = "- {name: coin-02, simulate: true}\n"


def test_a_recorded_model_needs_no_address_price_or_length() -> None:
    priced = "- {name: coin-02, simulate: true, price: {input: 1, output: 1}, sampling: {max_tokens: 9}, gpus: 1}\n"
    caps = "budget: {usd: 5, tokens: 1000, gpu_hours: 2}\nobjective: place\n"
    config = config_in(COINS % (caps, RECORDED + priced))
    assert [model.name for model in config.asked] == ["coin-02"]
    bench = prepare(config).plan.bench
    assert bench.recorded == {0}
    assert bench.worst_cost[0] == (0, 0.0, 0.0)
    assert bench.worst_cost[1].usd > 0.0


DRAWN: dict[str, object] = {"min": 1, "max": 1, "draw": 100}
BASELINE: dict[str, object] = {"objective": {"kind": "baseline", "baseline": "model-01"}}
SETTINGS: dict[str, object] = {
    "questions": {"world": "many_questions", "shuffle": True},
    "models": [{"name": f"model-0{number}", "simulate": True} for number in (1, 2, 3)],
    "grader": "numeric",
    "trials": DRAWN,
}


def drawn(**changes: object) -> str:
    return yaml.safe_dump(SETTINGS | changes)


def test_the_plan_is_one_of_blocks() -> None:
    prepared = prepare(config_in(drawn()))
    plan = prepared.plan
    assert (plan.drawn, plan.trials.min, plan.trials.max) == (100, 1, 1)
    assert plan.opening.sum(axis=1).tolist() == [100, 100, 100] and plan.opening[:, :100].all()
    assert getattr(plan.rule, "start", None) == pytest.approx(100 / 2000)
    assert prepared.config.trials.optimize == "cost"
    words = decisions_in_words(prepared.config, {}, began_at=1, imported=False)
    assert words.allocation.endswith("one trial of each in random order, with a look after every 100.")
    assert words.prior.startswith("Questions were drawn at random")


def test_looks_of_the_rule_optimal_lie_as_blocks_do() -> None:
    config = config_in(drawn(stopping={"rule": "optimal"}))
    spacing = make_plan(config, prepare(config).questions, (NO_COST,) * 3).spacing
    assert spacing is not None and spacing.step == pytest.approx(2 * 100 / 2000)
    assert spacing.finest == pytest.approx(0.5 * 100 / 2000)
    assert run_in_words(prepare(config)).endswith("one trial of each in blocks of 100")
    words = decisions_in_words(config, {}, began_at=1, imported=False)
    assert "less than the unused share of one trial of every question" in words.rule


def test_trials_that_are_there_and_more_than_the_questions_are_refused() -> None:
    """As those of an import are."""
    questions = {"world": "many_questions", "shuffle": True, "limit": 80}
    with pytest.raises(ConfigError, match="trials.draw is 100, but there are 80 questions"):
        prepare(config_in(drawn(questions=questions)))
    config = config_in(drawn())
    first = np.ones((3, 2000), dtype=int)
    with pytest.raises(ConfigError, match="there are trials already; remove it"):
        make_plan(config, prepare(config).questions, (NO_COST,) * 3, RunFacts(first))


@pytest.mark.parametrize(
    ("changes", "may"),
    [
        ({"trials": {"min": 4, "max": 8}}, True),
        ({"trials": {"min": 4, "max": 8, "optimize": "time"}, "questions": {"world": "many_questions"}}, True),
        ({}, False),  # it does
        ({"trials": {}, "objective": {"kind": "precision", "half_width": 0.05}}, False),
        ({"trials": {}, "stopping": {"rule": "published"}}, False),
        ({"trials": {}, "report": {"metrics": ["pass@2"]}}, False),
    ],
)
def test_questions_may_be_drawn_where_nothing_stands_in_the_way(changes: dict[str, object], may: bool) -> None:
    assert may_draw(config_in(drawn(**changes))) is may


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


TWO = COINS % ("", RECORDED.strip()[:-1] + ", %s}\n" + NEW)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (COINS % ("", RECORDED), "must include a model to ask, but all are recorded"),
        (COINS % ("objective: place\n", NEW + NEW.replace("2", "3")), "place needs recorded models"),
        (TWO % "base_url: 'http://x/v1'", "recorded model, which is never asked"),
        (TWO % "simulate: true", "remove simulate, or recorded"),
        (TWO % "batch: openai", "remove batch, or recorded"),
        (TWO % "launch: {command: 'v {port}'}", "remove launch, or recorded"),
        (COINS % ("prior: {run: runs/older}\n", RECORDED + NEW), "cannot be combined with recorded models"),
        (drawn(questions={"world": "many_questions"}), "questions.shuffle must be true with trials.draw"),
        (drawn(trials={"min": 1, "max": 4, "draw": 100}), "trials.draw is for one trial of each question"),
        (drawn(trials={"draw": 100}), "set `min: 1` and `max: 1`, too"),
        (drawn(trials={"min": 1, "max": 1, "draw": 10}), "trials.draw"),
        (drawn(trials=DRAWN | {"optimize": "time"}), "trials.optimize must be answers"),
        (drawn(objective={"kind": "threshold", "value": 0.5}), "objective.kind must compare models"),
        (drawn(objective={"kind": "precision", "half_width": 0.05}), "objective.kind must compare models"),
        (drawn(stopping={"rule": "published"}), "stopping.rule compares Bayes@N"),
        (drawn(**BASELINE, trials=DRAWN | {"seeds": "coupled"}), "trials.seeds must not be coupled"),
        (drawn(prior={"run": "runs/earlier"}), "prior cannot be combined with trials.draw"),
        (drawn(report={"metrics": ["pass@2"]}), "report.metrics cannot be combined with trials.draw"),
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
def test_what_does_not_go_together_is_refused(text: str, message: str) -> None:
    assert message in "\n".join(problems_in(text))


def test_what_commands_report_and_free_verdicts_can_be_compared() -> None:
    for models in (HEAD + COMMAND, judged("price: {input: 0, output: 0}") + SECOND, judged("gpus: 1") + SECOND):
        assert not any("cheapest" in problem for problem in problems_in(models + ASKED)), models


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
def test_prices_make_costs_and_reports_have_the_units_of_scores(text: str, objective: Objective, said: str) -> None:
    config = config_in(HEAD + text)
    assert decisions_in_words(config, {}, began_at=1, imported=False).objective == said
    plan = prepare(config).plan
    assert plan.objective == objective
    assert plan.judging.delta == 0.0
