"""`adaptive-eval run questions.jsonl --model URL ...`: the configuration that options stand for, without any server."""

import json
import shlex
from pathlib import Path

import pytest
import yaml
from command_line import typed
from typer.testing import Result

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.config.document import read_document
from adaptive_eval.config.load import load_config
from adaptive_eval.config.settings_text import settings_text

SMALL, LARGE = "http://localhost:8000/v1#org/small-7b", "large=http://localhost:8001/v1#org/large-70b"
NUMBERS = [{"id": "a", "prompt": "1 + 1?", "answer": 2}, {"id": "b", "prompt": "1 / 2?", "answer": "1/2"}]
LETTERS = [{"id": n, "prompt": f"Which {n}?", "answer": "B", "choices": ["red", "blue"]} for n in "ab"]
WORDS = [{"id": "a", "prompt": "1 + 1?", "answer": "2"}, {"id": "b", "prompt": "Of France?", "answer": "Paris"}]
MODELS = ("--model", SMALL, "--model", LARGE)
KEY = "sk-proj-abcdefghijkl1234567890"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_rows(NUMBERS)
    return tmp_path


def write_rows(rows: list[dict[str, object]]) -> None:
    Path("questions.jsonl").write_text("\n".join(map(json.dumps, rows)))


def run(*options: str, file: str = "questions.jsonl") -> Result:
    return typed("run", file, *options)


def printed(*options: str) -> dict[str, object]:
    """The configuration that options stand for, as printed."""
    result = run(*MODELS, *options, "--print-config")
    assert result.exit_code == 0, result.stderr
    tree = yaml.safe_load(result.stdout)
    assert isinstance(tree, dict)
    return tree


def refused(*options: str, file: str = "questions.jsonl") -> str:
    result = run(*options, file=file)
    assert result.exit_code == ExitCode.CONFIGURATION, result.output
    assert not Path("runs").exists()
    return result.stderr


def test_options_become_sections_of_a_valid_configuration_without_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LARGE_KEY", KEY)
    options = [
        "--key",
        "large=LARGE_KEY",
        "--price",
        "large=1/4",
        "--price",
        "small-7b=0/0",
        "--objective",
        "best",
        "--grader",
        "math",
    ]
    options += ["--max-trials", "40", "--budget", "20usd", "--set", "stopping.delta=2%"]
    options += ["--set", "models.1.headers.X-Token=Token ${LARGE_KEY}"]
    tree = printed(*options)
    small, large = tree.pop("models")  # type: ignore[misc]
    address = {"name": "small-7b", "base_url": "http://localhost:8000/v1", "model": "org/small-7b"}
    assert small == address | {"price": {"input": 0.0, "output": 0.0}}
    address = {"name": "large", "base_url": "http://localhost:8001/v1", "model": "org/large-70b"}
    assert large.pop("headers") == {"X-Token": "Token ${LARGE_KEY}"}
    assert large == address | {"api_key_env": "LARGE_KEY", "price": {"input": 1.0, "output": 4.0}}
    decided = {"objective": {"kind": "best"}, "trials": {"max": 40}, "stopping": {"delta": "2%"}}
    graded = {"questions": {"path": "questions.jsonl"}, "grader": {"kind": "math"}}
    assert tree == {"name": "questions", "budget": {"usd": 20.0}, **graded, **decided}
    result = run(*MODELS, *options, "--print-config")
    assert KEY not in result.output
    Path("mine.yaml").write_text(result.stdout)
    token = load_config(Path("mine.yaml")).models[1].headers["X-Token"]
    assert token.get_secret_value() == f"Token {KEY}"


def test_settings_as_text_are_read_as_they_were() -> None:
    texts = ["no", "12:30", "1e-3", "1_000", "null", "$${X}", "a: b # c", "two\nlines", "café 🎲", " "]
    settings = {"texts": texts, "values": [1, 2.5, 1e-9, True, None, {}]}
    tree = read_document(settings_text(settings, ()), {}).tree
    assert tree == {**settings, "texts": [text.replace("$$", "$") for text in texts]}


@pytest.mark.parametrize(
    ("rows", "grader", "why"),
    [(NUMBERS, "numeric", "every answer is a number"), (LETTERS, "choice", "every answer is the letter of a choice")],
)
def test_the_grader_follows_from_answers_of_a_plain_form(rows: list[dict[str, object]], grader: str, why: str) -> None:
    write_rows(rows)
    result = run(*MODELS, "--print-config")
    assert yaml.safe_load(result.stdout)["grader"] == {"kind": grader}
    assert f"grader: {grader}, since {why} (another one: --grader)" in result.stderr


