"""What answers cost, one by one and in batches, and the pace that goes with who is paid for what."""

from pathlib import Path

import pytest
from checked_text import config_in, problems_in

from adaptive_eval.config.decisions import TrialsConfig
from adaptive_eval.config.load import load_config
from adaptive_eval.config.pace import choose_optimize, make_pace
from adaptive_eval.config.planning import RunFacts, make_plan, trial_cost, usage_cost, worst_costs
from adaptive_eval.config.prepare import prepare
from adaptive_eval.config.run import ModelConfig, RunConfig
from adaptive_eval.core.optimal import Optimal
from adaptive_eval.core.settings import Pace
from adaptive_eval.core.types import Cost
from adaptive_eval.endpoints.settings import DEFAULT
from adaptive_eval.endpoints.types import Answer
from adaptive_eval.graders.asked import AskedGrader
from adaptive_eval.questions.types import Question

HEAD = "questions: q.jsonl\ngrader: math\nsampling: {max_tokens: 1000}\nmodels:\n"
MODEL = "  - {{name: a, base_url: http://a/v1, price: {{input: 1, output: 3}}, {}}}\n  - {{name: b, base_url: http://b/v1}}\n"


def model(options: str) -> ModelConfig:
    return config_in(HEAD + MODEL.format(options)).models[0]


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
    problems = problems_in(HEAD + MODEL.format(options))
    assert any(why in problem for problem in problems), problems
    unbounded = problems_in(HEAD.replace("1000", "null") + MODEL.format("batch: anthropic"))
    assert any("needs sampling.max_tokens" in line for line in unbounded), "its messages need the longest answer"
    body = "sampling: {extra_body: {service_tier: flex, top_a: 1}}"
    assert model(f"batch: openai, {body}").sampling.extra_body == {"top_a": 1}, "no tier for a batch"
    assert "service_tier" in model(body).sampling.extra_body


def test_prices_are_those_of_the_way_an_answer_came() -> None:
    batched, direct = model("batch: openai"), model("api_key_env: K")
    answers = [
        Answer("x", "stop", 1, f"http://a/v1{suffix}", 9.0, prompt_tokens=1_000_000, completion_tokens=1_000_000)
        for suffix in ("", " (batch)")
    ]
    assert [trial_cost(batched)(answer).usd for answer in answers] == [4.0, 2.0]
    assert trial_cost(direct)(answers[0]).usd == 4.0
    assert usage_cost(batched, 1e6, 1e6, 1.0).usd == 2.0, "a forecast counts at batch prices"
    config = config_in(HEAD + MODEL.format("batch: openai")).model_copy(update={"models": [batched, direct]})
    worst = [cost.usd for cost in worst_costs(config, (), [100, 100])]
    assert worst[0] == worst[1] / 2.0


@pytest.mark.parametrize(
    ("tokens", "capped", "size"),
    [(None, None, 12), (10**6, None, 12), (10**5, None, 4), (10**6, True, 4), (10**5, False, 12), (None, True, 4)],
)
def test_calls_begin_with_the_first_round_allowed_or_had(tokens: int | None, capped: bool | None, size: int) -> None:
    budget = "" if tokens is None else f"budget: {{tokens: {tokens}}}\n"
    head = f"trials: {{min: 4, max: 40}}\n{budget}{HEAD}"
    config = config_in(head + MODEL.format("batch: openai"))
    questions = [Question(f"q{number}", "?", "1") for number in range(10)]
    plan = make_plan(config, questions, [Cost(1000, 0.003)] * 2, RunFacts(capped_opening=capped))
    assert isinstance(plan.rule, Optimal)
    assert plan.opening.tolist() == [[size] * 10] * 2 and plan.rule.start == size / 40


def test_no_gpu_time_is_reserved_on_servers_of_the_run_itself() -> None:
    rows = "  - {name: a, launch: {}, gpus: 2}\n  - {name: b, base_url: http://b/v1, gpus: 2}\n"
    config = config_in(HEAD + rows)
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


MILLION = 1_000_000
PLAIN, CACHING = "{input: 4, output: 3}", "{input: 4, cached_input: 1, output: 3}"


def priced(price: str, options: str = "", grader: str = "math") -> RunConfig:
    text = (HEAD + MODEL.format("api_key_env: K" + options)).replace("{input: 1, output: 3}", price)
    return config_in(text.replace("grader: math", f"grader: {grader}"))


def test_cached_tokens_have_a_price_of_their_own_if_it_is_given_and_caps_reserve_the_full_one() -> None:
    def usd(cached: int, price: str, options: str = "", replica: str = "http://a/v1") -> float:
        answer = Answer("x", "stop", 1, replica, 9.0, None, 2 * MILLION, MILLION, cached_tokens=cached)
        return trial_cost(priced(price, options).models[0])(answer).usd

    for price, cost in ((PLAIN, 11.0), (CACHING, 8.0), (CACHING.replace("put: 1", "put: 0"), 7.0)):
        assert (usd(MILLION, price), usd(0, price)) == (cost, 11.0)
    assert usd(MILLION, CACHING, ", batch: openai", "http://a/v1 (batch)") == 4.0
    worst = [worst_costs(priced(price), (), [100, 100])[0] for price in (PLAIN, CACHING)]
    assert worst[0] == worst[1] and worst[0].usd > 0.0
    server = f"{{base_url: http://j/v1, model: j, price: {CACHING}}}"
    judge = priced(CACHING, grader=f"{{kind: judge, server: {server}}}").grader
    assert isinstance(judge, AskedGrader)
    costs = [seat.cost(2 * MILLION, MILLION, 1.0, cached) for seat in judge.seats for cached in (0, MILLION)]
    assert [cost.usd for cost in costs] == [11.0, 8.0]
    text = (HEAD + MODEL.format("api_key_env: K")).replace("{input: 1,", "{input: 1, cached_input: 1.25,")
    problems = problems_in(text)
    assert any("cached_input" in problem and "must not exceed" in problem for problem in problems), problems


