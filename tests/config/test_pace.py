"""What `trials.favour: auto` takes: what is expected to be cheapest, by what is paid."""

from pathlib import Path

import pytest

from adaptive_eval.config.load import check_text, load_config
from adaptive_eval.config.pace import FavourChoice, choose_favour
from adaptive_eval.config.prepare import prepare

HEAD = "questions: q.jsonl\ngrader: math\n"
PRICE = "price: {input: 1, output: 10}"


def chosen(models: str, more: str = "sampling: {max_tokens: 32000}\n", questions: int = 30) -> FavourChoice:
    config = check_text(f"{HEAD}{more}models:\n{models}", Path("bench.yaml"), (), {}).config
    assert config is not None
    return choose_favour(config.models, config.trials, questions, in_turn=config.in_turn)


def two(options: str) -> str:
    return "".join(f"  - {{name: {name}, base_url: http://{name}/v1, {options}}}\n" for name in "ab")


TWO = "  - {name: a, base_url: http://a/v1}\n  - {name: b, base_url: http://b/v1}\n"


def test_servers_that_are_started_or_own_gpus_are_paid_by_the_hour() -> None:
    launched = "".join(f"  - {{name: {name}, launch: {{}}}}\n" for name in "ab")
    assert chosen(launched).favour == chosen(two("gpus: 1")).favour == "servers"
    turned = "".join(f"  - {{name: {name}, launch: {{exclusive: gpu0}}}}\n" for name in "ab")
    assert chosen(turned) == ("servers", "models take turns on a server, which is paid for by the hour")


@pytest.mark.parametrize(
    "own",
    ["launch: {}", "launch: {exclusive: gpu0}", "base_url: http://a/v1, gpus: 1"],
    ids=["each", "in turn", "gpus"],
)
def test_beside_a_model_with_batches_the_pace_is_that_of_batches(own: str) -> None:
    """Else servers would be kept busy for as long as a batch takes, with trials that nobody needs."""
    launched = "".join(f"  - {{name: {name}, {own}}}\n" for name in "ab")
    assert chosen(launched).favour == "servers"
    assert chosen(f"{launched}  - {{name: c, base_url: http://c/v1, batch: openai}}\n").favour == "batches"


def test_servers_without_price_and_key_are_your_own_where_time_is_what_is_paid() -> None:
    """Whatever is known of the length of answers. A key may be that of a provider, whose address is enough; and
    headers, or a signature of one's own, may be credentials as well."""
    for more in ("", "sampling: {max_tokens: 32000}\n"):
        found = chosen(TWO, more)
        assert found.favour == "soon" and "taken to be your own" in found.why
    provider = "  - {name: a, base_url: https://api.openai.com/v1}\n  - {name: b, base_url: http://b/v1}\n"
    for models in (two("api_key_env: KEY"), provider, two("headers: {x-key: abc}"), two("auth: my.signs:Auth")):
        found = chosen(models)
        assert found.favour == "balanced" and "of a costs is not known" in found.why


def test_without_lengths_prices_say_little() -> None:
    assert chosen(two(PRICE), more="").favour == "balanced", "nobody knows how long answers are"


def test_a_model_without_price_and_key_costs_nothing_beside_those_that_have_a_price() -> None:
    beside = two(PRICE).replace(f"a/v1, {PRICE}", "a/v1")
    sampling = "sampling: {max_tokens: 32000}\ntrials: {hour_is_worth: 0}\n"

    def cheapest(models: str) -> float:
        return float(chosen(models, more=sampling).why.partition("cost $")[2].partition(",")[0])

    assert cheapest(beside) == pytest.approx(cheapest(two(PRICE)) / 2, abs=0.01)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (("budget.trials=4000",), "a cap counts whatever is asked"),
        (("budget.tokens=4000000",), "a cap counts whatever is asked"),
        (("grader={kind: judge, server: {base_url: 'http://judge/v1', model: judge}}",), "grades have to be asked for"),
        (("budget.wall_time=3h",), None),
    ],
)  # fmt: skip
def test_where_nothing_can_be_asked_ahead_it_is_in_between(
    tmp_path: Path, settings: tuple[str, ...], why: str | None
) -> None:
    (tmp_path / "q.jsonl").write_text('{"id": "q", "prompt": "What is 1?", "answer": "1"}\n')
    (tmp_path / "run.yaml").write_text(f"{HEAD}sampling: {{max_tokens: 2000}}\nmodels:\n{TWO}")
    found = prepare(load_config(tmp_path / "run.yaml", settings))
    assert found.why_favoured is not None
    assert found.config.trials.favour == ("soon" if why is None else "balanced")
    assert (why or "taken to be your own") in found.why_favoured
    assert bool(found.plan.pace.ahead) == (why is None)


@pytest.mark.parametrize(
    ("price", "hour", "favour"),
    [(100.0, 10.0, "cost"), (10.0, 10.0, "balanced"), (10.0, 1000.0, "soon"), (0.4, 10.0, "soon"), (0.4, 0.05, "cost")],
)
def test_prices_are_weighed_against_an_hour(price: float, hour: float, favour: str) -> None:
    """Two models, 2,400 answers of 8,000 tokens each: at $10 a million 5 points more of the trials are $19."""
    sampling = f"sampling: {{max_tokens: 32000}}\ntrials: {{hour_is_worth: {hour}}}\n"
    found = chosen(two(f"price: {{input: 1, output: {price}}}"), more=sampling)
    assert found.favour == favour
    assert f"time at ${hour:g} an hour" in found.why


def test_the_more_slots_there_are_the_more_is_asked_in_vain() -> None:
    """Which is paid for where answers have a price: it is told, and many slots make it dearer."""

    def expected(slots: int) -> float:
        more = f"sampling: {{max_tokens: 32000}}\ntrials: {{hour_is_worth: 0}}\nconcurrency: {slots}\n"
        return float(chosen(two(PRICE), more).why.partition("soon $")[2].replace(",", ""))

    few, some, many = (expected(slots) for slots in (1, 30, 1000))
    whole = 2 * 2400 * 8000 * 10 / 1e6
    assert 0.55 * whole < few < some < many <= 0.91 * whole + 0.01
