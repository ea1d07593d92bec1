"""Which processes there are."""

import re
import subprocess
import time
from pathlib import Path

from patient_time import HANGS

SERVER = Path(__file__).with_name("serving.py")


def running(words: str) -> list[str]:
    """The commands of all processes that have these words in them, but for those that have ended."""
    wanted = re.compile(rf"(?<!\S){re.escape(words)}(?!\d)")
    told = subprocess.run(["ps", "-eww", "-o", "stat=,args="], capture_output=True, text=True, check=True).stdout
    return [line for line in told.splitlines() if wanted.search(line) and not line.startswith("Z")]


def gone(words: str, seconds: float = HANGS) -> bool:
    """Whether all of them end within so many seconds."""
    deadline = time.monotonic() + seconds
    while running(words):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
