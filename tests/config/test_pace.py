"""What `trials.favour: auto` takes, by what is paid for, and the names that paces had before."""

from pathlib import Path

import pytest
from checked_text import check_text

from adaptive_eval.config.load import config_from_mapping, load_config
from adaptive_eval.config.old_names import upgrade_sections
from adaptive_eval.config.pace import choose_favour
from adaptive_eval.config.prepare import prepare
from adaptive_eval.core import Pace

HEAD = "questions: q.jsonl\ngrader: math\n"
PRICE = "price: {input: 1, output: 10}"
ZSCORE = {"use": "zscore", "options": {"threshold": 2.0}}


def chosen(models: str, more: str = "sampling: {max_tokens: 32000}\n") -> tuple[str, str]:
    config = check_text(f"{HEAD}{more}models:\n{models}", Path("bench.yaml"), (), {}).config
    assert config is not None
    return choose_favour(config.models, config.trials)


def two(options: str) -> str:
    return "".join(f"  - {{name: {name}, base_url: http://{name}/v1, {options}}}\n" for name in "ab")


TWO = "  - {name: a, base_url: http://a/v1}\n  - {name: b, base_url: http://b/v1}\n"


def test_time_is_paid_for_on_servers_of_your_own() -> None:
    """Whatever is known of the length of answers."""
    launched = "".join(f"  - {{name: {name}, launch: {{}}}}\n" for name in "ab")
    turned = "".join(f"  - {{name: {name}, launch: {{exclusive: gpu0}}}}\n" for name in "ab")
    for models in (TWO, launched, turned, two("gpus: 1"), two(f"gpus: 1, {PRICE}")):
        for more in ("", "sampling: {max_tokens: 32000}\n"):
            found = chosen(models, more)
            assert found[0] == "time" and found[1].startswith("all models are on servers of your own")


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
        assert chosen(models)[0] == "answers"


def test_one_model_with_a_key_does_not_slow_the_others_down_and_the_reason_names_whose_servers_are_meant() -> None:
    keyed = "  - {name: c, base_url: http://c/v1, api_key_env: KEY}\n"
    assert chosen(TWO + keyed) == (
        "time",
        "a and 1 more are on servers of your own (no price, no key), where time is what you pay for; the others are "
        "asked ahead, too",
    )
    assert chosen(keyed + "  - {name: a, base_url: http://a/v1}\n")[1].startswith("a is on servers of your own")


def test_a_model_with_a_batch_is_on_no_server_of_yours_and_growing_rounds_are_rounds_of_all_models() -> None:
    of_others = ("answers", "every model is on a server of others: its answers are what you pay for")
    assert chosen(two("batch: openai")) == of_others
    keyed = "every model has a price, a key or headers: its answers are what you pay for"
    assert chosen(two("batch: openai, api_key_env: KEY")) == chosen(two(PRICE)) == ("answers", keyed)


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
    found = prepare(load_config(tmp_path / "run.yaml", settings))
    assert found.config.trials.favour == "time" and "servers of your own" in str(found.why_favoured)
    assert found.plan.pace == Pace(lookahead=12, opening=12, held=True)


@pytest.mark.parametrize(
    ("was", "now"),
    [("cost", "answers"), ("balanced", "time"), ("soon", "time"), ("servers", "time"), ("batches", "answers")],
)
def test_an_old_name_in_a_file_is_taken_and_told(was: str, now: str) -> None:
    models = [{"name": name, "base_url": f"http://{name}/v1"} for name in "ab"]
    settings = {"name": "old", "questions": "q.jsonl", "grader": "math", "models": models}
    with pytest.warns(FutureWarning, match=f"trials.favour: {was} is gone, {now} is in its place"):
        config = config_from_mapping({**settings, "trials": {"favour": was}})
    assert config.trials.favour == now
    with pytest.warns(FutureWarning, match="hour_is_worth has no effect any more"):
        assert config_from_mapping({**settings, "trials": {"hour_is_worth": 3}}).trials.favour == "auto"


@pytest.mark.parametrize("written", ["sequential", {"rule": "intervals", "confidence": 0.9}, {"rule": ZSCORE}], ids=str)
def test_a_rule_of_old_in_a_file_is_read_as_optimal_and_told(written: object) -> None:
    models = [{"name": name, "base_url": f"http://{name}/v1"} for name in "ab"]
    settings = {"name": "old", "questions": "q.jsonl", "grader": "math", "models": models}
    with pytest.warns(FutureWarning, match=r"stopping.rule: \w+ is gone, optimal is in its place"):
        config = config_from_mapping({**settings, "stopping": written})
    assert config.stopping.rule == "optimal" and not config.plug_ins
    for futility in (0.2, False, 0):
        with pytest.warns(FutureWarning, match="stopping.futility has no effect any more, remove it"):
            assert config_from_mapping({**settings, "stopping": {"futility": futility}}).stopping.rule == "optimal"


@pytest.mark.parametrize("written", [{"rule": "zscore", "threshold": 2.0}, {"rule": ZSCORE}], ids=str)
def test_an_option_of_a_rule_that_is_gone_is_told_to_go_with_it(written: object) -> None:
    models = [{"name": name, "base_url": f"http://{name}/v1"} for name in "ab"]
    settings = {"name": "old", "questions": "q.jsonl", "grader": "math", "models": models}
    with pytest.warns(FutureWarning) as told:
        config_from_mapping({**settings, "stopping": written})
    (only,) = (str(one.message) for one in told)
    assert only.startswith("stopping.rule: zscore is gone, optimal is in its place, without threshold; write this")


def test_a_stored_run_keeps_the_name_of_the_rule_that_decided_it() -> None:
    stored = {"stopping": {"rule": "sequential", "confidence": 0.9, "futility": 0.3}, "trials": {"favour": "time"}}
    expected = {"stopping": {"rule": "sequential", "confidence": 0.9}, "trials": {"favour": "time"}}
    assert upgrade_sections(stored, 30) == expected


@pytest.mark.parametrize(
    ("was", "now", "lookahead"),
    [("cost", "answers", 0), ("soon", "answers", 0), ("balanced", "answers", 2), ("time", "answers", 12),
     ("servers", "time", None), ("batches", "answers", None), ("auto", "auto", None)],
)  # fmt: skip
def test_a_stored_run_of_an_earlier_version_keeps_its_rounds_where_models_went_in_step(
    was: str, now: str, lookahead: int | None
) -> None:
    stored = {"trials": {"max": 80, "favour": was, "hour_is_worth": 10.0}, "allocation": {"lookahead": None}, "seed": 1}
    ahead = {} if lookahead is None else {"lookahead": lookahead}
    assert upgrade_sections(stored, 30) == {"trials": {"max": 80, "favour": now, **ahead}, "seed": 1}
    given = {**stored, "allocation": {"lookahead": 1}}
    assert upgrade_sections(given, 30)["trials"]["lookahead"] == 1


def test_what_is_stored_today_and_what_is_damaged_is_left_as_it_is() -> None:
    for stored in (
        {"trials": {"favour": "time"}},
        {"trials": 3},
        {},
        {"trials": {"min": 1}, "allocation": []},
    ):
        assert upgrade_sections(stored, 0) == stored
