"""`adaptive-eval run` with servers that it starts itself: the same results, and no process left behind."""

import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from live_runs import MODELS, RunOutcome, Site, kill
from patient_time import HANGS
from ports import HOST, held_port
from process_list import all_end, commands
from stored_runs import events_in
from typer.testing import CliRunner
from warm_start import WarmProcess

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.cli import app
from adaptive_eval.notes import RunFinished, ServerDied, ServerLaunched
from adaptive_eval.supplies.launched import file_name

SERVER = Path(__file__).with_name("small_server.py")
TRIALS = {"min": 4, "max": 12, "optimize": "cost"}
AHEAD = {**TRIALS, "optimize": "time"}
STARTING = ("--dry-run", "--start-servers")


def launching(folder: Path, *flags: str) -> dict[str, object]:
    """A `launch` section whose command can be told by its last word."""
    return {"command": [sys.executable, "-S", str(SERVER), "{port}", *flags, str(folder)], "timeout": HANGS}


def launched(site: Site, *flags: str) -> list[dict[str, object]]:
    return [{"name": name, "launch": launching(site.folder, *flags)} for name in MODELS]


def servers(site: Site) -> list[str]:
    """The processes of servers and their keepers."""
    return [pid for pid, command in commands() if str(SERVER) in command and str(site.folder) in command]


def none_left(site: Site) -> bool:
    return all_end(lambda: servers(site))


