"""Errors on the way out: one message on standard error, and the exit code that says what kind it was.

Arguments that several commands take.

How far a piece of work is: a bar on a terminal, else a few lines in the log; on standard error either way.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from adaptive_eval.errors import AdaptiveEvalError, ExitCode, exit_code_of

LINES = 10
"""Lines in a log from the beginning to the end."""


class Progress:
    """Shows how much of `total` is done, until it is closed."""

    def __init__(self, total: float) -> None:
        self._total = total
        self._told = 0
        console = Console(stderr=True, highlight=False, markup=False)
        columns = (
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[state]}", markup=False),
        )
        self._bar = Bar(*columns, console=console, transient=True) if console.is_terminal else None
        self._task = self._bar.add_task("", total=total, state="") if self._bar is not None else None

    def __enter__(self) -> "Progress":
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def to(self, done: float, state: str) -> None:
        """So much is done, and this is how things stand."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=done, state=state)
        elif (lines := int(LINES * done / self._total)) > self._told:
            self._told = lines
            print(f"{done / self._total:4.0%}  {state}", file=sys.stderr, flush=True)


Config = Annotated[Path, typer.Argument(help="The configuration, a YAML file.", metavar="CONFIG", show_default=False)]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", help="Change a setting: --set trials.max=40", metavar="KEY=VALUE")
]


LONGEST_LINE = 2000


@contextmanager
def reported() -> Iterator[None]:
    """Report every error that was raised on purpose; anything else is a defect and keeps its traceback."""
    try:
        yield
    except AdaptiveEvalError as error:
        typer.echo(f"error: {_shown(error)}", err=True)
        raise typer.Exit(exit_code_of(error)) from None
    except KeyboardInterrupt:
        typer.echo("stopped", err=True)
        raise typer.Exit(ExitCode.STOPPED) from None


def _shown(error: AdaptiveEvalError) -> str:
    """The message without anything that a terminal obeys: parts of it may be a server's."""
    from adaptive_eval.show.text import safe

    return "\n".join(safe(line, LONGEST_LINE) for line in str(error).split("\n"))
