"""A process group that never outlives whoever started it, and the last lines of its log without secrets."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from patient_time import HANGS, until
from processes import SERVER, gone, running, starter, wait_for

from adaptive_eval.base.errors import LaunchFailed
from adaptive_eval.endpoints.redaction import Redactor
from adaptive_eval.endpoints.secrets import secret_values
from adaptive_eval.launch.process import LAST_BYTES, MAX_LAST_LINES, MAX_LINE_CHARS, KeptProcess, ServerLog, exit_words
from adaptive_eval.launch.types import GRACE_SECONDS

PYTHON = (sys.executable, "-S")


async def started(
    command: Sequence[str], folder: Path, *, grace: float = GRACE_SECONDS, environment: Mapping[str, str] = os.environ
) -> KeptProcess:
    with (folder / "log").open("ab") as log:
        return await KeptProcess.start(
            command, environment=environment, folder=folder, errors=log.fileno(), grace=grace
        )


async def server(folder: Path, port: int, *what: str, grace: float = GRACE_SECONDS) -> KeptProcess:
    """It has its child, if it is to have one."""
    process = await started([*PYTHON, str(SERVER), str(port), *what], folder, grace=grace)
    wait_for(folder / "log", "child" if "child" in what else "")
    return process


async def test_what_ignores_sigterm_is_killed_after_the_grace(tmp_path: Path, port: int) -> None:
    process = await server(tmp_path, port, "stubborn", "child", grace=0.4)
    began = time.monotonic()
    await process.stop()
    assert time.monotonic() - began >= 0.4
    assert not running(str(port))


@pytest.mark.parametrize("cancelled", [False, True])
async def test_stopped_at_once_or_cancelled_then_it_has_no_grace(tmp_path: Path, port: int, cancelled: bool) -> None:
    """Cancelled with its keeper, which nobody else may know of: as where it did not start, and the run ends."""
    process = await server(tmp_path, port, "stubborn", "child", grace=3600.0)
    stopping = asyncio.create_task(process.stop(at_once=not cancelled))
    await asyncio.sleep(0)
    if cancelled:
        stopping.cancel()
    await asyncio.wait([stopping], timeout=HANGS)
    assert stopping.cancelled() is cancelled and process._keeper.returncode is not None
    assert not running(str(port))


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        ("", "exited with status 0"),
        ("import sys; sys.exit(7)", "exited with status 7"),
        ("import os; os.kill(os.getpid(), 9)", "was killed by SIGKILL"),
    ],
)
async def test_the_exit_of_a_process_is_described(tmp_path: Path, end: str, expected: str) -> None:
    process = await started([*PYTHON, "-c", end], tmp_path)
    assert exit_words(await process.status) == expected
    await process.stop()


@pytest.mark.slow
async def test_what_a_dead_server_leaves_behind_follows_it(tmp_path: Path, port: int) -> None:
    process = await server(tmp_path, port, "child")
    os.kill(process.pid, signal.SIGKILL)
    assert await process.status == -signal.SIGKILL
    await process.stop()
    assert not running(str(port))


SESSIONS = """
import os, signal, subprocess, sys
# in a session of its own, of a parent that has ended: what a daemon is
daemon = "import subprocess, sys; subprocess.Popen(sys.argv[1:], start_new_session=True)"
subprocess.run([sys.executable, "-S", "-c", daemon, *sys.argv[2:]])
print("forked", flush=True)
signal.pause() if sys.argv[1] == "stays" else sys.exit(0)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nobody tells who descends from whom")
@pytest.mark.parametrize("stays", ["stays", "leaves"])
@pytest.mark.parametrize("what", [(), ("stubborn", "child")])
async def test_no_server_escapes_by_a_session(tmp_path: Path, port: int, stays: str, what: tuple[str, ...]) -> None:
    command = [*PYTHON, "-c", SESSIONS, stays, *PYTHON, str(SERVER), str(port), *what]
    process = await started(command, tmp_path, grace=0.4)
    wait_for(tmp_path / "log", "forked")
    await process.stop()
    assert not running(str(port))


async def test_nobody_is_left_when_the_keeper_is_killed(tmp_path: Path, port: int) -> None:
    process = await server(tmp_path, port, "child")
    os.kill(process._keeper.pid, signal.SIGKILL)
    assert await process.status is None
    assert gone(str(port))


