"""Runs with servers that they start: the same results, times for which servers are held, no process left behind."""

import json
import re
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from time import monotonic

import pytest
from command_line import typed
from live_runs import MODELS, RunOutcome, Site, kill, printed, trials_in, wait_until
from patient_time import HANGS
from process_list import all_end, commands
from stored_runs import events_in
from warm_start import WarmProcess

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.config.planning import ENDING_SECONDS
from adaptive_eval.core.types import Reason
from adaptive_eval.machine.clocks import HeldTime
from adaptive_eval.notes import ModelSettled, RunFinished, ServerLaunched, ServerReleased
from adaptive_eval.report.reader import RunReader

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


@pytest.fixture(scope="module")
def always_served(tmp_path_factory: pytest.TempPathFactory) -> RunOutcome:
    """What the run finds where each model has its server from the first to the last."""
    site = Site.make(tmp_path_factory.mktemp("served"), "")
    return site.finished(trials=AHEAD, models=launched(site))


def require_same(outcome: RunOutcome, other: RunOutcome) -> None:
    """Both have all that is in their looks. How many trials were asked ahead of looks depends on the time."""
    assert outcome.looks == other.looks
    shared = outcome.outcomes.keys() & other.outcomes.keys()
    assert {trial: outcome.outcomes[trial] for trial in shared} == {trial: other.outcomes[trial] for trial in shared}
    stored = Counter(model for model, _, _ in shared)
    assert all(stored[MODELS[at]] >= trials for at, trials in enumerate(outcome.looks[-1]["trials"]))


@pytest.mark.slow
def test_a_pool_finds_the_same_in_spite_of_a_kill_during_a_swap(site: Site, always_served: RunOutcome) -> None:
    config = site.write(models=launched(site), trials=AHEAD, pool=[0, "1"])
    process = site.start(config, "--run-dir", str(site.directory()))
    printed(process, "cyd: starting its server on")  # which may be before the slower one of the others is ready
    kill(process)
    assert none_left(site)
    site.run(config, code=ExitCode.SPENT)
    require_same(RunOutcome.of(site.directory()), always_served)
    starts = events_in(site.directory(), ServerLaunched)
    assert {launch.on for launch in starts} == {"0", "1"} and {launch.model for launch in starts} == set(MODELS)


@pytest.mark.slow
def test_a_model_that_one_place_of_a_pool_lacks_is_served_at_the_others(site: Site, always_served: RunOutcome) -> None:
    outcome = site.finished(models=launched(site, "{place}"), trials=AHEAD, pool=["bare", "whole"])
    require_same(outcome, always_served)
    assert ("ada", "bare") not in {(start.model, start.on) for start in events_in(site.directory(), ServerLaunched)}


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
from adaptive_eval.launch import server
server.GRACE_SECONDS = 3600.0
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
    rehearsed = typed("run", config, "--dry-run", code=ExitCode.REACHED)
    when = rf"ok    ada  on gpu0  would be started when the run first \(process {first.pid}, since \S+\) has ended: "
    assert re.search(when, rehearsed.stdout)
    second = site.start(config)
    printed(second, "waiting for gpu0, which")
    first.send_signal(signal.SIGKILL)
    first.communicate()
    assert re.search(r"on gpu0 after \d+s of waiting", printed(second, "ada: starting its server"))
    second.communicate(timeout=HANGS)
    assert second.returncode == ExitCode.SPENT


