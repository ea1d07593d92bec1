"""The guide's page of commands is that of the program; that its code runs is tested in test_documents.py."""

import re

from document_blocks import ROOT

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.cli import COMMANDS, load_command

COMMANDS_PAGE = (ROOT / "docs" / "guide" / "commands.md").read_text()


def test_every_command_is_told_with_the_options_it_needs() -> None:
    examples = {name: line for line, name in re.findall(r"`(adaptive-eval ([a-z]+)[^`]*)`", COMMANDS_PAGE)}
    examples |= {"schema": ""}
    assert examples.keys() == COMMANDS.keys()
    for name, line in examples.items():
        assert needed_options(name) <= set(line.split()), name


def needed_options(name: str) -> set[str]:
    needed = (parameter.opts[0] for parameter in load_command(name).params if parameter.required)
    return {option for option in needed if option.startswith("--")}


def test_import_and_export_need_options() -> None:
    assert (needed_options("import"), needed_options("export")) == ({"--to"}, {"--format"})


def test_every_exit_code_is_told() -> None:
    codes = {int(code) for code in re.findall(r"^\| (\d) +\|", COMMANDS_PAGE, flags=re.MULTILINE)}
    assert codes == {int(code) for code in ExitCode}
