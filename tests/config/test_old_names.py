"""Keys that are called otherwise now: files are told once more, stored runs are read for good."""

import warnings
from typing import Any

import pytest

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.config.load import config_from_mapping
from adaptive_eval.config.old_names import upgrade_sections
from adaptive_eval.config.run import RunConfig

MODELS = [{"name": name, "base_url": f"http://{name}/v1"} for name in "ab"]
NOW: dict[str, Any] = {"name": "old", "questions": "q.jsonl", "grader": "math", "models": MODELS}
OLD: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"seeds": "consecutive"}, {"trials": {"seeds": "consecutive"}}, "seeds is called trials.seeds now"),
    ({"sampling": {"seed": 5}}, {"seed": 5}, "sampling.seed is called seed now"),
    ({"labels": "l.csv"}, {}, "labels has no effect any more, remove it: `adaptive-eval label RUN --from FILE`"),
    ({"report": {"labels": "l.csv"}}, {}, "report.labels has no effect any more, remove it"),
    (
        {"concurrency": {"concurrency": 7, "attempts": 2}},
        {"concurrency": {"in_flight": 7, "attempts": 2}},
        "concurrency.concurrency is called concurrency.in_flight now",
    ),
    (
        {"models": [{**MODELS[0], "concurrency": {"concurrency": 3}}, MODELS[1]]},
        {"models": [{**MODELS[0], "concurrency": {"in_flight": 3}}, MODELS[1]]},
        "models[0].concurrency.concurrency is called models[0].concurrency.in_flight now",
    ),
    (
        {"questions": {}, "grader": {}, "benchmark": {"lm_eval": "gsm8k", "limit": 5}},
        {"questions": {"limit": 5}, "grader": {}, "benchmark": {"lm_eval": "gsm8k"}},
        "benchmark.limit is called questions.limit now",
    ),
    (
        {"questions": None, "grader": None, "benchmarks": [{"name": "a", "benchmark": {"lm_eval": "b", "limit": 5}}]},
        {
            "questions": None,
            "grader": None,
            "benchmarks": [{"name": "a", "benchmark": {"lm_eval": "b"}, "questions": {"limit": 5}}],
        },
        "benchmarks[0].benchmark.limit is called benchmarks[0].questions.limit now",
    ),
    ({"trial_seeds": "consecutive"}, {"trials": {"seeds": "consecutive"}}, "trial_seeds is called trials.seeds now"),
    ({"allocation": "uniform"}, {"trials": {"policy": "uniform"}}, "allocation.policy is called trials.policy now"),
    (
        {"stopping": "anytime", "allocation": {"policy": {"use": "a:B", "options": {"n": 1}}, "lookahead": 2}},
        {"stopping": "anytime", "trials": {"policy": {"use": "a:B", "options": {"n": 1}}, "lookahead": 2}},
        "allocation.lookahead is called trials.lookahead now",
    ),
    (
        {"stopping": {"rule": "published", "prior": "uniform", "threshold": 2}},
        {"stopping": {"rule": {"use": "published", "options": {"threshold": 2}}, "prior": "uniform"}},
        "stopping.threshold is called stopping.rule.options.threshold now",
    ),
    (
        {"stopping": {"worth": 5}},
        {"stopping": {"rule": {"use": "optimal", "options": {"worth": 5}}}},
        "stopping.worth is called stopping.rule.options.worth now",
    ),
    (
        {"preset": "published", "trials": {"lookahead": 1}},
        {
            "stopping": {"rule": "published", "prior": "uniform"},
            "trials": {"policy": "unresolved_pairs", "lookahead": 1, "favour": "answers"},
        },
        "preset is written as `stopping: {rule: published, prior: uniform}`",
    ),
    ({"stop_on_alarm": "any"}, {"stopping": {"on_alarm": "any"}}, "stop_on_alarm is called stopping.on_alarm now"),
    ({"sites": {"keep": 30}}, {"servers": {"sites": {"keep": 30}}}, "sites is called servers.sites now"),
    (
        {"on_settled": {"command": ["x"]}},
        {},
        "on_settled has no effect any more, remove it: `notify` with `on: [done]`",
    ),
    ({"servers": {"on_done": {"command": ["x"]}}}, {}, "servers.on_done has no effect any more"),
    ({"tracking": {"wandb": {"project": "p"}}}, {}, "tracking.wandb has no effect any more, remove it"),
    ({"report": {"mlflow": {}}}, {}, "report.mlflow has no effect any more, remove it: `adaptive-eval track RUN`"),
    ({"allocation": {"growth": 0.3}}, {}, "allocation.growth has no effect any more, remove it: a round has one trial"),
    ({"sites": {"batch": 7, "keep": 30}}, {"servers": {"sites": {"keep": 30}}}, "sites.batch has no effect any more"),
    ({"concurrency": {"steer": False}}, {}, "concurrency.steer has no effect any more"),
    (
        {"models": [{**MODELS[0], "sampling": {"seed": 3}}, MODELS[1]]},
        {},
        "models[0].sampling.seed has no effect any more, remove it: it is one for the whole run",
    ),
]


