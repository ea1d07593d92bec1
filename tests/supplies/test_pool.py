"""A pool of servers by itself: what it starts and stops as models need it, and the events it posts."""

import asyncio
from collections.abc import Callable, Sequence

import pytest

from adaptive_eval.base.errors import LaunchFailed
from adaptive_eval.launch.hosts import OnLost, PlaceLost
from adaptive_eval.machine.events import Event as RunEvent
from adaptive_eval.machine.events import Hopeless, Noted, Unservable
from adaptive_eval.machine.notes import note_of
from adaptive_eval.machine.supply import Demand
from adaptive_eval.notes.event import Event
from adaptive_eval.notes.servers import ServerRests, ServersNoticed
from adaptive_eval.supplies.pool import PooledModel, ServerPool

ADA, BOB, CYD = range(3)
NAMES = ["ada", "bob", "cyd"]
NUMBERS = {name: number for number, name in enumerate(NAMES)}
CAPACITY = 10


class FakeHost:
    """A place that carries out commands at once and records them."""

    is_left_over = False
    loaded_model: int | None = None

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
    hosts = [FakeHost(passing=True), FakeHost(passing=True)]
    bench = PoolBench(*hosts)
    await bench.serve(ada=WANTED)
    await bench.serve(ada=WANTED)
    assert hosts[0].did == ["acquired", "up ada"] and bench.pool.servers(ADA) == 1
    hosts[0].has_place = False
    hosts[0].lose(None)
    assert bench.pool.servers(ADA) == 0
    hosts[0].fails[None] = LaunchFailed("no node in 900 s")
    for _ in range(3):  # the place is acquired, and then the model is loaded
        await bench.serve(ada=OWED)
    assert hosts[1].did == ["acquired", "up ada"]


async def test_requests_of_a_model_that_comes_up_nowhere_are_hopeless() -> None:
    """When the run ends, nothing waits for them."""
    host = FakeHost(passing=True)
    bench = PoolBench(host)
    await bench.serve(ada=WANTED)
    await bench.serve(ada=WANTED)
    assert await bench.serve(ada=Demand(in_flight=2)) == []
    host.has_place = False
    host.lose(None)
    assert await bench.serve(ada=Demand(in_flight=2)) == [Hopeless(ADA)]


async def test_a_model_whose_places_are_lost_for_good_is_given_up() -> None:
    host, error = FakeHost(passing=True), LaunchFailed("was lost 4 times without an answer")
    bench = PoolBench(host)
    await bench.serve(ada=WANTED)
    await bench.serve(ada=WANTED)
    bench.posted.clear()
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
