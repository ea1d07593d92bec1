"""Removes secrets from everything that the process of Inspect writes: logs, traces and printed output.

Inspect has no setting for this. Its logs are zip archives of JSON, its traces and messages are records of Python's
logging, and everything else is printed. So secrets are removed at these three interfaces of the standard library, for
the life of the process. Samples are run and scored with the unchanged answers.
"""

import atexit
import io
import logging
import sys
import zipfile
from typing import Any, BinaryIO, TextIO

from adaptive_eval.endpoints.redaction import Redactor

RECORD_FIELDS = frozenset(vars(logging.makeLogRecord({})))
"""Standard fields of a log record; callers may add others."""
MAX_UNPRINTED = 64 * 1024
"""Characters held back until the end of their line."""


def redact_own_logs(redactor: Redactor) -> None:
    """Remove secrets from everything this process writes from now on, except the results that it sends to the run."""
    write = zipfile.ZipFile.writestr

    def write_redacted(self: zipfile.ZipFile, name: Any, data: str | bytes, *args: Any, **options: Any) -> None:
        write(self, name, _redact_data(data, redactor), *args, **options)

    zipfile.ZipFile.writestr = write_redacted  # type: ignore[assignment, method-assign]
    sys.stdout = sys.stderr = printed = RedactedStream(sys.stderr, redactor)
    atexit.register(printed.print_rest)


def redact_loggers(redactor: Redactor) -> None:
    """Remove secrets from the records of all current log handlers; repeated calls add nothing."""
    loggers = [logging.getLogger(), *map(logging.getLogger, list(logging.root.manager.loggerDict))]
    for handler in {handler for logger in loggers for handler in logger.handlers}:
        if not any(isinstance(log_filter, RecordFilter) for log_filter in handler.filters):
            handler.addFilter(RecordFilter(redactor))


class RecordFilter(logging.Filter):
    """Lets every record through, without secrets."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redactor = redactor

    def filter(self, record: logging.LogRecord) -> bool:
        try:
            record.msg, record.args = self._redactor.message(record.getMessage()), ()
        except (KeyError, TypeError, ValueError):  # invalid arguments, which the handler reports
            return True
        if record.exc_info and record.exc_text is None:
            record.exc_text = logging.Formatter().formatException(record.exc_info)
        if record.exc_text is not None:
            record.exc_text = self._redactor.message(record.exc_text)
        for name, value in vars(record).items():
            if name not in RECORD_FIELDS and isinstance(value, str):
                setattr(record, name, self._redactor.message(value))
        return True


class RedactedStream(io.TextIOBase):
    """A text stream that removes secrets from each line before it is printed."""

    def __init__(self, stream: TextIO, redactor: Redactor) -> None:
        self._stream, self._redactor = stream, redactor
        self._line = ""

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The encoding of the stream."""
        return self._stream.encoding

    @property
    def buffer(self) -> BinaryIO:
        """The binary stream, without redaction."""
        return self._stream.buffer

    def fileno(self) -> int:
        return self._stream.fileno()

    def isatty(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        lines, newline, self._line = (self._line + text).rpartition("\n")
        if newline:
            self._print(lines + newline)
        if len(self._line) > MAX_UNPRINTED:
            self.print_rest()
        return len(text)

    def flush(self) -> None:
        """Flush complete lines; an incomplete line may contain half a secret."""
        self._stream.flush()

    def print_rest(self) -> None:
        """Print the last, incomplete line."""
        line, self._line = self._line, ""
        self._print(line)
        self._stream.flush()

    def _print(self, text: str) -> None:
        self._stream.write(self._redactor.message(text))


def _redact_data(data: str | bytes, redactor: Redactor) -> str | bytes:
    """Remove secrets from JSON; other data are unchanged."""
    if isinstance(data, str):
        return redactor.data(data)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return data
    redacted = redactor.data(text)
    return data if redacted == text else redacted.encode()
