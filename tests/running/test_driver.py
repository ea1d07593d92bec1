"""The driver with fake servers: results are the same whatever happens around it."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from bed import MachineBed
from fakes import QUESTIONS, SKILLS, TRIALS, FakeEndpoint, plan
from patient_time import HANGS, until

from adaptive_eval.core.settings import Budget, Pace
from adaptive_eval.core.types import NO_COST, Reason
from adaptive_eval.endpoints.types import Answer, EndpointStats, Prompt, RetryGate
from adaptive_eval.machine.events import Answered, Event, Failed
from adaptive_eval.machine.follow_up import RequestFailure
from adaptive_eval.machine.records import STOPPED
from adaptive_eval.machine.supply import AskedModel, Demand, EndpointSupply, Supply
from adaptive_eval.machine.trial import Request
from adaptive_eval.running.driver import Driver
from adaptive_eval.store.read import LogReader


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> MachineBed:
    """The undisturbed run."""
    bed = MachineBed(tmp_path_factory.mktemp("reference") / "run")
    asyncio.run(bed.start())
    assert bed.reason in (Reason.SETTLED, Reason.OUT_OF_REACH)
    assert len(bed.looks()) > 5
    return bed


@pytest.mark.parametrize(("slots", "samples"), [(1, 1), (256, 1), (5, 3)])
async def test_looks_do_not_depend_on_concurrency_or_grouping(
    tmp_path: Path, reference: MachineBed, slots: int, samples: int
) -> None:
    bed = MachineBed(tmp_path / "run", slots=slots, samples=samples)
    await bed.start()
    assert (bed.looks(), bed.outcomes(), bed.reason) == (reference.looks(), reference.outcomes(), reference.reason)
    for endpoint in bed.endpoints.values():
        assert endpoint.most_in_flight <= slots
        assert max(len(seeds) for _, seeds in endpoint.samples) <= samples


async def test_second_stop_cancels_what_is_asked_and_graded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bed, left, is_grading = MachineBed(tmp_path / "run"), list[EndpointSupply](), asyncio.Event()
    bed.patience = bed.endpoints["cyd"].delay = 3600.0

    async def hang(*_: object) -> None:
        is_grading.set()
        await asyncio.sleep(3600.0)

    monkeypatch.setattr(bed.grading, "grade_now", lambda answer, question: None)
    monkeypatch.setattr(bed.grading, "grade", hang)
    monkeypatch.setattr(EndpointSupply, "leave", lambda supply: left.append(supply))

    async def stop_twice(driver: Driver) -> None:
        await is_grading.wait()
        driver.stop()
        await until(lambda: left)
        driver.stop()

    stopping: list[asyncio.Task[None]] = []
    async with asyncio.timeout(HANGS):
        await bed.start(lambda driver: stopping.append(asyncio.create_task(stop_twice(driver))))
    assert bed.reason is None and len(left) == 1 and bed.endpoints["cyd"].in_flight == 0


@pytest.mark.parametrize("stops", [1, 2])
async def test_run_that_is_stopped_while_its_log_is_replayed_asks_nothing(tmp_path: Path, stops: int) -> None:
    bed = MachineBed(tmp_path / "run")
    bed.patience, cyd = 60.0, bed.endpoints["cyd"]

    def stop_in_a_later_round(driver: Driver) -> None:
        cyd.fail = lambda prompt, seeds: driver.stop() if len(cyd.samples) > 25 and not driver.stops else None

    await bed.start(stop_in_a_later_round)
    asked, looks = [len(endpoint.samples) for endpoint in bed.endpoints.values()], bed.looks()

    def stop_soon(driver: Driver) -> None:
        for _ in range(stops):
            asyncio.get_running_loop().call_soon(driver.stop)

    machine = await bed.start_or_stop(stop_soon)
    assert (machine is None) is (stops == 2)
    assert [len(endpoint.samples) for endpoint in bed.endpoints.values()] == asked
    assert bed.looks() == looks != []
    with closing(LogReader.open(bed.directory)) as reader:
        assert reader.notes()[-1][1].kind == STOPPED


@dataclass
class PartlyLosingEndpoint(FakeEndpoint):
    """Loses both parts of a request at once."""

    lost: int = 0

    async def sample(self, prompt: Prompt, seeds: range, again: RetryGate | None = None) -> list[Answer]:
        if len(self.samples) % 10 == 3:
            self.samples.append(("lost", seeds))
            self.lost += 2
            assert again is not None
            assert await asyncio.gather(again(), again()) == [True, True]
        return await super().sample(prompt, seeds, again)

    @property
    def stats(self) -> EndpointStats:
        return EndpointStats(lost=self.lost)


async def test_parts_of_a_request_that_are_lost_at_once_are_each_repeated(tmp_path: Path) -> None:
    bed = MachineBed(tmp_path / "run", plan(budget=Budget(tokens=10**6)))
    bed.endpoints = {name: PartlyLosingEndpoint(name, skill, delay=0.002) for name, skill in SKILLS.items()}
    async with asyncio.timeout(HANGS):
        await bed.start()
    assert bed.outcomes().keys() >= {(model, question, 0) for model in range(3) for question in range(len(QUESTIONS))}
    assert bed.reason is not None


async def test_wall_time_ends_a_run_with_what_is_stored(tmp_path: Path) -> None:
    bed = MachineBed(tmp_path / "run", plan(budget=Budget(wall_seconds=60.0), pace=Pace()))
    cyd = bed.endpoints["cyd"]

    def hang(prompt: str, seeds: range) -> None:
        if len(cyd.samples) > TRIALS.min * len(QUESTIONS) + 3:
            cyd.delay, bed.clock.seconds = 3600.0, 61.0

    cyd.fail = hang
    await bed.start()
    assert bed.reason is Reason.WALL_TIME
    looks = bed.looks()
    await bed.start()
    assert bed.reason is Reason.WALL_TIME and bed.looks() == looks


class Served(EndpointSupply):
    """A supply that remembers what the driver had not handled yet when it was told of needs."""

    def watch(self, driver: Driver) -> None:
        self.driver, self.serve_calls, self.unhandled = driver, 0, list[Event]()

    def serve(self, demand: Mapping[int, Demand]) -> None:
        self.serve_calls += 1
        self.unhandled += self.driver._events
        super().serve(demand)


async def test_needs_are_told_when_all_that_has_happened_is_handled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a server could be stopped because its model needs nothing, just before it is sent the next requests."""
    monkeypatch.setattr("adaptive_eval.running.driver.TICK_SECONDS", 0.0)
    monkeypatch.setattr("bed.EndpointSupply", Served)
    supplies = list[Served]()

    class Bed(MachineBed):
        def supply(self, driver: Driver) -> Supply:
            supply = super().supply(driver)
            assert isinstance(supply, Served)
            supply.watch(driver)
            supplies.append(supply)
            return supply

    await Bed(tmp_path / "run").start()
    (supply,) = supplies
    assert supply.serve_calls > 100 and not supply.unhandled


