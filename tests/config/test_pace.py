"""What `trials.favour: auto` takes: what is expected to be cheapest, by what is paid."""

from pathlib import Path

import pytest

from adaptive_eval.config.load import check_text
from adaptive_eval.config.pace import FavourChoice, choose_favour

HEAD = "questions: q.jsonl\ngrader: math\n"
PRICE = "price: {input: 1, output: 10}"


def chosen(models: str, more: str = "sampling: {max_tokens: 32000}\n", questions: int = 30) -> FavourChoice:
    config = check_text(f"{HEAD}{more}models:\n{models}", Path("bench.yaml"), (), {}).config
    assert config is not None
    return choose_favour(config.models, config.trials, questions, in_turn=config.in_turn)


def two(options: str) -> str:
    return "".join(f"  - {{name: {name}, base_url: http://{name}/v1, {options}}}\n" for name in "ab")


def test_servers_that_are_started_or_own_gpus_are_paid_by_the_hour() -> None:
    launched = "".join(f"  - {{name: {name}, launch: {{}}}}\n" for name in "ab")
    assert chosen(launched).favour == chosen(two("gpus: 1")).favour == "servers"
    turned = "".join(f"  - {{name: {name}, launch: {{exclusive: gpu0}}}}\n" for name in "ab")
    assert chosen(turned) == ("servers", "models take turns on a server, which is paid for by the hour")


def test_without_prices_it_is_in_between() -> None:
    assert chosen(two("api_key_env: KEY")).favour == "balanced"
    assert chosen(two(PRICE), more="").favour == "balanced", "nobody knows how long answers are"


@pytest.mark.parametrize(
    ("price", "hour", "favour"),
    [(100.0, 10.0, "cost"), (10.0, 10.0, "balanced"), (10.0, 1000.0, "time"), (0.4, 10.0, "time"), (0.4, 0.05, "cost")],
)
def test_prices_are_weighed_against_an_hour(price: float, hour: float, favour: str) -> None:
    """Two models, 2,400 answers of 8,000 tokens each: at $10 a million 5 points more of the trials are $19."""
    sampling = f"sampling: {{max_tokens: 32000}}\ntrials: {{hour_is_worth: {hour}}}\n"
    found = chosen(two(f"price: {{input: 1, output: {price}}}"), more=sampling)
    assert found.favour == favour
    assert f"time at ${hour:g} an hour" in found.why
