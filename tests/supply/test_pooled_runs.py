"""Whole runs on servers that they start: asked while they are up, with few swaps, and never deciding anything."""

import asyncio
import random
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from adaptive_eval.scheduler.run_end import Halt
from adaptive_eval.scheduler.scheduler import Scheduler
from answer_times import AnswerTimes
from fakes import QUESTIONS, SKILLS, Bed, plan
from patient_time import HANGS, until

from adaptive_eval.base.errors import LaunchFailed
from adaptive_eval.core.controller import Controller
from adaptive_eval.core.settings import Pace
from adaptive_eval.core.tape import Tape, TrialArrays
from adaptive_eval.core.types import Reason
from adaptive_eval.notes import Event, ServerLaunched, ServerReleased, ServersNoticed, events_of_kind
from adaptive_eval.simulate.worlds import Latency
from adaptive_eval.study.timed import SimulatedHost as ReplayedHost
from adaptive_eval.study.timed import drive_in_time


class FakeHost:
    """Counts its swaps, and finds it wrong when a model is asked that is not there."""

    has_place, is_kept = True, False
    own = False
    found_model: int | None = None

    def __init__(self, bed: Bed, models: Sequence[int], delay: float = 0.002) -> None:
        self.models = models
        self.delay = delay
        self.loads: list[int] = []
        self.released: list[int] = []
        self.loaded: int | None = None
        self.fails: Callable[[int], bool] = lambda model: False
        self.rng = random.Random(0)
        names = list(SKILLS)
        self.endpoints = {model: bed.endpoints[names[model]] for model in models}
        for model, endpoint in self.endpoints.items():
            endpoint.fail = self._check(model)

    async def load(self, model: int, tell: Callable[[Event], None]) -> None:
        assert self.loaded is None or self.endpoints[self.loaded].in_flight == 0, "a server in use was stopped"
        self.loaded = None
        self.loads.append(model)
        await asyncio.sleep(self.delay * self.rng.random())
        if self.fails(model):
            raise LaunchFailed("its server exited with status 1 before it was ready")
        self.loaded = model
        tell(ServerLaunched(model=list(SKILLS)[model]))

    async def acquire(
        self, model: int, tell: Callable[[Event], None], lost: Callable[[BaseException | None], None]
    ) -> None:
        raise AssertionError("it is there")

    def abandon(self, model: int, error: BaseException) -> None:
        return

    async def release(self, model: int, tell: Callable[[Event], None]) -> None:
        assert self.loaded == model and self.endpoints[model].in_flight == 0, "a server in use was stopped"
        self.loaded = None
        self.released.append(model)
        tell(ServerReleased(model=list(SKILLS)[model]))

    rest = release

    def _check(self, model: int) -> Callable[[str, range], None]:
        def check(prompt: str, seeds: range) -> None:
            assert self.loaded == model, "a model was asked while its server was not up"

        return check


