"""Whole runs by the machine through batch services over HTTP: kills at every point, and stops."""

import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import cycle
from pathlib import Path

import pytest
from killed_in_batches import POINTS
from live_runs import MODELS, Site, small_world
from patient_time import HANGS
from road_runs import Outcome, in_flight, lost, pending, run

from adaptive_eval.base.errors import StoreError
from adaptive_eval.notes.batches import PendingBatch
from adaptive_eval.simulate.faults import BatchHabits
from adaptive_eval.simulate.server import SimulatedServer, serving
from adaptive_eval.supplies.batches.calls import BatchCalls

pytestmark = pytest.mark.slow
SCRIPT = Path(__file__).with_name("killed_in_batches.py")
TRIALS = {"min": 4, "max": 16}
CAPPED = {"budget": {"tokens": 3_000_000}}
FAULTS = {"errored": 0.1, "left_out": 0.03, "doubled": 0.1, "strange": 0.1, "expired": 0.2, "refused": 0.2, "lost": 0.2}
MOST_KILLS = 3


@pytest.fixture(autouse=True)
def quick_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BatchCalls, "first_poll", 0.02)
    monkeypatch.setattr(BatchCalls, "longest_poll", 0.05)
    monkeypatch.setattr(BatchCalls, "retry_pause", 0.02)


@contextmanager
def service(**habits: float) -> Iterator[tuple[SimulatedServer, str]]:
    server = SimulatedServer(small_world(), batches=BatchHabits(**{"seconds": 0.05, **habits}))  # type: ignore[arg-type]
    with serving(server) as url:
        yield server, url


def batched(url: str, kind: str = "openai", **more: object) -> list[dict[str, object]]:
    return [{"name": name, "base_url": url, "batch": {"kind": kind, **more}} for name in MODELS]


def undisturbed(site: Site, **changes: object) -> Outcome:
    """The same run with a service without faults."""
    with service() as (_, url):
        config = site.write("plain", models=batched(url), trials=TRIALS, **changes)
        return run(config, site.directory("plain"))


def killed_at(point: str, site: Site, config: Path) -> tuple[int, str]:
    """How a run ends that is killed where it comes to that point, and what it prints."""
    process = started(point, site, config)
    _, printed = process.communicate(timeout=HANGS)
    return process.returncode, printed


def started(point: str, site: Site, config: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, str(SCRIPT), point, str(config), str(site.directory())]
    process = subprocess.Popen(command, cwd=site.folder, stderr=subprocess.PIPE, text=True)
    site.processes.append(process)
    return process


@pytest.mark.parametrize(("point", "kind"), list(zip(POINTS, cycle(["openai", "openrouter"]), strict=False)))
def test_a_kill_at_any_point_pays_nothing_twice(site: Site, kind: str, point: str) -> None:
    with service(seconds=0.2) as (server, url):
        config = site.write(models=batched(url, kind), trials=TRIALS, **CAPPED)
        status, printed = killed_at(point, site, config)
        assert status == -signal.SIGKILL, printed
        outcome = run(config, site.directory())
    assert outcome == undisturbed(site, **CAPPED)
    assert pending(site.directory()) == []
    # a batch that was planned, and was not created, may have been for all that a service without metadata says
    assert (lost(site.directory()) > 0) == (point == "planned" and kind == "openrouter")
    assert server.batch_counts["answered"] == len(outcome.trials), "nothing was paid for twice"


@pytest.mark.parametrize("number", range(4))
def test_kills_one_after_the_other_among_faults_pay_nothing_twice(site: Site, number: int) -> None:
    """What the service has answered is stored, or lost and charged."""
    rng = random.Random(number)
    kind = rng.choice(["openai", "openrouter"])
    habits = {name: rng.choice([0.0, share, 2.0 * share]) for name, share in FAULTS.items()}
    failed = {"failed": rng.choice([0.0, 0.2]), "broken": rng.choice([0.0, 0.1])}
    capped: dict[str, object] = dict(CAPPED) if number % 2 == 0 else {}
    patient = {"in_flight": 8, "attempts": 50}  # no model is set aside
    with service(seconds=0.2, seed=number, **habits, **failed) as (server, url):
        config = site.write(models=batched(url, kind), trials=TRIALS, concurrency=patient, **capped)
        for point in rng.sample(POINTS, rng.randint(1, MOST_KILLS)):
            # a run may come to its end before the point comes again
            status, printed = killed_at(point, site, config)
            assert status in (-signal.SIGKILL, 0), printed
        outcome = run(config, site.directory())
    assert outcome == undisturbed(site, **capped)
    assert pending(site.directory()) == [] and in_flight(site.directory()) == 0
    answered = server.batch_counts["answered"] + server.counts["answered"]
    assert len(outcome.trials) <= answered <= len(outcome.trials) + lost(site.directory())


def test_a_stopped_run_leaves_its_batches_to_the_next_start(site: Site) -> None:
    with service(seconds=3600.0) as (server, url):
        config = site.write(models=batched(url), trials={"min": 4, "max": 4})
        process = started("no point", site, config)
        while sum(batch.batch is not None for batch in pending_of(site)) < len(MODELS):
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, printed = process.communicate(timeout=HANGS)
        assert process.returncode == 0, printed
        assert in_flight(site.directory()) == 96 and len(pending(site.directory())) == len(MODELS)
        server._now = lambda: 3600.0  # type: ignore[method-assign]
        outcome = run(config, site.directory())
    assert server.batch_counts["answered"] == len(outcome.trials) == 96 and server.batch_counts["created"] == 3
    assert lost(site.directory()) == 0


def pending_of(site: Site) -> list[PendingBatch]:
    with suppress(StoreError):
        return pending(site.directory())
    return []
