"""What several commands share: their arguments, and errors as one message and an exit code."""

import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from shutil import get_terminal_size
from typing import Annotated

import typer

from adaptive_eval.errors import AdaptiveEvalError, ExitCode, exit_code_of

Config = Annotated[Path, typer.Argument(help="The configuration, a YAML file.", metavar="CONFIG")]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", help="Change a setting: --set trials.max=40", metavar="KEY=VALUE")
]


LONGEST_LINE = 2000


def typed_command(command: str, config: Path, overrides: Sequence[str] | None = None, *options: str) -> str:
    """The words to type for a command on this configuration with these settings."""
    given = [word for override in overrides or () for word in ("--set", override)]
    return shlex.join(["adaptive-eval", command, str(config), *given, *options])


@contextmanager
def reported(*runs: Path) -> Iterator[None]:
    """Report every error that was raised on purpose; anything else is a defect and keeps its traceback.

    Of the `runs` that are read it is said first what of them is damaged, and neither read nor missed.
    """
    try:
        for run in runs:
            tell_what_is_passed_over(run)
        yield
    except AdaptiveEvalError as error:
        typer.echo(_shown(error), err=True)
        raise typer.Exit(exit_code_of(error)) from None
    except KeyboardInterrupt:
        typer.echo("stopped", err=True)
        raise typer.Exit(ExitCode.STOPPED) from None


def write_text(path: Path, text: str) -> None:
    """Write a file that --output names, and say where it is."""
    from adaptive_eval.files import write_whole

    write_whole(path, text.encode("utf-8", "replace"), "Mend that, or give another --output")
    typer.echo(str(path))


def tell_what_is_passed_over(run: Path) -> None:
    """Say what of a run is damaged, and neither read nor missed by what the command does."""
    from adaptive_eval.record.lines import safe_line
    from adaptive_eval.record.verified import passed_over

    for note in passed_over(run):
        typer.echo(f"note: {safe_line(note)}", err=True)


def _shown(error: AdaptiveEvalError) -> str:
    """The message without anything that a terminal obeys, since parts of it may be a server's; whole words on one."""
    from adaptive_eval.record.lines import safe_line
    from adaptive_eval.show.text import wrapped

    told = "\n".join(safe_line(line, LONGEST_LINE) for line in f"error: {error}".split("\n"))
    return wrapped(told, get_terminal_size().columns) if sys.stderr.isatty() else told