async def test_nobody_is_left_of_a_cancelled_start(tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    create, go_on = asyncio.create_subprocess_exec, asyncio.Event()

    async def create_slowly(*command: Any, **options: Any) -> asyncio.subprocess.Process:
        process = await create(*command, **options)
        try:
            await go_on.wait()
        except asyncio.CancelledError:
            process.kill()  # as asyncio does
            raise
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", create_slowly)
    starting = asyncio.create_task(server(tmp_path, port, "child"))
    await until(lambda: (tmp_path / "log").exists() and "child" in (tmp_path / "log").read_text())
    starting.cancel()
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.wait([starting], timeout=HANGS)
    assert starting.cancelled() and gone(str(port))


KILLED_BETWEEN = """
import os, sys
from adaptive_eval.launch import keeper

def killed(*_):
    parent = os.getppid()
    os.kill(parent, 9)
    while os.getppid() == parent:
        pass

keeper._prctl = killed
server = [sys.executable, "-S", "-c", "import sys; print('it runs', file=sys.stderr)"]
keeper._start_server(server, *keeper._descriptors("-"))
"""


def test_no_server_begins_when_its_keeper_was_killed_just_before() -> None:
    """As asyncio does where a start is cancelled: nobody would end that server."""
    done = subprocess.run([sys.executable, "-c", KILLED_BETWEEN], capture_output=True, timeout=HANGS)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGKILL, b"", b"")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nobody_is_left_when_whoever_started_it_is_killed(tmp_path: Path, port: int, number: signal.Signals) -> None:
    # the child ignores SIGTERM, so that all of the grace goes by
    with starter(tmp_path, port, "child", grace=0.5) as parent:
        wait_for(tmp_path / "log", "child")
        assert len(running(f"{SERVER} {port}")) == 4, "parent, keeper, server and its child"
        parent.send_signal(number)
    assert gone(str(port))


async def test_a_command_that_cannot_be_run_says_why(tmp_path: Path) -> None:
    with pytest.raises(LaunchFailed, match="cannot be started: .*No such file.*'no-such-program'"):
        await started(["no-such-program", "--port", "1"], tmp_path)
    with pytest.raises(LaunchFailed, match="cannot be started: .*No such file"):
        await KeptProcess.start(["true"], environment={}, folder=tmp_path / "nowhere", errors=2, grace=1.0)


async def test_it_sees_its_environment_and_folder_and_no_input(tmp_path: Path) -> None:
    look = "import os, sys; print(os.environ['SEEN'], os.getcwd(), repr(sys.stdin.read()))"
    process = await started([*PYTHON, "-c", look], tmp_path, environment={"SEEN": "this"})
    assert await process.status == 0
    await process.stop()
    seen = (tmp_path / "log").read_text().split()
    assert (seen[0], Path(seen[1]).name, seen[2]) == ("this", tmp_path.name, "''")


async def test_a_command_may_have_streams_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("asked")
    code = "import sys; print(sys.stdin.read()); print('broken', file=sys.stderr)"
    with (tmp_path / "in").open() as read, (tmp_path / "out").open("w") as written, (tmp_path / "err").open("w") as bad:
        process = await KeptProcess.start(
            [*PYTHON, "-c", code],
            environment=os.environ,
            folder=tmp_path,
            errors=bad.fileno(),
            streams=(read.fileno(), written.fileno()),
            grace=3600.0,
        )
        assert await process.status == 0
        await process.stop()
    assert (tmp_path / "out").read_text() == "asked\n" and (tmp_path / "err").read_text() == "broken\n"


KEY = "correct-horse-battery"


def last_lines(folder: Path, printed: str) -> tuple[str, ...]:
    secrets = secret_values({"VLLM_API_KEY": KEY, "MINE": "another-horse", "HOME": "/h"}, ("MINE",))
    log = ServerLog(folder / "m.log", Redactor(secrets))
    log.begin("command")
    with log.path.open("a") as file:
        file.write(printed)
    return log.last_lines()


def test_a_key_of_no_known_shape_is_not_repeated(tmp_path: Path) -> None:
    lines = last_lines(tmp_path, f"args: {{'api_key': '{KEY}', 'home': '/h'}}\nanother-horse \x1b[31m{KEY}\x1b[0m\n")
    assert lines == ("args: {'api_key': '***', 'home': '/h'}", "*** ***")


@pytest.mark.parametrize("hidden", [KEY, "sk-abcdefgh12345678abcd"])
@pytest.mark.parametrize("shown", [3, 11, 19])
def test_nor_a_part_of_it_where_a_line_is_cut(tmp_path: Path, hidden: str, shown: int) -> None:
    (line,) = last_lines(tmp_path, "x" * (MAX_LINE_CHARS - shown - 1) + " " + hidden)
    assert hidden[:3] not in line
    tail = f"{hidden} " + "x " * (LAST_BYTES // 2 - 1)
    (line,) = last_lines(tmp_path, tail + "x" * (len(hidden) - shown))
    assert hidden[-3:] not in line


def test_only_the_last_lines_since_the_last_start_are_reported(tmp_path: Path) -> None:
    last_lines(tmp_path, "before\n")
    assert last_lines(tmp_path, "now\n") == ("now",)
    assert last_lines(tmp_path, "".join(f"{number}\n" for number in range(99)))[0] == str(99 - MAX_LAST_LINES)