BARE = "questions: q.jsonl\ngrader: math\n"
PRICE = "price: {input: 1, output: 10}"
FREE = "price: {input: 0, output: 0}"


def two(options: str) -> str:
    return "".join(f"  - {{name: {name}, base_url: http://{name}/v1, {options}}}\n" for name in "ab")


TWO = "  - {name: a, base_url: http://a/v1}\n  - {name: b, base_url: http://b/v1}\n"


LAUNCHED = "".join(f"  - {{name: {name}, launch: {{}}}}\n" for name in "ab")
KEYED = "  - {name: c, base_url: http://c/v1, api_key_env: KEY}\n"
PROVIDER = "  - {name: a, base_url: https://api.openai.com/v1}\n  - {name: b, base_url: http://b/v1, auth: m:A}\n"
OWN = "%s on your own servers (%s), where you pay for time"
AHEAD = ". Requests to the other models are sent ahead, too"
NOBODY = "no model is known to be on a server of your own, so you pay for answers"


@pytest.mark.parametrize("more", ["", "sampling: {max_tokens: 32000}\n"], ids=["any length", "a known length"])
@pytest.mark.parametrize(
    ("models", "pace", "reason"),
    [
        (TWO, "time", OWN % ("all models are", "without price and key")),
        (LAUNCHED, "time", OWN % ("all models are", "started by the run")),
        (two("gpus: 1"), "time", OWN % ("all models are", "with gpus")),
        (two(f"gpus: 1, {PRICE}"), "time", OWN % ("all models are", "with gpus")),
        (two(FREE), "time", OWN % ("all models are", "with price 0")),
        (
            two(FREE) + "  - {name: c, base_url: http://c/v1}\n",
            "time",
            OWN % ("all models are", "with price 0 or without price and key"),
        ),
        # one model with a key does not slow the others down
        (TWO + KEYED, "time", OWN % ("a and 1 more are", "without price and key") + AHEAD),
        (KEYED + "  - {name: a, base_url: http://a/v1}\n", "time", OWN % ("a is", "without price and key") + AHEAD),
        # a provider's address is enough; headers, or a signature of one's own, may be credentials as well
        (PROVIDER, "cost", NOBODY),
        (two("batch: openai, api_key_env: KEY"), "cost", NOBODY),
        *(
            (two(known_by), "cost", NOBODY)
            for known_by in (PRICE, "api_key_env: KEY", "headers: {x-key: abc}", "auth: my.signs:Auth", "batch: openai")
        ),
    ],
)
def test_the_pace_goes_by_whose_servers_are_paid_for(models: str, pace: str, reason: str, more: str) -> None:
    config = config_in(f"{BARE}{more}models:\n{models}")
    chosen, why = choose_optimize(config.models, config.trials)
    assert (chosen, why) == (pace, reason)


@pytest.mark.parametrize(
    ("models", "problem"),
    [
        (two(PRICE) + "  - {name: c, base_url: http://c/v1}\n", None),
        (two(PRICE) + f"  - {{name: c, base_url: http://c/v1, api_key_env: KEY, {FREE}}}\n", None),
        (two(FREE), None),
        (two(PRICE) + "  - {name: c, base_url: http://c/v1, api_key_env: KEY}\n", "needs price of every model"),
        (TWO, "counts nothing, since every model is on a server of your own"),
    ],
)
def test_a_cap_on_usd_needs_no_price_of_a_server_of_your_own(models: str, problem: str | None) -> None:
    text = f"{BARE}sampling: {{max_tokens: 32000}}\nbudget: {{usd: 5}}\nmodels:\n{models}"
    problems = "\n".join(problems_in(text, KEY="k"))
    assert (problems == "") if problem is None else (problem in problems)


@pytest.mark.parametrize(
    "settings",
    [
        (),
        ("budget.trials=4000",),
        ("budget.tokens=4000000",),
        ("budget.wall_time=3h",),
        ("grader={kind: judge, server: {base_url: 'http://judge/v1', model: judge}}",),
    ],
)
def test_neither_caps_nor_judges_change_the_pace(tmp_path: Path, settings: tuple[str, ...]) -> None:
    (tmp_path / "q.jsonl").write_text('{"id": "q", "prompt": "What is 1?", "answer": "1"}\n')
    (tmp_path / "run.yaml").write_text(f"{BARE}sampling: {{max_tokens: 2000}}\nmodels:\n{TWO}")
    prepared = prepare(load_config(tmp_path / "run.yaml", settings))
    assert prepared.config.trials.optimize == "time" and "your own servers" in str(prepared.why_optimized)
    assert prepared.plan.pace == Pace(lookahead=12, opening=12, dedicated_servers=True)


@pytest.mark.parametrize(
    ("questions", "max_trials", "ahead"),
    [(1, 80, 12), (30, 80, 12), (30, 16, 2), (30, 4, 1), (90, 80, 4), (150, 80, 2), (360, 80, 1), (361, 80, 0)],
)
def test_rounds_ahead_are_part_of_the_horizon_unless_one_is_enough(questions: int, max_trials: int, ahead: int) -> None:
    trials, opening = TrialsConfig(min=1, max=max_trials, optimize="time"), round(0.15 * max_trials)
    assert make_pace(trials, questions) == Pace(lookahead=ahead, opening=opening, dedicated_servers=True)
    assert make_pace(trials.model_copy(update={"optimize": "cost"}), questions) == Pace()
