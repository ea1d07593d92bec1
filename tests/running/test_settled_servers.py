"""Servers of settled models go while others go on: those of the run are stopped, for others somebody is told, once."""

import asyncio
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from live_runs import MODELS, Found, Site, kill, wait_until
from patient_time import HANGS, until
from test_launched_run import events, launched, none_left, printed, servers
from test_server_time import held_of

from adaptive_eval.config.run import DoneCommand, RunConfig, ServersConfig
from adaptive_eval.errors import ExitCode
from adaptive_eval.running.settled import SettledCommands
from adaptive_eval.store import (
    Event,
    ModelSettled,
    RunFinished,
    ServerLaunched,
    ServerReleased,
    SettledCommandEnded,
)

IN_STEP = {"trials": {"min": 4, "max": 40, "favour": "answers", "lookahead": 0}}
"""One look at a time: where several are taken at once, a model may be settled by no look but the last."""
LAST = MODELS[-1]
"""Far from the others, which are closer together."""
NOTE = "import os, sys; open(sys.argv[1], 'a').write(os.environ['ADAPTIVE_EVAL_MODEL'] + ' ' + sys.argv[2] + '\\n')"


@pytest.fixture(autouse=True)
def places_of_its_own(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(site.folder))
    monkeypatch.setattr(tempfile, "tempdir", str(site.folder))


@pytest.mark.slow
def test_the_server_of_a_settled_model_goes_while_others_go_on_over_a_kill_and_a_resume(site: Site) -> None:
    """It is settled after 80 of its answers; the others need many more, and give a hundred before the kill."""
    config = site.write(**IN_STEP, models=launched(site, "held=100", exclusive=None), concurrency=64)
    process = site.start(config, "--run-dir", str(site.directory()))
    printed(process, f"{LAST} is done: nothing more is asked of it. Its server is stopped.")
    wait_until(lambda: events(site.directory(), ServerReleased), process)
    assert len(servers(site)) == 4, "two servers and their keepers go on"
    kill(process)
    assert none_left(site)
    (site.folder / "go").touch()
    held = held_of(site.directory())[LAST]
    before = len(events(site.directory(), ServerLaunched))
    ended = site.run(config)
    assert ended.exit_code in (ExitCode.SPENT, ExitCode.REACHED), ended.output
    assert [event.model for event in events(site.directory(), ModelSettled)].count(LAST) == 1
    assert [event.model for event in events(site.directory(), ServerReleased)].count(LAST) == 1
    again = events(site.directory(), ServerLaunched)[before:]
    assert {event.model for event in again} <= set(MODELS[:-1]), "it is not started again"
    assert held.seconds > 0.0 and held_of(site.directory())[LAST] == held


@pytest.mark.slow
def test_the_same_is_found_whoever_serves_and_a_command_is_run_once(site: Site) -> None:
    told = site.folder / "told.txt"
    command = [sys.executable, "-c", NOTE, str(told), "{model}; rm -rf /"]
    config = site.write(**IN_STEP, servers={"on_done": {"command": command}})
    ended = site.run(config)
    assert ended.exit_code in (ExitCode.SPENT, ExitCode.REACHED), ended.output
    settled = [event.model for event in events(site.directory(), ModelSettled)]
    assert LAST in settled
    assert sorted(told.read_text().splitlines()) == sorted(f"{name} {name}; rm -rf /" for name in settled)
    assert [event.problem for event in events(site.directory(), SettledCommandEnded)] == [None] * len(settled)
    found = Found.of(site.directory())
    site.run(config)
    assert len(told.read_text().splitlines()) == len(settled), "once, over all starts"
    plain = site.write("plain", **IN_STEP)
    site.run(plain, "--run-dir", str(site.directory("plain")))
    assert Found.of(site.directory("plain")) == found


@pytest.mark.parametrize(
    ("command", "seconds", "problem"),
    [
        pytest.param(["no-such-program"], HANGS, "could not be started", marks=pytest.mark.slow),
        ([sys.executable, "-c", "raise SystemExit(3)"], HANGS, "exit code 3"),
        pytest.param(
            [sys.executable, "-c", "import time; time.sleep(600)"],
            0.2,
            "longer than 0.2 s, and was killed",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_command_that_fails_is_told_and_hurts_nothing(
    site: Site, command: list[str], seconds: float, problem: str
) -> None:
    ended = site.run(site.write(**IN_STEP, servers={"on_done": {"command": command, "timeout": seconds}}))
    assert ended.exit_code in (ExitCode.SPENT, ExitCode.REACHED), ended.output
    told = events(site.directory(), SettledCommandEnded)
    assert told and all(problem in str(event.problem) for event in told)
    assert len(events(site.directory(), RunFinished)) == 1
    assert "the command servers.on_done has failed" in ended.stdout


async def test_a_run_that_is_stopped_at_once_kills_the_command_and_the_next_start_runs_it_once_more(
    tmp_path: Path,
) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    begun = "import os, sys, time; open(sys.argv[1] + '/' + str(os.getpid()), 'w').close(); time.sleep(600)"
    command = DoneCommand(command=(sys.executable, "-c", begun, str(marks)), timeout=HANGS)
    nothing: dict[str, Any] = {"models": (), "grader": None, "opponent": None, "notify": None}
    config = RunConfig.model_construct(**nothing, servers=ServersConfig(on_done=command), folder=tmp_path)
    settled, told = ModelSettled("ada", launched=False), list[Event]()
    for start in (1, 2):
        commands = SettledCommands(config, told.append)
        commands.begin([settled])
        await until(lambda number=start: len(list(marks.iterdir())) == number)  # type: ignore[misc]
        commands.hurry()
        await commands.close()
        assert not told, "nothing is written down of it"
    running = await asyncio.to_thread(subprocess.check_output, ["ps", "-eww", "-o", "args="], text=True)
    assert str(marks) not in running
