"""The `launch` section: what it may say, what is told of what it may not, and the command that it means."""

import shlex
from pathlib import Path

import pytest
from checked_text import check_text

from adaptive_eval.config.prepare import run_header
from adaptive_eval.config.run import RunConfig, ServingGroup
from adaptive_eval.launch.command import server_command, server_environment
from adaptive_eval.launch.types import place_variables

BASE = """\
questions: q.jsonl
models:
  - name: a
    launch: {LAUNCH}
  - {name: b, base_url: http://b/v1}
grader: math
"""


def load(launch: str, **environment: str) -> RunConfig:
    checked = check_text(BASE.replace("{LAUNCH}", launch), Path("bench.yaml"), (), environment)
    assert checked.problems == ()
    assert checked.config is not None
    return checked.config


def problems_in(launch: str, more: str = "", **environment: str) -> list[str]:
    checked = check_text(BASE.replace("{LAUNCH}", launch) + more, Path("bench.yaml"), (), environment)
    assert checked.config is None
    return [str(problem) for problem in checked.problems]


def command(launch: str) -> str:
    model = load(launch).models[0]
    assert model.launch is not None
    return shlex.join(server_command(model.launch, model.model, "20123"))


def test_vllm_by_default() -> None:
    assert command("{}\n    model: Qwen/Qwen3-8B") == (
        "vllm serve Qwen/Qwen3-8B --served-model-name Qwen/Qwen3-8B --host 127.0.0.1 --port 20123 "
        "--generation-config vllm"
    )


def test_the_name_is_what_is_loaded_where_nothing_else_is_said() -> None:
    assert command("{}").startswith("vllm serve a --served-model-name a ")


def test_what_is_loaded_is_part_of_what_trials_mean() -> None:
    """Another model under the same name must not go on with its trials; where it is served may change."""
    first, other, same = (
        run_header(load(launch), ())
        for launch in ("{}\n    model: x", "{}\n    model: y", "{timeout: 5m}\n    model: x")
    )
    assert first.models == same.models != other.models


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("tensor-parallel-size: 2", "--tensor-parallel-size 2"),
        ("max_model_len: 4096", "--max-model-len 4096"),
        ("gpu-memory-utilization: 0.9", "--gpu-memory-utilization 0.9"),
        ("enforce-eager: true", "--enforce-eager"),
        ("enable-prefix-caching: false", "--no-enable-prefix-caching"),
        ("lora-modules: [x=/l/x, y=/l/y]", "--lora-modules x=/l/x y=/l/y"),
        ("hf-overrides: {rope: {a: 1}}", '--hf-overrides \'{"rope": {"a": 1}}\''),
    ],
)
def test_flags(flags: str, words: str) -> None:
    assert command(f"{{flags: {{{flags}}}}}").endswith(f" --generation-config vllm {words}")


def test_a_flag_takes_the_place_of_ours() -> None:
    assert command("{flags: {generation_config: auto}}").endswith("--port 20123 --generation-config auto")
    assert command("{flags: {generation-config: null}}").endswith("--port 20123")


@pytest.mark.parametrize(
    "written", ["'llama-server -m \"my model.gguf\" --alias {model} --port {port} --host {host} {x}'",
                "[llama-server, -m, my model.gguf, --alias, '{model}', --port, '{port}', --host, '{host}', '{x}']"]
)  # fmt: skip
def test_a_user_command(written: str) -> None:
    expected = "llama-server -m 'my model.gguf' --alias a --port 20123 --host 127.0.0.1 '{x}'"
    assert command(f"{{command: {written}}}") == expected


def test_variables_are_filled_in_over_the_environment() -> None:
    launch = load("{command: serve, env: {PORT: '{port}', CUDA_VISIBLE_DEVICES: 0}}").models[0].launch
    assert launch is not None
    seen = server_environment(launch, "a", "20123", {"PATH": "/bin", "PORT": "1"})
    assert seen == {"PATH": "/bin", "PORT": "20123", "CUDA_VISIBLE_DEVICES": "0"}


def test_it_survives_the_store_and_needs_no_address() -> None:
    config = load("{flags: {a: [1, b], c: {d: null}}, env: {X: 1}, timeout: 15m}")
    assert RunConfig.model_validate_json(config.model_dump_json()) == config
    assert config.models[0].launch is not None and config.models[0].launch.timeout == 900.0


@pytest.mark.parametrize(
    ("launch", "problem"),
    [
        ("true", "models[0].launch must be a mapping, but got true"),
        ("{flgas: {}}", "models[0].launch.flgas is not a known key; did you mean `flags`?"),
        ("{command: llama-server}", "models[0].launch.command must have {port}, since the run chooses a free "
         "port; add it, as in --port {port}, but got 'llama-server'"),
        ("{command: ''}", "models[0].launch.command must be a command and its arguments"),
        ("{command: \"x 'y\"}", "models[0].launch.command cannot be split into words: No closing quotation"),
        ("{command: 'x --port {port}', flags: {a: 1}}", "models[0].launch.flags is for vLLM, which `command` replaces"),
        ("{flags: {port: 1}}", "models[0].launch.flags may not hold port, which the run sets itself"),
        ("{flags: {served_model_name: x}}", "models[0].launch.flags may not hold served_model_name"),
        ("{flags: {--dtype: auto}}", "models[0].launch.flags must hold names of flags, but got '--dtype'"),
        ("{flags: {max-len: 1, max_len: 2}}", "models[0].launch.flags has a flag twice, with - and with _"),
        ("{env: {1X: a}}", "models[0].launch.env must hold names of variables, but '1X' is not one"),
        ("{timeout: 0}", "models[0].launch.timeout must be greater than 0"),
    ],
)  # fmt: skip
def test_mistakes_are_reported_with_their_line(launch: str, problem: str) -> None:
    (text,) = problems_in(launch)
    assert text.startswith("line 4: ")
    assert problem.split("; ")[0] in text


