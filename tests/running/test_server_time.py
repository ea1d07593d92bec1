"""Server time of real servers: from ready to stopped, idle or not, and over kills."""

import json
import tempfile
from contextlib import closing
from pathlib import Path
from time import monotonic

import pytest
from live_runs import MODELS, Site, kill, trials_in, wait_until
from stored_runs import events_in
from test_launched_run import launched, none_left, servers

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.config.planning import ENDING_SECONDS
from adaptive_eval.core.types import Reason
from adaptive_eval.machine.clocks import HeldTime
from adaptive_eval.notes import RunFinished, ServerLaunched, ServerReleased
from adaptive_eval.report.reader import RunReader

TRIALS = {"min": 4, "max": 12}


@pytest.fixture(autouse=True)
def places_of_its_own(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(site.folder))
    monkeypatch.setattr(tempfile, "tempdir", str(site.folder))


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
    nothing_in_vain = {**TRIALS, "optimize": "cost"}
    begun = monotonic()
    ended = site.run(site.write(trials=nothing_in_vain, models=models))
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
    config = site.write(trials=TRIALS, models=launched(site, "held"))

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
    ended = site.run(config)
    assert ended.exit_code == ExitCode.SPENT, ended.output
    (finished,) = events_in(site.directory(), RunFinished)
    assert finished.reason is Reason.GPU_TIME
    assert "Stopped by the budget: servers were held for all its GPU hours." in ended.stdout
    held = sum(held_time.gpu_seconds for held_time in held_of(site.directory()).values())
    assert held >= 3 * gpus * seconds, "they were told to end with just the seconds left that they may take for it"
    before = len(events_in(site.directory(), ServerLaunched))
    again = site.run(config)
    assert again.exit_code == ExitCode.SPENT, again.output
    assert len(events_in(site.directory(), ServerLaunched)) == before, "nothing is started for which there is no time"