@pytest.fixture(scope="module", params=[pytest.param(0, marks=pytest.mark.slow), 3], ids=["lookahead 0", "lookahead 3"])
def reference(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Bed:
    """The run where everyone has a server of its own that is there already."""
    bed = Bed(tmp_path_factory.mktemp("reference"), plan(pace=Pace(request.param)))
    asyncio.run(bed.start())
    assert bed.controller.finished in (Reason.SETTLED, Reason.OUT_OF_REACH)
    return bed


GROUPS = ([[0], [1], [2]], [[0, 1, 2]], [[2, 0], [1]], [[1, 2]])


@pytest.mark.parametrize("groups", GROUPS, ids=str)
async def test_no_look_depends_on_turns(tmp_path: Path, reference: Bed, groups: list[list[int]]) -> None:
    bed = Bed(tmp_path, reference.plan, slots=5)
    bed.hosts = hosts = [FakeHost(bed, models) for models in groups]
    await bed.start()
    assert bed.looks() == reference.looks()
    assert bed.outcomes() == reference.outcomes()
    for host in hosts:
        assert set(host.loads) == set(host.models)
        if len(host.models) == 1:
            assert len(host.loads) == 1, "who shares with nobody is started once"


class Stored(Tape):
    """The outcomes of a run that was, as a tape for its replay."""

    def __init__(self, bed: Bed) -> None:
        names, questions = list(SKILLS), [question.id for question in QUESTIONS]
        found = bed.outcomes().items()
        self._stored = {(names.index(name), questions.index(key), trial): kind for (name, key, trial), kind in found}

    def category(self, model: int, question: int, trial: int) -> int:
        category = self._stored[model, question, trial]
        assert category is not None
        return category

    def categories(self, trials: TrialArrays) -> np.ndarray:
        return np.array([self.category(*one) for one in zip(*map(np.ndarray.tolist, trials), strict=True)])


async def test_models_are_swapped_as_in_a_replay_and_no_more_than_they_must(tmp_path: Path, reference: Bed) -> None:
    bed = Bed(tmp_path, reference.plan)
    host, replayed = FakeHost(bed, [0, 1, 2]), ReplayedHost([0, 1, 2], 8, 180.0)
    bed.hosts = [host]
    await bed.start()
    times = AnswerTimes(Latency(), (3, len(QUESTIONS)), np.array([0.0, 1.0]), np.random.default_rng(0))
    replay = Controller(reference.plan)
    timeline = drive_in_time(replay, Stored(reference), times, 8, shared=[replayed])
    assert replay.looks == bed.controller.looks
    assert host.loads == [swap.model for swap in timeline.swaps]
    if reference.plan.pace.lookahead == 0:
        rows = [(0, 0, 0), *(look.trials for look in bed.controller.looks)]
        rounds = [{model for model in range(3) if now[model] > last[model]} for last, now in pairwise(rows)]
        there_already = sum(now >= last for last, now in pairwise(rounds))
        assert len(host.loads) <= sum(map(len, rounds)) - there_already


async def test_servers_that_are_stopped_and_started_again_decide_nothing(tmp_path: Path) -> None:
    held = plan(pace=Pace(lookahead=1, held=True))
    beds = [Bed(tmp_path / name, held) for name in ("there", "own")]
    for bed in beds:
        for endpoint, skill in zip(bed.endpoints.values(), (0.6, 0.5, 0.45), strict=True):
            endpoint.skill = skill
    beds[1].hosts = hosts = [FakeHost(beds[1], [model]) for model in range(3)]
    for host in hosts:
        host.own = True
    for bed in beds:
        await bed.start()
    assert beds[1].looks() == beds[0].looks()
    one, other = (bed.outcomes() for bed in beds)
    assert {key: one[key] for key in one.keys() & other.keys()} == {
        key: other[key] for key in one.keys() & other.keys()
    }
    for host in hosts:
        assert len(host.loads) <= len(host.released) + 1, "it is started once more each time that it was stopped"


async def test_a_finished_run_starts_no_server(tmp_path: Path) -> None:
    bed = Bed(tmp_path)
    await bed.start()
    host = FakeHost(bed, [0, 1, 2])
    bed.hosts = [host]
    await bed.start()
    assert host.loads == []


async def test_a_server_that_does_not_start_ends_a_run_that_has_no_answer_yet(tmp_path: Path) -> None:
    bed = Bed(tmp_path)
    bed.hosts = hosts = [FakeHost(bed, [0]), FakeHost(bed, [1, 2], delay=3600.0)]
    hosts[0].fails = lambda model: True
    with pytest.raises(LaunchFailed, match="ada: its server exited with status 1 .*\n.*run CONFIG --dry-run"):
        await bed.start()
    assert hosts[1].loaded is None, "the start of the other one was left off"


async def test_later_its_model_is_set_aside_and_the_others_go_on(tmp_path: Path) -> None:
    bed = Bed(tmp_path)
    host = FakeHost(bed, [0, 1, 2])
    host.fails = lambda model: model == 1
    bed.hosts = [host]
    scheduler = await bed.start()
    assert {model: lost.reason for model, lost in scheduler.state.models.aside.items()} == {
        1: "its server exited with status 1 before it was ready"
    }
    assert host.loads.count(1) == 1
    assert bed.controller.finished is Reason.BLOCKED
    assert {model for model, _, _ in bed.outcomes()} == {"ada", "cyd"}


async def test_a_defect_of_a_host_is_not_swallowed(tmp_path: Path) -> None:
    class Broken(FakeHost):
        async def load(self, model: int, tell: Callable[[Event], None]) -> None:
            raise ZeroDivisionError

    bed = Bed(tmp_path)
    bed.hosts = [Broken(bed, [0, 1, 2])]
    with pytest.raises(ZeroDivisionError):
        await bed.start()


async def test_stopped_while_a_server_is_started_the_run_ends_at_once(tmp_path: Path, reference: Bed) -> None:
    bed = Bed(tmp_path, reference.plan)
    host = FakeHost(bed, [0, 1, 2], delay=3600.0)
    bed.hosts = [host]

    async def stop_when_it_loads(scheduler: Scheduler) -> None:
        await until(lambda: host.loads)
        scheduler.stop()

    stopping: list[asyncio.Task[None]] = []
    async with asyncio.timeout(HANGS):
        scheduler = await bed.start(lambda one: stopping.append(asyncio.create_task(stop_when_it_loads(one))))
    assert scheduler.ending.halt is Halt.DRAINED
    assert host.loads == [0] and bed.outcomes() == {}


async def test_stopped_and_resumed_it_is_the_same_run(tmp_path: Path, reference: Bed) -> None:
    bed = Bed(tmp_path, reference.plan)
    rng, starts = random.Random(7), 0
    while bed.controller.finished is None:
        starts += 1
        bed.hosts = [FakeHost(bed, [0, 1, 2])]

        def stop_soon(scheduler: Scheduler) -> None:
            loop, delay = asyncio.get_running_loop(), rng.uniform(0.0, 0.04)
            for _ in range(rng.randint(1, 2)):
                loop.call_later(delay, scheduler.stop)

        await bed.start(stop_soon if starts < 8 else None)
    assert starts > 2
    assert bed.looks() == reference.looks()
    assert bed.outcomes() == reference.outcomes()


# -- a pool ------------------------------------------------------------------------------------------------------------


class PoolPlace(FakeHost):
    """One of several places that serve the same models."""

    def __init__(self, bed: Bed, places: "list[PoolPlace]", delay: float = 0.002) -> None:
        super().__init__(bed, range(len(SKILLS)), delay)
        self.places = places
        places.append(self)

    async def load(self, model: int, tell: Callable[[Event], None]) -> None:
        alone = self.loaded is not None and sum(one.loaded == self.loaded for one in self.places) == 1
        assert not alone or self.endpoints[self.loaded or 0].in_flight == 0, "the last server in use was stopped"
        self.loaded = None
        self.loads.append(model)
        await asyncio.sleep(self.delay * self.rng.random())
        if self.fails(model):
            raise LaunchFailed("its server exited with status 1 before it was ready")
        self.loaded = model
        tell(ServerLaunched(model=list(SKILLS)[model], on=f"gpu{self.places.index(self)}"))

    def _check(self, model: int) -> Callable[[str, range], None]:
        def check(prompt: str, seeds: range) -> None:
            up = [place for place in self.places if place.loaded == model]
            assert up, "a model was asked while no server of it was up"
            assert self.endpoints[model].in_flight <= SLOTS * len(up)

        return check


SLOTS = 3


def pool(bed: Bed, places: int) -> list[PoolPlace]:
    hosts: list[PoolPlace] = []
    for _ in range(places):
        PoolPlace(bed, hosts)
    bed.hosts = hosts
    return hosts


@pytest.mark.parametrize("places", [1, 2, 3, 5])
async def test_no_look_depends_on_a_pool(tmp_path: Path, reference: Bed, places: int) -> None:
    bed = Bed(tmp_path, reference.plan, slots=SLOTS)
    hosts = pool(bed, places)
    await bed.start()
    assert bed.looks() == reference.looks()
    assert bed.outcomes() == reference.outcomes()
    assert {model for host in hosts for model in host.loads} == {0, 1, 2}


async def test_places_that_nobody_else_wants_become_further_replicas(tmp_path: Path) -> None:
    bed = Bed(tmp_path, plan(), slots=SLOTS)
    hosts = pool(bed, 4)
    await bed.start()
    first = [host.loads[0] for host in hosts if host.loads]
    assert sorted(first[:3]) == [0, 1, 2], "everybody is served before anybody is served twice"
    assert hosts[3].loads, "and then somebody is"
    assert max(endpoint.most_in_flight for endpoint in bed.endpoints.values()) > SLOTS


async def test_a_replica_that_does_not_start_is_done_without(tmp_path: Path, reference: Bed) -> None:
    bed = Bed(tmp_path, reference.plan, slots=SLOTS)
    hosts = pool(bed, 4)
    hosts[3].fails = lambda model: True
    scheduler = await bed.start()
    assert not scheduler.state.models.aside and bed.looks() == reference.looks()
    assert len(hosts[3].loads) == len(set(hosts[3].loads)), "what does not come up is not tried there again"
    told = events_of_kind(bed.observer.events, ServersNoticed)
    assert {one.notice for one in told} == {"no_further_server"}


async def test_a_model_that_does_not_come_up_at_some_places_is_served_at_another(
    tmp_path: Path, reference: Bed
) -> None:
    bed = Bed(tmp_path, reference.plan, slots=SLOTS)
    hosts = pool(bed, 3)
    for host in hosts[:2]:
        host.fails = lambda model: model == 1
    scheduler = await bed.start()
    assert not scheduler.state.models.aside and bed.looks() == reference.looks()
    assert 1 in hosts[2].loads and all(host.loads.count(1) <= 1 for host in hosts[:2])
    assert any(1 in host.loads for host in hosts[:2]), "it was tried there"


async def test_a_model_that_comes_up_nowhere_is_tried_once_at_each_place_and_set_aside(tmp_path: Path) -> None:
    bed = Bed(tmp_path, slots=SLOTS)
    hosts = pool(bed, 2)
    for host in hosts:
        host.fails = lambda model: model == 1
        host.delay = 0.0
    bed.endpoints["ada"].delay = bed.endpoints["cyd"].delay = 0.0
    scheduler = await bed.start()
    assert list(scheduler.state.models.aside) == [1]
    assert [host.loads.count(1) for host in hosts] == [1, 1]


async def stopped_and_resumed(
    bed: Bed, reference: Bed, rng: random.Random, opened: Callable[[], object], longest: float
) -> None:
    """On places that are `opened` anew, each start is stopped at some moment, once or twice: it is the same run."""
    starts = 0
    while bed.controller.finished is None:
        starts += 1
        opened()

        def stop_soon(scheduler: Scheduler) -> None:
            loop, delay = asyncio.get_running_loop(), rng.uniform(0.0, longest)
            for _ in range(rng.randint(1, 2)):
                loop.call_later(delay, scheduler.stop)

        await bed.start(stop_soon if starts < 8 else None)
    assert starts > 2
    assert bed.looks() == reference.looks()
    assert bed.outcomes() == reference.outcomes()


async def test_a_pool_that_is_stopped_and_resumed_is_the_same_run(tmp_path: Path, reference: Bed) -> None:
    bed, rng = Bed(tmp_path, reference.plan, slots=SLOTS), random.Random(8)
    await stopped_and_resumed(bed, reference, rng, lambda: pool(bed, rng.randint(1, 4)), 0.04)