class Told:
    """Answers a request once its question is in `ready`."""

    def __init__(self) -> None:
        self.ready = {question: asyncio.Event() for question in range(2)}
        self.in_flight = 0

    async def ask(self, request: Request, retry_gate: RetryGate | None) -> Sequence[Answer]:
        self.in_flight += 1
        try:
            await self.ready[request.question].wait()
            return [Answer("right", "stop", 0, "http://a/v1", 0.1)]
        finally:
            self.in_flight -= 1

    @property
    def stats(self) -> EndpointStats:
        return EndpointStats(in_flight=self.in_flight)


async def test_a_request_that_has_just_ended_leaves_the_cut_off_to_one_at_a_server() -> None:
    events, client = list[Event](), Told()
    supply = EndpointSupply(
        {0: AskedModel(client, 2, lambda answer: NO_COST)}, events.append, lambda error: None, is_capped=False
    )
    for number in range(2):
        supply.submit(Request(number, 0, number, 0, 1, 0), claimed=False)
    await asyncio.sleep(0)
    client.ready[0].set()
    await asyncio.sleep(0)
    assert client.in_flight == 1, "one has its answer, and is not forgotten yet"
    supply.cancel([0, 1])
    await supply.close()
    assert [event.request for event in events if isinstance(event, Answered)] == [0]
    failed = [event for event in events if isinstance(event, Failed)]
    assert [(event.request, event.kind) for event in failed] == [(1, RequestFailure.CUT_OFF)], "its cost is charged"
