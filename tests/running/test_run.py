"""`adaptive-eval run` in processes of its own: killed, interrupted, locked out, refused, and always the same result."""

import os
import pty
import random
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import played
import pytest
from command_line import typed
from gated import GatedServer
from live_runs import (
    MODELS,
    EndedRuns,
    RunOutcome,
    Site,
    kill,
    models_at,
    printed,
    small_world,
    trials_in,
    wait_for_trials,
    wait_until,
)
from patient_time import HANGS
from stored_runs import events_in

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.core.types import Cost
from adaptive_eval.machine import machine
from adaptive_eval.machine.records import STARTED, Note, Row
from adaptive_eval.machine.trial import ANSWERED, RESERVED, Trial
from adaptive_eval.notes import RunResumed, events_of_kind
from adaptive_eval.report.reader import RunReader
from adaptive_eval.running import event_loop
from adaptive_eval.running.chosen import run_directory
from adaptive_eval.simulate.faults import Faults
from adaptive_eval.simulate.server import SimulatedServer, serving
from adaptive_eval.store.write import RunStore

CONTINUE = r"to do     to continue:\r?\n          adaptive-eval run \S*run\.yaml"


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory, base_url: str) -> RunOutcome:
    """What the run finds when nothing happens to it."""
    outcome = Site.make(tmp_path_factory.mktemp("uninterrupted"), base_url).finished()
    assert len(outcome.looks) > 5
    return outcome


KILLS = [1, pytest.param(8, marks=pytest.mark.slow), pytest.param(50, marks=pytest.mark.release)]


@pytest.mark.parametrize("kills", KILLS)
def test_a_killed_run_ends_like_an_undisturbed_one(site: Site, uninterrupted: RunOutcome, kills: int) -> None:
    """SIGKILL at random moments of one run, and of another when that one ends."""
    rng, runs = random.Random(kills), 0
    while kills > 0:
        runs += 1
        config, directory = site.write(), site.directory(f"run-{runs}")
        options = ["--run-dir", str(directory)]
        starts = 0
        while kills > 0:
            process = site.start(config, *options)
            starts += 1
            alive = wait_for_trials(directory, trials_in(directory) + rng.randint(1, 25), process)
            time.sleep(rng.random() * 0.03)
            kill(process)
            if not alive:
                break
            kills -= 1
        assert site.run(config, *options).exit_code == ExitCode.REACHED
        assert RunOutcome.of(directory) == uninterrupted
        with closing(RunReader.open(directory)) as reader:
            resumed = events_of_kind(reader.events(), RunResumed)
            assert len(resumed) == starts, "each start but the first, and that to the end"


@pytest.mark.slow
def test_a_second_process_leaves_and_the_first_signal_drains(site: Site, uninterrupted: RunOutcome) -> None:
    """A gate holds answers of the third round until the signal; how many wait then depends on the machine."""
    gated = GatedServer(small_world(), 40)
    with serving(gated) as url:
        models = [{"name": name, "base_url": url if name == MODELS[0] else site.base_url} for name in MODELS]
        config = site.write(models=models, concurrency=2)
        process = site.start(config)
        wait_until(lambda: gated.waiting, process)
        assert f"is held by process {process.pid} on " in site.run(config, code=ExitCode.FAILED).stderr
        process.send_signal(signal.SIGTERM)
        line = printed(process, "stopping: ")
        assert re.search(r"stopping: waiting for \d+ requests? to be answered and graded", line), line
        gated.open()
        out, err = process.communicate(timeout=HANGS)
    assert process.returncode == ExitCode.STOPPED, err
    assert "Stopped. The same command continues" in out
    assert re.search(CONTINUE, out)
    assert site.results()["run"]["status"] == "stopped"
    assert site.run(site.write(concurrency=64)).exit_code == ExitCode.REACHED
    assert RunOutcome.of(site.directory()) == uninterrupted


@pytest.mark.slow
def test_ctrl_c_on_a_terminal_drains_and_a_second_one_stops_at_once(site: Site, slow_url: str) -> None:
    """The live view in a pseudo-terminal, on a server that would take an hour to drain."""
    config = site.at(slow_url).write()
    master, slave = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "110", "LINES": "40"}
    command = [sys.executable, "-m", "adaptive_eval", "run", str(config)]
    with subprocess.Popen(command, cwd=site.folder, env=environment, preexec_fn=lambda: os.login_tty(slave)) as process:
        os.close(slave)
        shown = read_until(master, "24 in flight")
        os.write(master, b"\x03")
        shown += read_until(master, "Ctrl-C again stops at once")
        assert process.poll() is None
        os.write(master, b"\x03")
        shown += read_until(master, config.name)
        assert process.wait(timeout=HANGS) == ExitCode.STOPPED, shown
    os.close(master)
    assert "no ranking yet" in shown
    assert "Stopped. The same command continues" in shown
    assert re.search(CONTINUE, shown)