SECRET = "hf_abcdefghijklmnop1234"


@pytest.mark.parametrize(
    "launch",
    [
        f"{{flags: {{api-key: {SECRET}}}}}",
        f"{{env: {{HF_TOKEN: {SECRET}}}}}",
        "{env: {HF_TOKEN: '${HF_TOKEN}'}}",
        f"{{command: 'x --port {{port}} --token {SECRET}'}}",
        "{command: 'x --port {port} --api-key hello'}",
        "{command: [x, --port, '{port}', --key, '${MY_API_KEY}']}",
        "{command: 'x --port {port} --api-key=hushhush'}",
        "{command: [sh, -c, 'serve --port {port} --api-key hushhush']}",
        "{command: [sh, -c, 'API_KEY=hushhush serve --port {port}']}",
        "{command: [sh, -c, 'serve --port {port} --header \"Authorization: hushhush\"']}",
        "{flags: {api-key: [hushhush]}}",
    ],
)
def test_a_secret_is_refused_and_not_repeated(launch: str) -> None:
    (problem,) = problems_in(launch, HF_TOKEN=SECRET, MY_API_KEY=SECRET)
    assert "secret" in problem and "inherits the environment" in problem
    assert SECRET not in problem and "hushhush" not in problem


@pytest.mark.parametrize(
    "line", ["x --port {port} --max-tokens 5", "x -m token --port {port}", "x --tokenizer t --port {port}"]
)
def test_words_of_a_command_that_only_sound_like_it_are_no_secrets(line: str) -> None:
    assert command(f"{{command: '{line}'}}") == line.replace("{port}", "20123")


def test_an_address_beside_a_launched_server_is_refused() -> None:
    text = BASE.replace("{LAUNCH}", "{}").replace("name: a", "name: a\n    base_url: http://a/v1")
    (problem,) = check_text(text, Path("bench.yaml"), (), {}).problems
    assert str(problem) == (
        "line 4: models[0].base_url has no effect on a model whose server the run starts; remove base_url, or launch"
    )


def test_the_address_of_the_environment_is_for_others() -> None:
    config = load("{}", OPENAI_BASE_URL="http://elsewhere/v1")
    assert config.models[0].replicas == ("http://127.0.0.1/v1",)


def _config(text: str) -> RunConfig:
    config = check_text(text, Path("bench.yaml"), (), {}).config
    assert config is not None
    return config


POOL = """\
questions: q.jsonl
pool: [0, "2,3"]
models:
  - {name: a, launch: {command: "serve --port {port} --device {place}"}}
  - {name: b, launch: {}}
  - {name: c, launch: {}}
  - {name: d, base_url: http://d/v1}
grader: math
"""


def test_a_pool_serves_launched_models() -> None:
    config = _config(POOL)
    assert config.serving_groups == [ServingGroup((0, 1, 2), ("0", "2,3"))]
    assert config.serving_groups[0].in_turn
    assert not _config(POOL.replace('[0, "2,3"]', "[0, 1, 2]")).serving_groups[0].in_turn, "as many places as models"
    launch = config.models[0].launch
    assert launch is not None and config.pool is not None
    assert server_command(launch, "a", "8000", "2,3") == ("serve", "--port", "8000", "--device", "2,3")
    assert place_variables(("0", "MIG-7a/1/0")) and not place_variables(("gpu0",)) and not place_variables(2)
    assert server_environment(launch, "a", "8000", {}, "2,3", place_variables(config.pool)) == {
        "CUDA_VISIBLE_DEVICES": "2,3"
    }


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        ('[0, "2,3"]', "[0, 0]", "must have different names, but 0 is listed twice"),
        ('[0, "2,3"]', "[]", "pool"),
        ('[0, "2,3"]', '["a\\nb"]', "must be words of one line each"),
        ('[0, "2,3"]', "clutter", "pool must be"),
        ('[0, "2,3"]', "0", "pool must be"),
        ('pool: [0, "2,3"]\n', "", "a: launch has {place}, but no place; give `pool`"),
    ],
)
def test_mistakes_in_a_pool_are_named(before: str, after: str, problem: str) -> None:
    problems = check_text(POOL.replace(before, after), Path("bench.yaml"), (), {}).problems
    assert any(problem in str(line) for line in problems), problems


def test_a_pool_that_serves_no_model_is_refused() -> None:
    text = "questions: q.jsonl\npool: [0]\nmodels: [{name: a, base_url: http://a/v1}]\ngrader: math\n"
    problems = check_text(text, Path("bench.yaml"), (), {}).problems
    assert any("pool: no model is served there; give models a `launch` section" in str(problem) for problem in problems)


def test_vllm_is_told_that_it_may_sleep() -> None:
    assert "--enable-sleep-mode" in command("{sleep: true}")
    assert "--enable-sleep-mode" in command("{sleep: 2}")
    assert "--enable-sleep-mode" not in command("{}")
    launch = load("{sleep: true}").models[0].launch
    assert launch is not None
    assert server_environment(launch, "m", "8000", {})["VLLM_SERVER_DEV_MODE"] == "1"