def test_the_prompt_has_the_choices_unless_the_question_names_them() -> None:
    write_rows(LETTERS)
    assert printed()["prompt"] == {"template": "{prompt}\n\n{choices}"}
    assert printed("--set", "prompt=Choose! {prompt}")["prompt"] == "Choose! {prompt}"
    write_rows([row | {"prompt": "(A) red or (B) blue?"} for row in LETTERS[:1]])
    assert "prompt" not in printed()


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        (WORDS, "the answer 'Paris' of question b is not a number, and the question has no choices"),
        ([row | {"answer": "1"} for row in LETTERS], "some answers are numbers, and some questions have choices"),
        ([*LETTERS, NUMBERS[0] | {"id": "c"}], "some answers are numbers, and some questions have choices"),
        ([row | {"answer": "C"} for row in LETTERS], "the answer 'C' of question a is neither"),
    ],
)
def test_a_grader_that_does_not_follow_is_refused(rows: list[dict[str, object]], why: str) -> None:
    write_rows(rows)
    message = refused(*MODELS)
    assert why in message and "add --grader with one of exact, choice, numeric, contains, math, json" in message
    assert printed("--grader", "exact")["grader"] == {"kind": "exact"}
    assert printed("--set", "grader=contains")["grader"] == "contains"


def test_names_on_the_command_line_are_no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACE", "somewhere")
    result = run("--model", "a=http://localhost:8000/v1#${PLACE}", "--model", LARGE, "--print-config")
    Path("mine.yaml").write_text(result.stdout)
    assert load_config(Path("mine.yaml")).models[0].model == "${PLACE}"


def test_equal_names_are_told_apart_by_their_servers() -> None:
    places = ("8000/v1#org/small", "8001/v1#org/small", "8001/v1#my/small")
    urls = (*(f"http://localhost:{place}" for place in places), "x=http://localhost:8002/v1#org/small")
    tree = printed(*(word for url in urls for word in ("--model", url)))
    names = [model["name"] for model in tree["models"]]  # type: ignore[attr-defined]
    assert names == ["small-7b", "large", "small@localhost:8000", "small@localhost:8001", "my/small", "x"]


@pytest.mark.parametrize("given", [f"large={KEY}", KEY, "large=abcdefgh1234ijklmnop5678", "large=", "=LARGE_KEY"])
def test_a_key_in_place_of_its_variable_is_refused_and_not_shown(given: str) -> None:
    message = refused(*MODELS, "--key", given)
    assert "--key must be a model's name and the environment variable with its key" in message
    assert given.rpartition("=")[2] == "" or given.rpartition("=")[2] not in message or given == "=LARGE_KEY"


def test_missing_file_is_reported_before_a_server_is_asked() -> None:
    message = refused("--model", SMALL.partition("#")[0], "--model", LARGE, file="nope.jsonl")
    assert "nope.jsonl does not exist" in message and "localhost" not in message
    assert "questions.path" not in message and "configuration" not in message


def test_a_variable_that_is_not_set_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LARGE_KEY", raising=False)
    options = (*MODELS, "--key", "large=LARGE_KEY")
    message = refused(*options)
    assert "the variable LARGE_KEY is not set" in message and "must be a model's name" not in message
    Path(".env").write_text("LARGE_KEY=abc")
    assert run(*options, "--print-config").exit_code == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "questions.jsonl is a file of questions; name the servers of the models to rank: --model http"),
        (["--model", "openai/gpt-x"], "--model must be the address of a server, as in http://localhost:8000/v1, or "),
        (["--model", "org/a=http://localhost:8000/v1"], "--model: the name 'org/a' must not contain '/'"),
        (["--model", "http://me:my-password@localhost/v1"], "without user, password and query"),
        (["--model", "http://localhost/v1?token=my-password"], "without user, password and query"),
        (["--model", SMALL], "models must be two or more for the objective ranking, but got 1"),
        (["--model", SMALL, "--model", SMALL], "must have different names, but small-7b@localhost:8000 is there twice"),
        ([*MODELS, "--price", "big=1/2"], "--price: no model has the name 'big'; the names"),
        ([*MODELS, "--key", "big=PATH"], "the names are small-7b, large"),
        ([*MODELS, "--grader", "maths"], "grader must be one of exact"),
        ([*MODELS, "-T", "a=1"], "--task-arg is for tasks of Inspect"),
        (["--model", SMALL, "--model", "gpt=https://api.openai.com/v1#x", "--budget", "5usd"], "--price NAME=IN/OUT"),
        ([*MODELS, "--set", "questions.path=no.jsonl"], "no.jsonl does not exist"),
    ],
)
def test_a_wrong_option_is_refused(options: list[str], message: str) -> None:
    shown = refused(*options)
    assert message in shown and "my-password" not in shown


