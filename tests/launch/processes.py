"""Which processes there are."""

import subprocess
import time
from pathlib import Path

SERVER = Path(__file__).with_name("serving.py")


def running(word: str) -> list[str]:
    """The commands of all processes that have this word in them, but for those that have ended."""
    told = subprocess.run(["ps", "-eww", "-o", "stat=,args="], capture_output=True, text=True, check=True).stdout
    return [line for line in told.splitlines() if word in line and not line.startswith("Z")]


def gone(word: str, seconds: float = 60.0) -> bool:
    """Whether all of them end within so many seconds."""
    deadline = time.monotonic() + seconds
    while running(word):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
