"""The command line as a whole: what is said and loaded, and stops while it begins."""

import inspect
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from importlib import import_module
from keyword import iskeyword
from pathlib import Path

import pytest
import typer
from command_line import typed
from patient_time import HANGS

from adaptive_eval.base.errors import ExitCode, Rejected
from adaptive_eval.cli import COMMANDS, EXAMPLES, EXIT_CODES, load_command
from adaptive_eval.cli.progress import Progress
from adaptive_eval.cli.shared import report_errors

ROOT = Path(__file__).parents[2]


def test_an_error_holds_nothing_that_a_terminal_obeys(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit), report_errors():
        raise Rejected("it serves \x1b]0;owned\x07\x1b[2J\u202eevil\r\n  its last line")
    message = capsys.readouterr().err
    assert message.startswith("error: it serves ") and message.endswith("\n  its last line\n")
    assert not {"\x1b", "\x07", "\r", "\u202e"} & set(message)


@pytest.mark.parametrize(
    "line",
    ["validate {}", "run {}.jsonl --model http://a/v1", "plan {}", "monitor {}", "report {}", "verify {}", "replay {}"]
    + ["simulate {}", "import {} --to out", "label {} --show", "compare {} {}", "replay coins --output {}"],
)
def test_a_path_that_cannot_be_reached_is_no_defect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    """As in a folder of another user's, which this one may not enter."""
    monkeypatch.chdir(tmp_path)
    name = "a" * 300
    result = typed(*line.format(name, name).split())
    assert result.exit_code != ExitCode.REACHED
    assert f"{name}" in result.stderr and "File name too long" in result.stderr


def test_errors_break_between_words(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    words, command = ["severalwords"] * 20, f"  adaptive-eval run {'long/' * 20}mine.yaml"
    with pytest.raises(typer.Exit), report_errors():
        raise Rejected(f"{' '.join(words)}\n{command}")
    *lines, last = capsys.readouterr().err.splitlines()
    assert len(lines) > 1 and all(len(line) <= 80 for line in lines) and last == command
    assert " ".join(lines).split() == ["error:", *words]


def test_a_key_that_is_not_set_is_a_warning_of_validate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "run.yaml"
    config.write_text(
        "questions: {world: coins}\ngrader: math\nmodels:\n  - {name: coin-11, simulate: true}\n"
        "  - {name: coin-01, simulate: true, api_key_env: SOME_KEY}\n"
    )
    monkeypatch.delenv("SOME_KEY", raising=False)
    result = typed("validate", config, code=0)
    assert "is valid" in result.output
    assert "warning: coin-01: api_key_env names the environment variable SOME_KEY, which is not" in result.output
    (tmp_path / ".env").write_text("SOME_KEY=abc")
    assert "warning" not in typed("validate", config).output


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_says_of_itself_what_the_list_says_of_it(name: str) -> None:
    module = f"{name}_" if iskeyword(name) else name
    function = getattr(import_module(f"adaptive_eval.cli.{module}"), module)
    assert inspect.getdoc(function).startswith(COMMANDS[name])  # type: ignore[union-attr]
    result = typed(name, "--help", code=0)
    assert re.search(rf"Usage: .*{name} \[OPTIONS\]", result.output)
    for example in EXAMPLES[name]:
        assert f"adaptive-eval {example}" in result.output


@pytest.mark.parametrize(("name", "example"), [(name, example) for name in COMMANDS for example in EXAMPLES[name]])
def test_the_examples_of_a_command_have_options_that_it_takes(name: str, example: str) -> None:
    first, *words = shlex.split(example.partition(" > ")[0])
    assert first == name
    command = load_command(name)
    with command.make_context(name, [], resilient_parsing=True) as context:
        _, unknown, _ = command.make_parser(context).parse_args(args=words)
    assert not [word for word in unknown if word.startswith("-")]


def test_the_guide_and_the_help_have_the_same_table_of_exit_codes() -> None:
    table = (ROOT / "docs" / "guide" / "commands.md").read_text().partition("| exit code | ")[2]
    rows = re.findall(r"^\| (\d) +\| (.*?) +\|$", table, re.MULTILINE)
    assert {int(code): meaning.replace("`", "") for code, meaning in rows} == EXIT_CODES
    assert set(EXIT_CODES) == set(ExitCode)
    shown = " ".join(typed("--help").output.split())
    assert all(f"{code.value} {meaning}" in shown for code, meaning in EXIT_CODES.items())


RUNNING = {"asyncio", "tenacity", "sqlite3", "rich.live", "adaptive_eval.store"}
"""What only those need who open endpoints and runs."""
SLOW_TABLES = {"scipy.optimize", "scipy.interpolate", "scipy.stats", "scipy.ndimage", "scipy.sparse"}
"""A third of a second, for what few values are taken from."""
HEAVY = {"scipy", "openai", "aiohttp", "httpx2", "sympy", "mpmath", "pandas"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "heavy"),
    [
        ("--version", HEAVY | RUNNING),
        ("--help", HEAVY | RUNNING),
        ("init new.yaml", HEAVY),
        ("schema", HEAVY | RUNNING | {"yaml", "dotenv"}),
        ("validate given.yaml", (HEAVY - {"scipy"}) | SLOW_TABLES | {"rich.live"}),
    ],
)
def test_what_needs_no_run_does_not_load_what_runs_need(tmp_path: Path, arguments: str, heavy: set[str]) -> None:
    (tmp_path / "given.yaml").write_text(
        "questions: questions.csv\ngrader: exact\nsampling: {max_tokens: 9}\n"
        "models: [{name: a, base_url: 'http://a/v1'}, {name: b, base_url: 'http://b/v1'}]\n"
    )
    (tmp_path / "questions.csv").write_text("prompt,answer\none,1\n")
    assert not heavy & loaded_by(["-m", "adaptive_eval", *arguments.split()], tmp_path)


