"""The driver with fake servers: results are the same whatever happens around it.

A start first grades stored answers, before anything is asked, however long it takes and whatever happens.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest
from bed import MachineBed
from fakes import QUESTIONS, SKILLS, TRIALS, FakeEndpoint, FakeGrading, plan
from patient_time import HANGS, until

from adaptive_eval.base.errors import Unavailable
from adaptive_eval.core.settings import Budget, Pace
from adaptive_eval.core.types import NO_COST, Reason
from adaptive_eval.endpoints.types import Answer, EndpointStats, Prompt, RetryGate
from adaptive_eval.graders.types import Grade
from adaptive_eval.machine.events import Answered, Event, Failed
from adaptive_eval.machine.follow_up import RequestFailure
from adaptive_eval.machine.records import LOOKS_RETAKEN, REGRADED, REGRADING, STOPPED
from adaptive_eval.machine.supply import AskedModel, Demand, EndpointSupply, Supply
from adaptive_eval.machine.trial import Request
from adaptive_eval.questions.types import Question
from adaptive_eval.running.driver import Aborted, Driver
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
async def test_concurrency_changes_no_look(tmp_path: Path, reference: MachineBed, slots: int, samples: int) -> None:
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


async def test_a_model_that_fails_later_is_set_aside_for_this_start(tmp_path: Path) -> None:
    bed = MachineBed(tmp_path / "run")
    cyd = bed.endpoints["cyd"]
    cyd.fail = lambda prompt, seeds: Unavailable("is down") if len(cyd.samples) > 30 else None
    async with asyncio.timeout(HANGS):
        machine = await bed.start()
    assert set(machine.controller.set_aside) == {2}
    assert [note.kind for note in bed.observer.notes].count("set_aside") == 1
    cyd.fail = lambda prompt, seeds: None
    assert not (await bed.start()).controller.set_aside


async def test_a_grader_that_fails_on_everything_ends_the_run(tmp_path: Path, reference: MachineBed) -> None:
    bed = MachineBed(tmp_path / "run")
    bed.grading = FakeGrading(lambda answer, question: True)
    with pytest.raises(Aborted, match="killed"):
        await bed.start()
    stored = bed.outcomes()
    assert len(stored) >= 12 and {category for _, category in stored.values()} == {None}
    bed.grading = FakeGrading()
    await bed.start()
    assert (bed.looks(), bed.outcomes()) == (reference.looks(), reference.outcomes())


async def test_wall_time_ends_a_run_with_what_is_stored(tmp_path: Path) -> None:
    bed = MachineBed(tmp_path / "run", plan(budget=Budget(wall_seconds=60.0), pace=Pace()))
    cyd = bed.endpoints["cyd"]

    def hang(prompt: str, seeds: range) -> None:
        if len(cyd.samples) > TRIALS.min * len(QUESTIONS) + 3:
            cyd.delay, bed.clock.seconds = 3600.0, 61.0

    cyd.fail = hang
    async with asyncio.timeout(HANGS):
        await bed.start()
    assert bed.reason is Reason.WALL_TIME and (looks := bed.looks())
    await bed.start()
    assert bed.reason is Reason.WALL_TIME and bed.looks() == looks


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


class Served(EndpointSupply):
    """A supply that remembers what the driver had not handled yet when it was told of needs."""

    def watch(self, driver: Driver) -> None:
        self.driver, self.serve_calls, self.unhandled = driver, 0, list[Event]()

    def serve(self, demand: Mapping[int, Demand]) -> None:
        self.serve_calls += 1
        self.unhandled += self.driver._events
        super().serve(demand)


async def test_needs_are_told_once_all_events_are_handled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a server could be stopped because its model needs nothing, just before it is sent the next requests."""
    monkeypatch.setattr("adaptive_eval.running.driver.TICK_SECONDS", 0.0)
    monkeypatch.setattr("bed.EndpointSupply", Served)
    supply: Served

    class Bed(MachineBed):
        def supply(self, driver: Driver) -> Supply:
            nonlocal supply
            supply = super().supply(driver)  # type: ignore[assignment]
            supply.watch(driver)
            return supply

    await Bed(tmp_path / "run").start()
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


MANY_TURNS = 100
BOB = range(1000, 2000)
"""Seeds of bob."""


class AskedGrading(FakeGrading):
    """Grades no answer at once."""

    def grade_now(self, answer: Answer, question: Question) -> Grade | None:
        return None


class SlowGrading(AskedGrading):
    """Takes many turns of the loop for its first answers, in each of which `on_turn` is called."""

    def __init__(self, on_turn: Callable[[], object], slow: int = 1) -> None:
        super().__init__()
        self._on_turn, self._slow = on_turn, slow

    async def grade(self, answer: Answer, question: Question, again: object = None) -> Grade:
        grade = await super().grade(answer, question)
        if self.calls <= self._slow:
            for _ in range(MANY_TURNS):
                await asyncio.sleep(0)
                self._on_turn()
        return grade


