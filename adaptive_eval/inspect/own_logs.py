"""Removes secrets from all that the process of Inspect writes: its logs, its traces, and what it prints.

Inspect has no setting for it. Its logs are zip archives whose members are JSON, its traces and messages are records of
Python's logging, and everything else is printed. So secrets are removed at these three interfaces of the standard
library, for the life of the process. Samples are run and scored with what models really said.
"""

import atexit
import io
import logging
import sys
import zipfile
from typing import Any, BinaryIO, TextIO

from adaptive_eval.endpoints.redaction import Redactor

STANDARD = frozenset(vars(logging.makeLogRecord({})))
"""Fields of every record; others are given by who logs it."""
LONGEST_PRINT = 64 * 1024
"""Characters without a line break that are kept back for the rest of their line."""


def redact_own_logs(redactor: Redactor) -> None:
    """Remove secrets from whatever this process writes from now on, except for results that it sends to the run."""
    write = zipfile.ZipFile.writestr

    def write_redacted(self: zipfile.ZipFile, name: Any, data: str | bytes, *args: Any, **options: Any) -> None:
        write(self, name, _redact_data(data, redactor), *args, **options)

    zipfile.ZipFile.writestr = write_redacted  # type: ignore[assignment, method-assign]
    sys.stdout = sys.stderr = printed = RedactedStream(sys.stderr, redactor)
    atexit.register(printed.print_rest)


def redact_loggers(redactor: Redactor) -> None:
    """Remove secrets from the records of all log handlers that there are now; a second call adds nothing."""
    loggers = [logging.getLogger(), *map(logging.getLogger, list(logging.root.manager.loggerDict))]
    for handler in {handler for logger in loggers for handler in logger.handlers}:
        if not any(isinstance(one, RecordFilter) for one in handler.filters):
            handler.addFilter(RecordFilter(redactor))


class RecordFilter(logging.Filter):
    """Lets every record through, without secrets."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redactor = redactor

    def filter(self, record: logging.LogRecord) -> bool:
        try:
            record.msg, record.args = self._redactor.message(record.getMessage()), ()
        except (KeyError, TypeError, ValueError):  # arguments that do not fit, of which the handler tells
            return True
        if record.exc_info and record.exc_text is None:
            record.exc_text = logging.Formatter().formatException(record.exc_info)
        if record.exc_text is not None:
            record.exc_text = self._redactor.message(record.exc_text)
        for name, value in vars(record).items():
            if name not in STANDARD and isinstance(value, str):
                setattr(record, name, self._redactor.message(value))
        return True


class RedactedStream(io.TextIOBase):
    """A text stream that removes secrets from each line before it is printed."""

    def __init__(self, stream: TextIO, redactor: Redactor) -> None:
        self._stream, self._redactor = stream, redactor
        self._line = ""

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """That of the stream."""
        return self._stream.encoding

    @property
    def buffer(self) -> BinaryIO:
        """Where bytes are printed as they are."""
        return self._stream.buffer

    def fileno(self) -> int:
        return self._stream.fileno()

    def isatty(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        whole, last, self._line = (self._line + text).rpartition("\n")
        if last:
            self._print(whole + last)
        if len(self._line) > LONGEST_PRINT:
            self.print_rest()
        return len(text)

    def flush(self) -> None:
        """Print what was written as far as its lines have ended; what has no end yet may be half a secret."""
        self._stream.flush()

    def print_rest(self) -> None:
        """Print a last line that has no end."""
        line, self._line = self._line, ""
        self._print(line)
        self._stream.flush()

    def _print(self, text: str) -> None:
        self._stream.write(self._redactor.message(text))


def _redact_data(data: str | bytes, redactor: Redactor) -> str | bytes:
    """JSON without secrets; other data stay as they are."""
    if isinstance(data, str):
        return redactor.data(data)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return data
    found = redactor.data(text)
    return data if found == text else found.encode()
