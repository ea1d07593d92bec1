"""Caps that do not bear the first round are told before anything is asked, with the sums and settings that mend it."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from checked_text import config_in
from live_runs import MODELS, Site
from typer.testing import CliRunner

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.cli import app
from adaptive_eval.config.first_round import IN_PARTS, NO_ANSWERS, TOO_FEW, first_round_problems, is_in_vain
from adaptive_eval.config.load import load_config
from adaptive_eval.config.planning import worst_verdict
from adaptive_eval.config.prepare import PreparedRun, prepare
from adaptive_eval.config.run import ModelConfig
from adaptive_eval.report.results_file import read_results

CONFIG = """
questions: {world: coins}
sampling: {max_tokens: MAX, temperature: 0.5}
trials: TRIALS
budget: {BUDGET}
grader: GRADER
models:
  - {name: one, model: coin-01, simulate: true, price: {input: 1.0, output: 2.0}}
  - {name: two, model: coin-02, simulate: true, price: {input: 1.0, output: 2.0}}
"""
LENGTHS = "sampling.max_tokens, grader.max_answer_bytes"
JUDGE = """
  kind: judge
  server: {base_url: "http://127.0.0.1:9/v1", model: judge, price: {input: 1.0, output: 2.0}, gpus: 1}
  votes: 3
