"""`adaptive-eval init [FILE]`: a commented configuration to start from."""

from pathlib import Path
from typing import Annotated

import typer

from adaptive_eval.cli.shared import reported
from adaptive_eval.config.starter import starter
from adaptive_eval.errors import ConfigError

File = Annotated[Path, typer.Argument(help="Where to write it.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite a file that exists.")]


def init(file: File = Path("adaptive-eval.yaml"), force: Force = False) -> None:
    """Write a commented configuration to start from."""
    with reported():
        _write(file, force)
    typer.echo(f"wrote {file}; fill in models and questions, then: adaptive-eval validate {file}")


def _write(file: Path, force: bool) -> None:
    text = starter()
    try:
        with file.open("w" if force else "x", encoding="utf-8") as target:
            target.write(text)
    except FileExistsError:
        raise ConfigError(f"{file} is there already; give another name, or --force to write over it") from None
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error.strerror}") from error