@pytest.mark.parametrize(
    ("command", "last"),
    [(["validate"], " --dry-run"), pytest.param(["plan", "--simulations", "10"], "", marks=pytest.mark.slow)],
)
def test_other_commands_take_the_options_of_run(command: list[str], last: str) -> None:
    """And say the same as about the configuration that the options stand for."""
    options = [*MODELS, "--objective", "best", "--max-trials", "40", "--budget", "90trials"]
    Path("mine.yaml").write_text(run(*options, "--print-config").stdout)
    shown = [typed(*command, *words) for words in (["questions.jsonl", *options], ["mine.yaml"])]
    assert [result.exit_code for result in shown] == [0, 0], shown[0].output
    (*said, next_step), (*said_of_file, _) = (
        result.stdout.replace("mine.yaml", "questions.jsonl").splitlines() for result in shown
    )
    assert said == said_of_file and any("objective best" in line and "40 trials per question" in line for line in said)
    assert next_step == f"Next: {shlex.join(['adaptive-eval', 'run', 'questions.jsonl', *options])}{last}"
    assert "name the servers of the models" in typed(*command, "questions.jsonl", code=ExitCode.CONFIGURATION).stderr


def test_options_have_no_place_beside_a_configuration() -> None:
    Path("mine.yaml").write_text("questions: questions.jsonl")
    assert "--grader is for files of questions and tasks of Inspect" in refused("--grader", "math", file="mine.yaml")
    Path("mine.yaml").write_text(run(*MODELS, "--print-config").stdout)
    assert "mine.yaml is the configuration; --print-config is for" in refused("--print-config", file="mine.yaml")
    message = refused(*MODELS, file="questions.txt")
    assert "questions.txt would be a task of Inspect, which has no address as --model; a file of questions" in message
    message = refused("--command", "a=x", file="inspect_evals/gpqa_diamond")
    assert "--command is for files of questions, and inspect_evals/gpqa_diamond is a task of Inspect" in message
    message = refused("--model", "openai/gpt-x", "--key", "a=PATH", file="evals/task")
    assert "--key is for files of questions: evals/task is a task of Inspect" in message


TASKS = [{"id": "a", "prompt": "Mend it"}, {"id": "b", "prompt": "Build it"}]
COMMANDS = ("--command", "base=./agent --skill none", "--command", "new=./agent --skill=v2")


def printed_for_commands(*options: str) -> tuple[dict[str, object], str]:
    result = run(*COMMANDS, *options, "--print-config")
    assert result.exit_code == 0, result.stderr
    return yaml.safe_load(result.stdout), result.stderr


def test_commands_become_models_with_the_variables_of_their_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    write_rows(TASKS)
    tree, notes = printed_for_commands("--max-trials", "10", "--budget", "50usd", "--key", "new=MY_KEY")
    assert tree["models"] == [
        {"name": "base", "command": "./agent --skill none"},
        {"name": "new", "command": "./agent --skill=v2", "env": ["MY_KEY"]},
    ]
    assert tree["grader"] == {"kind": "reported"} and tree["budget"] == {"usd": 50.0}
    assert "grader: reported, since some questions have no answer: the last line of each command has its score" in notes


@pytest.mark.parametrize(
    ("rows", "kind", "note"),
    [
        (NUMBERS, "numeric", "every answer is a number; it grades what each command answers (its score: --grader repo"),
        (LETTERS, "choice", "every answer is the letter of a choice; it grades what each command answers"),
        (WORDS, "reported", "not all answers are numbers or letters: the last line of each command has its score"),
    ],
)
def test_the_grader_of_commands_follows_from_the_answers(rows: list[dict[str, object]], kind: str, note: str) -> None:
    write_rows(rows)
    tree, notes = printed_for_commands()
    assert tree["grader"] == {"kind": kind} and f"grader: {kind}, since {note}" in notes
    assert printed_for_commands("--grader", "exact")[0]["grader"] == {"kind": "exact"}


def test_commands_and_servers_may_be_compared() -> None:
    tree = yaml.safe_load(run("--model", SMALL, "--command", "agent=./agent", "--print-config").stdout)
    assert [model["name"] for model in tree["models"]] == ["small-7b", "agent"]
    assert tree["grader"] == {"kind": "numeric"}
    write_rows(WORDS)
    assert "add --grader with one of" in refused("--model", SMALL, "--command", "agent=./agent")
    message = refused("--model", SMALL, "--command", "agent=./agent", "--grader", "reported")
    assert "reported takes the scores that commands report, and small-7b is no command" in message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--command", "./agent"), "--command must be a name and a command, as in new='./agent --skill v2', but got"),
        (("--command", "a="), "--command must be a name and a command"),
        (("--command", "a=./agent | tee log"), "has |, which needs a shell, but got"),
        (("--command", "a=./agent 'x"), "cannot be split into words"),
        (("--command", "a=x", "--command", "a=y"), "must have different names"),
        (("--command", "a=x", "--command", "b=y", "--price", "a=1/2"), "--price: a is a command; let it print the usd"),
        (("--command", "a=./agent --api-key sk-proj-abcdefghijkl1234567890", "--command", "b=y"), "has a secret"),
    ],
)
def test_commands_that_cannot_be_meant_are_refused(options: tuple[str, ...], message: str) -> None:
    assert message in refused(*options).replace("\n", " ")