"""


def prepared(
    budget: str, grader: str = "math", max_tokens: int = 1000, trials: str = "{min: 4, max: 8}", config: str = CONFIG
) -> PreparedRun:
    text = config.replace("BUDGET", budget).replace("GRADER", grader).replace("MAX", str(max_tokens))
    return prepare(config_in(text.replace("TRIALS", trials)))


def test_gpu_hours_that_only_pay_for_the_end_of_servers_are_warned_of() -> None:
    """Two servers with a GPU each may take 21 seconds to end, which are 42/3600 GPU hours."""
    launched = CONFIG.replace("simulate: true", "gpus: 1, launch: {command: [serve, '{port}']}")
    (warning,) = first_round_problems(prepared("gpu_hours: 0.0116", config=launched))
    assert is_in_vain([warning]) and "it is 0.0116, and 0.012 are kept back" in warning
    assert not list(first_round_problems(prepared("gpu_hours: 0.0117", config=launched)))


def test_greedy_models_are_warned_of_unless_each_question_is_asked_once() -> None:
    greedy = CONFIG.replace("temperature: 0.5", "temperature: 0")
    (warning,) = first_round_problems(prepared("wall_time: 1h", config=greedy))
    assert "answers of one, two to a question hardly differ" in warning
    assert not list(first_round_problems(prepared("wall_time: 1h", trials="{min: 1, max: 1}", config=greedy)))
    assert not list(first_round_problems(prepared("wall_time: 1h")))


@pytest.mark.parametrize("temperature", [0, 0.0, 0.6])
def test_a_model_of_inspect_has_the_temperature_of_its_options(temperature: float) -> None:
    run = prepared("wall_time: 1h")
    inspect = {"model": "openai/gpt-x", "temperature": temperature}
    model = ModelConfig(name="one", model="x", base_url="http://127.0.0.1:9/v1", inspect=inspect)
    asked = replace(run, config=run.config.model_copy(update={"models": (model, run.config.models[1])}))
    warnings = [*first_round_problems(asked)]
    assert (model.sampled is None) is (temperature == 0)
    assert len(warnings) == (temperature == 0)
    assert all("answers of one to a question" in text and "models.inspect.temperature" in text for text in warnings)


@pytest.mark.parametrize(
    ("key", "grader", "follows", "lowers"),
    [
        ("trials", "math", TOO_FEW, "the number of questions (questions.limit)"),
        ("tokens", "math", NO_ANSWERS, "sampling.max_tokens"),
        ("usd", JUDGE, IN_PARTS, f"{LENGTHS}, grader.sampling.max_tokens, grader.votes or trials.min"),
    ],
)
def test_the_sum_that_is_named_is_just_enough(key: str, grader: str, follows: str, lowers: str) -> None:
    (message,) = first_round_problems(prepared(f"{key}: 1", grader))
    match = re.fullmatch(
        r"(.*): (?:one answer per model may cost up to [\d,.]+ \w+, and the first round|it may cost) up to "
        r"([\d,.]+)(?: \w+)?, but budget\.(\w+) is 1\. "
        r"Set budget\.\w+ to \2 or more, or lower (.*)",
        message,
    )
    assert match is not None and (match[1], match[3], match[4]) == (follows, key, lowers)
    enough = match[2].replace(",", "")
    assert not list(first_round_problems(prepared(f"{key}: {enough}", grader)))
    less = f"{float(enough) - 0.01:.2f}" if key == "usd" else f"{int(enough) - 1}"
    assert len(list(first_round_problems(prepared(f"{key}: {less}", grader)))) == 1


@pytest.mark.parametrize(
    ("budget", "trials", "min_trials"),
    [
        ("trials: 240", "{max: 20}", 4),  # 2 models x 30 questions x 4
        ("trials: 239", "{max: 20}", 2),
        ("trials: 239", "{min: 4, max: 20}", 4),
        ("trials: 239", "{max: 1}", 1),
        ("usd: 0.21", "{max: 20}", 4),  # the first round may cost 0.62
        ("usd: 0.20", "{max: 20}", 2),
        ("wall_time: 1s", "{max: 20}", 4),
    ],
)
def test_a_budget_for_a_smaller_first_round_makes_it_smaller(budget: str, trials: str, min_trials: int) -> None:
    """In tokens and USD, that is a budget for less than a third of its worst case."""
    assert prepared(budget, trials=trials).plan.trials.min == min_trials


def test_how_long_answers_take_makes_no_first_round_smaller() -> None:
    """A request may take half an hour, and hardly any does."""
    trials = "{max: 20, optimize: cost}"
    run = prepared("gpu_hours: 1", max_tokens=100, trials=trials, config=CONFIG.replace("true", "true, gpus: 1"))
    assert run.plan.trials.min == 4


def test_where_one_answer_of_each_model_is_too_much_no_number_of_trials_is_named() -> None:
    """Fewer trials would mend nothing: the sum from which on answers are asked for is told beside the whole one."""
    (message,) = first_round_problems(prepared("tokens: 1"))
    match = re.search(r"one answer per model may cost up to ([\d,]+) tokens, and the first round up to", message)
    assert match is not None and "trials.min" not in message
    cap = int(match[1].replace(",", ""))
    assert message.startswith(NO_ANSWERS)
    assert next(first_round_problems(prepared(f"tokens: {cap - 1}"))).startswith(NO_ANSWERS)
    assert next(first_round_problems(prepared(f"tokens: {cap}"))).startswith(IN_PARTS)


def test_each_cap_that_is_too_small_is_named_with_what_would_do() -> None:
    messages = list(first_round_problems(prepared("tokens: 5, usd: 0.001, trials: 100000")))
    assert [re.findall(r"Set (budget\.\w+)", message) for message in messages] == [["budget.tokens"], ["budget.usd"]]
    assert not list(first_round_problems(prepared("wall_time: 1h")))
    for budget in ("usd: 0.1", "tokens: 20000", "trials: 100"):
        (message,) = first_round_problems(prepared(budget, trials="{max: 20}"))
        ((key, sum_),) = re.findall(r"Set budget\.(\w+) to ([\d,.]+)", message)
        mended = prepared(f"{key}: {sum_.replace(',', '')}", trials="{max: 20}")
        assert not list(first_round_problems(mended)), "who follows the advice is not warned again"
    run = prepared("trials: 100")
    each = len(run.models) * len(run.questions)
    below, enough = (next(first_round_problems(prepared(f"trials: {cap}"))) for cap in (each - 1, each))
    assert below.endswith("lower the number of questions (questions.limit)") and enough.endswith("lower trials.min")


def test_a_judge_sees_no_more_of_an_answer_than_its_tokens_can_have() -> None:
    short, long = (prepared("tokens: 1", JUDGE, max_tokens) for max_tokens in (100, 100_000))
    few, many = (worst_verdict(run.config, run.questions).tokens for run in (short, long))
    assert many - few == 3 * (32768 - 16 * 100), "at most sixteen bytes a token, in each of three votes"


def told_before_a_run(config: Path) -> list[str]:
    """The output of each command that asks for no answers."""
    commands = (["validate"], ["plan", "--simulations", "10"], ["run", "--dry-run"])
    results = [CliRunner().invoke(app, [command, str(config), *options]) for command, *options in commands]
    assert {result.exit_code for result in results} == {ExitCode.REACHED}
    return [result.output for result in results]


@pytest.mark.slow
def test_a_small_cap_is_reported_by_plan_dry_run_and_run(site: Site) -> None:
    config = site.write(budget={"tokens": 1000})
    message = f"{NO_ANSWERS}: one answer per model may cost up to "
    assert all(message in output for output in told_before_a_run(config))
    ended = site.run(config)
    assert ended.exit_code == ExitCode.SPENT and message in ended.stderr
    enough = re.search(r"Set budget\.tokens to ([\d,]+)", ended.stderr)
    assert enough is not None
    mended = site.run(site.write(budget={"tokens": int(enough[1].replace(",", ""))})).output
    assert message not in mended and "trials" in mended and "No answers were requested" not in mended


@pytest.mark.parametrize(("budget", "unbounded"), [({"usd": 1.0}, "ada"), ({"usd": 1.0, "tokens": 9000}, "ada, bob")])
def test_a_model_without_a_price_exceeds_no_cap_on_usd(site: Site, budget: dict[str, float], unbounded: str) -> None:
    models = [{"name": name, "base_url": site.base_url} for name in ("ada", "bob")]
    models[0] |= {"price": {"input": 1.0, "output": 2.0}}  # type: ignore[dict-item]
    config = site.write(models=models, sampling={"temperature": 0.6}, budget=budget)
    message, *_ = first_round_problems(prepare(load_config(config)))
    assert f"the cost of an answer of {unbounded}, so" in message


@pytest.mark.slow
def test_caps_that_nothing_bounds_are_reported_before_a_run_and_after_it(site: Site) -> None:
    price = {"input": 1.0, "output": 2.0}
    models = [{"name": name, "base_url": site.base_url, "price": price} for name in ("ada", "bob")]
    config = site.write(models=models, sampling={"temperature": 0.6}, budget={"usd": 0.05, "trials": 500})
    (message,) = first_round_problems(prepare(load_config(config)))
    assert message.startswith("nothing bounds the cost of an answer of ada, bob, so the run may exceed budget.")
    assert "may exceed budget.usd" in message and "budget.tokens" not in message
    assert all(message in output and "inf" not in output.split() for output in told_before_a_run(config))
    ended = site.run(config)
    assert ended.exit_code in (ExitCode.REACHED, ExitCode.SPENT) and ended.output.count(message) == 2, "first and last"
    results = read_results(site.directory())
    assert results is not None and [one.text for one in results.warnings if one.kind == "unbounded"] == [message]
    assert 0.02 < results.cost.usd <= 0.05
    bounded = site.write("bounded", models=models, budget={"usd": 500.0})
    assert not list(first_round_problems(prepare(load_config(bounded))))


def joined(site: Site, cap: int, *more: dict[str, str]) -> Path:
    """A configuration of all models, and more, after a run of two of them that has spent its 64 trials."""
    models = [*({"name": name, "base_url": site.base_url} for name in MODELS), *more]
    settings = {"store": str(site.folder / "runs"), "trials": {"min": 4, "max": 60}}
    assert site.run(site.write(models=models[:2], budget={"trials": 64}, **settings)).exit_code == ExitCode.SPENT
    return site.write(models=models, budget={"trials": cap}, **settings)


@pytest.mark.slow
@pytest.mark.parametrize("cap", [80, 96])
def test_a_budget_that_does_not_cover_a_joining_model_is_reported_before_the_run(site: Site, cap: int) -> None:
    """Its first round has 32 trials."""
    config = joined(site, cap)
    warning = (
        "no answers of cyd will be requested, since the budget does not cover its first round: budget.trials is 80, "
        "of which 64 are used. Set it to 96 or more"
    )
    assert {warning in output for output in told_before_a_run(config)} == {cap == 80}
    ended = site.run(config)
    results = read_results(site.directory())
    assert results is not None and (warning in ended.stderr) == (cap == 80)
    assert {row.name: row.trials for row in results.models}["cyd"] == (0 if cap == 80 else 32)


@pytest.mark.slow
@pytest.mark.parametrize(("cap", "unpaid"), [(95, ["cyd", "eve"]), (104, ["eve"]), (128, [])])
def test_no_answer_of_the_second_model_that_joins_is_paid_for_in_vain(site: Site, cap: int, unpaid: list[str]) -> None:
    eve = {"name": "eve", "model": "ada", "base_url": site.base_url, "prompt": "Answer: {prompt}"}
    ended = site.run(joined(site, cap, eve))
    for name in ("cyd", "eve"):
        assert (f"no answers of {name} will be requested" in ended.stderr) == (name in unpaid)
    assert ("Set it to 128 or more" in ended.stderr) == ("eve" in unpaid)
    results = read_results(site.directory())
    assert results is not None and results.cost.stored_trials == sum(row.trials for row in results.models)
    assert [row.name for row in results.models if not row.trials] == unpaid
