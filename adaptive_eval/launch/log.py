"""What a server prints: a file of its own, whose last lines are told when it fails."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from adaptive_eval.config.secrets import redacted

LAST_LINES = 12
LAST_BYTES = 8192
LONGEST_LINE = 240
LONGEST_SECRET = 2048
ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)")
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


class Log:
    """The log file of one server, over all its starts."""

    def __init__(self, path: Path, secrets: Sequence[str] = ()) -> None:
        self.path = path
        self._secrets = secrets
        self._start = 0

    def begin(self, line: str) -> None:
        """Note that the server is started, with one line of ours."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab") as file:
            file.write(f"--- {line}\n".encode(errors="replace"))
            self._start = file.tell()

    def last_lines(self) -> tuple[str, ...]:
        """What the server printed last since it was started, safe for a terminal and without secrets."""
        try:
            with self.path.open("rb") as file:
                end = file.seek(0, os.SEEK_END)
                begin = file.seek(max(self._start, end - LAST_BYTES))
                text = file.read().decode(errors="replace")
        except OSError:  # there is no file where none could be made
            return ()
        if begin > self._start:
            text = text[LONGEST_SECRET:]  # it may begin in the middle of a secret, which nothing would recognise
        lines = (CONTROL.sub(" ", ESCAPES.sub("", line)).rstrip() for line in re.split(r"\r?\n|\r", text))
        return tuple(redacted(line, self._secrets)[:LONGEST_LINE] for line in lines if line.strip())[-LAST_LINES:]
