"""A pool of servers by itself, and in whole runs of the machine at fake places: few swaps, and the same looks."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from bed import MachineBed, cost_of, stop_when
from fakes import plan
from patient_time import HANGS, until

from adaptive_eval.base.errors import EndpointError, LaunchFailed
from adaptive_eval.core import Budget, Plan
from adaptive_eval.core.types import Reason
from adaptive_eval.launch.endpoint import AskServer, ServedEndpoint, ServedPlace
from adaptive_eval.launch.hosts import OnEvent, OnLost, PlaceLost, ServerHost
from adaptive_eval.machine.charges import Charge
from adaptive_eval.machine.events import AbortKind, Hopeless, Noted, Unservable
from adaptive_eval.machine.events import Event as RunEvent
from adaptive_eval.machine.notes import note_of
from adaptive_eval.machine.supply import AskedModel, Demand, Supply
from adaptive_eval.notes.event import Event
from adaptive_eval.notes.servers import ServerLaunched, ServerReleased, ServerRests, ServersNoticed
from adaptive_eval.running.driver import Aborted, Driver
from adaptive_eval.store.read import LogReader
from adaptive_eval.supplies.launched import LaunchedSupply
from adaptive_eval.supplies.pool import PooledModel, ServerPool

ADA, BOB, CYD = range(3)
NAMES = ["ada", "bob", "cyd"]
NUMBERS = {name: number for number, name in enumerate(NAMES)}
CAPACITY = 10


class FakeHost:
    """A place that carries out commands at once and records them."""

    def __init__(
        self, models: Sequence[int] = (ADA, BOB, CYD), *, own_servers: bool = False, passing: bool = False
    ) -> None:
        """`passing`: whether the place has to be acquired."""
        self.models, self.own, self.has_place = models, own_servers, not passing
        self.did: list[str] = []
        self.fails: dict[int | None, BaseException] = {}
        """The error of loading a model, or of acquiring the place (None)."""
        self.abandoned: list[int] = []
        self.lose: OnLost = lambda error: None

    async def acquire(self, model: int, tell: Callable[[Event], None], lost: OnLost) -> None:
        if None in self.fails:
            raise self.fails[None]
        self.has_place, self.lose = True, lost
        self.did.append("acquired")

    async def load(self, model: int, tell: Callable[[Event], None]) -> None:
        self.did.append(f"up {NAMES[model]}")
        if model in self.fails:
            raise self.fails[model]

    async def release(self, model: int, tell: Callable[[Event], None]) -> None:
        self.did.append(f"released {NAMES[model]}")

    async def suspend(self, model: int, tell: Callable[[Event], None]) -> None:
        self.did.append(f"stopped {NAMES[model]}")

    def abandon(self, model: int, error: BaseException) -> None:
        self.abandoned.append(model)


class PoolBench:
    """A pool of such places, the events it posted, and the models with changes."""

    def __init__(self, *hosts: FakeHost) -> None:
        self.posted: list[RunEvent] = []
        self.changed: list[int] = []
        self.errors: list[BaseException] = []
        models = {number: PooledModel(name, CAPACITY) for number, name in enumerate(NAMES)}
        self.pool = ServerPool(
            hosts,  # type: ignore[arg-type]
            models,
            self.posted.append,
            self.changed.append,
            self.errors.append,
        )

    async def serve(self, **demand: Demand) -> list[RunEvent]:
        """The events the pool posts once everything it starts now is done; models not named need nothing."""
        self.posted.clear()
        self.changed.clear()
        self.pool.serve({number: demand.get(name, Demand()) for number, name in enumerate(NAMES)})
        for _ in range(10):  # whatever it has begun takes no longer
            await asyncio.sleep(0)
        return list(self.posted)


async def served_at(*hosts: FakeHost) -> PoolBench:
    """A pool in which ada is served at the first of these places, which had to be acquired."""
    bench = PoolBench(*hosts)
    for _ in range(2):
        await bench.serve(ada=WANTED)
    assert hosts[0].did == ["acquired", "up ada"] and bench.pool.servers(ADA) == 1
    bench.posted.clear()
    return bench


def noted(event: Event) -> Noted:
    return Noted(note_of(event, NUMBERS))


WANTED, OWED = Demand(waiting=1), Demand(is_owed=True)
SETTLED, PARKED = Demand(is_settled=True), Demand(is_parked=True)


def queued(servers: int) -> Demand:
    """A demand that keeps this many servers busy."""
    return Demand(waiting=servers * CAPACITY)


@pytest.mark.parametrize("own_servers", [True, False])
async def test_the_server_of_a_parked_model_is_stopped_if_nobody_else_can_take_its_place(own_servers: bool) -> None:
    host = FakeHost([ADA], own_servers=own_servers)
    bench = PoolBench(host)
    up, stopped = ["up ada"], ["up ada", "stopped ada"]
    assert await bench.serve(ada=WANTED) == [] and bench.changed == [ADA]
    assert await bench.serve() == [] and host.did == up, "it waits for others that it is compared with"
    posted = await bench.serve(ada=PARKED)
    assert host.did == (stopped if own_servers else up)
    assert posted == ([noted(ServerRests("ada"))] if own_servers else [])
    assert await bench.serve(ada=PARKED) == [] and host.did == (stopped if own_servers else up)
    await bench.serve(ada=WANTED)
    assert host.did == ([*stopped, "up ada"] if own_servers else up)


async def test_a_settled_model_gives_its_place_to_the_next_one() -> None:
    host = FakeHost()
    bench = PoolBench(host)
    await bench.serve(ada=WANTED)
    await bench.serve(ada=SETTLED)
    assert bench.changed == [ADA, ADA], "it has no server, and then its place is free"
    await bench.serve(ada=SETTLED, cyd=WANTED)
    assert host.did == ["up ada", "released ada", "up cyd"]
    assert [bench.pool.servers(model) for model in (ADA, BOB, CYD)] == [0, 0, 1]


async def test_a_model_stays_until_all_that_it_owes_is_committed_and_then_comes_the_next_in_the_circle() -> None:
    host = FakeHost()
    bench = PoolBench(host)
    await bench.serve(bob=WANTED)
    await bench.serve(ada=WANTED, bob=WANTED, cyd=WANTED)
    await bench.serve(ada=WANTED, cyd=WANTED, bob=OWED)
    assert host.did == ["up bob"]
    await bench.serve(ada=WANTED, cyd=WANTED)
    assert host.did == ["up bob", "up cyd"]
    assert bench.changed == [BOB, CYD], "bob cannot be asked from the moment in which cyd is loaded"


@pytest.mark.parametrize("servers", [1, 2, 3])
async def test_places_are_acquired_for_as_many_servers_as_have_something_to_do(servers: int) -> None:
    hosts = [FakeHost(passing=True) for _ in range(4)]
    bench = PoolBench(*hosts)
    await bench.serve(ada=queued(servers))
    assert sum(host.has_place for host in hosts) == servers, "the first is for the model, each further one by queue"


async def test_a_model_that_does_not_come_up_at_one_place_is_tried_at_the_other_and_then_given_up() -> None:
    hosts, error = [FakeHost(), FakeHost()], LaunchFailed("out of memory")
    for host in hosts:
        host.fails[ADA] = error
    bench = PoolBench(*hosts)
    assert await bench.serve(ada=WANTED) == [noted(ServersNoticed("ada", "no_further_server", str(error)))]
    assert bench.changed == [ADA] and hosts[0].abandoned == []
    assert await bench.serve(ada=WANTED) == [Unservable(ADA, "out of memory")]
    assert [host.abandoned for host in hosts] == [[ADA], [ADA]]
    assert await bench.serve(ada=WANTED) == []
    assert [host.did for host in hosts] == [["up ada"], ["up ada"]]


async def test_a_defect_of_a_host_ends_the_run() -> None:
    host, error = FakeHost(), ZeroDivisionError()
    host.fails[ADA] = error
    bench = PoolBench(host)
    await bench.serve(ada=WANTED)
    assert bench.errors == [error]


async def test_if_every_place_is_refused_the_models_that_are_asked_are_given_up_once_each() -> None:
    hosts, error = [FakeHost(passing=True), FakeHost(passing=True)], LaunchFailed("no node in 900 s")
    for host in hosts:
        host.fails[None] = error
    bench = PoolBench(*hosts)
    assert await bench.serve(ada=WANTED, bob=WANTED) == []
    assert await bench.serve(ada=WANTED, bob=WANTED) == [Unservable(ADA, str(error)), Unservable(BOB, str(error))]
    assert await bench.serve(ada=WANTED, bob=WANTED) == []
    assert await bench.serve(cyd=WANTED) == [Unservable(CYD, str(error))], "it is asked later, and has no place either"
    assert [host.abandoned for host in hosts] == [[ADA, BOB, CYD]] * 2


async def test_a_further_place_that_is_refused_sets_no_model_aside() -> None:
    local, elsewhere, error = FakeHost(), FakeHost(passing=True), LaunchFailed("no node in 900 s")
    elsewhere.fails[None] = error
    bench = PoolBench(local, elsewhere)
    await bench.serve(ada=WANTED)
    assert await bench.serve(ada=queued(9)) == [noted(ServersNoticed("ada", "no_further_server", str(error)))]
    assert await bench.serve(ada=WANTED) == [] and local.abandoned == []


async def test_a_model_whose_place_was_lost_with_requests_comes_up_elsewhere_even_if_nothing_new_is_asked() -> None:
    bench = await served_at(*(hosts := [FakeHost(passing=True), FakeHost(passing=True)]))
    hosts[0].has_place = False
    hosts[0].lose(None)
    assert bench.pool.servers(ADA) == 0
    hosts[0].fails[None] = LaunchFailed("no node in 900 s")
    for _ in range(3):  # the place is acquired, and then the model is loaded
        await bench.serve(ada=OWED)
    assert hosts[1].did == ["acquired", "up ada"]


async def test_requests_of_a_model_that_comes_up_nowhere_are_hopeless() -> None:
    """When the run ends, nothing waits for them."""
    bench = await served_at(host := FakeHost(passing=True))
    assert await bench.serve(ada=Demand(in_flight=2)) == []
    host.has_place = False
    host.lose(None)
    assert await bench.serve(ada=Demand(in_flight=2)) == [Hopeless(ADA)]


async def test_a_model_whose_places_are_lost_for_good_is_given_up() -> None:
    bench, error = await served_at(host := FakeHost(passing=True)), LaunchFailed("was lost 4 times without an answer")
    host.lose(error)
    assert bench.posted == [Unservable(ADA, str(error), was_served=True)] and host.abandoned == [ADA]


async def test_a_place_that_is_lost_while_a_model_is_loaded_says_nothing_of_the_model() -> None:
    host = FakeHost()
    host.fails[ADA] = PlaceLost("its node was taken away")
    bench = PoolBench(host)
    assert await bench.serve(ada=WANTED) == [] and bench.changed == [ADA]
    del host.fails[ADA]
    await bench.serve(ada=WANTED)
    assert bench.pool.servers(ADA) == 1


async def test_a_closed_pool_cancels_what_it_began_and_begins_nothing_more() -> None:
    cancelled: list[int] = []

    class Slow(FakeHost):
        async def load(self, model: int, tell: Callable[[Event], None]) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.append(model)

    bench = PoolBench(Slow())
    assert await bench.serve(ada=WANTED) == [] and not cancelled
    await bench.pool.close()
    assert cancelled == [ADA]
    assert await bench.serve(ada=WANTED) == []


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
        served = self.served = {model: ServedEndpoint(self._asking(model)) for model in MODELS}
        for place in self.places:
            place.served = {model: ServedPlace() for model in place.models}
            for model, endpoint in place.served.items():
                served[model].add(endpoint)
        models = {model: AskedModel(served[model], self.slots, cost_of) for model in MODELS}
        pooled = {model: PooledModel(NAMES[model], self.slots * self.samples) for model in MODELS}
        is_capped = self.plan.budget.bought
        self.supplied = LaunchedSupply(self.places, models, pooled, driver.post, driver.fail, is_capped=is_capped)
        return self.supplied

    def _asking(self, model: int) -> AskServer:
        return lambda server, request, again: self.client(NAMES[model], server).ask(request, again)

    async def start_beside(self, act: Callable[[Driver], Coroutine[Any, Any, None]]) -> None:
        """A start to its end, while this goes on."""
        tasks = list[asyncio.Task[None]]()
        await self.start(lambda driver: tasks.append(asyncio.create_task(act(driver))))
        tasks[0].cancel()
        (outcome,) = await asyncio.gather(*tasks, return_exceptions=True)
        assert not isinstance(outcome, Exception), outcome

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

    await bed.start_beside(take_places_away)
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

    await bed.start_beside(crash)
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
        await bed.start_beside(partial(stop_when, met=loading.is_set))
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

    async with asyncio.timeout(HANGS):
        await bed.start_beside(stop)
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
