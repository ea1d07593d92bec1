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
    assert checked.config is not None and checked.problems == ()
    return checked.config


def problems_in(launch: str, more: str = "", **environment: str) -> list[str]:
    checked = check_text(BASE.replace("{LAUNCH}", launch) + more, Path("bench.yaml"), (), environment)
    assert checked.config is None
    return [str(problem) for problem in checked.problems]


def command(launch: str) -> str:
    model = load(launch).models[0]
    assert model.launch is not None
    return shlex.join(server_command(model.launch, model.model, "20123"))


OURS = "vllm serve a --served-model-name a --host 127.0.0.1 --port 20123"
VLLM = f"{OURS} --generation-config vllm"
SERVE = "llama-server -m 'my model.gguf' --alias a --port 20123 --host 127.0.0.1 '{x}'"


@pytest.mark.parametrize(
    ("launch", "expected"),
    [
        ("{}", VLLM),
        ("{}\n    model: Qwen/Qwen3-8B", VLLM.replace(" a ", " Qwen/Qwen3-8B ")),
        ("{flags: {tensor-parallel-size: 2}}", f"{VLLM} --tensor-parallel-size 2"),
        ("{flags: {max_model_len: 4096}}", f"{VLLM} --max-model-len 4096"),
        ("{flags: {gpu-memory-utilization: 0.9}}", f"{VLLM} --gpu-memory-utilization 0.9"),
        ("{flags: {enforce-eager: true}}", f"{VLLM} --enforce-eager"),
        ("{flags: {enable-prefix-caching: false}}", f"{VLLM} --no-enable-prefix-caching"),
        ("{flags: {lora-modules: [x=/l/x, y=/l/y]}}", f"{VLLM} --lora-modules x=/l/x y=/l/y"),
        ("{flags: {hf-overrides: {rope: {a: 1}}}}", f'{VLLM} --hf-overrides \'{{"rope": {{"a": 1}}}}\''),
        ("{flags: {generation_config: auto}}", f"{OURS} --generation-config auto"),  # in place of ours
        ("{flags: {generation-config: null}}", OURS),
        ("{sleep: true}", f"{VLLM} --enable-sleep-mode"),
        ("{sleep: 2}", f"{VLLM} --enable-sleep-mode"),
        ("{command: 'llama-server -m \"my model.gguf\" --alias {model} --port {port} --host {host} {x}'}", SERVE),
        ("{command: [llama-server, -m, my model.gguf, --alias, a, --port, '{port}', --host, '{host}', '{x}']}", SERVE),
        # words that only sound like secrets
        ("{command: 'x --port {port} --max-tokens 5'}", "x --port 20123 --max-tokens 5"),
        ("{command: 'x -m token --port {port}'}", "x -m token --port 20123"),
        ("{command: 'x --tokenizer t --port {port}'}", "x --tokenizer t --port 20123"),
    ],
)
def test_the_command_of_a_server(launch: str, expected: str) -> None:
    assert command(launch) == expected


def test_the_environment_of_a_server() -> None:
    config = load(
        "{flags: {a: [1, b]}, env: {PORT: '{port}', X: 0}, sleep: true, timeout: 15m}", OPENAI_BASE_URL="http://b/v1"
    )
    assert RunConfig.model_validate_json(config.model_dump_json()) == config, "it survives the store"
    launch, ours = config.models[0].launch, {"PATH": "/bin", "PORT": "1"}
    assert launch is not None and launch.timeout == 900.0
    seen = server_environment(launch, "a", "20123", ours)
    assert seen == {"PATH": "/bin", "PORT": "20123", "X": "0", "VLLM_SERVER_DEV_MODE": "1"}
    assert config.models[0].replicas == ("http://127.0.0.1/v1",), "the address of the environment is for others"


def test_what_is_loaded_is_part_of_what_trials_mean() -> None:
    """Another model under the same name must not go on with its trials; where it is served may change."""
    first, other, same = (
        run_header(load(launch), ())
        for launch in ("{}\n    model: x", "{}\n    model: y", "{timeout: 5m}\n    model: x")
    )
    assert first.models == same.models != other.models


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


def test_an_address_beside_a_launched_server_is_refused() -> None:
    text = BASE.replace("{LAUNCH}", "{}").replace("name: a", "name: a\n    base_url: http://a/v1")
    (problem,) = check_text(text, Path("bench.yaml"), (), {}).problems
    assert str(problem).startswith("line 4: models[0].base_url has no effect on a model whose server the run starts")


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


ALONE = "questions: q.jsonl\npool: [0]\nmodels: [{name: a, base_url: http://a/v1}]\ngrader: math\n"


def test_a_pool_serves_launched_models() -> None:
    config = check_text(POOL, Path("bench.yaml"), (), {}).config
    fewer = check_text(POOL.replace('[0, "2,3"]', "[0, 1, 2]"), Path("bench.yaml"), (), {}).config
    assert config is not None and fewer is not None
    assert config.serving_groups == [ServingGroup((0, 1, 2), ("0", "2,3"))]
    assert config.serving_groups[0].in_turn
    assert not fewer.serving_groups[0].in_turn, "as many places as models"
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
        (POOL, ALONE, "pool: no model is served there; give models a `launch` section"),
    ],
)
def test_mistakes_in_a_pool_are_named(before: str, after: str, problem: str) -> None:
    problems = check_text(POOL.replace(before, after), Path("bench.yaml"), (), {}).problems
    assert any(problem in str(line) for line in problems), problems
