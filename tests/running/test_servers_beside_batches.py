"""Servers that the run starts are stopped while it waits for a batch of another model, and decide nothing by that."""

import json
import signal
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from live_runs import MODELS, Found, Site, kill, small_world
from patient_time import HANGS
from test_batched_runs import ended_well, events
from test_launched_run import launching, none_left, printed, servers

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.simulate.faults import BatchHabits
from adaptive_eval.simulate.server import SimulatedServer, serving
from adaptive_eval.store import BatchEnded, ServerLaunched, ServerRests, events_of_kind

HOUR = 3600.0
BATCHED, OWN = "bob", tuple(name for name in MODELS if name != "bob")
TRIALS = {"min": 4, "max": 16}
OPENING = 5 * 8
"""Answers of each model before the first look, on eight questions."""
WAITS = f"no requests before the batch of {BATCHED} is back"


class HourlyBatches(SimulatedServer):
    """Batches take an hour, and an hour is over whenever somebody looks after them and the test says so."""

    hours = 0
    over: Callable[[], bool] = staticmethod(lambda: False)

    def _now(self) -> float:
        """Seconds since it started."""
        self.hours += self.over()
        return self.hours * HOUR


@contextmanager
def hourly() -> Iterator[tuple[HourlyBatches, str]]:
    server = HourlyBatches(small_world(), batches=BatchHabits(seconds=HOUR))
    with serving(server) as url:
        yield server, url


@pytest.fixture(autouse=True)
def places_of_its_own(site: Site, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No test waits for a place that someone else on this machine has, and none leaves a server behind."""
    monkeypatch.setenv("TMPDIR", str(site.folder))
    monkeypatch.setattr(tempfile, "tempdir", str(site.folder))
    yield
    assert none_left(site)


def answers(site: Site) -> Counter[str]:
    """How many answers each model has given, by its server's diary, the last line of which may be half written."""
    diary = site.folder / "diary.jsonl"
    whole = diary.read_text().split("\n")[:-1] if diary.exists() else []
    return Counter(json.loads(line)[0] for line in whole)


def all_gone(site: Site) -> bool:
    """Every server has answered its first round, and none is up."""
    given = answers(site)
    return all(given[name] >= OPENING for name in OWN) and not servers(site)


def mixed(site: Site, url: str, place: str) -> dict[str, object]:
    """One model at a batch service, and two that the run serves, each by itself or both at one place."""
    section = launching(site.folder, "diary") | ({"exclusive": "gpu0"} if place == "in turn" else {})
    batch = {"kind": "openai", "first_poll": 0.2, "longest_poll": 0.2}
    models = [{"name": name, "launch": section} for name in OWN]
    models.insert(MODELS.index(BATCHED), {"name": BATCHED, "base_url": url, "batch": batch})
    pool = {"servers": {"pool": {"places": [0, 1, 2]}}} if place == "pool" else {}
    return {"models": models, "trials": TRIALS, **pool}


def at_once(site: Site) -> Found:
    """What is found where batches are back at once."""
    with serving(SimulatedServer(small_world(), batches=BatchHabits(seconds=0.05))) as url:
        models = [{"name": name, "launch": launching(site.folder)} for name in OWN]
        batch = {"kind": "openai", "first_poll": 0.02, "longest_poll": 0.05}
        models.insert(MODELS.index(BATCHED), {"name": BATCHED, "base_url": url, "batch": batch})
        return ended_well(site, site.write("direct", models=models, trials=TRIALS), site.directory("direct"))


@pytest.mark.slow
@pytest.mark.parametrize("place", ["each", "in turn", "pool"])
def test_servers_are_stopped_until_a_batch_is_back_and_started_again(site: Site, place: str) -> None:
    """No batch is answered while a server is up: the run would wait forever if it did not stop them all."""
    with hourly() as (service, url):
        service.over = lambda: all_gone(site)
        found = ended_well(site, site.write(**mixed(site, url, place)), site.directory())
        given = answers(site)
        assert found == at_once(site)
    asked = Counter(model for model, _, _ in found.outcomes)
    told = events(site.directory())
    starts = Counter(event.model for event in events_of_kind(told, ServerLaunched))
    assert given == {name: asked[name] for name in OWN}, "nothing was asked twice"
    assert {event.batches_of for event in events_of_kind(told, ServerRests)} == {(BATCHED,)}
    first_back = next(at for at, event in enumerate(told) if isinstance(event, BatchEnded))
    before = {event.model for event in events_of_kind(told[:first_back], ServerRests)}
    assert before == set(OWN) if place == "each" else before, "where they share places one may have made room before"
    assert len(found.looks) > 2 and starts[OWN[0]] > 1, "it is asked again, and its server is there again"


@pytest.mark.slow
def test_a_run_that_waits_for_a_batch_is_stopped_taken_up_killed_and_taken_up(site: Site) -> None:
    with hourly() as (service, url):
        config = site.write(**mixed(site, url, "each"))
        process = site.start(config, "--run-dir", str(site.directory()))
        for _ in OWN:
            printed(process, WAITS)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=HANGS)
        assert process.returncode == ExitCode.STOPPED, said
        assert "pending   " in said
        assert none_left(site)
        starts = len(events_of_kind(events(site.directory()), ServerLaunched))
        assert starts == len(OWN)

        service.over = lambda: not servers(site)
        process = site.start(config, "--run-dir", str(site.directory()))
        printed(process, f"{OWN[0]}: starting its server")
        kill(process)
        assert none_left(site)

        found = ended_well(site, config, site.directory())
        given = answers(site)
        assert found == at_once(site)
    asked = Counter(model for model, _, _ in found.outcomes)
    assert all(given[name] >= asked[name] for name in OWN)
    assert service.batch_counts["answered"] == asked[BATCHED], "nothing was paid for twice"
