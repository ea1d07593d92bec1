"""Places that come and go: had when they would have something to do, lost at any moment, and deciding nothing."""

import asyncio
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from adaptive_eval.scheduler.run_end import Halt
from adaptive_eval.scheduler.scheduler import Scheduler
from fakes import SKILLS, Bed, FakeEndpoint, plan
from patient_time import HANGS, until
from thoroughness import first_of

from adaptive_eval.base.errors import LaunchFailed
from adaptive_eval.core.types import Reason
from adaptive_eval.endpoints.types import Again, Answer, Prompt
from adaptive_eval.notes import Event, ModelSetAside, ServerLaunched, ServersNoticed, events_of_kind
from adaptive_eval.supply.hosts import PlaceLost

NAMES = list(SKILLS)
Lost = Callable[[BaseException | None], None]


class Cloud:
    """Gives places while there is room; takes some away again, at random moments."""

    def __init__(self, room: int, losses: int = 0, seed: int = 0) -> None:
        self.room = room
        self.losses = losses
        self.rng = random.Random(seed)
        self.places: list[PassingPlace] = []
        self.asked = 0
        """Places that were asked for, and not given back or lost."""
        self.most_asked = 0
        self.abandoned: dict[int, BaseException] = {}
        self.always_lost: Callable[[int], bool] = lambda model: False
        self.refuses = False

    async def moment(self) -> None:
        await asyncio.sleep(0.002 * self.rng.random())


class PassingPlace:
    """One place of a cloud."""

    own = False

    def __init__(self, cloud: Cloud, models: Sequence[int] = range(len(NAMES)), found: int | None = None) -> None:
        self.models, self.found_model, self.is_kept = models, found, found is not None
        self.cloud = cloud
        self.has_place = False
        self.served: int | None = None
        self.epoch = 0
        """Another one after each change of what it serves."""
        self.loads: list[int] = []
        self.in_vain = 0
        cloud.places.append(self)

    async def acquire(self, model: int, tell: Callable[[Event], None], lost: Lost) -> None:
        assert not self.has_place
        self._lost = lost
        self.cloud.asked += 1
        self.cloud.most_asked = max(self.cloud.most_asked, self.cloud.asked)
        try:
            await self.cloud.moment()
            if self.cloud.refuses:
                raise LaunchFailed("no place was had in 900 s")
            while self.cloud.room <= 0 and not self.is_kept:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        except BaseException:
            self.cloud.asked -= 1
            raise
        self.cloud.room -= not self.is_kept
        self.has_place, self.is_kept = True, False

    async def load(self, model: int, tell: Callable[[Event], None]) -> None:
        if not self.has_place:  # since this was begun
            raise PlaceLost("its node was taken away")
        assert self.served is None or endpoint_of(self).at.count(self) == 0, "a server in use was stopped"
        self._serve(None)
        self.loads.append(model)
        await self.cloud.moment()
        if self.cloud.losses and self.cloud.rng.random() < 0.2:
            self.cloud.losses -= 1
            self._go()
            raise PlaceLost("its node was taken away")
        self._serve(model)
        tell(ServerLaunched(NAMES[model], on=f"place {self.cloud.places.index(self)}"))
        if self.cloud.losses or self.cloud.always_lost(model):
            later = 0.0 if self.cloud.always_lost(model) else 0.03 * self.cloud.rng.random()
            asyncio.get_running_loop().call_later(later, self.be_lost, self.epoch)

    async def release(self, model: int, tell: Callable[[Event], None]) -> None:
        await self.cloud.moment()
        if self.has_place:
            self._go()

    def abandon(self, model: int, error: BaseException) -> None:
        self.cloud.abandoned[model] = error

    def be_lost(self, epoch: int) -> None:
        """With what it serves, unless that has changed."""
        model = self.served
        if model is None or epoch != self.epoch:
            return
        always = self.cloud.always_lost(model)
        self.cloud.losses -= not always
        self.in_vain += always
        self._go()
        self._lost(LaunchFailed("was lost 4 times without an answer") if self.in_vain > 3 else None)

    def _serve(self, model: int | None) -> None:
        self.served, self.epoch = model, self.epoch + 1

    def _go(self) -> None:
        self._serve(None)
        self.has_place, self.found_model = False, None
        self.cloud.room += 1
        self.cloud.asked -= 1


class CloudEndpoint(FakeEndpoint):
    """Asked wherever the model is served; what was asked of a place that is lost is asked again."""

    cloud: Cloud
    at: list[PassingPlace]

    async def sample(self, prompt: Prompt, seeds: range, again: Again | None = None) -> list[Answer]:
        number = NAMES.index(self.model)
        while True:
            while not (up := [place for place in self.cloud.places if place.served == number]):
                if number in self.cloud.abandoned:
                    raise LaunchFailed(str(self.cloud.abandoned[number]))
                await asyncio.sleep(0.001)
            place = min(up, key=self.at.count)
            epoch = place.epoch
            self.at.append(place)
            try:
                answers = await super().sample(prompt, seeds, again)
            finally:
                self.at.remove(place)
            if place.epoch == epoch and not self.cloud.always_lost(number):
                return answers


ENDPOINTS: dict[str, CloudEndpoint] = {}


def endpoint_of(place: PassingPlace) -> CloudEndpoint:
    assert place.served is not None
    return ENDPOINTS[NAMES[place.served]]