class HungGrading(AskedGrading):
    """Grades its first answers, and hangs on later ones, of each of which `on_hung` is told."""

    def __init__(self, graded: int, on_hung: Callable[[], object]) -> None:
        super().__init__()
        self._graded, self._on_hung = graded, on_hung

    async def grade(self, answer: Answer, question: Question, again: object = None) -> Grade:
        if self.calls >= self._graded:
            self._on_hung()
            await asyncio.get_running_loop().create_future()
        return await super().grade(answer, question)


def some_answers(answer: Answer, question: Question) -> bool:
    """None of the first ones, on which a start would end, in whatever order they come."""
    return answer.seed % 5 == 2


def all_of_one_question(answer: Answer, question: Question) -> bool:
    """Those of bob, who is set aside for that."""
    return question.id == "q1" and answer.seed in BOB


async def with_ungraded(bed: MachineBed, fails: Callable[[Answer, Question], bool] = some_answers) -> MachineBed:
    """The bed after a start whose grader failed on some answers."""
    bed.grading.fails = fails
    await bed.start()
    assert ungraded(bed)
    bed.grading = FakeGrading()
    return bed


def ungraded(bed: MachineBed) -> int:
    return [category for _, category in bed.outcomes().values()].count(None)  # type: ignore[misc]


def asked(bed: MachineBed) -> int:
    """Requests so far, over all starts."""
    return sum(len(endpoint.samples) for endpoint in bed.endpoints.values())


@pytest.mark.slow
async def test_nothing_is_asked_while_stored_answers_are_graded(tmp_path: Path) -> None:
    reference = MachineBed(tmp_path / "reference")
    await reference.start()
    bed = await with_ungraded(MachineBed(tmp_path / "run"))
    before, seen = asked(bed), list[int]()
    bed.grading = SlowGrading(lambda: seen.append(asked(bed) - before))
    await bed.start()
    assert set(seen) == {0}
    assert asked(bed) == len(bed.outcomes()), "nothing was bought twice"
    assert (bed.outcomes(), bed.looks()) == (reference.outcomes(), reference.looks())


async def test_looks_on_other_rounds_than_before_are_reported_once(tmp_path: Path) -> None:
    """Another version may order the rounds of a run otherwise, as another pace does."""
    bed = MachineBed(tmp_path, replace(plan(), pace=Pace(lookahead=3)))
    await bed.start()
    before = bed.looks()
    bed.plan = replace(bed.plan, pace=Pace(share=0.9, opening=8))
    for _ in range(2):
        await bed.start()
        (note,) = [note for note in bed.observer.notes if note.kind == LOOKS_RETAKEN]
        assert note.body == {"looks": len(before)} and bed.looks() != before


def pass_a_cap(bed: MachineBed) -> Callable[[], None]:
    """Gives the run a cap on time, which what is returned passes."""
    bed.plan = replace(bed.plan, budget=Budget(wall_seconds=1.0))
    return partial(setattr, bed.clock, "seconds", 2.0)


async def test_a_cap_that_passes_while_stored_answers_are_graded_does_not_cost_the_looks(tmp_path: Path) -> None:
    bed = await with_ungraded(MachineBed(tmp_path), all_of_one_question)
    before = bed.looks()
    bed.grading = SlowGrading(pass_a_cap(bed))
    bed.grading.fails = all_of_one_question
    await bed.start()
    assert bed.looks() == before != []


async def test_a_cap_on_time_ends_the_grading_of_stored_answers(tmp_path: Path) -> None:
    bed = await with_ungraded(MachineBed(tmp_path))
    remaining, before, unlimited = ungraded(bed), asked(bed), bed.plan
    bed.grading = HungGrading(1, pass_a_cap(bed))
    bed.grading.at_once = 1
    machine = await bed.start()
    assert asked(bed) == before and machine.controller.finished is not None
    assert ungraded(bed) >= remaining - 1
    bed.grading = FakeGrading()
    machine = await bed.start()
    assert not ungraded(bed) and asked(bed) == before, "a start after that grades what no judge grades"
    bed.plan = unlimited
    assert (await bed.start()).controller.finished is not None and asked(bed) > before


@pytest.mark.parametrize("times", [1, 2])
async def test_grading_stored_answers_can_be_stopped_and_what_is_done_stays(tmp_path: Path, times: int) -> None:
    bed = await with_ungraded(MachineBed(tmp_path))
    remaining, before = ungraded(bed), asked(bed)
    drivers: list[Driver] = []

    def stop_at_the_second() -> None:
        while bed.grading.calls == 2 and drivers[0].stops < times:
            drivers[0].stop()

    bed.grading = SlowGrading(stop_at_the_second, slow=2)
    bed.grading.at_once = 1
    await bed.start_or_stop(drivers.append)
    assert ungraded(bed) == remaining - 1
    assert asked(bed) == before
    kinds = [note.kind for note in bed.observer.notes if note.kind in (REGRADING, REGRADED)]
    assert kinds == [REGRADING, REGRADED]
