"""Keys of a model whose answers come from a command: any program that is given a question and prints an answer."""

import os
import re
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path

from pydantic import Field, ValidationInfo, field_validator

from adaptive_eval.base.imports import DIGITS
from adaptive_eval.base.sections import Seconds, Section, config_error
from adaptive_eval.endpoints.secrets import looks_secret
from adaptive_eval.launch.command import missing_program
from adaptive_eval.launch.types import split_command

MONTH_SECONDS = 31 * 86_400
MAX_SOURCE_BYTES = 2**26
"""Of a file that a command names; a larger one is data, and takes long to read."""
OF_SHELLS = frozenset({"|", "||", "&", "&&", ";", ">", ">>", "<", "2>", "2>&1"})
"""Words that mean something to a shell alone."""
PASSED_ON = frozenset(
    {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR"}
)
"""Variables that every command gets, with those of the locale; any other must be named."""
ANSWER_KEY = "answer"
"""The name by which a command gets the answer key."""


class CommandKeys(Section):
    """A command that answers questions, one in each process.

    It reads one question as a JSON object from standard input, and its last line may be a JSON object with score,
    answer, tokens, usd and transcript. It runs in a new folder.
    """

    command: str | tuple[str, ...] | None = None
    """A command that answers one question, without a shell: a line or a list of words. Words that begin with ./ or ../
    are paths from the folder of the configuration. It is tried five times at most. `concurrency` says how many run at
    the same time. Default: the run's, but at most 4 if the run asks servers as well, and 4 without any."""
    timeout: Seconds = Field(1200.0, gt=0, le=MONTH_SECONDS)
    """Time for the command to answer one question: "20m", or seconds."""
    env: tuple[str, ...] = ()
    """Environment variables that the command gets besides PATH, HOME and the like, such as [OPENAI_API_KEY]."""
    question_fields: tuple[str, ...] | None = None
    """Fields of the question that the command gets besides id and prompt, as far as it has them. Default: choices,
    cluster, and those in `questions.fields.metadata`, unless a function or a model grades, which may read an answer key
    there. `answer` is the answer key."""

    @field_validator("command")
    @classmethod
    def _can_be_run(cls, command: str | tuple[str, ...] | None) -> str | tuple[str, ...] | None:
        if command is None:
            return None
        words = split_command(command, "`./agent --skill v2`")
        if isinstance(command, str) and (found := sorted(OF_SHELLS.intersection(words))):
            raise config_error(
                f"has {found[0]}, which needs a shell", "put the line into a script, or write sh -c 'LINE'"
            )
        return command

    @field_validator("env")
    @classmethod
    def _are_names(cls, env: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if invalid := [name for name in env if not re.fullmatch(r"[A-Za-z_]\w*", name)]:
            shown = "what was given is not shown" if looks_secret(invalid[0]) else f"got {invalid[0]!r:.60}"
            raise config_error(f"must hold names of variables, not values; {shown}", "write env: [MY_KEY]")
        return env

    @property
    def command_words(self) -> tuple[str, ...]:
        """The command's words; empty without a command."""
        return () if self.command is None else split_command(self.command)


def command_line(keys: CommandKeys, folder: Path) -> tuple[str, ...]:
    """The words of the command for any working folder; `folder` is that of the configuration."""
    program, *arguments = keys.command_words
    words = [program if os.sep not in program else _absolute(program, folder)]
    words += [_absolute(word, folder) if word.startswith(("./", "../")) else word for word in arguments]
    return tuple(words)


def command_sources(keys: CommandKeys, folder: Path) -> dict[str, str]:
    """Digests of the files that the command names beside the configuration, as far as they can be read."""
    root, words = folder.absolute(), command_line(keys, folder) if keys.command is not None else ()
    files = [Path(word) for word in words if Path(word).is_relative_to(root)]
    return {
        file.relative_to(root).as_posix(): sha256(file.read_bytes()).hexdigest()[:DIGITS]
        for file in files
        if file.is_file() and os.access(file, os.R_OK) and file.stat().st_size <= MAX_SOURCE_BYTES
    }


def _absolute(path: str, folder: Path) -> str:
    return str(Path(folder.absolute(), path))


def command_environment(keys: CommandKeys, environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of the command: what every program needs, and what is named."""
    usual = {name: value for name, value in environment.items() if name in PASSED_ON or name.startswith("LC_")}
    harmless = {name: value for name, value in usual.items() if not looks_secret(value)}
    return harmless | {name: environment[name] for name in keys.env if name in environment}


def command_problems(keys: CommandKeys, environment: Mapping[str, str], folder: Path) -> Iterator[str]:
    """Why the command cannot run here."""
    if keys.command is None:
        return
    if (problem := missing_program(keys.command_words, environment, folder)) is not None:
        yield problem
    script = next((word for word in keys.command_words[1:] if not word.startswith("-")), "")
    is_local = script and not script.startswith(("./", "../", "/")) and Path(script).suffix != ""
    if is_local and Path(folder, script).is_file():
        yield f"{script} would not be found, since a command runs in a new folder; write ./{script}"
    if unset := [name for name in keys.env if name not in environment]:
        yield f"env names the variable {unset[0]}, which is not set; set it, or remove it from env"