@pytest.mark.parametrize(("old", "now", "told"), OLD, ids=[told for *_, told in OLD])
def test_a_file_with_an_old_key_is_read_and_told_what_it_is_called_now(
    old: dict[str, Any], now: dict[str, Any], told: str
) -> None:
    with pytest.warns(FutureWarning) as warned:
        read = config_from_mapping({**NOW, **old})
    assert any(told in str(one.message) for one in warned)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read == config_from_mapping({**NOW, **now})


def test_an_old_key_beside_the_new_one_is_refused() -> None:
    with pytest.warns(FutureWarning, match="stop_on_alarm"), pytest.raises(ConfigError) as refused:
        config_from_mapping({**NOW, "stop_on_alarm": "any", "seeds": "hashed", "trials": {"seeds": "consecutive"}})
    assert "seeds is called trials.seeds now, which is given too; remove it" in str(refused.value)


def test_a_section_that_is_none_is_told_as_such() -> None:
    with pytest.warns(FutureWarning, match="seeds"), pytest.raises(ConfigError, match="trials must be a mapping"):
        config_from_mapping({**NOW, "seeds": "hashed", "trials": 3})


def test_a_stored_run_with_old_keys_is_read() -> None:
    grader = {"kind": "judge", "server": MODELS[0] | {"model": "j"}, "concurrency": {"in_flight": 5}}
    del grader["server"]["name"]  # type: ignore[attr-defined]
    servers = {"sites": {"keep": 30}}
    rule = {"use": "optimal", "options": {"worth": 2.0}}
    trials = {"seeds": "consecutive", "lookahead": 2}
    sections = {"servers": servers, "stopping": {"rule": rule, "on_alarm": "any"}, "trials": trials}
    now = config_from_mapping({**NOW, "grader": grader, **sections})
    old = now.model_dump(mode="json")
    old["seeds"], old["labels"], old["report"]["labels"] = old["trials"].pop("seeds"), None, None
    old["allocation"] = {key: old["trials"].pop(key) for key in ("policy", "lookahead")} | {"growth": 0.0}
    old["stopping"] |= {"rule": "optimal", "worth": 2.0, "threshold": None, "epsilon": None}
    old["stop_on_alarm"] = old["stopping"].pop("on_alarm")
    servers = old.pop("servers")
    old["pool"], old["on_settled"] = servers["pool"], {"command": ["x"]}
    old["sites"] = servers["sites"] | {"batch": 256, "moment": 0.01}
    old["preset"], old["tracking"], old["report"]["mlflow"] = None, None, None
    for section in (old, *old["models"], old["grader"]):
        limits = section["concurrency"]
        limits["concurrency"], limits["steer"] = limits.pop("in_flight"), True
        section.get("sampling", {}).setdefault("seed", None)
    assert RunConfig.model_validate(upgrade_sections(old, 30), strict=False) == now


def test_a_stored_run_that_asked_for_the_answers_it_compares_with_has_them_in_its_folder() -> None:
    against = {"model": "bob", "run": None, "trials": 2}
    stored = {"grader": {"kind": "judge", "against": against}, "opponent": {"trials": 2}}
    assert upgrade_sections(stored, 30) == {"grader": {"kind": "judge", "against": {"model": "bob", "run": "opponent"}}}
    assert against["run"] is None, "the stored configuration stays as it is"
