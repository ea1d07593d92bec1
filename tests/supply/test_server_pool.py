"""A pool of servers by itself: what it starts and stops, by what is demanded, and what it says on the run's queue."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
from adaptive_eval.supply.happenings import (
    Happening,
    Noted,
    PlaceFreed,
    PlacesLost,
    ServerDown,
    ServerUp,
    TaskEnded,
)
from adaptive_eval.supply.pool import ServerPool

from adaptive_eval.base.errors import LaunchFailed
from adaptive_eval.notes import Event, ServerRests, ServersNoticed
from adaptive_eval.supply.hosts import OnLost, PlaceLost

ADA, BOB, CYD = range(3)
NAMES = ["ada", "bob", "cyd"]


@dataclass
class FakeDemand:
    """What is asked of each model, as a test says; nothing, unless it says so."""

    wanted: set[int] = field(default_factory=set)
    queued: dict[int, int] = field(default_factory=dict)
    """For how many servers of a model there is a queue."""
    owed: set[int] = field(default_factory=set)
    settled: set[int] = field(default_factory=set)
    parked: set[int] = field(default_factory=set)

    def is_wanted(self, model: int) -> bool:
        return model in self.wanted

    def has_queue_for(self, model: int, servers: int) -> bool:
        return self.queued.get(model, 0) >= servers

    def is_owed(self, model: int) -> bool:
        return model in self.owed

    def is_settled(self, model: int) -> bool:
        return model in self.settled

    def is_parked(self, model: int) -> bool:
        return model in self.parked


class FakeHost:
    """A place that does at once what it is told, and remembers it."""

    is_kept = False
    found_model: int | None = None

    def __init__(
        self,
        models: Sequence[int] = (ADA, BOB, CYD),
        *,
        own: bool = False,
        passing: bool = False,
    ) -> None:
        """`passing`: the place has to be acquired."""
        self.models, self.own, self.has_place = models, own, not passing
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

    async def rest(self, model: int, tell: Callable[[Event], None]) -> None:
        self.did.append(f"stopped {NAMES[model]}")

    def abandon(self, model: int, error: BaseException) -> None:
        self.abandoned.append(model)


class PoolBench:
    """A pool of such places, and what it has said."""

    def __init__(self, *hosts: FakeHost) -> None:
        self.said: list[Happening] = []
        self.pool = ServerPool(hosts, NAMES, self.said.append)

    async def serve(self, **demand: object) -> list[Happening]:
        """What the pool says, once all that it begins now is done."""
        self.said.clear()
        self.pool.serve(FakeDemand(**demand))  # type: ignore[arg-type]
        for _ in range(10):  # whatever it has begun takes no longer
            await asyncio.sleep(0)
        return list(self.said)


@pytest.mark.parametrize("own", [True, False])
async def test_the_server_of_a_model_that_rests_is_stopped_where_nobody_else_can_take_its_place(own: bool) -> None:
    host = FakeHost([ADA], own=own)
    bench = PoolBench(host)
    up, stopped = ["up ada"], ["up ada", "stopped ada"]
    assert await bench.serve(wanted={ADA}) == [ServerUp(ADA)]
    assert await bench.serve() == [] and host.did == up, "it waits for others that it is compared with"
    said = await bench.serve(parked={ADA})
    assert host.did == (stopped if own else up)
    assert said == ([Noted(ServerRests("ada")), PlaceFreed()] if own else [])
    assert await bench.serve(parked={ADA}) == [] and host.did == (stopped if own else up)
    await bench.serve(wanted={ADA})
    assert host.did == ([*stopped, "up ada"] if own else up)


async def test_a_settled_model_gives_its_place_to_the_next_one() -> None:
    host = FakeHost()
    bench = PoolBench(host)
    await bench.serve(wanted={ADA})
    assert await bench.serve(settled={ADA}) == [PlaceFreed()]
    assert await bench.serve(settled={ADA}, wanted={CYD}) == [ServerUp(CYD)]
    assert host.did == ["up ada", "released ada", "up cyd"]
    assert [bench.pool.servers(model) for model in (ADA, BOB, CYD)] == [0, 0, 1]
    assert bench.pool.deserted == {ADA, BOB}


async def test_a_model_stays_until_all_that_it_owes_is_committed_and_then_comes_the_next_in_the_circle() -> None:
    host = FakeHost()
    bench = PoolBench(host)
    await bench.serve(wanted={BOB})
    await bench.serve(wanted={ADA, BOB, CYD})
    await bench.serve(wanted={ADA, CYD}, owed={BOB})
    assert host.did == ["up bob"]
    await bench.serve(wanted={ADA, CYD})
    assert host.did == ["up bob", "up cyd"]


async def test_a_place_that_nobody_else_wants_becomes_one_more_server_where_more_waits_than_one_takes() -> None:
    hosts = [FakeHost(), FakeHost()]
    bench = PoolBench(*hosts)
    await bench.serve(wanted={ADA})
    assert bench.pool.servers(ADA) == 1
    await bench.serve(wanted={ADA}, queued={ADA: 1})
    assert bench.pool.servers(ADA) == 2


@pytest.mark.parametrize("queued", [1, 2, 3])
async def test_places_are_acquired_for_as_many_servers_as_have_something_to_do(queued: int) -> None:
    hosts = [FakeHost(passing=True) for _ in range(4)]
    bench = PoolBench(*hosts)
    await bench.serve(wanted={ADA}, queued={ADA: queued})
    assert sum(host.has_place for host in hosts) == queued, "the first one is for the model, each further one by queue"


async def test_a_model_that_does_not_come_up_at_one_place_is_tried_at_the_other_and_then_is_down() -> None:
    hosts, error = [FakeHost(), FakeHost()], LaunchFailed("out of memory")
    for host in hosts:
        host.fails[ADA] = error
    bench = PoolBench(*hosts)
    assert await bench.serve(wanted={ADA}) == [
        Noted(ServersNoticed("ada", "no_further_server", str(error))),
        PlaceFreed(),
    ]
    assert hosts[0].abandoned == []
    assert await bench.serve(wanted={ADA}) == [ServerDown(ADA, error)]
    assert [host.abandoned for host in hosts] == [[ADA], [ADA]]
    assert await bench.serve(wanted={ADA}) == []
    assert [host.did for host in hosts] == [["up ada"], ["up ada"]]


async def test_a_defect_of_a_host_is_said_as_such() -> None:
    host, error = FakeHost(), ZeroDivisionError()
    host.fails[ADA] = error
    assert await PoolBench(host).serve(wanted={ADA}) == [TaskEnded(error)]


async def test_where_every_place_is_refused_the_models_that_are_asked_are_down_each_once() -> None:
    hosts, error = [FakeHost(passing=True), FakeHost(passing=True)], LaunchFailed("no node in 900 s")
    for host in hosts:
        host.fails[None] = error
    bench = PoolBench(*hosts)
    assert await bench.serve(wanted={ADA, BOB}) == [PlaceFreed(), PlaceFreed()]
    assert await bench.serve(wanted={ADA, BOB}) == [ServerDown(ADA, error), ServerDown(BOB, error)]
    assert await bench.serve(wanted={ADA, BOB}) == []
    assert await bench.serve(wanted={CYD}) == [ServerDown(CYD, error)], "it was asked later, and has no place either"
    assert [host.abandoned for host in hosts] == [[ADA, BOB, CYD]] * 2


async def test_a_further_place_that_is_refused_sets_nobody_aside() -> None:
    here, elsewhere, error = FakeHost(), FakeHost(passing=True), LaunchFailed("no node in 900 s")
    elsewhere.fails[None] = error
    bench = PoolBench(here, elsewhere)
    await bench.serve(wanted={ADA})
    said = await bench.serve(wanted={ADA}, queued={ADA: 9})
    assert said == [Noted(ServersNoticed("ada", "no_further_server", str(error))), PlaceFreed()]
    assert await bench.serve(wanted={ADA}) == [] and here.abandoned == []


async def test_what_a_lost_place_has_served_comes_up_elsewhere_even_if_nothing_new_is_asked() -> None:
    hosts = [FakeHost(passing=True), FakeHost(passing=True)]
    bench = PoolBench(*hosts)
    await bench.serve(wanted={ADA})
    await bench.serve(wanted={ADA})
    assert hosts[0].did == ["acquired", "up ada"] and bench.pool.servers(ADA) == 1
    hosts[0].has_place = False
    hosts[0].lose(None)
    assert bench.pool.deserted >= {ADA}
    hosts[0].fails[None] = LaunchFailed("no node in 900 s")
    for _ in range(3):  # the place is acquired, and then the model is loaded
        await bench.serve(owed={ADA})
    assert hosts[1].did == ["acquired", "up ada"]


async def test_a_model_whose_places_are_lost_for_good_is_given_up() -> None:
    host, error = FakeHost(passing=True), LaunchFailed("was lost 4 times without an answer")
    bench = PoolBench(host)
    await bench.serve(wanted={ADA})
    await bench.serve(wanted={ADA})
    bench.said.clear()
    host.lose(error)
    assert bench.said == [PlacesLost(ADA, error), PlaceFreed()] and host.abandoned == [ADA]


async def test_a_place_that_is_lost_while_a_model_is_loaded_says_nothing_of_the_model() -> None:
    host = FakeHost()
    host.fails[ADA] = PlaceLost("its node was taken away")
    bench = PoolBench(host)
    assert await bench.serve(wanted={ADA}) == [PlaceFreed()]
    del host.fails[ADA]
    assert await bench.serve(wanted={ADA}) == [ServerUp(ADA)]


async def test_a_closed_pool_cancels_what_it_began_and_begins_nothing_more() -> None:
    class Slow(FakeHost):
        async def load(self, model: int, tell: Callable[[Event], None]) -> None:
            await asyncio.Event().wait()

    bench = PoolBench(Slow())
    assert await bench.serve(wanted={ADA}) == [] and bench.pool.is_moving
    await bench.pool.close()
    assert not bench.pool.is_moving
    assert await bench.serve(wanted={ADA}) == []