def test_a_missing_program_is_reported_before_anything_is_started(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(site.folder)
    models = launched(site)
    models[2] = {"name": "cyd", "model": "org/cyd", "launch": {}}
    config = site.write(models=models)
    environment = {"PATH": str(site.folder)}
    refused = typed("run", config, "--display", "plain", code=ExitCode.CONFIGURATION, **environment)
    assert "cyd: the program vllm is not found on the PATH; pip install vllm, or set launch.command" in refused.stderr
    result = typed("validate", config, code=0, **environment)
    assert "warning: cyd: the program vllm is not found on the PATH" in result.stdout


def test_a_dry_run_starts_nothing_and_says_what_would_be_started(site: Site) -> None:
    models = launched(site)
    models[2] = {"name": "cyd", "launch": {"command": "no-such-server --port {port}"}}
    result = site.run(site.write(models=models, pool=["gpu0", "gpu1"]), "--dry-run", code=ExitCode.ENDPOINTS)
    command = f"{sys.executable} -S {SERVER} PORT {site.folder}"
    assert f"ok    ada  on gpu0 or gpu1  would be started: {command}" in result.stdout
    assert "FAIL  cyd  on gpu0 or gpu1  the program no-such-server is not found on the PATH" in result.stdout
    assert not site.directory().exists()


def test_a_dry_run_says_what_would_be_started_on_a_cluster_and_joins_none(site: Site) -> None:
    launch = {"command": "no-such-server --port {port}"}
    would = "would be started on the cluster: no-such-server --port PORT"
    for sites, pool, where in ((3, None, "3 sites"), (1, 3, "a shared site")):
        models = [{"name": name, "launch": launch | {"sites": sites}} for name in ("ada", "cyd")]
        result = site.run(site.write(models=models, pool=pool), "--dry-run", "--ray", "auto", code=ExitCode.REACHED)
        assert all(f"ok    {name}  {where}  {would}\n" in result.stdout for name in ("ada", "cyd"))
    refused = site.run(site.write(models=models, pool=[0, 1]), "--dry-run", "--ray", "auto")
    assert refused.exit_code == ExitCode.CONFIGURATION and "as in pool: 8" in refused.output
    assert not site.directory().exists()


@pytest.mark.slow
def test_a_dry_run_may_start_every_server_ask_it_and_stop_it(site: Site) -> None:
    models = launched(site)
    models[1]["launch"] = launching(site.folder, "broken")
    models.append({"name": "eve", "launch": launching(site.folder)})
    result = typed("run", site.write(models=models), *STARTING, code=ExitCode.ENDPOINTS)
    states = [line.split()[:2] for line in result.stdout.splitlines() if line.startswith(("ok ", "FAIL "))]
    assert states == [["ok", "ada"], ["FAIL", "bob"], ["ok", "cyd"], ["FAIL", "eve"]]
    assert result.stdout.splitlines()[-1].startswith("Next: fix")
    assert "exited with status 1 before it was ready" in result.stdout and "CUDA out of memory" in result.stdout
    assert "its server has no model 'eve', only ada, bob, cyd" in result.stdout
    assert not servers(site)
    (log,) = set(re.findall(r"\(log: (\S+bob\.log)\)", result.stdout))
    assert "CUDA out of memory" in Path(log).read_text()
    typed("run", site.write(models=models[:1]), *STARTING)
    assert len(list(site.folder.glob("adaptive-eval-check-*"))) == 1, "where all is well, nothing is kept"


SHORT = {"min": 4, "max": 12}


def held_of(directory: Path) -> dict[str, HeldTime]:
    with closing(RunReader.open(directory)) as reader:
        return reader.held_times()


def answered(site: Site) -> list[tuple[str, int, float]]:
    """By the servers themselves: whom they answered, which of their processes did, and when, by the machine's clock."""
    return [tuple(json.loads(line)) for line in (site.folder / "diary.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_servers_of_their_own_are_held_for_as_long_as_they_are_up(site: Site) -> None:
    """Idle or not; one whose comparisons are all settled is stopped, and no longer held."""
    models = [{**fields, "gpus": 2} for fields in launched(site, "diary")]
    begun = monotonic()
    ended = site.run(site.write(trials=TRIALS, models=models))  # in which nothing is asked in vain
    longest = monotonic() - begun
    assert ended.exit_code == ExitCode.SPENT, ended.output
    document = site.results()
    rows = {str(row["name"]): row for row in document["models"]}
    diary = answered(site)
    over, stopped = max(at for *_, at in diary), {event.model for event in events_in(site.directory(), ServerReleased)}
    assert {model for model, *_ in diary} == set(rows)
    for name, row in rows.items():
        by_process: dict[int, list[float]] = {}
        for model, process, at in diary:
            by_process.setdefault(process, []).extend([at] if model == name else [])
        used = sum(max(times) - min(times) for times in by_process.values() if times)
        idle_too = over - min(at for model, _, at in diary if model == name)
        seconds = float(str(row["server_seconds"]))
        assert (used if name in stopped else idle_too) <= seconds <= longest
        assert float(str(row["gpu_seconds"])) <= row["server_gpu_seconds"] == 2.0 * seconds
    cost = document["cost"]
    assert cost["server_seconds"] == pytest.approx(sum(row["server_seconds"] for row in rows.values()))  # type: ignore
    assert "GPU hours of requests, servers held for " in ended.stdout


@pytest.mark.slow
def test_a_kill_loses_none_of_the_time_before(site: Site) -> None:
    """The servers hold their answers back, so that all of them stay up as long as the test needs."""
    before = dict.fromkeys(MODELS, 0.0)
    config = site.write(trials=SHORT, models=launched(site, "held"))

    def longer() -> bool:
        """Whether each server was held for a second more; never is one held for less than it was."""
        now = held_of(site.directory()) if trials_in(site.directory()) else {}
        assert all(held_time.seconds >= before[name] for name, held_time in now.items())
        return all(name in now and now[name].up and now[name].seconds > before[name] + 1.0 for name in MODELS)

    for _ in range(2):
        process = site.start(config, "--run-dir", str(site.directory()))
        wait_until(longer, process)
        kill(process)
        assert none_left(site)
        before = {name: held_time.seconds for name, held_time in held_of(site.directory()).items()}
    assert not servers(site)


@pytest.mark.slow
def test_a_cap_on_gpu_hours_ends_the_run_when_servers_were_held_for_so_long(site: Site) -> None:
    """Idle or not, over all starts, and with the seconds that they may take to end. For requests nothing is reserved,
    each of which may take half an hour."""
    gpus, seconds = 100.0, 2.0
    cap = gpus * 3 * (seconds + ENDING_SECONDS) / 3600.0
    models = [{**model, "gpus": gpus} for model in launched(site, "slow")]
    config = site.write(models=models, budget={"gpu_hours": cap}, concurrency=200)
    ended = site.run(config, code=ExitCode.SPENT)
    (finished,) = events_in(site.directory(), RunFinished)
    assert finished.reason is Reason.GPU_TIME
    assert "Stopped by the budget: servers were held for all its GPU hours." in ended.stdout
    held = sum(held_time.gpu_seconds for held_time in held_of(site.directory()).values())
    assert held >= 3 * gpus * seconds, "they were told to end with just the seconds left that they may take for it"
    before = len(events_in(site.directory(), ServerLaunched))
    site.run(config, code=ExitCode.SPENT)
    assert len(events_in(site.directory(), ServerLaunched)) == before, "nothing is started for which there is no time"


IN_STEP = {"trials": {"min": 4, "max": 40, "optimize": "cost"}}
"""One look at a time: where several are taken at once, a model may be settled by no look but the last."""
LAST = MODELS[-1]
"""Far from the others, which are closer together."""


@pytest.mark.slow
def test_the_server_of_a_settled_model_goes_while_others_go_on_over_a_kill_and_a_resume(site: Site) -> None:
    """One model is settled after 80 answers; the others need many more, and give a hundred before the kill."""
    config = site.write(**IN_STEP, models=launched(site, "held=100"), concurrency=64)
    process = site.start(config, "--run-dir", str(site.directory()))
    printed(process, f"{LAST} is done: no more requests. Its server is stopped.")
    wait_until(lambda: events_in(site.directory(), ServerReleased), process)
    assert len(servers(site)) == 4, "two servers and their keepers go on"
    kill(process)
    assert none_left(site)
    (site.folder / "go").touch()
    held = held_of(site.directory())[LAST]
    before = len(events_in(site.directory(), ServerLaunched))
    site.run(config, code=(ExitCode.SPENT, ExitCode.REACHED))
    assert [event.model for event in events_in(site.directory(), ModelSettled)].count(LAST) == 1
    assert [event.model for event in events_in(site.directory(), ServerReleased)].count(LAST) == 1
    again = events_in(site.directory(), ServerLaunched)[before:]
    assert {event.model for event in again} <= set(MODELS[:-1]), "it is not started again"
    assert held.seconds > 0.0 and held_of(site.directory())[LAST] == held
