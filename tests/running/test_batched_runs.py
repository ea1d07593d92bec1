"""Whole runs through batch services over HTTP: the same looks as asked directly, through faults, kills and stops."""

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path

import pytest
from killed_in_batches import POINTS
from live_runs import ENDED, MODELS, RunOutcome, Site, models_at, printed, small_world
from patient_time import HANGS
from stored_runs import stored_events
from warm_start import WarmProcess

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.notes import AnswersLost, events_of_kind
from adaptive_eval.notes.batches import pending_batches
from adaptive_eval.report.view import read_view
from adaptive_eval.show.markdown import markdown, summary
from adaptive_eval.simulate.faults import BatchHabits
from adaptive_eval.simulate.server import SimulatedServer, serving
from adaptive_eval.supplies.batches.calls import BatchCalls

SCRIPT = Path(__file__).with_name("killed_in_batches.py")
TRIALS = {"min": 4, "max": 16}
PRICED = {"price": {"input": 1.0, "output": 1.0}}
HOUR = 3600.0


@pytest.fixture(autouse=True)
def quick_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BatchCalls, "first_poll", 0.02)
    monkeypatch.setattr(BatchCalls, "longest_poll", 0.05)
    monkeypatch.setattr(BatchCalls, "retry_pause", 0.02)


class AgedBatches(SimulatedServer):
    """Batches that take an hour, and have the age that a test sets once each model has one."""

    age = 0.0

    def _now(self) -> float:
        """Seconds since it started."""
        return self.age if len(self._api.batches._batches) >= len(MODELS) else 0.0


@contextmanager
def aged(age: float) -> Iterator[tuple[AgedBatches, str]]:
    server = AgedBatches(small_world(), batches=BatchHabits(seconds=HOUR))
    server.age = age
    with serving(server) as url:
        yield server, url


@contextmanager
def service(**habits: float) -> Iterator[tuple[SimulatedServer, str]]:
    server = SimulatedServer(small_world(), batches=BatchHabits(**{"seconds": 0.05, **habits}))  # type: ignore[arg-type]
    with serving(server) as url:
        yield server, url


def batched(url: str, kind: str = "openai") -> list[dict[str, object]]:
    return models_at(url, batch=kind)


def undisturbed(site: Site, **changes: object) -> RunOutcome:
    """What the same run finds with a service without faults."""
    with service() as (_, url):
        return site.finished("plain", models=batched(url), trials=TRIALS, **changes)


def ended_well(site: Site, config: Path) -> RunOutcome:
    site.run(config, code=ENDED)
    return RunOutcome.of(site.directory())


def test_a_cap_reserves_the_worst_case_at_batch_prices(site: Site) -> None:
    """A prompt has at most 512 tokens more than bytes, an answer 2,000: of $0.5 a million each, some 400 answers."""
    with service() as (server, url):
        models = [model | PRICED for model in batched(url)]
        site.finished(models=models, trials=TRIALS, budget={"usd": 0.13})
        spent = site.results()["cost"]
        assert 0.0 < spent["usd"] <= 0.13 and spent["trials"] == server.batch_counts["answered"] >= 96


@pytest.mark.slow
def test_a_stopped_run_leaves_its_batches_to_the_next_start(site: Site) -> None:
    with aged(0.0) as (server, url):
        config = site.write(models=batched(url), trials={"min": 4, "max": 4})
        process = site.start(config, "--run-dir", str(site.directory()))
        for _ in MODELS:
            printed(process, "submitted a batch")
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=HANGS)
        assert process.returncode == ExitCode.STOPPED
        assert "pending   " in output and " requests, the oldest for " in output
        assert "stopping: " in output and "waiting for 96" not in output, "what is at a service is not waited for"
        assert len(pending_batches(stored_events(site.directory()))) == len(MODELS)
        server.age = HOUR
        result = ended_well(site, config)
    assert server.batch_counts["answered"] == len(result.outcomes) == 96 and server.batch_counts["created"] == 3


