"""The keeper of a run's sites knows whether a head is alive, and what it has announced."""

import os
import select
import subprocess
import sys
import threading

import pytest
from patient_time import HANGS

from adaptive_eval.sites import keeper
from adaptive_eval.sites.keeper import HeadWatch, end_with_head, send_heartbeats


def test_a_head_is_gone_when_it_has_been_silent_for_as_long_as_it_said_last() -> None:
    now = [100.0]
    watch = HeadWatch(10.0, lambda: now[0])
    now[0] += 9.0
    assert not watch.is_over
    watch.heartbeat(30.0)
    now[0] += 29.0
    assert not watch.is_over, "it has spoken since, and asked for more patience"
    now[0] += 1.0
    assert watch.is_over
    watch.heartbeat(5.0)
    assert not watch.is_over


def test_a_head_says_that_it_lives_while_it_does_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper, "MAX_INTERVAL", 0.001)
    words, often = [0], threading.Event()

    def say() -> None:
        words[0] += 1
        if words[0] >= 5:
            often.set()

    with send_heartbeats(say, 600.0):
        assert words[0] >= 1, "at once"
        assert often.wait(HANGS)
    after = words[0]
    assert not [thread for thread in threading.enumerate() if thread.name == "adaptive-eval head"]
    assert words[0] == after


def test_a_process_ends_when_it_has_heard_of_no_head_for_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper, "WATCH_SECONDS", 0.02)
    ended, now = threading.Event(), [0.0]
    watch = HeadWatch(10.0, lambda: now[0])
    end_with_head(watch, ended.set)
    assert not ended.wait(2.5 * keeper.WATCH_SECONDS)
    now[0] = 10.0
    assert ended.wait(HANGS)


CHILD = """
import sys, time
from adaptive_eval.sites.keeper import HeadWatch, end_with_head

end_with_head(HeadWatch(86_400.0))
print("watching", flush=True)
time.sleep(86_400.0)
"""
PARENT = """
import subprocess, sys

held = (int(sys.argv[2]),)
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdout=subprocess.PIPE, text=True, pass_fds=held)
print(child.stdout.readline(), flush=True)
child.wait()
"""


def test_a_process_ends_when_the_one_that_started_it_was_killed() -> None:
    """As Ray's workers are by the agent of their node: a pipe that both have is closed when both have ended."""
    until_end, held = os.pipe()
    command = [sys.executable, "-c", PARENT, CHILD, str(held)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, pass_fds=(held,)) as parent:
        os.close(held)
        assert parent.stdout is not None and parent.stdout.readline() == "watching\n"
        parent.kill()
        parent.wait(HANGS)
        assert select.select([until_end], [], [], HANGS)[0], "it lives on"
        assert os.read(until_end, 1) == b""
        os.close(until_end)