def read_until(master: int, word: str, seconds: float = HANGS) -> str:
    """What a terminal receives until this word has come."""
    text, deadline = b"", time.monotonic() + seconds
    while word.encode() not in text:
        assert time.monotonic() < deadline, text.decode(errors="replace")
        if select.select([master], [], [], 0.1)[0]:
            text += os.read(master, 65_536)
    return text.decode(errors="replace")


# -- resuming with other settings ------------------------------------------------------------------------


def test_a_resume_that_changes_what_trials_mean_is_refused(site: Site, ended_runs: EndedRuns) -> None:
    ended_runs.copy(site, trials={"min": 2, "max": 2})
    for changes, message in (
        ({"prompt": "Think. {prompt}"}, "models.ada.prompt.template: default → 'Think. {prompt}'"),
        ({"sampling": {"temperature": 0.7, "max_tokens": 2000}}, "models.ada.sampling.temperature: 0.6 → 0.7"),
        ({"grader": "contains"}, "grader.kind: 'numeric' → 'contains'"),
        ({"seed": 5}, "seed: 0 → 5"),
    ):
        refused = site.run(site.write(trials={"min": 2, "max": 2}, **changes), code=ExitCode.CONFIGURATION)
        assert message in refused.stderr
        regrade = f"adaptive-eval regrade {site.directory()} --config {site.folder / 'run.yaml'}\n"
        assert refused.stderr.endswith(regrade) == ("grader" in changes)
        assert "Traceback" not in refused.stderr


