"""One process of a command: its output is bounded, and nothing of it is left, however it ends."""

import asyncio
import os
import resource
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from patient_time import HANGS, until
from process_list import all_end, commands

from adaptive_eval.base.errors import LaunchFailed
from adaptive_eval.running.event_loop import run_to_end
from adaptive_eval.supplies.commands import process as process_module
from adaptive_eval.supplies.commands.process import BoundedOutput, CommandLine, EndedCommand

PYTHON = (sys.executable, "-S", "-c")


async def run(folder: Path, *words: str, seconds: float = HANGS, asked: bytes = b"") -> EndedCommand:
    return await CommandLine(words, dict(os.environ), seconds).run(asked, folder, ())


def running(mark: str) -> list[str]:
    return [command for _, command in commands() if mark in command]


def open_files() -> int:
    return len([*Path("/dev/fd").iterdir()])


@pytest.mark.parametrize("size", [0, 5, 10, 25, 26, 1000])
@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_the_beginning_and_the_end_are_kept(size: int, chunk: int) -> None:
    stream = bytes(97 + at % 26 for at in range(size))
    output = BoundedOutput(10, 15)
    for at in range(0, size, chunk):
        output.add(stream[at : at + chunk])
    gap = f"\n[{size - 25:,} bytes are left out]\n" if size > 25 else ""
    expected = stream.decode() if size <= 25 else stream[:10].decode() + gap + stream[-15:].decode()
    assert output.text == expected and output.size == size


async def test_it_reads_its_question_and_its_streams_are_apart(tmp_path: Path) -> None:
    code = "import os, sys; print(sys.stdin.read(), os.getcwd()); print('bad', file=sys.stderr); sys.exit(3)"
    ended = await run(tmp_path, *PYTHON, code, asked=b"asked")
    assert (ended.status, ended.output, ended.errors) == (3, f"asked {tmp_path}\n", "bad\n")
    assert not ended.is_late and not ended.is_flood and ended.seconds > 0.0


async def test_what_is_never_read_does_not_block(tmp_path: Path) -> None:
    ended = await run(tmp_path, "true", asked=b"x" * 10_000_000)
    assert ended.status == 0 and ended.output == ""


async def test_a_program_that_is_not_there_says_so(tmp_path: Path) -> None:
    opened = []
    for _ in range(2):  # whatever the first start opens for good stays open
        with pytest.raises(LaunchFailed, match="cannot be started: .*no-such-program"):
            await run(tmp_path, "no-such-program")
        opened.append(open_files())
    assert opened[1] <= opened[0]


def test_a_file_that_is_opened_next_stays_open_where_somebody_still_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_module, "DRAIN_SECONDS", 0.0)
    start, written = CommandLine._start, list[int]()

    async def start_and_keep(line: CommandLine, asked: bytes, folder: Path, holds: Any, *ends: int) -> Any:
        written.append(os.dup(ends[0]))
        return await start(line, asked, folder, holds, *ends)

    monkeypatch.setattr(CommandLine, "_start", start_and_keep)

    async def main() -> None:
        await run(tmp_path, "echo", "done")
        with ExitStack() as stack:
            opened = [stack.enter_context((tmp_path / str(number)).open("w")) for number in range(8)]
            for _ in range(8):
                await asyncio.sleep(0)
            for file in opened:
                os.fstat(file.fileno())

    run_to_end(main())
    os.close(written[0])


@pytest.mark.slow
async def test_what_it_leaves_behind_ends_with_it(tmp_path: Path) -> None:
    mark = f"sleep 98{os.getpid()}"
    ended = await run(tmp_path, "sh", "-c", f"{mark} & (trap '' TERM; setsid {mark}) & sleep 0.2; echo done")
    assert ended.status == 0 and ended.output == "done\n"
    assert not running(mark)


async def test_late_it_is_ended_with_all_its_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_module, "GRACE_SECONDS", 0.2)
    mark = f"sleep 97{os.getpid()}"
    ended = await run(tmp_path, "sh", "-c", f"trap '' TERM; echo begun; {mark} & {mark}", seconds=0.5)
    assert ended.is_late and ended.status is None and ended.output == "begun\n"
    assert not running(mark)


async def test_cancelled_it_is_killed_at_once(tmp_path: Path) -> None:
    mark = f"sleep 96{os.getpid()}"
    task = asyncio.create_task(run(tmp_path, "sh", "-c", f"trap '' TERM; touch begun; {mark}"))
    await until(lambda: (tmp_path / "begun").exists())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not running(mark)


KILLED = """
import asyncio, os, sys
from adaptive_eval.supplies.commands.process import CommandLine
from pathlib import Path
asyncio.run(CommandLine(["sh", "-c", f"touch begun; {sys.argv[1]}"], os.environ, 600.0).run(b"", Path(), ()))
"""


def test_nothing_is_left_once_the_run_is_killed(tmp_path: Path) -> None:
    mark = f"sleep 95{os.getpid()}"
    killed = subprocess.Popen([sys.executable, "-c", KILLED, mark], cwd=tmp_path)
    assert all_end(lambda: () if (tmp_path / "begun").exists() else (1,))
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    assert all_end(lambda: running(mark))


@pytest.mark.slow
async def test_a_flood_takes_no_memory(tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    code = "yes | head -c 300000000; echo; echo '{\"score\": 1}'; yes x | head -c 100000000 >&2"
    ended = await run(tmp_path, "sh", "-c", code)
    assert ended.status == 0 and ended.output.startswith("y\ny\n") and ended.output.endswith('\n{"score": 1}\n')
    assert "bytes are left out]" in ended.output and len(ended.output) < 2**22 and len(ended.errors) < 10_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000, "KiB"


async def test_an_endless_flood_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_module, "MAX_PRINTED_BYTES", 1_000_000)
    for stream in ("1", "2"):
        ended = await run(tmp_path, "sh", "-c", f"yes >&{stream}")
        assert ended.is_flood and ended.status is None and not ended.is_late
