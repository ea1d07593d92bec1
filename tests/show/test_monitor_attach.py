"""A run watched from another terminal."""

import asyncio
import io
import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import typed
from gated import GatedServer
from live_runs import MODELS, Site, small_world, wait_for_trials
from patient_time import HANGS, until
from played import Played
from rich.console import Console

from adaptive_eval.base.errors import ExitCode, StoreError
from adaptive_eval.core.types import Cause, Cost, Reason
from adaptive_eval.machine.charges import Charge, ChargeKind
from adaptive_eval.notes import Event, ModelSetAside, ReplicaLost, RunFinished, RunStopped, ServersNoticed
from adaptive_eval.report.lines import Scale
from adaptive_eval.report.looks import plain_look, read_look
from adaptive_eval.report.reader import RunReader
from adaptive_eval.show import live
from adaptive_eval.show.displays import JsonDisplay, PlainDisplay
from adaptive_eval.show.live import LiveDisplay
from adaptive_eval.show.serve import attach as attaching
from adaptive_eval.show.serve.attach import attach, build_ended_from_feed, status_text, stored_status
from adaptive_eval.show.serve.feed import Feed
from adaptive_eval.simulate.server import serving
from adaptive_eval.store.read import StoredLook

Play = Callable[..., Played]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attaching, "POLL_SECONDS", 0.01)


async def play_on(run: Played) -> None:
    """Continue to the end in small steps."""
    while run.controller.finished is None:
        run.step(40)
        await asyncio.sleep(0.01)
    run.finish()


def opened(run: Played) -> Feed:
    feed = Feed(run.directory)
    feed.poll()
    return feed


async def test_json_and_plain_lines_have_the_latest_look_then_each_new_one_and_the_end(play: Play) -> None:
    run, out, plain = play(), io.BytesIO(), io.StringIO()
    while len(run.controller.looks) < 3:
        run.step()
    following = attach(opened(run), JsonDisplay(out)), attach(opened(run), PlainDisplay(plain))
    code, same, _ = await asyncio.gather(*following, play_on(run))
    assert code is same and code in (ExitCode.REACHED, ExitCode.SPENT)
    lines = plain.getvalue().splitlines()
    assert lines[0] == "played: running" and lines[1].startswith("promise: ") and lines[2].startswith("look 3: ")
    assert any(line.startswith("Finished: ") for line in lines)
    records = [json.loads(line) for line in out.getvalue().splitlines()]
    looks = [record["look"] for record in records if record["record"] == "look"]
    assert looks == list(range(3, len(run.controller.looks) + 1)), "counted from 1"
    assert records[0] == {"record": "opened", "run": "played"} and records[-1]["record"] == "ended"
    assert records[-1]["exit_code"] == code and records[-1]["trials"] == run.store_trials
    last = next(record for record in reversed(records) if record["record"] == "look")
    assert last["trials"] == sum(run.controller.looks[-1].trials)


async def test_the_live_view_is_that_of_run_without_what_run_knows(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "REFRESH_SECONDS", 0.01)
    run = play(budget={"trials": 500})
    console = Console(file=io.StringIO(), force_terminal=True, width=110, height=40, record=True)
    display, seen = LiveDisplay(Scale(0.0, 1.0), console=console), []

    async def look_at_it() -> None:
        """Before it is over."""
        while not (seen and "95% interval" in seen[-1]):
            probe = Console(file=io.StringIO(), width=110, height=40)
            probe.print(display._draw())
            seen.append(probe.file.getvalue())  # type: ignore[attr-defined]
            await asyncio.sleep(0.01)
        await play_on(run)

    while len(run.controller.looks) < 2:
        run.step(20)
    await asyncio.gather(attach(opened(run), display), look_at_it())
    for word in ("ada", "95% interval", "verdict", "trials/s", "of 500", "retries"):
        assert word in seen[-1]
    assert "in flight" not in seen[-1] and "errors" not in seen[-1]
    assert "tier  model" in console.export_text()


def test_before_the_first_look_the_status_shows_each_model_so_far(play: Play) -> None:
    run = play()
    assert not run.step(5)
    run.commit([], [], [ServersNoticed("ada", "sent_again", "a request has waited for 60 s")])
    text = status_text(opened(run))
    assert "\nwarning   ada: a request has waited for 60 s\n" in text
    for model in MODELS:
        assert re.search(rf"^  {model} +\d+ answers$", text, re.MULTILINE), text
    assert sum(map(int, re.findall(r"(\d+) answers", text))) == 5


