"""`batch` of a model: what it refuses, its prices, and the pace that goes with it."""

from pathlib import Path

import pytest
from checked_text import check_text

from adaptive_eval.config.decisions import TrialsConfig
from adaptive_eval.config.pace import choose_optimize, make_pace
from adaptive_eval.config.planning import RunFacts, make_plan, trial_cost, usage_cost, worst_costs
from adaptive_eval.config.run import ModelConfig
from adaptive_eval.core.optimal import Optimal
from adaptive_eval.core.settings import Pace
from adaptive_eval.core.types import Cost
from adaptive_eval.endpoints.settings import DEFAULT
from adaptive_eval.endpoints.types import Answer
from adaptive_eval.questions.types import Question

HEAD = "questions: q.jsonl\ngrader: math\nsampling: {max_tokens: 1000}\nmodels:\n"
MODEL = "  - {{name: a, base_url: http://a/v1, price: {{input: 1, output: 3}}, {}}}\n  - {{name: b, base_url: http://b/v1}}\n"


def problems_in(options: str, head: str = HEAD) -> list[str]:
    return [str(problem) for problem in check_text(head + MODEL.format(options), Path("b.yaml")).problems]


def model(options: str) -> ModelConfig:
    config = check_text(HEAD + MODEL.format(options), Path("b.yaml")).config
    assert config is not None
    return config.models[0]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ("batch: azure", "openai, anthropic"),
        ("batch: openai, gpus: 1", "has servers of its own"),
        ("batch: openai, concurrency: {samples_per_request: 4}", "one answer in each request"),
        ("batch: anthropic, sampling: {min_p: 0.1}", "has no min_p"),
        ("batch: anthropic, api: completions", "only supports chat"),
    ],
)
def test_what_a_service_cannot_do_is_refused(options: str, why: str) -> None:
    problems = problems_in(options)
    assert any(why in problem for problem in problems), problems


def test_a_service_tier_for_all_models_is_not_that_of_a_batch() -> None:
    body = "sampling: {extra_body: {service_tier: flex, top_a: 1}}"
    assert model(f"batch: openai, {body}").sampling.extra_body == {"top_a": 1}
    assert "service_tier" in model(body).sampling.extra_body


def test_messages_need_the_longest_answer() -> None:
    assert any(
        "needs sampling.max_tokens" in line for line in problems_in("batch: anthropic", HEAD.replace("1000", "null"))
    )


def test_prices_are_those_of_the_way_an_answer_came() -> None:
    batched, direct = model("batch: openai"), model("api_key_env: K")
    answers = [
        Answer("x", "stop", 1, f"http://a/v1{suffix}", 9.0, prompt_tokens=1_000_000, completion_tokens=1_000_000)
        for suffix in ("", " (batch)")
    ]
    assert [trial_cost(batched)(answer).usd for answer in answers] == [4.0, 2.0]
    assert trial_cost(direct)(answers[0]).usd == 4.0
    assert usage_cost(batched, 1e6, 1e6, 1.0).usd == 2.0, "a forecast counts at batch prices"
    config = check_text(HEAD + MODEL.format("batch: openai"), Path("b.yaml")).config
    assert config is not None
    config = config.model_copy(update={"models": [batched, direct]})
    worst = [cost.usd for cost in worst_costs(config, (), [100, 100])]
    assert worst[0] == worst[1] / 2.0


@pytest.mark.parametrize(
    ("tokens", "capped", "size"),
    [(None, None, 12), (10**6, None, 12), (10**5, None, 4), (10**6, True, 4), (10**5, False, 12), (None, True, 4)],
)
def test_calls_begin_with_the_first_round_that_caps_allow_or_that_there_was(
    tokens: int | None, capped: bool | None, size: int
) -> None:
    budget = "" if tokens is None else f"budget: {{tokens: {tokens}}}\n"
    head = f"trials: {{min: 4, max: 40}}\n{budget}{HEAD}"
    config = check_text(head + MODEL.format("batch: openai"), Path("b.yaml")).config
    assert config is not None
    questions = [Question(f"q{number}", "?", "1") for number in range(10)]
    plan = make_plan(config, questions, [Cost(1000, 0.003)] * 2, RunFacts(capped_opening=capped))
    assert isinstance(plan.rule, Optimal)
    assert plan.opening.tolist() == [[size] * 10] * 2 and plan.rule.start == size / 40


def test_no_gpu_time_is_reserved_on_servers_of_the_run_itself() -> None:
    rows = "  - {name: a, launch: {}, gpus: 2}\n  - {name: b, base_url: http://b/v1, gpus: 2}\n"
    config = check_text(HEAD + rows, Path("b.yaml")).config
    assert config is not None
    entry = config.models[1]
    expected = entry.sampling.timeout * DEFAULT.attempts * 2 / entry.concurrency.in_flight
    assert [cost.gpu_seconds for cost in worst_costs(config, (), [100, 100])] == [0.0, expected]


def test_auto_takes_few_large_rounds() -> None:
    models = [model("batch: openai"), model("api_key_env: K")]
    assert choose_optimize(models, TrialsConfig())[0] == "cost"
    for optimize in ("cost", "time"):
        pace = make_pace(TrialsConfig(optimize=optimize), 30, batched=True)  # type: ignore[arg-type]
        assert pace == Pace(share=0.7, opening=24), "it is a property of the service"
    with pytest.raises(ValueError, match="rounds as large as needed run ahead of no look"):
        Pace(lookahead=1, share=0.7)
