"""Which processes there are."""

import re
from pathlib import Path

from process_list import all_end, commands

SERVER = Path(__file__).with_name("serving.py")


def running(words: str) -> list[str]:
    """The commands of all processes that have these words in them, but for those that have ended."""
    pattern = re.compile(rf"(?<!\S){re.escape(words)}(?!\d)")
    return [command for _, command in commands() if pattern.search(command)]


def gone(words: str) -> bool:
    """Whether all of them end."""
    return all_end(lambda: running(words))
