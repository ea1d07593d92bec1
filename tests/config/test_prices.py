"""What cached prompt tokens cost, and what caps reserve for them."""

from pathlib import Path

import pytest
from checked_text import check_text

from adaptive_eval.config.planning import trial_cost, worst_costs
from adaptive_eval.config.run import ModelConfig, RunConfig
from adaptive_eval.endpoints.types import Answer
from adaptive_eval.graders.asked import AskedGrader

MILLION = 1_000_000


def config(price: str, options: str = "", grader: str = "math") -> RunConfig:
    models = f"[{{name: a, base_url: http://a/v1, price: {price}{options}}}, {{name: b, base_url: http://b/v1}}]"
    text = f"questions: q.jsonl\ngrader: {grader}\nsampling: {{max_tokens: 1000}}\nmodels: {models}\n"
    checked = check_text(text, Path("p.yaml"))
    assert checked.config is not None, checked.problems
    return checked.config


def model(price: str, options: str = "") -> ModelConfig:
    return config(price, options).models[0]


def answer(cached: int, replica: str = "http://a/v1") -> Answer:
    return Answer("x", "stop", 1, replica, 9.0, None, 2 * MILLION, MILLION, cached_tokens=cached)


@pytest.mark.parametrize(
    ("price", "usd"),
    [
        ("{input: 4, output: 3}", 11.0),
        ("{input: 4, cached_input: 1, output: 3}", 8.0),
        ("{input: 4, cached_input: 0, output: 3}", 7.0),
    ],
)
def test_cached_tokens_have_a_price_of_their_own_if_it_is_given(price: str, usd: float) -> None:
    assert trial_cost(model(price))(answer(MILLION)).usd == usd
    assert trial_cost(model(price))(answer(0)).usd == 11.0


def test_a_batch_has_its_factor_on_cached_tokens_too() -> None:
    batched = model("{input: 4, cached_input: 1, output: 3}", ", batch: openai")
    assert trial_cost(batched)(answer(MILLION, "http://a/v1 (batch)")).usd == 4.0


def test_caps_reserve_prompts_at_the_full_price() -> None:
    worst = [worst_costs(config(price), (), [100, 100])[0] for price in ("{input: 4, output: 3}", CACHING)]
    assert worst[0] == worst[1] and worst[0].usd > 0.0


CACHING = "{input: 4, cached_input: 1, output: 3}"


def test_a_judge_has_the_price_too() -> None:
    server = f"{{base_url: http://j/v1, model: j, price: {CACHING}}}"
    judge = config(CACHING, grader=f"{{kind: judge, server: {server}}}").grader
    assert isinstance(judge, AskedGrader)
    costs = [seat.cost(2 * MILLION, MILLION, 1.0, cached) for seat in judge.seats for cached in (0, MILLION)]
    assert [cost.usd for cost in costs] == [11.0, 8.0]


def test_cached_tokens_may_not_cost_more_than_caps_reserve() -> None:
    text = "questions: q.jsonl\ngrader: math\nmodels: [{name: a, base_url: http://a/v1, price: %s}]\n"
    problems = check_text(text % "{input: 1, cached_input: 1.25, output: 3}", Path("p.yaml")).problems
    assert any("cached_input" in str(problem) and "must not exceed" in str(problem) for problem in problems), problems