@pytest.mark.slow
def test_fresh_starts_over_beside_the_old_run(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(site.folder)
    command = ["run", str(site.write(trials={"min": 2, "max": 2})), "--display", "none"]
    typed(*command)
    before = (site.directory() / "run.sqlite").read_bytes()
    typed(*command, "--fresh")
    assert (site.directory() / "run.sqlite").read_bytes() == before
    assert RunOutcome.of(site.directory("run~2")) == RunOutcome.of(site.directory())
    typed(*command)
    assert not site.directory("run~3").exists()
    assert events_in(site.directory("run~2"), RunResumed), "the newest is continued"
    refused = site.run(site.folder / "run.yaml", "--fresh")  # with a directory of its own
    assert refused.exit_code == ExitCode.CONFIGURATION and "--run-dir" in refused.stderr


def test_a_run_without_answers_does_not_block_other_settings(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(site.folder)
    words = ["--display", "none", "--set", "trials.min=2", "--set", "trials.max=2"]
    typed("run", site.write(budget={"trials": 1}), *words, code=ExitCode.SPENT)
    assert not RunOutcome.of(site.directory()).outcomes
    typed("run", site.write(prompt="Now: {prompt}"), *words)
    assert RunOutcome.of(site.directory("run~2")).outcomes
    changed = typed("run", site.write(prompt="Again: {prompt}"), *words)
    assert changed.exit_code == ExitCode.CONFIGURATION and "--fresh" in changed.stderr, "that one has answers"


@pytest.mark.parametrize("budget", [{}, {"tokens": 10**7}], ids=["without caps", "capped"])
def test_runs_killed_before_any_answer_are_left_unless_caps_count_them(tmp_path: Path, budget: dict[str, int]) -> None:
    folder, changes = str(tmp_path), {"budget": budget} if budget else {}
    first = played.prepared(tmp_path, store=folder, **changes)
    with closing(RunStore.open(run_directory(first, None, False), first.header)) as store:
        store.append(Note(STARTED))
        if budget:
            store.append(*(Trial(0, 0, number, 0, RESERVED, Cost(9)) for number in range(2)))
        else:
            store.commit([], in_flight={0: 2})
    other = played.prepared(tmp_path, store=folder, asked="now ask", **changes)
    assert run_directory(first, None, False).name == "played"
    assert run_directory(other, None, False).name == ("played" if budget else "played~2")


# -- what cannot work ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("short_pauses")
def test_models_that_are_not_served_are_named_all_together(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "REFUSALS_SECONDS", HANGS)  # until all were heard
    refused = site.run(site.write(models=models_at(site.base_url, *MODELS, "eve", "fay")))
    assert refused.exit_code == ExitCode.ENDPOINTS and "add --dry-run" not in refused.stderr
    for name in ("eve", "fay"):
        assert f"{name}: its server has no model '{name}', only ada, bob, cyd" in refused.stderr


# -- a full disk -----------------------------------------------------------------------------------------


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system, where mounting one is allowed."""
    (place := tmp_path / "disk").mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", place]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a file system is not allowed here")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


@pytest.fixture
def committed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Trials of each commit that was done: how many a disk takes depends on how large commits are."""
    done: list[int] = []
    commit = RunStore.commit

    def counted(store: RunStore, rows: Sequence[Row], **changes: Any) -> list[Row]:
        written = commit(store, rows, **changes)
        done.append(sum(isinstance(record, Trial) and record.state in ANSWERED for _, record in written))
        return written

    monkeypatch.setattr(RunStore, "commit", counted)
    return done


@pytest.mark.slow
def test_a_full_disk_keeps_all_commits(site: Site, uninterrupted: RunOutcome, disk: Path, committed: list[int]) -> None:
    """On a file system of a third of a MiB."""
    subprocess.run(["mount", "-o", "remount,size=320k", disk], check=True)
    config, where = site.write(), ("--run-dir", disk / "run")
    stopped = site.run(config, *where, code=ExitCode.FAILED)
    assert "the disk is full" in stopped.stderr and "Traceback" not in stopped.stderr
    # whichever file met the full disk: the database, or a report of a look
    assert any(text in stopped.stderr for text in ("What was committed is intact", "Stored answers are intact"))
    (disk / "filler").write_bytes(bytes(max(0, shutil.disk_usage(disk).free - 4096)))
    assert site.run(config, *where, code=ExitCode.FAILED).stderr.startswith("error: ")
    subprocess.run(["mount", "-o", "remount,size=64m", disk], check=True)
    assert trials_in(disk / "run") == sum(committed) > 0
    assert site.run(config, *where).exit_code == ExitCode.REACHED
    assert RunOutcome.of(disk / "run") == uninterrupted


@pytest.mark.slow
def test_both_event_loops_find_the_same(site: Site, uninterrupted: RunOutcome, monkeypatch: pytest.MonkeyPatch) -> None:
    uvloop = pytest.importorskip("uvloop")
    made = Mock(side_effect=uvloop.new_event_loop)
    monkeypatch.setattr(uvloop, "new_event_loop", made)
    models = models_at(site.base_url)
    models[1]["stream"], models[2]["client"] = True, "openai"
    assert site.finished(models=models) == uninterrupted and made.call_count == 1
    monkeypatch.setattr(event_loop, "find_spec", lambda name: None)
    assert site.finished("plain", models=models) == uninterrupted and made.call_count == 1


@pytest.mark.slow
def test_clock_jumps_change_nothing(site: Site, uninterrupted: RunOutcome, monkeypatch: pytest.MonkeyPatch) -> None:
    """By an hour, by a year, back and forth, within a run and from a killed start to the next."""
    process = site.start(site.write(), "--run-dir", str(site.directory()))
    assert wait_for_trials(site.directory(), 40, process)
    kill(process)
    clock, chance = time.time, random.Random(1)
    jumps = [0.0, 3_600.0, -3_600.0, 3e7, -3e7]
    monkeypatch.setattr(time, "time", lambda: clock() + chance.choice(jumps))
    assert site.run(site.write()).exit_code == ExitCode.REACHED
    assert RunOutcome.of(site.directory()) == uninterrupted
    for command in (["verify"], ["monitor", "--once"], ["report", "--format", "summary"]):
        assert typed(*command, site.directory()).exit_code == 0


def test_a_run_on_a_read_only_disk_is_read_and_not_written(site: Site, disk: Path) -> None:
    process = site.start(site.write(), "--run-dir", str(disk / "run"))
    assert wait_for_trials(disk / "run", 40, process)
    kill(process)
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    assert "intact" in typed("verify", disk / "run", code=0).output
    for run in ("run", "new"):
        refused = site.run(site.write(), "--run-dir", disk / run, code=ExitCode.FAILED)
        assert "Read-only file system" in refused.stderr and "use another run directory" in refused.stderr.lower()


@pytest.mark.usefixtures("short_pauses")
def test_servers_that_never_answered_have_finished_nothing(site: Site) -> None:
    with serving(SimulatedServer(small_world(), faults=Faults(server_error=1.0))) as url:
        ended = site.run(site.at(url).write(concurrency={"retry_for": 0}), code=ExitCode.ENDPOINTS)
    assert "Stopped: no usable answer came from any model: " in ended.stdout and "Finished" not in ended.stdout
    assert site.results()["run"]["status"] == "stopped"
