"""`adaptive-eval init [FILE]`: write a commented configuration to start from, perhaps for a named benchmark."""

from pathlib import Path
from typing import Annotated

import typer

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.cli.shared import report_errors, typed_command
from adaptive_eval.config.starter import short_starter, starter
from adaptive_eval.questions.benchmark import NamedBenchmark

File = Annotated[Path, typer.Argument(help="Where to write it.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite a file that exists.")]
Full = Annotated[bool, typer.Option("--full", help="Write every setting, most of them in comments.")]
Benchmark = Annotated[str | None, typer.Option(help="One that `adaptive-eval benchmarks` lists.", metavar="NAME")]


def init(
    file: File = Path("adaptive-eval.yaml"), benchmark: Benchmark = None, full: Full = False, force: Force = False
) -> None:
    """Write a commented configuration to start from."""
    with report_errors():
        short = benchmark is None and not full
        _write(file, short_starter() if short else starter(_find_named(benchmark)), force)
    missing = "models and questions" if benchmark is None else "models"
    typer.echo(f"wrote {file}; fill in {missing}\nNext: {typed_command('validate', file)}")


def _find_named(name: str | None) -> NamedBenchmark | None:
    if name is None:
        return None
    from adaptive_eval.config.named_benchmarks import find_benchmark, named_benchmarks

    benchmark = find_benchmark(name, named_benchmarks(Path.cwd()))
    if name.endswith(".yaml"):
        raise ConfigError(f"{name} is already a configuration; run it: adaptive-eval run {name}")
    return benchmark


def _write(file: Path, text: str, force: bool) -> None:
    try:
        with file.open("w" if force else "x", encoding="utf-8") as target:
            target.write(text)
    except FileExistsError:
        raise ConfigError(f"{file} already exists; give another name, or --force to overwrite it") from None
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error.strerror}") from error
