"""Which processes there are."""

import re
import time
from pathlib import Path

from patient_time import HANGS
from process_list import commands

SERVER = Path(__file__).with_name("serving.py")


def running(words: str) -> list[str]:
    """The commands of all processes that have these words in them, but for those that have ended."""
    wanted = re.compile(rf"(?<!\S){re.escape(words)}(?!\d)")
    return [command for _, command in commands() if wanted.search(command)]


def gone(words: str, seconds: float = HANGS) -> bool:
    """Whether all of them end within so many seconds."""
    deadline = time.monotonic() + seconds
    while running(words):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