@pytest.fixture(autouse=True)
def places_of_its_own(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test waits for a place that another process on this machine holds."""
    monkeypatch.setenv("TMPDIR", str(site.folder))
    monkeypatch.setattr(tempfile, "tempdir", str(site.folder))


@pytest.fixture(autouse=True)
def nothing_is_left(site: Site) -> Iterator[None]:
    """Whatever a test does, no server is left behind."""
    yield
    assert none_left(site)


def wait_for_server(port: int) -> None:
    deadline = time.monotonic() + HANGS
    while True:
        with suppress(ConnectionRefusedError):
            socket.create_connection((HOST, port)).close()
            return
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> RunOutcome:
    """What the run finds where someone else serves its models."""
    with held_port() as port:
        site = Site.make(tmp_path_factory.mktemp("elsewhere"), f"http://{HOST}:{port}/v1")
        command = [sys.executable, "-S", str(SERVER), str(port), str(site.folder)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            try:
                wait_for_server(port)
                site.run(site.write(trials=AHEAD))
            finally:
                process.kill()
    return RunOutcome.of(site.directory())


def require_same(outcome: RunOutcome, other: RunOutcome) -> None:
    """Both have all that is in their looks. How many trials were asked ahead of looks depends on the time."""
    assert outcome.looks == other.looks
    shared = outcome.outcomes.keys() & other.outcomes.keys()
    assert {trial: outcome.outcomes[trial] for trial in shared} == {trial: other.outcomes[trial] for trial in shared}
    last = outcome.looks[-1]
    assert isinstance(last, dict)
    stored = Counter(model for model, _, _ in shared)
    assert all(stored[MODELS[at]] >= trials for at, trials in enumerate(last["trials"]))


def printed(process: WarmProcess, word: str) -> str:
    """Read what a process prints until a line has this word."""
    while word not in (line := process.stdout.readline()):
        assert line, process.stderr.read()
    return line


@pytest.mark.slow
def test_launched_servers_give_the_results_of_external_ones(site: Site, elsewhere: RunOutcome) -> None:
    ended = site.run(site.write(trials=AHEAD, models=launched(site), pool=["gpu0"]))
    assert ended.exit_code == ExitCode.SPENT, ended.output
    require_same(RunOutcome.of(site.directory()), elsewhere)
    starts = events_in(site.directory(), ServerLaunched)
    document = site.results()
    assert {row["model"]: row["starts"] for row in document["servers"]} == {
        name: sum(event.model == name for event in starts) for name in MODELS
    }
    assert "the small server starts" in (site.directory() / "logs" / f"{file_name('ada@gpu0')}.log").read_text()
    assert {event.on for event in starts} == {"gpu0"}


@pytest.mark.slow
def test_a_pool_finds_the_same_in_spite_of_a_kill_during_a_swap(site: Site, elsewhere: RunOutcome) -> None:
    settings = {"trials": AHEAD, "pool": [0, "1"]}
    config = site.write(models=launched(site), **settings)
    process = site.start(config, "--run-dir", str(site.directory()))
    printed(process, "cyd: starting its server on")  # which may be before the slower one of the others is ready
    kill(process)
    assert none_left(site)
    ended = site.run(config)
    assert ended.exit_code == ExitCode.SPENT, ended.output
    require_same(RunOutcome.of(site.directory()), elsewhere)
    starts = events_in(site.directory(), ServerLaunched)
    assert {launch.on for launch in starts} == {"0", "1"} and {launch.model for launch in starts} == set(MODELS)


@pytest.mark.slow
def test_a_model_that_one_place_of_a_pool_lacks_is_served_at_the_others(site: Site, elsewhere: RunOutcome) -> None:
    settings = {"trials": AHEAD, "pool": ["bare", "whole"]}
    ended = site.run(site.write(models=launched(site, "{place}"), **settings))
    assert ended.exit_code == ExitCode.SPENT, ended.output
    require_same(RunOutcome.of(site.directory()), elsewhere)
    assert ("ada", "bare") not in {(start.model, start.on) for start in events_in(site.directory(), ServerLaunched)}


@pytest.mark.slow
def test_a_server_that_dies_is_started_again_and_nothing_is_lost(site: Site, elsewhere: RunOutcome) -> None:
    ended = site.run(site.write(trials=AHEAD, models=launched(site, "crash")))
    assert ended.exit_code == ExitCode.SPENT, ended.output
    pattern = r"ada: its server was killed by SIGKILL \(log: \S+ada\.log\); restarting it \(1 of 3\)"
    assert re.search(pattern, ended.stdout)
    require_same(RunOutcome.of(site.directory()), elsewhere)
    (died,) = events_in(site.directory(), ServerDied)
    assert died.model == "ada"


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_no_server_is_left_when_the_run_is_killed_or_stopped(site: Site, number: signal.Signals) -> None:
    process = site.start(site.write(models=launched(site, "held")))
    for _ in MODELS:
        printed(process, "is ready after")
    assert len(servers(site)) == 6, "three servers and their keepers"
    process.send_signal(number)
    if number is signal.SIGINT:
        printed(process, "interrupt again to stop at once")
        process.send_signal(number)
        out, err = process.communicate(timeout=HANGS)
        assert process.returncode == ExitCode.STOPPED, err
        assert "Stopped. The same command continues" in out
        assert not servers(site)
    assert none_left(site)


AN_HOUR_OF_GRACE = """
from adaptive_eval.launch import process
process.GRACE_SECONDS = 3600.0
from adaptive_eval.cli import main
main()
"""


@pytest.mark.slow
def test_a_finished_run_says_so_before_its_servers_have_ended(site: Site) -> None:
    """Ctrl-C then ends the wait, and changes nothing else."""
    config = site.write(trials={"min": 4, "max": 4}, models=launched(site, "stubborn"))
    script = site.folder / "an_hour_of_grace.py"
    script.write_text(AN_HOUR_OF_GRACE)
    process = WarmProcess(["run", str(config), "--display", "plain"], site.folder, script)
    site.processes.append(process)
    printed(process, "stopping  3 servers (at once with Ctrl-C)")
    assert len(servers(site)) == 6, "three servers and their keepers"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=HANGS)
    assert (process.returncode, err) == (ExitCode.SPENT, "")
    assert not servers(site)
    assert len(events_in(site.directory(), RunFinished)) == 1


@pytest.mark.slow
def test_a_run_waits_for_a_place_that_another_run_holds(site: Site) -> None:
    first = site.start(site.write("first", models=launched(site, "held"), pool=["gpu0"]))
    printed(first, "ada: its server is ready")
    config = site.write("second", trials={"min": 4, "max": 4}, models=launched(site), pool=["gpu0"])
    second = site.start(config)
    line = printed(second, "waiting for gpu0, which")
    assert line.startswith(f"waiting for gpu0, which is used by the run first (process {first.pid}, since 20")
    assert len(servers(site)) == 2, "a server and its keeper"
    second.send_signal(signal.SIGINT)
    out, err = second.communicate(timeout=HANGS)
    assert second.returncode == ExitCode.STOPPED, err
    rehearsed = CliRunner().invoke(app, ["run", str(config), "--dry-run"])
    assert rehearsed.exit_code == ExitCode.REACHED
    when = rf"ok    ada  on gpu0  would be started when the run first \(process {first.pid}, since \S+\) has ended: "
    assert re.search(when, rehearsed.stdout)
    second = site.start(config)
    printed(second, "waiting for gpu0, which")
    first.send_signal(signal.SIGKILL)
    first.communicate()
    assert re.search(r"on gpu0 after \d+s of waiting", printed(second, "ada: starting its server"))
    second.communicate(timeout=HANGS)
    assert second.returncode == ExitCode.SPENT


@pytest.mark.slow
def test_a_server_that_does_not_start_takes_the_others_with_it(site: Site) -> None:
    models = launched(site, "slow")
    models[1]["launch"] = launching(site.folder, "broken")
    ended = site.run(site.write(models=models))
    assert ended.exit_code == ExitCode.ENDPOINTS
    assert re.search(
        r"error: bob: its server exited with status 1 before it was ready \(log: \S+bob\.log\)\n"
        r"  the small server starts[^\n]*\n  CUDA out of memory\n",
        ended.stderr,
    )
    assert not servers(site)
    assert "Traceback" not in ended.stderr


def test_a_missing_program_is_reported_before_anything_is_started(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(site.folder)
    models = launched(site)
    models[2] = {"name": "cyd", "model": "org/cyd", "launch": {}}
    config = site.write(models=models)
    environment = {"PATH": str(site.folder)}
    refused = CliRunner().invoke(app, ["run", str(config), "--display", "plain"], env=environment)
    assert refused.exit_code == ExitCode.CONFIGURATION
    assert "cyd: the program vllm is not found on the PATH; pip install vllm, or set launch.command" in refused.stderr
    result = CliRunner().invoke(app, ["validate", str(config)], env=environment)
    assert result.exit_code == 0
    assert "warning: cyd: the program vllm is not found on the PATH" in result.stdout


def test_a_dry_run_starts_nothing_and_says_what_would_be_started(site: Site) -> None:
    models = launched(site)
    models[2] = {"name": "cyd", "launch": {"command": "no-such-server --port {port}"}}
    result = site.run(site.write(models=models, pool=["gpu0", "gpu1"]), "--dry-run")
    assert result.exit_code == ExitCode.ENDPOINTS
    assert (
        f"ok    ada  on gpu0 or gpu1  would be started: {sys.executable} -S {SERVER} PORT {site.folder}"
        in result.stdout
    )
    assert "FAIL  cyd  on gpu0 or gpu1  the program no-such-server is not found on the PATH" in result.stdout
    assert not site.directory().exists()


def test_a_dry_run_says_what_would_be_started_on_a_cluster_and_joins_none(site: Site) -> None:
    launch = {"command": "no-such-server --port {port}"}
    would = "would be started on the cluster: no-such-server --port PORT"
    for sites, pool, where in ((3, None, "3 sites"), (1, 3, "a shared site")):
        models = [{"name": name, "launch": launch | {"sites": sites}} for name in ("ada", "cyd")]
        result = site.run(site.write(models=models, pool=pool), "--dry-run", "--ray", "auto")
        assert result.exit_code == ExitCode.REACHED, result.output
        assert all(f"ok    {name}  {where}  {would}\n" in result.stdout for name in ("ada", "cyd"))
    local_config = site.write(models=models, pool=[0, 1])
    refused = site.run(local_config, "--dry-run", "--ray", "auto")
    assert refused.exit_code == ExitCode.CONFIGURATION and "as in pool: 8" in refused.output
    assert not site.directory().exists()


@pytest.mark.slow
def test_a_dry_run_may_start_every_server_ask_it_and_stop_it(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(site.folder))
    models = launched(site)
    models[1]["launch"] = launching(site.folder, "broken")
    models.append({"name": "eve", "launch": launching(site.folder)})
    result = CliRunner().invoke(app, ["run", str(site.write(models=models)), *STARTING])
    assert result.exit_code == ExitCode.ENDPOINTS
    states = [line.split()[:2] for line in result.stdout.splitlines() if line.startswith(("ok ", "FAIL "))]
    assert states == [["ok", "ada"], ["FAIL", "bob"], ["ok", "cyd"], ["FAIL", "eve"]]
    assert result.stdout.splitlines()[-1].startswith("Next: fix")
    assert "exited with status 1 before it was ready" in result.stdout and "CUDA out of memory" in result.stdout
    assert "its server has no model 'eve', only ada, bob, cyd" in result.stdout
    assert not servers(site)
    (log,) = set(re.findall(r"\(log: (\S+bob\.log)\)", result.stdout))
    assert "CUDA out of memory" in Path(log).read_text()
    CliRunner().invoke(app, ["run", str(site.write(models=models[:1])), *STARTING])
    assert len(list(site.folder.glob("adaptive-eval-check-*"))) == 1, "where all is well, nothing is kept"