async def test_only_events_of_this_start_are_shown(play: Play) -> None:
    run = play()
    run.commit([], [], [ReplicaLost(model="ada", replica="http://old/v1")])
    run.step()
    run.stop()
    run = play()
    run.commit([], [], [ReplicaLost(model="ada", replica="http://127.0.0.1:9/v1")])
    out, feed = io.StringIO(), opened(run)
    assert (stored_status(feed).traffic.healthy_replicas, stored_status(feed).traffic.replicas) == (2, 3)
    run.stop()
    feed.poll()
    assert await attach(feed, PlainDisplay(out)) is ExitCode.STOPPED
    assert "http://127.0.0.1:9/v1 is lost" in out.getvalue() and "http://old/v1" not in out.getvalue()
    assert "resumed with 20 stored trials" in out.getvalue()


async def test_a_resume_with_other_models_ends_the_monitor(play: Play) -> None:
    run, at_once, polls = play(), threading.Lock(), list[bool]()
    run.step(60)
    feed = opened(run)
    poll = feed.poll

    def poll_apart() -> bool:
        with at_once:
            polls.append(poll())
            return polls[-1]

    feed.poll = poll_apart  # type: ignore[method-assign]

    async def others() -> None:
        await until(lambda: polls)
        with at_once:  # nobody sees that it is over in between
            run.stop()
            play(models=("bob", "cyd"))

    with pytest.raises(StoreError, match="has other models now"):
        await asyncio.gather(attach(feed, PlainDisplay(io.StringIO())), others())


def test_a_stored_look_is_read_as_it_was_taken(play: Play) -> None:
    run = play()
    while run.controller.finished is None:
        run.step(100)
    feed = opened(run)
    for stored, look in zip(feed.sums.looks, run.controller.looks, strict=True):
        assert repr(read_look(stored).look) == repr(look)  # nan is no nan's equal
        plain = plain_look(look, ("x", "y", "z"), capped_opening=False)
        assert repr(read_look(StoredLook(look.index, 0, 0.0, plain)).look) == repr(look)
    look = run.controller.looks[0]
    plain = plain_look(look, ("x", "y", "z"), capped_opening=False)
    pairs = [pair | {"p": 0.03} for pair in plain["comparisons"]]  # type: ignore[attr-defined]
    assert read_look(StoredLook(0, 0, 0.0, {**plain, "comparisons": pairs})).look == look, "that of a later version"
    without = [{key: value for key, value in pair.items() if key != "rho"} for pair in pairs]
    for broken in ([pair | {"rho": "much"} for pair in pairs], without):
        with pytest.raises(StoreError, match="look 0 is not a valid look"):
            read_look(StoredLook(0, 0, 0.0, {**plain, "comparisons": broken}))


@pytest.mark.parametrize(
    ("events", "code"),
    [
        ([RunStopped()], ExitCode.STOPPED),
        ([ModelSetAside("ada", "no grade", cause=Cause.GRADER), RunFinished(Reason.BLOCKED)], ExitCode.SPENT),
    ],
)
def test_the_exit_code_is_that_of_the_run(play: Play, events: list[Event], code: ExitCode) -> None:
    run = play()
    run.step(60)
    run.commit([], [], events)
    run.close()
    assert build_ended_from_feed(opened(run)).exit_code is code


def test_the_exit_code_depends_on_the_gate_also_of_a_run_that_was_killed_after_its_last_trial(play: Play) -> None:
    run = play(objective={"kind": "baseline", "baseline": "ada", "gate": True})
    while run.controller.finished is None:
        run.step(200)
    run.close()
    feed = opened(run)
    ending = build_ended_from_feed(feed)
    assert feed.results is not None and feed.results.run.status == "finished"
    assert ending.reason is run.controller.finished
    assert ending.exit_code is ExitCode.WORSE
    assert {row.model: row.outcome for row in ending.gate} == {"bob": "FAIL", "cyd": "FAIL"}


def test_a_start_that_was_killed_after_an_end_is_shown_as_killed(play: Play) -> None:
    run = play()
    run.step(60)
    run.commit([], [], [ModelSetAside("ada", "no grade", cause=Cause.GRADER), RunFinished(Reason.BLOCKED)])
    run.finish()
    play().close()
    feed = opened(run)
    ending = build_ended_from_feed(feed)
    assert feed.results is not None
    assert (feed.results.run.status, ending.reason, ending.exit_code) == ("killed", None, ExitCode.STOPPED)
    assert ending.why.startswith("Killed: ")


def test_losses_after_the_last_look_are_in_its_warnings(play: Play) -> None:
    run = play()
    run.step(60)
    run.stop()
    run = play()
    run.store.append(*(Charge(ChargeKind.KILLED, what, 0, 3, Cost(70, 0.0, 0.0)) for what in ("answer", "verdict")))
    run.close()
    results = opened(run).results
    assert results is not None
    (lost,) = (warning.text for warning in results.warnings if warning.kind == "lost")
    assert lost.startswith("3 answers and 3 verdicts of its judge requested, but never received")


