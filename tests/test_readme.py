"""What the README says is so: its code runs, its configuration is valid, its commands and links exist."""

import re
from importlib import import_module
from keyword import iskeyword
from pathlib import Path

import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner

from adaptive_eval.cli import COMMANDS, app
from adaptive_eval.errors import ExitCode

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


@pytest.mark.parametrize("block", blocks("python"))
def test_the_python_runs(block: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Three models whose answers are right in three of four trials, as far as the README's loop is concerned."""
    exec(compile(block, "README.md", "exec"), {"my_grade": lambda ask: int(hash((ask.question, ask.trial)) % 4 > 0)})
    capsys.readouterr()


def test_the_printed_number_is_right() -> None:
    import scorio

    mu, sigma = scorio.eval.bayes([[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]])
    assert f"({mu:.6f}, {sigma:.6f})" in README


def test_the_configuration_is_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (text,) = blocks("yaml")
    (tmp_path / "aime.jsonl").write_text('{"id": "1", "prompt": "1 + 1?", "answer": "2"}\n')
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["validate", str(path)])
    assert result.exit_code == 0, result.output


def test_every_command_is_told_with_the_options_it_needs() -> None:
    told = {name: line for line, name in re.findall(r"`(adaptive-eval ([a-z]+)[^`]*)`", README)} | {"schema": ""}
    assert told.keys() == COMMANDS.keys()
    for name, line in told.items():
        assert needed_options(name) <= set(line.split()), name


def needed_options(name: str) -> set[str]:
    own = f"{name}_" if iskeyword(name) else name
    alone = typer.Typer()
    alone.command(name)(getattr(import_module(f"adaptive_eval.cli.{own}"), own))
    return {one.opts[0] for one in get_command(alone).params if one.required and one.opts[0].startswith("--")}


def test_import_and_export_need_options() -> None:
    assert (needed_options("import"), needed_options("export")) == ({"--to"}, {"--format"})


def test_every_exit_code_is_told() -> None:
    told = {int(code) for code in re.findall(r"^\| (\d) +\|", README, flags=re.MULTILINE)}
    assert told == {int(code) for code in ExitCode}


def test_every_link_leads_somewhere() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", README)
    missing = [link for link in links if not link.startswith("http") and not (ROOT / link).exists()]
    assert not missing
