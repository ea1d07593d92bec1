"""Errors on the way out: one message on standard error, and the exit code that says what kind it was."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from adaptive_eval.errors import AdaptiveEvalError
from adaptive_eval.run.exit_codes import ExitCode, exit_code_of

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
    from adaptive_eval.display.text import safe  # loads rich, which commands that succeed may do without

    return "\n".join(safe(line, LONGEST_LINE) for line in str(error).split("\n"))
