"""`adaptive-eval init [FILE]`: write a commented configuration to start from."""

from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.cli.shared import report_errors, typed_command

File = Annotated[Path, typer.Argument(help="Where to write it.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite a file that exists.")]


def init(file: File = Path("adaptive-eval.yaml"), force: Force = False) -> None:
    """Write a commented configuration to start from."""
    with report_errors():
        _write(file, starter(), force)
    typer.echo(f"wrote {file}; fill in models and questions\nNext: {typed_command('validate', file)}")


def starter() -> str:
    """A first configuration with the ten keys that most runs set."""
    return files("adaptive_eval.config").joinpath("starter.yaml").read_text(encoding="utf-8")


def _write(file: Path, text: str, force: bool) -> None:
    try:
        with file.open("w" if force else "x", encoding="utf-8") as target:
            target.write(text)
    except FileExistsError:
        raise ConfigError(f"{file} already exists; give another name, or --force to overwrite it") from None
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error.strerror}") from error
