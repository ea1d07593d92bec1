"""A run whose raylets and head are killed again and again finds what a run on one machine finds, and counts nothing
twice."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest
from live_runs import MODELS, RunOutcome, Site, kill, wait_for_trials
from patient_time import HANGS
from raylets import Raylets
from stored_runs import stored_events
from test_lives_on_ray import TIMED, models
from warm_start import WarmProcess

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.notes import Event, RunResumed, SiteLost, SitePlaced, events_of_kind
from adaptive_eval.report.reader import RunReader

pytestmark = pytest.mark.ray

TRIALS = 20
"""Of each question by each model: more than the servers of all deeds give before they are held."""
PROGRESS = 5
"""Trials that must come after each deed, before the next one."""


def written(site: Site, served: list[dict[str, object]]) -> Path:
    trials = {"min": TRIALS, "max": TRIALS, "optimize": "cost"}
    return site.write(models=served, trials=trials, concurrency=16)


def models_by_node(site: Site) -> list[dict[str, object]]:
    """Each model has a node of its own."""
    placed = []
    for model in models(site, "held"):
        resources = {"CPU": 1, f"of_{model['name']}": 1}
        placed.append(model | {"launch": {**model["launch"], "resources": resources}})  # type: ignore[dict-item]
    return placed


class Drill:
    """The run, and each model's node, on which nothing else has a place."""

    def __init__(self, site: Site, raylets: Raylets) -> None:
        self._site, self._raylets = site, raylets
        self._nodes = {name: raylets.add(resources={f"of_{name}": 1}) for name in MODELS}
        self._config = written(site, models_by_node(site))
        self._process = self._begin()
        in_time = wait_for_trials(site.directory(), 10 * len(MODELS), self._process)
        assert in_time, self._process.communicate()

    def kill_raylet(self, model: str) -> None:
        """Everything on the node ends with it; another node comes, and the model is served there."""
        before = self._placed(model)
        self._raylets.kill(self._nodes[model])
        self._nodes[model] = self._raylets.add(resources={f"of_{model}": 1})
        self._await(lambda events: sum(event.model == model for event in events_of_kind(events, SitePlaced)) > before)

    def kill_head(self) -> None:
        """SIGKILL; the same command places its sites again."""
        before = len(events_of_kind(self._events(), SitePlaced))
        kill(self._process)
        self._process = self._begin()
        self._await(lambda events: len(events_of_kind(events, SitePlaced)) >= before + len(MODELS))

    def progress(self, trials: int = PROGRESS) -> None:
        """Wait for that many further trials."""
        with closing(RunReader.open(self._site.directory())) as reader:
            total = reader.trial_count() + trials
        assert wait_for_trials(self._site.directory(), total, self._process), self._process.communicate()

    def end(self) -> None:
        """Let the servers answer everything, and wait for the end."""
        (self._site.folder / "go").touch()
        output = self._process.communicate()
        assert self._process.returncode == ExitCode.SPENT, output

    def close(self) -> None:
        """Give the nodes back."""
        for node in self._nodes.values():
            self._raylets.kill(node)

    def _begin(self) -> WarmProcess:
        words = ("--run-dir", str(self._site.directory()), "--ray", self._raylets.address)
        return self._site.start(self._config, *words, script=TIMED)

    def _placed(self, model: str) -> int:
        return sum(event.model == model for event in events_of_kind(self._events(), SitePlaced))

    def _events(self) -> list[Event]:
        return stored_events(self._site.directory())

    def _await(self, true: Callable[[list[Event]], bool]) -> None:
        """Wait until the events of the run say so."""
        deadline = time.monotonic() + HANGS
        while not true(self._events()):
            assert self._process.poll() is None, self._process.communicate()
            assert time.monotonic() < deadline, [str(event) for event in self._events()[-20:]]
            time.sleep(0.1)


@pytest.fixture
def drill(site: Site, raylets: Raylets) -> Iterator[Drill]:
    drill = Drill(site, raylets)
    yield drill
    drill.close()


@pytest.fixture(scope="module")
def at_home(tmp_path_factory: pytest.TempPathFactory) -> RunOutcome:
    """What the run finds with servers that it starts on its own machine."""
    site = Site.make(tmp_path_factory.mktemp("home"), "")
    site.run(written(site, models(site)), code=ExitCode.SPENT)
    return RunOutcome.of(site.directory())


@pytest.mark.parametrize("rounds", [1, pytest.param(10, marks=pytest.mark.release)])
def test_two_raylets_and_the_head_die_in_each_round(rounds: int, site: Site, drill: Drill, at_home: RunOutcome) -> None:
    for number in range(rounds):
        for kill_at in (2 * number, 2 * number + 1):
            drill.kill_raylet(MODELS[kill_at % len(MODELS)])
            drill.progress()
        drill.kill_head()
    drill.end()
    assert RunOutcome.of(site.directory()) == at_home
    with closing(RunReader.open(site.directory())) as reader:
        events, trials = reader.events(), reader.trial_count()
    assert trials == len(at_home.outcomes), "nothing is lost, and nothing counted twice"
    assert len(events_of_kind(events, RunResumed)) == rounds
    assert len(events_of_kind(events, SiteLost)) >= 2 * rounds
    nodes = [[event.node_id for event in events_of_kind(events, SitePlaced) if event.model == name] for name in MODELS]
    assert sum(before != after for placed in nodes for before, after in pairwise(placed)) >= 2 * rounds
