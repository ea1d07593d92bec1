"""Models that are commands in a configuration: what they may have, how they are started, and what a resume refuses."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.config.commands import command_environment, command_line, command_problems
from adaptive_eval.config.load import load_config
from adaptive_eval.config.prepare import prepare
from adaptive_eval.config.run import ModelConfig, RunConfig
from adaptive_eval.config.run_secrets import run_redactor
from adaptive_eval.supplies.opening import request_limits

KEY = "sk-live-4f9c2e71d8a3b605e9c7"


def config(tmp_path: Path, *models: dict[str, Any], **changes: Any) -> RunConfig:
    (tmp_path / "tasks.jsonl").write_text('{"id": "a", "prompt": "?", "repo": "x"}\n')
    others = [{"name": f"other{at}", "command": "true"} for at in range(2 - len(models))]
    settings = {"questions": "tasks.jsonl", "grader": "reported", "models": [*models, *others]}
    (path := tmp_path / "run.yaml").write_text(yaml.safe_dump(settings | changes))
    return load_config(path)


def agent(tmp_path: Path, **keys: Any) -> ModelConfig:
    return config(tmp_path, {"name": "agent", "command": ["./agent", "x"], **keys}).models[0]


def refused(tmp_path: Path, *models: dict[str, Any], **changes: Any) -> str:
    with pytest.raises(ConfigError) as error:
        config(tmp_path, *models, **changes)
    return str(error.value)


def test_what_runs_at_a_time_is_what_servers_have_in_flight(tmp_path: Path) -> None:
    assert agent(tmp_path).concurrency.in_flight == 4
    model = agent(tmp_path, concurrency={"in_flight": 7})
    assert model.concurrency.in_flight == request_limits(model).slots == 7
    assert request_limits(model).rehearsed == 1 and model.sampled is None and not model.has_address


@pytest.mark.parametrize(
    ("more", "run", "expected"),
    [
        ({}, {"concurrency": 128}, 128),
        ({}, {"concurrency": {"requests_per_minute": 60}}, 4),
        ({"base_url": "http://x/v1"}, {"concurrency": 128}, 4),
        ({"base_url": "http://x/v1"}, {"concurrency": 2}, 2),
        ({"recorded": "runs/before"}, {"concurrency": 128}, 128),
    ],
)
def test_the_limit_of_the_run_is_for_servers_if_there_are_any(
    tmp_path: Path, more: dict[str, Any], run: dict[str, Any], expected: int
) -> None:
    """128 requests to a server are usual, 128 agents on this machine are not."""
    other = {"name": "other", **(more or {"command": "true"})}
    models = config(tmp_path, {"name": "agent", "command": "true"}, other, grader="exact", **run).models
    assert models[0].concurrency.in_flight == expected
    own = {"name": "agent", "command": "true", "concurrency": 9}
    assert config(tmp_path, own, other, grader="exact", **run).models[0].concurrency.in_flight == 9


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"base_url": "http://x/v1"}, "has no effect on a command; remove base_url, or command"),
        ({"sampling": {"temperature": 1.0}}, "has no effect on a command; give it to the models on servers"),
        ({"price": {"input": 1, "output": 2}}, "has no effect on a command; let the command print the usd"),
        ({"api_key_env": "MY_KEY"}, "has no effect on a command; name the variable in env"),
        ({"headers": {"X-A": "b"}}, "has no effect on a command; remove it"),
        ({"launch": {"command": "x --port {port}"}}, "has no effect on a command"),
        ({"question_fields": ["repo"]}, "question_fields must be fields of the questions"),
        ({"env": ["A=b"]}, "must hold names of variables, not values; got 'A=b'; write env: [MY_KEY]"),
        ({"env": [f"A={KEY}"]}, "secret"),
        ({"command": "./agent > out"}, "has >, which needs a shell"),
        ({"command": ["./agent", f"--api-key={KEY}"]}, "has a secret"),
        ({"command": []}, "must be a command and its arguments; such as `./agent --skill v2`"),
        ({"timeout": 0}, "timeout"),
    ],
)
def test_what_means_nothing_to_a_command_is_refused(tmp_path: Path, keys: dict[str, Any], message: str) -> None:
    text = refused(tmp_path, {"name": "agent", "command": ["./agent"], **keys})
    assert message in text and KEY not in text


def test_the_sampling_of_the_run_is_for_servers_and_refused_by_its_name_if_there_are_none(tmp_path: Path) -> None:
    agent, server = {"name": "agent", "command": "true"}, {"name": "other", "base_url": "http://x/v1"}
    models = config(tmp_path, agent, server, grader="exact", sampling={"temperature": 0.5}).models
    assert [model.sampling.temperature for model in models] == [None, 0.5]
    text = refused(tmp_path, agent, sampling={"temperature": 0.5})
    assert " sampling has no effect on commands; remove it" in text and "models[" not in text


def test_keys_of_commands_and_reported_scores_are_for_commands(tmp_path: Path) -> None:
    text = refused(tmp_path, {"name": "small", "base_url": "http://x/v1", "timeout": "20m"})
    assert "models[0].timeout is for a model with a command; remove it, or add `command`" in text
    assert "reported takes the scores that commands report, and small is no command" in text


def test_words_that_begin_with_dots_are_paths_beside_the_configuration(tmp_path: Path) -> None:
    line = command_line(agent(tmp_path, command="bin/agent ./skills/v2.md ../x --out ./out -v plain a/b"), tmp_path)
    assert " ".join(line).replace(str(tmp_path), "@") == "@/bin/agent @/skills/v2.md @/../x --out @/out -v plain a/b"
    assert command_line(agent(tmp_path, command="python3 -m agent"), tmp_path) == ("python3", "-m", "agent")


def test_commands_get_what_all_programs_need_and_what_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {"PATH": "/bin", "HOME": "/h", "LC_ALL": "C", "MY_KEY": KEY, "OTHER": "1", "LANG": KEY}
    assert command_environment(agent(tmp_path), environment) == {"PATH": "/bin", "HOME": "/h", "LC_ALL": "C"}
    named = command_environment(agent(tmp_path, env=["MY_KEY", "UNSET"]), environment)
    assert named == {"PATH": "/bin", "HOME": "/h", "LC_ALL": "C", "MY_KEY": KEY}
    monkeypatch.setenv("MY_KEY", KEY)
    assert KEY in run_redactor(config(tmp_path)).secrets, "what a command could read is removed"


def test_what_cannot_run_here_is_told(tmp_path: Path) -> None:
    def problems(command: str, **keys: Any) -> list[str]:
        return [*command_problems(agent(tmp_path, command=command, **keys), {"PATH": "/bin:/usr/bin"}, tmp_path)]

    (tmp_path / "agent.py").touch()
    assert problems("sh -c true") == problems("sh ./agent.py") == problems("sh -u absent.py") == []
    assert problems("sh -u agent.py x") == [
        "agent.py would not be found, since a command runs in a new folder; write ./agent.py"
    ]
    assert problems("./absent")[0].startswith("./absent does not exist in ")
    assert problems("true", env=["MY_KEY"]) == [
        "env names the variable MY_KEY, which is not set; set it, or remove it from env"
    ]


def test_its_words_and_fields_are_what_its_trials_mean_and_nothing_else(tmp_path: Path) -> None:
    def meaning(**keys: Any) -> object:
        fields = {"path": "tasks.jsonl", "fields": {"metadata": ["repo"]}}
        model = {"name": "agent", "command": ["./agent", "x"], **keys}
        return prepare(config(tmp_path, model, questions=fields)).header.models["agent"]

    plain = meaning()
    assert plain == meaning(concurrency=2, timeout="1m", env=["A"])
    assert plain != meaning(command=["./agent", "y"]) and plain != meaning(question_fields=["repo"])


def test_questions_need_an_answer_only_for_graders_that_read_one(tmp_path: Path) -> None:
    assert prepare(config(tmp_path)).questions[0].answer == ""
    with pytest.raises(ConfigError, match="has no field 'answer'"):
        prepare(config(tmp_path, grader="exact"))
    with pytest.raises(ConfigError, match="has no field 'key'"):
        prepare(config(tmp_path, questions={"path": "tasks.jsonl", "fields": {"answer": "key"}}))


def test_a_cap_on_usd_needs_no_price_of_a_command_and_one_on_gpu_hours_counts_nothing(tmp_path: Path) -> None:
    text = refused(tmp_path, {"name": "agent", "command": ["./agent"]}, budget={"gpu_hours": 2})
    assert "budget.gpu_hours counts nothing, since no model has GPUs of yours; limit usd" in text
    assert config(tmp_path, budget={"usd": 5}).budget.usd == 5
    mixed = [{"name": "a", "command": "true"}, {"name": "b", "base_url": "https://x.example/v1", "api_key_env": "K"}]
    assert "needs price of every model, to reserve what a trial may cost, but b has none" in refused(
        tmp_path, *mixed, budget={"usd": 5}, grader="exact"
    )