def stopped_with_batches(site: Site, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start that is interrupted once each model has a batch at the service."""
    polled = list[object]()

    async def interrupted(calls: BatchCalls, state: object) -> None:
        polled.append(state)
        if len(polled) == len(MODELS):
            os.kill(os.getpid(), signal.SIGINT)
        await asyncio.Event().wait()

    with monkeypatch.context() as patch:
        patch.setattr(BatchCalls, "_polled", interrupted)
        site.run(config, code=ExitCode.STOPPED)
    assert len(pending_batches(stored_events(site.directory()))) == len(MODELS)
    view = read_view(site.directory())
    assert view.results is None, "batches are in reports before the first look, too"
    assert f"\npending   {len(MODELS)} batches pending (" in summary(view)
    assert "Pending at batch services" in markdown(view)


def test_batches_of_a_removed_model_stay_reserved_until_it_is_back(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Charging them as lost would count their answers twice once they come."""
    with service() as (server, url):
        models = [model | PRICED for model in batched(url)]
        more = {"trials": TRIALS, "budget": {"usd": 9.0}}
        config = site.write("all", models=models, **more)
        stopped_with_batches(site, config, monkeypatch)
        fewer = site.run(site.write("fewer", models=models[:2], **more))
        assert f"those of {MODELS[2]}, no longer in the run, stay at the service" in fewer.stdout, fewer.output
        (row,) = site.results()["cost"]["beside"]
        assert row["what"] == "left" and row["usd"] > 0.0 and not row["answers"], "they are reserved, and not lost"
        result = ended_well(site, config)
    assert server.batch_counts["answered"] == len(result.outcomes), "nothing was paid for twice"
    assert not events_of_kind(stored_events(site.directory()), AnswersLost) and not site.results()["cost"]["beside"]
    assert pending_batches(stored_events(site.directory())) == []


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
def test_batches_of_models_asked_directly_are_cancelled(site: Site, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    with service(seconds=HOUR) as (server, url):
        stopped_with_batches(site, site.write(models=batched(url, kind), trials=TRIALS), monkeypatch)
        asked = sum(len(batch.requests) for batch in pending_batches(stored_events(site.directory())))
        ended_well(site, site.at(url).write("direct", trials=TRIALS))
        cancelled = [batch.cancelled is not None for batch in server._api.batches._batches.values()]
    run_events = stored_events(site.directory())
    assert pending_batches(run_events) == [] and cancelled == [True] * len(MODELS)
    assert sum(event.answers for event in events_of_kind(run_events, AnswersLost) if event.killed) == asked > 0


def killed_at(point: str, site: Site, config: Path) -> tuple[int, str]:
    """The exit code and the errors of a run that is killed at that point."""
    process = WarmProcess([point, "run", str(config), "--run-dir", str(site.directory())], site.folder, SCRIPT)
    _, errors = process.communicate(timeout=HANGS)
    return process.wait(), errors


@pytest.mark.slow
@pytest.mark.parametrize(("point", "kind"), list(zip(POINTS, cycle(["anthropic", "openai"]), strict=False)))
def test_a_kill_at_any_point_pays_nothing_twice(site: Site, kind: str, point: str) -> None:
    with service(seconds=0.2) as (server, url):
        config = site.write(models=batched(url, kind), trials=TRIALS, budget={"tokens": 3_000_000})
        status, errors = killed_at(point, site, config)
        assert status == -signal.SIGKILL, errors
        result = ended_well(site, config)
    if kind == "openai":  # the other has no seeds
        assert result == undisturbed(site, budget={"tokens": 3_000_000})
    run_events = stored_events(site.directory())
    assert pending_batches(run_events) == []
    # a batch that was planned, and was not created, may have been for all that a service without metadata says
    lost = sum(event.answers for event in events_of_kind(run_events, AnswersLost))
    assert (lost > 0) == (point == "planned" and kind == "anthropic")
    assert server.batch_counts["answered"] == len(result.outcomes), "nothing was paid for twice"
