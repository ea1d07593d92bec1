"""The command line: `adaptive-eval`, and `python -m adaptive_eval`.

Stopping it while modules are still being loaded gives the same message as stopping it later.
"""

import errno
import gc
import os
import signal
import sys
import warnings
from types import FrameType
from typing import NoReturn

from adaptive_eval.base.errors import ExitCode

LIKE_CTRL_C = (signal.SIGTERM, signal.SIGHUP)
WRITE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)
"""Errors of a write to a file or terminal; typer handles a closed pipe."""
TYPER_STOPPED = 130
"""Typer's exit code for a Ctrl-C that no command has handled."""


def main() -> None:
    """Entry point of the console script."""
    for number in LIKE_CTRL_C:
        if signal.getsignal(number) is signal.SIG_DFL:  # under nohup nobody asks for a stop by closing the terminal
            signal.signal(number, _interrupt)
    gc.disable()  # while modules are loaded, which stay: scanning them takes a fifth of a start
    warnings.formatwarning = _note
    try:
        from adaptive_eval.cli import main as read_command

        read_command()
    except KeyboardInterrupt:
        _stopped()
    except SystemExit as end:
        if end.code == TYPER_STOPPED:
            _stopped()
        raise
    except OSError as error:
        if error.filename is not None or error.errno not in WRITE_ERRORS or not _is_output_lost():
            raise
        print(f"error: standard output cannot be written: {error.strerror}", file=sys.stderr)
        raise SystemExit(ExitCode.FAILED) from None
    finally:
        exec("")  # Python ends by a signal, whatever the exit code, if Ctrl-C interrupted code made of a text


def _is_output_lost() -> bool:
    """Whether standard output cannot be written; if so, what is left of it goes nowhere."""
    try:
        sys.stdout.flush()
        os.write(sys.stdout.fileno(), b"\n")  # an unbuffered stream has nothing left to flush
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return True
    return False


def _note(message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None) -> str:
    """Print a warning without the line of this program that gave it."""
    return f"note: {message}\n"


def _interrupt(number: int, _: FrameType | None) -> NoReturn:
    """Handle a signal like Ctrl-C; the next one has its default effect."""
    signal.signal(number, signal.SIG_DFL)
    raise KeyboardInterrupt


def _stopped() -> NoReturn:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # another one would end Python by the signal
    print("stopped", file=sys.stderr)
    raise SystemExit(ExitCode.STOPPED) from None


if __name__ == "__main__":
    main()
