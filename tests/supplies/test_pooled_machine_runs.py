"""Whole runs of the machine at fake places: few swaps, and the same looks."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from bed import MachineBed, cost_of, stop_when
from fakes import SKILLS, plan
from patient_time import HANGS, until

from adaptive_eval.base.errors import EndpointError, LaunchFailed
from adaptive_eval.core import Budget, Plan
from adaptive_eval.core.types import Reason
from adaptive_eval.launch.endpoint import ServedEndpoint, ServedPlace
from adaptive_eval.launch.hosts import OnEvent, OnLost, PlaceLost, ServerHost
from adaptive_eval.machine.charges import Charge
from adaptive_eval.machine.driver import Aborted, Driver
from adaptive_eval.machine.events import AbortKind
from adaptive_eval.machine.supply import AskedModel, Supply
from adaptive_eval.notes.servers import ServerLaunched, ServerReleased
from adaptive_eval.store.read import LogReader
from adaptive_eval.supplies.launched import LaunchedSupply
from adaptive_eval.supplies.pool import PooledModel
from adaptive_eval.supplies.served import RunServers, ServedClient

NAMES = list(SKILLS)
MODELS = range(len(NAMES))


class FakePlace(ServerHost):
    """A place with fake servers; it fails if a server in use is stopped, unless the place is lost."""

    def __init__(self, bed: "PooledBed", models: Sequence[int], *, passing: bool = False, delay: float = 0.002) -> None:
        """`passing`: the place has to be acquired, and may be lost."""
        self._bed, self._models, self._passing, self._delay = bed, models, passing, delay
        self._is_here = not passing
        self.served: Mapping[int, ServedPlace] = {}
        self.loads: list[int] = []
        self.released: list[int] = []
        self.loaded: int | None = None
        self.fails: Callable[[int], BaseException | None] = lambda model: None
        self.lose: OnLost = lambda error: None
        self.refused: EndpointError | None = None
        self.was_unloaded = False
        self.rng = random.Random(0)

    @property
    def models(self) -> Sequence[int]:
        return self._models

    @property
    def has_place(self) -> bool:
        return self._is_here

    @property
    def up(self) -> bool:
        return self.loaded is not None

    async def acquire(self, model: int, tell: OnEvent, lost: OnLost) -> None:
        await asyncio.sleep(self._delay * self.rng.random())
        if self.refused is not None:
            raise self.refused
        self._is_here, self.lose = True, lost

    async def load(self, model: int, tell: OnEvent) -> None:
        await self._stop()
        self.loads.append(model)
        await asyncio.sleep(self._delay * self.rng.random())
        if not self._is_here:
            raise PlaceLost("its node was taken away")
        if (error := self.fails(model)) is not None:
            raise error
        self.loaded = model
        if self._passing:
            self._bed.served[model].expect_none()
        self.served[model].begin(self._bed.endpoints[NAMES[model]])
        tell(ServerLaunched(NAMES[model]))

    async def release(self, model: int, tell: OnEvent) -> None:
        await self._stop()
        self._is_here = not self._passing
        self.released.append(model)
        tell(ServerReleased(NAMES[model]))

    async def suspend(self, model: int, tell: OnEvent) -> None:
        await self._stop()

    async def _stop(self) -> None:
        before, self.loaded = self.loaded, None
        if before is not None:
            assert self.served[before].in_flight == 0, "a server in use was stopped"
            if self._passing:  # the model may come up again at any place
                self.served[before].unregister(comes_back=False)
            else:
                await self.served[before].end()
                self.served[before].give_up("it was stopped")

    def abandon(self, model: int, error: EndpointError) -> None:
        self.served[model].give_up(str(error))

    async def unload(self, *, at_once: bool = False) -> None:
        self.was_unloaded = True

    def kill(self) -> None:
        raise AssertionError("nothing takes that long")

    def take_away(self) -> None:
        """Lose the place, with what it serves and its requests."""
        before, self.loaded, self._is_here = self.loaded, None, False
        if before is not None:
            self.served[before].unregister(comes_back=False)
        self.lose(None)

    async def crash(self) -> int:
        """Let the server die, with its requests, and come up again by itself; returns how many requests it had."""
        assert self.loaded is not None
        served = self.served[self.loaded]
        lost = served.in_flight
        served.unregister(comes_back=True)
        await asyncio.sleep(self._delay)
        served.begin(self._bed.endpoints[NAMES[self.loaded]])
        return lost


class PooledBed(MachineBed):
    """A run directory whose models are served at fake places."""

    first_slots = 0

    def __init__(self, directory: Path, the_plan: Plan | None = None, slots: int = 4) -> None:
        super().__init__(directory, the_plan, slots)
        self.places: list[FakePlace] = []

    def at(self, *groups: Sequence[int], places: int = 1, **options: bool) -> "PooledBed":
        """This many places for each group of models."""
        self.places = [FakePlace(self, group, **options) for group in groups for _ in range(places)]
        return self

    def supply(self, driver: Driver) -> Supply:
        served = self.served = {model: ServedEndpoint() for model in MODELS}
        for place in self.places:
            place.served = {model: ServedPlace() for model in place.models}
            for model, endpoint in place.served.items():
                served[model].add(endpoint)
        models = {model: AskedModel(self._served(model, served[model]), self.slots, cost_of) for model in MODELS}
        pooled = {model: PooledModel(NAMES[model], self.slots * self.samples) for model in MODELS}
        is_capped = self.plan.budget.bought
        self.supplied = LaunchedSupply(
            self.places, models, pooled, driver.post, driver.fail, RunServers(), is_capped=is_capped
        )
        return self.supplied

    def _served(self, model: int, served: ServedEndpoint) -> ServedClient:
        return ServedClient(
            served, lambda server, request, again: self.client(NAMES[model], server).ask(request, again)
        )

    def looks_without_reports(self) -> list[object]:
        """The looks; how many trials were asked ahead of the last one depends on the time."""
        return [{**look, "report": None} for look in self.looks()]

    def notes(self, kind: str) -> list[str]:
        return [str(note.body.get("notice", note.body)) for note in self.observer.notes if note.kind == kind]


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> list[object]:
    """The result when all models are always served."""
    bed = PooledBed(tmp_path_factory.mktemp("reference"))
    bed.first_slots = bed.slots  # type: ignore[misc]
    bed.supply = partial(MachineBed.supply, bed)  # type: ignore[method-assign]
    asyncio.run(bed.start())
    return bed.looks_without_reports()


@pytest.mark.parametrize(
    ("groups", "places"),
    [([[0, 1, 2]], 1), ([[0, 1, 2]], 3), ([[0, 1, 2]], 5), ([[0], [1, 2]], 1), ([[0], [1], [2]], 1)],
)
async def test_no_look_depends_on_turns_or_places(
    tmp_path: Path, reference: object, groups: list[list[int]], places: int
) -> None:
    bed = PooledBed(tmp_path).at(*groups, places=places)
    await bed.start()
    assert bed.looks_without_reports() == reference
    for place in bed.places if places == 1 else ():
        assert set(place.loads) == set(place.models)
        swaps = len(bed.looks()) * (len(place.models) - 1)
        assert len(place.loads) <= swaps + 1, "each round begins with the model that is loaded"


@pytest.mark.parametrize("seed", range(3))
async def test_no_look_depends_on_places_that_come_and_go(tmp_path: Path, reference: object, seed: int) -> None:
    bed, rng = PooledBed(tmp_path).at(MODELS, places=2, passing=True), random.Random(seed)

    async def take_places_away(driver: Driver) -> None:
        for _ in range(6):
            await asyncio.sleep(0.05 * rng.random())
            rng.choice(bed.places).take_away()

    tasks = []
    await bed.start(lambda driver: tasks.append(asyncio.create_task(take_places_away(driver))))
    for task in tasks:
        task.cancel()
    assert bed.looks_without_reports() == reference


@pytest.mark.slow
async def test_what_a_dead_server_had_is_asked_again_and_charged(tmp_path: Path) -> None:
    """With a cap, only after the charge is on disk."""
    the_plan = plan(budget=Budget(tokens=10**7))
    plain = PooledBed(tmp_path / "plain", the_plan).at([0], [1], [2])
    await plain.start()
    bed, lost = PooledBed(tmp_path / "run", the_plan, slots=12).at([0], [1], [2]), list[int]()
    bed.endpoints[NAMES[0]].delay = 1000.0

    async def crash(driver: Driver) -> None:
        place = bed.places[0]
        await until(lambda: place.loaded is not None and place.served[0].in_flight == 12)
        bed.endpoints[NAMES[0]].delay = 0.002
        lost.append(await place.crash())

    tasks = []
    await bed.start(lambda driver: tasks.append(asyncio.create_task(crash(driver))))
    await asyncio.gather(*tasks)
    assert lost == [12] and bed.looks_without_reports() == plain.looks_without_reports()
    with closing(LogReader.open(bed.directory)) as reader:
        rows = [record for rows in reader.log(in_whole_commits=False) for _, record in rows]
    lost_answers = [record for record in rows if isinstance(record, Charge)]
    assert sum(charge.number for charge in lost_answers) == 12 and {charge.model for charge in lost_answers} == {0}


async def test_a_server_that_does_not_start_ends_a_run_without_answers(tmp_path: Path) -> None:
    bed = PooledBed(tmp_path).at(MODELS)
    bed.places[0].fails = lambda model: LaunchFailed("its server exited with status 1")
    with pytest.raises(Aborted) as error:
        await bed.start()
    assert error.value.abort.kind is AbortKind.UNSERVABLE
    assert list(error.value.abort.reasons.values()) == ["its server exited with status 1"]


async def test_a_run_that_is_stopped_while_a_server_is_started_ends_at_once(tmp_path: Path) -> None:
    bed, loading = PooledBed(tmp_path).at(MODELS), asyncio.Event()

    async def load(model: int, tell: OnEvent) -> None:
        loading.set()
        await asyncio.Event().wait()

    bed.places[0].load = load  # type: ignore[method-assign]
    bed.patience = HANGS
    async with asyncio.timeout(HANGS):
        await bed.start(lambda driver: asyncio.create_task(stop_when(driver, loading.is_set)))
    assert bed.reason is None


async def test_requests_that_were_lost_with_their_place_are_not_waited_for_at_a_stop(tmp_path: Path) -> None:
    bed = PooledBed(tmp_path).at(MODELS, passing=True)
    for endpoint in bed.endpoints.values():
        endpoint.delay = 1000.0
    bed.patience = HANGS

    async def stop(driver: Driver) -> None:
        (place,) = bed.places
        await until(lambda: place.loaded is not None and place.served[place.loaded].in_flight > 0)
        driver.stop()
        place.take_away()

    tasks = []
    async with asyncio.timeout(HANGS):
        await bed.start(lambda driver: tasks.append(asyncio.create_task(stop(driver))))
    assert bed.reason is None and bed.places[0].loads == [0], "nobody brings it up again"


async def test_a_run_that_is_stopped_and_resumed_is_the_same(tmp_path: Path, reference: object) -> None:
    starts = Counter[Reason | None]()
    while not starts.keys() - {None}:
        bed = PooledBed(tmp_path).at([0], [1, 2])
        bed.patience = HANGS

        def has_asked(bed: PooledBed = bed) -> bool:
            return sum(len(endpoint.samples) for endpoint in bed.endpoints.values()) >= 20

        await bed.start(lambda driver: asyncio.create_task(stop_when(driver, has_asked)))
        starts[bed.reason] += 1
    assert bed.looks_without_reports() == reference and starts[None] >= 3
    await (again := PooledBed(tmp_path).at(MODELS)).start()
    assert again.places[0].loads == [], "a finished run starts no server"
