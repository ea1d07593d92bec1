"""One process per run directory."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from adaptive_eval.base.errors import RunLocked, StoreError
from adaptive_eval.store.lock import lock_run

HOLD = """
import sys, time
from pathlib import Path
from adaptive_eval.store.lock import lock_run
lock = lock_run(Path(sys.argv[1]))
if len(sys.argv) > 2:  # leave a forked child behind
    import os
    read, write = os.pipe()
    if os.fork() == 0:
        os.write(write, b"x")
        time.sleep(600)
    os.read(read, 1)
print("held", flush=True)
time.sleep(600)
"""


@pytest.fixture
def holder(tmp_path: Path, request: pytest.FixtureRequest) -> "subprocess.Popen[str]":
    """Another process that holds the lock."""
    command = [sys.executable, "-c", HOLD, str(tmp_path), *getattr(request, "param", [])]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    yield process
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()


@pytest.mark.slow
def test_the_second_process_is_told_who_holds_the_run(tmp_path: Path, holder: "subprocess.Popen[str]") -> None:
    with pytest.raises(RunLocked, match=rf"held by process {holder.pid} on \S+ since 20\d\d-"):
        lock_run(tmp_path)


@pytest.mark.parametrize("holder", [[], ["with a forked child"]], indirect=True)
def test_the_lock_dies_with_its_process(tmp_path: Path, holder: "subprocess.Popen[str]") -> None:
    """Even if a forked grader outlives it."""
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    lock_run(tmp_path).close()


def test_a_released_lock_can_be_taken_again_and_one_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    lock = lock_run(tmp_path)
    with pytest.raises(RunLocked):
        lock_run(tmp_path)
    lock.close()
    lock.close()
    lock_run(tmp_path).close()
    (tmp_path / "other" / "lock").mkdir(parents=True)  # as good as a missing permission, which root never misses
    with pytest.raises(StoreError, match="cannot write .*lock: .*; fix that, or use another run directory"):
        lock_run(tmp_path / "other")