# -- the command -------------------------------------------------------------------------------------------------------


def test_monitor_follows_a_real_run_to_its_end(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    gated, begun = GatedServer(small_world(), 20), attaching._DisplayUpdater.catch_up

    def catch_up(shown: attaching._DisplayUpdater) -> None:
        begun(shown)
        gated.open()  # however long the monitor takes to begin, the run is not over by then

    monkeypatch.setattr(attaching._DisplayUpdater, "catch_up", catch_up)
    with serving(gated) as url:
        process = site.start(replace(site, base_url=url).write())
        assert wait_for_trials(site.directory(), 1, process)
        shown = typed("monitor", site.directory(), "--display", "plain")
        assert process.wait(HANGS) == shown.exit_code, shown.output
    assert "run: running" in shown.stdout and "tier  model" in shown.stdout
    again = typed("monitor", site.directory(), "--display", "plain")
    assert "tier  model" in again.stdout and "running" not in again.stdout, "a run that is over"
    printed = process.stdout.read().split("tier  model")[1]  # type: ignore[union-attr]
    monitored = shown.stdout.split("tier  model")[1]
    assert monitored.splitlines()[:4] == printed.splitlines()[:4], "both say what was found"


def test_once_shows_a_run_that_goes_on_and_one_that_is_over(play: Play) -> None:
    run = play()
    name = str(run.directory)
    assert "look 1 is not complete yet: 0 trials" in typed("monitor", name, "--once", code=ExitCode.RUNNING).stdout
    while not run.step(20):
        pass
    later = typed("monitor", name, "--once", code=ExitCode.RUNNING)
    assert "played · look 1" in later.stdout and "tier  model" in later.stdout and "Finished" not in later.stdout
    record = typed("monitor", name, "--once", "--display", "json")
    assert [json.loads(line)["record"] for line in record.stdout.splitlines()] == ["opened", "event", "look"]
    run.finish()
    over = typed("monitor", name, "--once", "--display", "plain")
    assert over.exit_code in (ExitCode.REACHED, ExitCode.SPENT) and "Finished" in over.stdout


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=str)
def test_the_monitor_can_be_ended_and_the_run_goes_on(play: Play, number: signal.Signals) -> None:
    run = play()
    run.step()
    command = [sys.executable, "-m", "adaptive_eval", "monitor", str(run.directory), "--display", "plain"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "played: running\n"
        process.send_signal(number)
        _, errors = process.communicate(timeout=HANGS)
    assert (process.returncode, errors) == (ExitCode.RUNNING, "the run continues\n")
    run.step()
    assert RunReader(run.store.reader).trial_count() == 40


def test_missing_runs_and_bad_options_are_refused(tmp_path: Path, play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "nothing does not exist" in typed("monitor", tmp_path / "nothing", "--once", code=ExitCode.FAILED).stderr
    assert "need --web" in typed("monitor", tmp_path, "--port", "80", code=ExitCode.CONFIGURATION).stderr
    both = typed("monitor", tmp_path, "--web", "--once")
    assert both.exit_code == ExitCode.CONFIGURATION and "cannot be used with --web" in both.stderr
    file = tmp_path / "file"
    file.touch()
    assert "is a file; name the folder of a run" in typed("monitor", file, "--web", code=ExitCode.FAILED).stderr
    play().close()
    for web in ((), ("--web",)):
        folder = typed("monitor", tmp_path / "runs", *web)
        assert folder.exit_code == ExitCode.CONFIGURATION and "give one of them: played" in folder.stderr
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    monkeypatch.setattr(attaching.time, "sleep", lambda seconds: pytest.fail("there is nothing to wait for"))
    (foreign / "run.sqlite").write_bytes(b"not a database at all" * 100)
    for web in ((), ("--web",)):
        assert "not an SQLite database" in typed("monitor", foreign, *web, code=ExitCode.FAILED).stderr


@pytest.mark.parametrize("web", [(), ("--web",)])
def test_a_missing_run_is_reported_at_once(
    tmp_path: Path, play: Play, web: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attaching.time, "sleep", lambda seconds: pytest.fail("nobody asked to wait"))
    directory = play().directory
    slip = directory.with_name(directory.name + "x")
    assert f"{slip} does not exist; did you mean {directory}?" in typed("monitor", slip, *web).stderr
    result = typed("monitor", directory.with_name("something-else"), *web, code=ExitCode.FAILED)
    assert f"the runs in {directory.parent} are {directory.name}" in result.stderr
    assert " has no runs" in typed("monitor", tmp_path / "none" / "a", *web, code=ExitCode.FAILED).stderr
    monkeypatch.chdir(tmp_path)
    assert "absent does not exist; this folder has no runs" in typed("monitor", "absent", *web).stderr
