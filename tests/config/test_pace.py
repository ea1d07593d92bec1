"""What `trials.optimize: auto` takes, by what is paid for, and the names that paces had before."""

from pathlib import Path

import pytest
from checked_text import check_text

from adaptive_eval.config.decisions import TrialsConfig
from adaptive_eval.config.load import load_config
from adaptive_eval.config.pace import choose_optimize, make_pace
from adaptive_eval.config.prepare import prepare
from adaptive_eval.core import Pace

HEAD = "questions: q.jsonl\ngrader: math\n"
PRICE = "price: {input: 1, output: 10}"
FREE = "price: {input: 0, output: 0}"


def chosen(models: str, more: str = "sampling: {max_tokens: 32000}\n") -> tuple[str, str]:
    config = check_text(f"{HEAD}{more}models:\n{models}", Path("bench.yaml"), (), {}).config
    assert config is not None
    return choose_optimize(config.models, config.trials)


def two(options: str) -> str:
    return "".join(f"  - {{name: {name}, base_url: http://{name}/v1, {options}}}\n" for name in "ab")


TWO = "  - {name: a, base_url: http://a/v1}\n  - {name: b, base_url: http://b/v1}\n"


def test_time_is_paid_for_on_servers_of_your_own() -> None:
    """Whatever is known of the length of answers."""
    launched = "".join(f"  - {{name: {name}, launch: {{}}}}\n" for name in "ab")
    reasons = {
        TWO: "without price and key",
        launched: "started by the run",
        two("gpus: 1"): "with gpus",
        two(f"gpus: 1, {PRICE}"): "with gpus",
        two(FREE): "with price 0",
        two(FREE) + "  - {name: c, base_url: http://c/v1}\n": "with price 0 or without price and key",
    }
    for models, why in reasons.items():
        for more in ("", "sampling: {max_tokens: 32000}\n"):
            reason = f"all models are on your own servers ({why}), where you pay for time"
            assert chosen(models, more) == ("time", reason)


def test_answers_are_paid_for_where_every_model_has_a_price_or_something_to_be_known_by() -> None:
    """A provider's address is enough; headers, or a signature of one's own, may be credentials as well."""
    provider = "  - {name: a, base_url: https://api.openai.com/v1}\n  - {name: b, base_url: http://b/v1, auth: m:A}\n"
    for models in (
        two(PRICE),
        two("api_key_env: KEY"),
        provider,
        two("headers: {x-key: abc}"),
        two("auth: my.signs:Auth"),
    ):
        assert chosen(models)[0] == "cost"


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
    text = f"{HEAD}sampling: {{max_tokens: 32000}}\nbudget: {{usd: 5}}\nmodels:\n{models}"
    checked = check_text(text, Path("bench.yaml"), (), {"KEY": "k"})
    problems = "\n".join(map(str, checked.problems))
    assert (problems == "") if problem is None else (problem in problems)


def test_one_model_with_a_key_does_not_slow_the_others_down_and_the_reason_names_whose_servers_are_meant() -> None:
    keyed = "  - {name: c, base_url: http://c/v1, api_key_env: KEY}\n"
    assert chosen(TWO + keyed) == (
        "time",
        "a and 1 more are on your own servers (without price and key), where you pay for time. Requests to the "
        "other models are sent ahead, too",
    )
    assert chosen(keyed + "  - {name: a, base_url: http://a/v1}\n")[1].startswith("a is on your own servers")


def test_a_model_with_a_batch_is_on_no_server_of_yours_and_growing_rounds_are_rounds_of_all_models() -> None:
    of_others = ("cost", "no model is known to be on a server of your own, so you pay for answers")
    assert chosen(two("batch: openai")) == chosen(two("batch: openai, api_key_env: KEY")) == of_others
    assert chosen(two(PRICE)) == of_others


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
    (tmp_path / "run.yaml").write_text(f"{HEAD}sampling: {{max_tokens: 2000}}\nmodels:\n{TWO}")
    prepared = prepare(load_config(tmp_path / "run.yaml", settings))
    assert prepared.config.trials.optimize == "time" and "your own servers" in str(prepared.why_optimized)
    assert prepared.plan.pace == Pace(lookahead=12, opening=12, dedicated_servers=True)


@pytest.mark.parametrize(("questions", "ahead"), [(30, 12), (150, 2), (360, 1), (361, 0), (5000, 0)])
def test_rounds_that_fill_the_servers_alone_are_not_asked_ahead(questions: int, ahead: int) -> None:
    assert make_pace(TrialsConfig(optimize="time"), questions) == Pace(
        lookahead=ahead, opening=12, dedicated_servers=True
    )
