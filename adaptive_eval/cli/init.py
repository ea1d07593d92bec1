"""`adaptive-eval init [FILE]`: write a commented configuration to start from."""

from pathlib import Path
from typing import Annotated

import typer

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.cli.shared import report_errors, typed_command
from adaptive_eval.config.starter import short_starter, starter

File = Annotated[Path, typer.Argument(help="Where to write it.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite a file that exists.")]
Full = Annotated[bool, typer.Option("--full", help="Write more settings, most of them in comments.")]


def init(file: File = Path("adaptive-eval.yaml"), full: Full = False, force: Force = False) -> None:
    """Write a commented configuration to start from."""
    with report_errors():
        _write(file, starter() if full else short_starter(), force)
    typer.echo(f"wrote {file}; fill in models and questions\nNext: {typed_command('validate', file)}")


def _write(file: Path, text: str, force: bool) -> None:
    try:
        with file.open("w" if force else "x", encoding="utf-8") as target:
            target.write(text)
    except FileExistsError:
        raise ConfigError(f"{file} already exists; give another name, or --force to overwrite it") from None
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error.strerror}") from error