def bed_on(cloud: Cloud, places: int, directory: Path, slots: int = 3) -> Bed:
    """The run of the reference with so many places of this cloud."""
    bed = Bed(directory, plan(), slots=slots)
    for name, skill in SKILLS.items():
        endpoint = ENDPOINTS[name] = CloudEndpoint(name, skill, delay=0.002)
        endpoint.cloud, endpoint.at = cloud, []
        bed.endpoints[name] = endpoint
    while len(cloud.places) < places:
        PassingPlace(cloud)
    bed.hosts = cloud.places
    return bed


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Bed:
    """The run where everyone has a server of its own that is there already."""
    bed = Bed(tmp_path_factory.mktemp("reference"), plan())
    asyncio.run(bed.start())
    assert bed.controller.finished in (Reason.SETTLED, Reason.OUT_OF_REACH)
    return bed


@pytest.mark.parametrize("seed", first_of(range(6), 2))
async def test_no_look_depends_on_places_that_come_and_go(tmp_path: Path, reference: Bed, seed: int) -> None:
    cloud = Cloud(room=1 + seed % 4, losses=12, seed=seed)
    bed = bed_on(cloud, 5, tmp_path)
    scheduler = await bed.start()
    assert not scheduler.state.models.aside
    assert bed.looks() == reference.looks()
    assert bed.outcomes() == reference.outcomes()
    assert cloud.losses < 12, "some were lost"


async def test_no_more_places_are_asked_for_than_have_something_to_do(tmp_path: Path, reference: Bed) -> None:
    cloud = Cloud(room=8)
    bed = bed_on(cloud, 8, tmp_path, slots=1000)
    await bed.start()
    assert cloud.most_asked == len(NAMES)
    assert bed.looks() == reference.looks()


async def test_places_that_nobody_else_wants_become_further_servers(tmp_path: Path, reference: Bed) -> None:
    cloud = Cloud(room=8)
    bed = bed_on(cloud, 8, tmp_path, slots=1)
    await bed.start()
    assert cloud.most_asked > len(NAMES)
    assert max(endpoint.most_in_flight for endpoint in bed.endpoints.values()) > 1
    assert bed.looks() == reference.looks()


async def test_a_place_is_found_with_what_it_serves(tmp_path: Path, reference: Bed) -> None:
    cloud = Cloud(room=0)
    PassingPlace(cloud)
    PassingPlace(cloud)
    left = [PassingPlace(cloud, found=2), PassingPlace(cloud, found=1)]
    bed = bed_on(cloud, 4, tmp_path)
    await bed.start()
    assert [place.loads[0] for place in left] == [2, 1], "they are had first, and go on with it"
    assert bed.looks() == reference.looks()


async def test_a_model_whose_places_are_lost_again_and_again_is_given_up(tmp_path: Path) -> None:
    cloud = Cloud(room=3)
    cloud.always_lost = lambda model: model == 1
    bed = bed_on(cloud, 3, tmp_path)
    scheduler = await bed.start()
    (aside,) = events_of_kind(bed.observer.events, ModelSetAside)
    assert aside.model == "bob" and aside.reason == "was lost 4 times without an answer"
    assert set(scheduler.state.models.aside) == {1} and {model for model, _, _ in bed.outcomes()} == {"ada", "cyd"}
    assert sum(place.loads.count(1) for place in cloud.places) <= 4 * 3 + 3


async def test_without_any_place_a_run_ends_that_has_no_answer_yet(tmp_path: Path) -> None:
    cloud = Cloud(room=0)
    cloud.refuses = True
    with pytest.raises(LaunchFailed, match="ada: no place was had in 900 s"):
        await bed_on(cloud, 2, tmp_path).start()


async def test_a_further_place_that_is_refused_is_done_without(tmp_path: Path, reference: Bed) -> None:
    cloud = Cloud(room=4)
    bed = bed_on(cloud, 4, tmp_path, slots=1)
    refused = cloud.places[3]

    async def acquire(model: int, tell: Callable[[Event], None], lost: Lost) -> None:
        raise LaunchFailed("its node has another version")

    refused.acquire = acquire  # type: ignore[method-assign]
    scheduler = await bed.start()
    assert not scheduler.state.models.aside and bed.looks() == reference.looks()
    told = events_of_kind(bed.observer.events, ServersNoticed)
    assert {one.notice for one in told} <= {"no_further_server"} and refused.loads == []


async def test_stopped_while_a_place_is_awaited_the_run_ends_at_once(tmp_path: Path) -> None:
    cloud = Cloud(room=0)
    bed = bed_on(cloud, 3, tmp_path)
    await bed.start(lambda scheduler: asyncio.get_running_loop().call_later(0.05, scheduler.stop))
    assert cloud.asked == 0 and bed.outcomes() == {}


async def test_a_drained_stop_does_not_wait_for_places_that_nobody_seeks_any_more(
    tmp_path: Path, reference: Bed
) -> None:
    """What a lost place had is asked again by the next start."""
    cloud = Cloud(room=3)
    bed = bed_on(cloud, 3, tmp_path)

    async def stop_and_lose(scheduler: Scheduler) -> None:
        await until(lambda: any(endpoint.in_flight for endpoint in ENDPOINTS.values()))
        scheduler.stop()
        for place in cloud.places:
            place.be_lost(place.epoch)

    stopping: list[asyncio.Task[None]] = []
    async with asyncio.timeout(HANGS):
        scheduler = await bed.start(lambda one: stopping.append(asyncio.create_task(stop_and_lose(one))))
    await stopping[0]
    assert scheduler.ending.halt is Halt.DRAINED and not scheduler.state.models.aside
    again = bed_on(Cloud(room=3), 3, tmp_path)
    await again.start()
    assert again.looks() == reference.looks() and again.outcomes() == reference.outcomes()
