"""Shared arguments of commands, and reporting of errors by a message and an exit code."""

import errno
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Annotated, Literal

import orjson
import typer

from adaptive_eval.base.errors import AdaptiveEvalError, Alarmed, ExitCode, StoreError, error_exit_code, stop_in_words

if TYPE_CHECKING:
    from adaptive_eval.show.text import Block

Run = Annotated[Path, typer.Argument(help="The directory of a run.", metavar="RUN")]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", help="Change a setting, as in trials.max=40.", metavar="KEY=VALUE")
]

UNREACHABLE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.EIO, errno.ESTALE)
"""Errors of the system for a path, even where it is only looked for."""
MAX_LINE = 2000
"""Characters of a line of a message."""
TERMINAL = (Path("-"), Path("/dev/stdout"))
"""Values of --output for the terminal."""
ANOTHER_OUTPUT = "Fix that, or give another --output"
"""Ends the error of an --output that cannot be written."""


def typed_command(command: str, config: Path, overrides: Sequence[str] | None = None, *options: str) -> str:
    """The command line to type for this configuration and settings."""
    set_options = [word for override in overrides or () for word in ("--set", override)]
    return shlex.join(["adaptive-eval", command, str(config), *set_options, *options])


@contextmanager
def report_errors() -> Iterator[None]:
    """Report errors of this package, and paths that this user cannot reach; any other exception is a defect and keeps
    its traceback."""
    try:
        yield
    except AdaptiveEvalError as error:
        typer.echo(_safe_message(error), err=True)
        raise typer.Exit(error_exit_code(error)) from None
    except OSError as error:
        if error.filename is None or error.errno not in UNREACHABLE:
            raise
        typer.echo(_safe_message(StoreError(f"{error.filename} cannot be reached: {error.strerror}")), err=True)
        raise typer.Exit(ExitCode.FAILED) from None
    except KeyboardInterrupt:
        typer.echo("stopped", err=True)
        raise typer.Exit(ExitCode.STOPPED) from None


def write_text(path: Path, text: str) -> bool:
    """Write to the terminal, or to the file or device of --output; the path of a file is printed. Returns whether it is
    one."""
    from adaptive_eval.base.files import write_output

    if path in TERMINAL:
        typer.echo(text, nl=False)
        return False
    if is_file := write_output(path, text.encode("utf-8", "replace"), ANOTHER_OUTPUT):
        typer.echo(str(path))
    return is_file


TextKind = Annotated[
    Literal["text", "md", "json"] | None,
    typer.Option("--format", help="What to write; default: text in the terminal, Markdown in a file."),
]
TextFile = Annotated[Path | None, typer.Option("--output", "-o", help="The file; default: the terminal.")]


def write_document(title: str, blocks: "Iterable[Block]", plain: object, kind: TextKind, output: TextFile) -> None:
    """Write a document as Markdown, as text, or as JSON of its `plain` values."""
    from adaptive_eval.show.text import as_markdown, as_text

    match kind or ("text" if output is None or output in TERMINAL else "md"):
        case "json":
            text = orjson.dumps(plain, option=orjson.OPT_APPEND_NEWLINE).decode()
        case "md":
            text = as_markdown(title, blocks)
        case _:
            text = f"{as_text([title, *blocks])}\n"
    if output is None:
        typer.echo(text, nl=False)
    else:
        write_text(output, text)


def _safe_message(error: AdaptiveEvalError) -> str:
    """The message without control characters and keys, which servers may have sent; wrapped on a terminal."""
    from adaptive_eval.endpoints.secrets import remove_patterns
    from adaptive_eval.report.lines import safe_line
    from adaptive_eval.show.text import wrap_lines

    stopped = stop_in_words(str(error), ExitCode.SPENT) if isinstance(error, Alarmed) else f"error: {error}"
    redacted = remove_patterns(stopped)
    message = "\n".join(safe_line(line, MAX_LINE) for line in redacted.split("\n"))
    return wrap_lines(message, get_terminal_size().columns) if sys.stderr.isatty() else message