def loaded_by(words: list[str], folder: Path) -> set[str]:
    """Every module that a program imports."""
    command = [sys.executable, "-X", "importtime", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "adaptive_eval.cli" in loaded
    return loaded


@pytest.mark.parametrize("command", [(), ("run",)])
def test_help_fits_on_a_screen(command: tuple[str, ...]) -> None:
    lines = typed(*command, "--help", COLUMNS="80").output.splitlines()
    assert len(lines) <= 42 and max(map(len, lines)) <= 80


WATCH = """
import sys

# some modules run code that they make of a text, and Python treats Ctrl-C there in its own way
TEXT = "import os; os.kill(os.getpid(), {number}); any(_ for _ in range(9))"

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            sys.meta_path.remove(self)
            exec(TEXT)

sys.meta_path.insert(0, Watch())
"""
"""A signal that comes when a module is about to be imported."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "module"),
    [
        (signal.SIGINT, "typer"),
        (signal.SIGINT, "scipy"),
        (signal.SIGTERM, "adaptive_eval.running.start"),
        pytest.param(signal.SIGHUP, "typer", marks=pytest.mark.release),
        pytest.param(signal.SIGTERM, "adaptive_eval.cli.run", marks=pytest.mark.release),
        pytest.param(signal.SIGINT, "adaptive_eval.show.displays", marks=pytest.mark.release),
    ],
)
def test_a_signal_while_a_command_begins_stops_it_as_any_other(tmp_path: Path, number: int, module: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(WATCH.format(number=int(number), module=module))
    assert ended_at_once(tmp_path) == (ExitCode.STOPPED, "", "stopped\n")


def ended_at_once(folder: Path, *words: str) -> tuple[int, str, str]:
    """How a command ends in a folder whose `sitecustomize.py` Python runs first, and what it prints."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
    command = [sys.executable, "-m", "adaptive_eval", *(words or ("run", "missing.yaml"))]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=HANGS, check=False
    )
    return done.returncode, done.stdout, done.stderr


AGAIN = """
import builtins

printed = builtins.print

def print_late(*words, **options):
    import os
    os.kill(os.getpid(), 2)
    printed(*words, **options)

builtins.print = print_late
"""
"""A second Ctrl-C, before the message about the first."""


@pytest.mark.slow
def test_a_second_ctrl_c_while_a_command_begins_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(WATCH.format(number=int(signal.SIGINT), module="typer") + AGAIN)
    assert ended_at_once(tmp_path) == (ExitCode.STOPPED, "", "stopped\n")


FAULT = """
import sys

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "adaptive_eval.cli.schema":
            raise OSError(111, "some server is away")

sys.meta_path.insert(0, Watch())
"""


@pytest.mark.slow
def test_another_error_of_the_system_adds_nothing_to_the_output(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(FAULT)
    code, output, message = ended_at_once(tmp_path, "schema")
    assert (code, output) == (1, "") and "Traceback" in message and "some server is away" in message


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is always full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("arguments", [["--help"], ["schema"]])
def test_an_output_that_is_full_is_an_error_in_one_line(arguments: list[str], unbuffered: str) -> None:
    command, environment = [sys.executable, "-m", "adaptive_eval", *arguments], {**os.environ}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command,
            env={**environment, "PYTHONUNBUFFERED": unbuffered},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=HANGS,
            check=False,
        )
    expected = "error: standard output cannot be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (ExitCode.FAILED, expected)


def test_a_bar_is_drawn_without_a_thread(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    before = threading.active_count()
    with Progress(10.0) as progress:
        assert threading.active_count() == before
        progress.to(4.0, "first figures")
        shown = capsys.readouterr().err
        assert "40%" in shown and "first figures" in shown


def test_a_log_has_a_line_for_each_tenth(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(10.0) as progress:
        for done, state in ((0.1, "begun"), (5.0, "half"), (5.1, "more")):
            progress.to(done, state)
    assert capsys.readouterr().err.splitlines() == [" 50%  half"]
