"""Which processes there are."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from patient_time import HANGS
from process_list import all_end, commands

SERVER = Path(__file__).with_name("serving.py")
STARTER = """
import asyncio, os, sys
from pathlib import Path
from adaptive_eval.launch import process
from adaptive_eval.launch.host import ExclusivePlaces
async def main():
    folder, grace, *places = Path(sys.argv[1]), float(sys.argv[2]), *filter(None, [sys.argv[3]])
    holds = [await ExclusivePlaces(places, "killed").take(place, print) for place in places]
    with (folder / "log").open("ab") as log:
        options = {"environment": os.environ, "folder": folder, "errors": log.fileno(), "holds": holds}
        await process.KeptProcess.start(sys.argv[4:], **options, grace=grace)
    print("started", flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""


@contextmanager
def starter(folder: Path, port: int, *what: str, grace: float, place: str = "") -> Iterator["subprocess.Popen[str]"]:
    """A process that has started a server, and has a place if one is given."""
    words = [str(folder), str(grace), place, sys.executable, "-S", str(SERVER), str(port), *what]
    environment = {**os.environ, "TMPDIR": str(folder)}
    command = [sys.executable, "-c", STARTER, *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None and process.stdout.readline() == "started\n"
        yield process


def wait_for(log: Path, word: str) -> None:
    deadline = time.monotonic() + HANGS
    while word not in log.read_text():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.01)


def running(words: str) -> list[str]:
    """The commands of all processes that have these words in them, but for those that have ended."""
    pattern = re.compile(rf"(?<!\S){re.escape(words)}(?!\d)")
    return [command for _, command in commands() if pattern.search(command)]


def gone(words: str) -> bool:
    """Whether all of them end."""
    return all_end(lambda: running(words))
