"""Runs of a file of questions and servers on the command line: `adaptive-eval run questions.jsonl --model URL ...`."""

import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from command_line import Codes, typed
from contrary_server import Reply, listening
from live_runs import ENDED, FAST, RunOutcome, Site, small_world, trials_in
from stored_runs import stored_header
from typer.testing import Result

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.simulate.server import SimulatedServer, serving
from adaptive_eval.simulate.worlds import World

KEY = "sk-proj-abcdefghijkl1234567890"
SHORT = ("--set", "sampling.max_tokens=2000", "--set", "trials.optimize=cost", "--display", "plain")
SOON = ("--set", "concurrency.retry_for=0")


@pytest.fixture(autouse=True)
def folder(site: Site, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(site.folder)
    return site.folder


@contextmanager
def server_of(*names: str, best: int = 0) -> Iterator[str]:
    """A server of models with these names; the first is as good as the model at place `best` of the small world."""
    world = small_world()
    served = World("served", world.p[best : best + len(names)], latency=FAST, models=names, questions=world.questions)
    with serving(SimulatedServer(served)) as url:
        yield url


@pytest.fixture(scope="module")
def ada() -> Iterator[str]:
    with server_of("org/ada-7b") as url:
        yield url


@pytest.fixture(scope="module")
def bob() -> Iterator[str]:
    with server_of("org/bob-7b", best=1) as url:
        yield url


def run(*options: str, code: Codes = None) -> Result:
    return typed("run", "questions.jsonl", *SHORT, *options, code=code)


def models_of(directory: Path) -> list[tuple[str, str]]:
    """Names of a run's models, and their names on servers."""
    models = stored_header(directory).configuration["models"]
    assert isinstance(models, list)
    return [(model["name"], model["model"]) for model in models]


def test_the_printed_configuration_makes_the_same_decisions(ada: str, bob: str) -> None:
    options = ("--model", ada, "--model", f"big={bob}", "--max-trials", "6", "--budget", "90trials")
    assert (ended := run(*options)).exit_code in ENDED, ended.output
    assert "grader: numeric, since every answer is a number" in ended.stderr
    assert f"model: ada-7b is org/ada-7b at {ada}\nmodel: big is org/bob-7b at {bob}" in ended.stderr
    assert models_of(Path("runs/questions")) == [("ada-7b", "org/ada-7b"), ("big", "org/bob-7b")]
    Path("mine.yaml").write_text(run(*options, "--print-config").stdout)
    typed("run", "mine.yaml", "--display", "plain", "--run-dir", "again", code=ended.exit_code)
    assert RunOutcome.of(Path("again")) == RunOutcome.of(Path("runs/questions"))
    resumed = typed("run", "mine.yaml", "--display", "plain")  # has the name of the run
    assert resumed.exit_code == ended.exit_code and not Path("runs/mine").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("short_pauses")
def test_a_resume_needs_no_server_to_know_the_models(ada: str) -> None:
    with server_of("org/bob-7b", best=1) as bob:
        models = ("--model", ada, "--model", bob, *SOON)
        assert run(*models, "--budget", "64trials").exit_code == ExitCode.SPENT
    before = trials_in(Path("runs/questions"))
    ended = run(*models, "--budget", "600trials", code=ExitCode.ENDPOINTS)
    assert "bob-7b (set aside)" in ended.stdout and bob in ended.stdout
    assert trials_in(Path("runs/questions")) >= before > 0
    command = next(line for line in ended.stdout.splitlines() if line.strip().startswith("adaptive-eval run"))
    assert shlex.split(command)[-6:] == ["--model", ada, "--model", bob, "--budget", "600trials"]
    with server_of("my/cyd-1b") as cyd:  # its name comes from the server, the others' from the run
        ended = run("--model", cyd, "--model", bob, "--model", ada, *SOON, "--budget", "600trials")
    assert set(models_of(Path("runs/questions"))) >= {("bob-7b", "org/bob-7b"), ("cyd-1b", "my/cyd-1b")}


@pytest.mark.slow
def test_an_advised_limit_holds_over_a_typed_one(ada: str, bob: str) -> None:
    ended = run("--model", ada, "--model", bob, "--budget", "64trials")
    (advised,) = re.findall(r"adaptive-eval (run .* --budget 64trials --set budget\.trials=.*)", ended.stdout)
    assert typed(*shlex.split(advised)).exit_code == ExitCode.REACHED
    assert trials_in(Path("runs/questions")) > 64


@pytest.mark.slow
def test_after_a_changed_grader_the_printed_configuration_grades_again(ada: str, bob: str) -> None:
    command = ("--model", ada, "--model", bob, "--max-trials", "2")
    assert run(*command).exit_code in ENDED
    changed = (*command, "--grader", "contains")
    refused = run(*changed, code=ExitCode.CONFIGURATION)
    assert refused.stderr.endswith(
        "adaptive-eval regrade runs/questions --config CONFIG\n"
        "As CONFIG, save what this command prints with --print-config.\n"
    )
    regrade = ["regrade", "runs/questions", "--config"]
    assert "--print-config" in typed(*regrade, "questions.jsonl", code=ExitCode.CONFIGURATION).stderr
    Path("mine.yaml").write_text(run(*changed, "--print-config").stdout)
    assert typed(*regrade, "mine.yaml", code=0).stdout.startswith("graded ")


def test_a_start_over_asks_servers_again(ada: str, bob: str) -> None:
    assert run("--model", f"x={ada}", "--model", bob, "--max-trials", "4").exit_code in ENDED
    named = run("--model", ada, "--model", bob, "--print-config")
    assert [model["name"] for model in yaml.safe_load(named.stdout)["models"]] == ["x", "bob-7b"]
    anew = run("--model", ada, "--model", bob, "--fresh", "--print-config")
    assert [model["name"] for model in yaml.safe_load(anew.stdout)["models"]] == ["ada-7b", "bob-7b"]


def test_a_server_of_several_models_is_refused_with_their_names(ada: str) -> None:
    with server_of("a/one", "b/two") as several:
        refused = run("--model", ada, "--model", several, code=ExitCode.CONFIGURATION)
        assert f"{several} serves several models: a/one, b/two" in refused.stderr
        assert f"as in --model {several}#a/one" in refused.stderr
        run("--model", f"{several}#a/one", "--model", f"{several}#b/two", "--max-trials", "4", code=ENDED)
    assert models_of(Path("runs/questions")) == [("one", "a/one"), ("two", "b/two")]


def test_a_server_that_does_not_answer_is_named_with_what_to_do(ada: str, unused_tcp_port: int) -> None:
    url = f"http://127.0.0.1:{unused_tcp_port}/v1"
    refused = run("--model", ada, "--model", url)
    assert refused.exit_code == ExitCode.ENDPOINTS and not Path("runs").exists()
    assert f"{url} does not say which model it serves (no connection" in refused.stderr
    assert f"start it, or name its model: --model NAME={url}#MODEL" in refused.stderr


@pytest.mark.parametrize("page", [Reply(404), Reply(body={"data": []}), Reply(body={"data": [{"id": ""}, 7]})])
def test_a_server_without_a_list_is_refused(ada: str, page: Reply) -> None:
    with listening(lambda asked: None, lambda path, headers: page) as server:
        refused = run("--model", ada, "--model", server.base_url, code=ExitCode.CONFIGURATION)
    assert f"{server.base_url} has no list of its models; name the model: --model {server.base_url}#" in refused.stderr


def test_the_key_of_a_variable_is_sent_and_never_shown(ada: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", KEY)

    def page(path: str, headers: Mapping[str, str]) -> Reply | None:
        if headers.get("Authorization") != f"Bearer {KEY}":
            return Reply(401, {"error": {"message": f"not {KEY}"}})
        return Reply(body={"data": [{"id": "org/ada"}]}) if path == "/v1/models" else None

    with listening(lambda asked: None, page) as server:
        refused = run("--model", ada, "--model", f"big={server.base_url}")
        assert refused.exit_code == ExitCode.ENDPOINTS and KEY not in refused.output
        assert f"--model NAME={server.base_url} --key NAME=VARIABLE" in refused.stderr
        printed = run("--model", ada, "--model", f"big={server.base_url}", "--key", "big=MY_KEY", "--print-config")
    assert printed.exit_code == 0 and KEY not in printed.output
    model = yaml.safe_load(printed.stdout)["models"][1]
    assert model == {"name": "big", "base_url": server.base_url, "model": "org/ada", "api_key_env": "MY_KEY"}


def test_hostile_names_of_models_are_shown_safely(ada: str) -> None:
    page = Reply(body={"data": [{"id": "\x1b[31m/evil\n"}, {"id": f"Bearer {KEY}"}]})
    with listening(lambda asked: None, lambda path, headers: page) as server:
        refused = run("--model", ada, "--model", server.base_url, code=ExitCode.CONFIGURATION)
    assert "\x1b" not in refused.output and KEY not in refused.output


def test_a_server_cannot_read_a_variable_by_the_name_of_its_model(ada: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACE", "somewhere")
    page = Reply(body={"data": [{"id": "${PLACE}"}]})
    with listening(lambda asked: None, lambda path, headers: page if path == "/v1/models" else None) as server:
        run("--model", ada, "--model", server.base_url, "--max-trials", "4")
    assert models_of(Path("runs/questions")) == [("ada-7b", "org/ada-7b"), ("${PLACE}", "${PLACE}")]
