"""The loop on fake servers: what it decides is the same whatever happens around it."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from fakes import QUESTIONS, SKILLS, TRIALS, Bed, FakeEndpoint, plan
from patient_time import until

from adaptive_eval.base.errors import Rejected, Unavailable
from adaptive_eval.base.seeds import hashed_base
from adaptive_eval.core.settings import Budget, Pace, Trials
from adaptive_eval.core.types import Cause, Cost, Lost, Reason
from adaptive_eval.endpoints.types import Again, Answer, EndpointStats, Prompt, ReplicaStats
from adaptive_eval.scheduler import scheduler as scheduler_module
from adaptive_eval.scheduler import troubles as troubles_module
from adaptive_eval.scheduler.run_end import Halt
from adaptive_eval.scheduler.scheduler import Scheduler
from adaptive_eval.store import AnswersLost, AnswerUngraded, ModelSetAside, RunReader, events_of_kind
from adaptive_eval.supply.happenings import Ticked


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Bed:
    """The run, undisturbed."""
    bed = Bed(tmp_path_factory.mktemp("reference"))
    asyncio.run(bed.start())
    assert bed.controller.finished in (Reason.SETTLED, Reason.OUT_OF_REACH)
    assert len(bed.looks()) > 5
    return bed


@pytest.mark.parametrize(("slots", "samples"), [(1, 1), (16, 1), (256, 1), (5, 3), (64, 8)])
async def test_looks_do_not_depend_on_concurrency_or_grouping(
    tmp_path: Path, reference: Bed, slots: int, samples: int
) -> None:
    bed = Bed(tmp_path, slots=slots, samples=samples)
    await bed.start()
    assert bed.looks() == reference.looks()
    assert bed.outcomes() == reference.outcomes()
    assert bed.controller.finished == reference.controller.finished
    for endpoint in bed.endpoints.values():
        assert endpoint.most_in_flight <= slots
        assert max(len(seeds) for _, seeds in endpoint.samples) <= samples


async def test_trials_of_one_question_travel_together(tmp_path: Path) -> None:
    bed = Bed(tmp_path, plan(trials=Trials(min=8, max=8), pace=Pace(lookahead=0)), samples=4)
    await bed.start()
    sizes = [len(seeds) for endpoint in bed.endpoints.values() for _, seeds in endpoint.samples]
    assert sizes == [4] * (2 * len(QUESTIONS) * len(SKILLS))


@dataclass
class WithheldEndpoint(FakeEndpoint):
    """Keeps the last answer of its first round until it is released."""

    released: asyncio.Event = field(default_factory=asyncio.Event)

    async def sample(self, prompt: Prompt, seeds: range, again: Again | None = None) -> list[Answer]:
        answers = await super().sample(prompt, seeds, again)
        if len(self.samples) == TRIALS.min * len(QUESTIONS):
            await self.released.wait()
        return answers


async def test_where_servers_are_held_nobody_waits_for_the_slowest_first_round(tmp_path: Path) -> None:
    """What the core issues before its first look is asked for at once."""
    bed = Bed(tmp_path, plan(pace=Pace(lookahead=1, held=True)), slots=1)
    last_answer = asyncio.Event()
    for name, seconds in (("ada", 1.0), ("bob", 16.0)):
        bed.endpoints[name] = FakeEndpoint(name, SKILLS[name], seconds=seconds)
    slowest = bed.endpoints["cyd"] = WithheldEndpoint("cyd", SKILLS["cyd"], seconds=256.0, released=last_answer)
    run = asyncio.create_task(bed.start())
    await until(lambda: len(bed.endpoints["ada"].samples) == TRIALS.max * len(QUESTIONS))
    assert not bed.controller.looks
    assert len(bed.endpoints["bob"].samples) > len(slowest.samples) == TRIALS.min * len(QUESTIONS)
    last_answer.set()
    await run
    assert bed.controller.finished


@dataclass
class FailingEndpoint(FakeEndpoint):
    """Repeats its first two requests for as long as others come, and says that these have their places."""

    others: asyncio.Event = field(default_factory=asyncio.Event)
    aside: int = 0

    async def sample(self, prompt: Prompt, seeds: range, again: Again | None = None) -> list[Answer]:
        answers = await super().sample(prompt, seeds, again)
        if len(self.samples) <= 2:
            self.aside += 1
            await self.others.wait()
            self.aside -= 1
        elif len(self.samples) == TRIALS.min * len(QUESTIONS):
            self.others.set()
        return answers

    @property
    def stats(self) -> EndpointStats:
        return replace(super().stats, aside=self.aside)


async def test_requests_that_fail_again_and_again_hold_no_places(tmp_path: Path, reference: Bed) -> None:
    bed = Bed(tmp_path, slots=2)
    bed.endpoints["bob"] = FailingEndpoint("bob", SKILLS["bob"])
    await bed.start()
    assert bed.looks() == reference.looks()
    assert bed.endpoints["bob"].most_in_flight <= 4


async def test_every_trial_has_its_own_seed(tmp_path: Path, reference: Bed) -> None:
    for name, endpoint in reference.endpoints.items():
        asked = sorted((question, seed) for question, seeds in endpoint.samples for seed in seeds)
        assert len(set(asked)) == len(asked)
        first = hashed_base(1, name, QUESTIONS[0].id)
        seeds = [seed for question, seed in asked if question == QUESTIONS[0].prompt]
        assert seeds == list(range(first, first + len(seeds)))


async def test_stopped_and_resumed_it_is_the_same_run(tmp_path: Path, reference: Bed) -> None:
    bed = Bed(tmp_path)
    rng = random.Random(5)
    starts = 0
    while bed.controller.finished is None:
        starts += 1
        stored = bed.outcomes() if starts > 1 else {}
        asked = {name: len(endpoint.samples) for name, endpoint in bed.endpoints.items()}
        at_once = rng.random() < 0.5

        def stop_soon(scheduler: Scheduler, at_once: bool = at_once) -> None:
            loop = asyncio.get_running_loop()
            delay = rng.uniform(0.0, 0.03)
            loop.call_later(delay, scheduler.stop)
            if at_once:
                loop.call_later(delay, scheduler.stop)

        await bed.start(stop_soon if starts < 8 else None)
        for name, endpoint in bed.endpoints.items():
            again = {(question, seed) for question, seeds in endpoint.samples[asked[name] :] for seed in seeds}
            assert not again & {bed.request(*trial) for trial in stored if trial[0] == name}, "nothing stored is asked"
    assert starts > 2
    assert bed.looks() == reference.looks()
    assert bed.outcomes() == reference.outcomes()


@dataclass
class RepeatingEndpoint(FakeEndpoint):
    """Repeats its requests for ever while its server is away."""

    up: bool = False
    waiting: int = 0

    async def sample(self, prompt: Prompt, seeds: range, again: Again | None = None) -> list[Answer]:
        if not self.up:
            self.waiting += 1
            try:
                await asyncio.Event().wait()
            finally:
                self.waiting -= 1
        return await super().sample(prompt, seeds, again)


async def test_a_drained_stop_commits_what_was_in_flight(tmp_path: Path) -> None:
    bed = Bed(tmp_path)
    for endpoint in bed.endpoints.values():
        endpoint.delay = 0.1

    async def stop_in_flight(scheduler: Scheduler) -> None:
        await until(lambda: any(endpoint.in_flight for endpoint in bed.endpoints.values()))
        scheduler.stop()
        assert scheduler.under_way >= sum(endpoint.in_flight for endpoint in bed.endpoints.values()) > 0

    stopping: list[asyncio.Task[None]] = []
    scheduler = await bed.start(lambda one: stopping.append(asyncio.create_task(stop_in_flight(one))))
    await stopping[0]
    assert scheduler.ending.halt is Halt.DRAINED and not scheduler.under_way
    asked = sum(len(seeds) for endpoint in bed.endpoints.values() for _, seeds in endpoint.samples)
    assert len(bed.outcomes()) == asked > 0


async def test_a_drained_stop_waits_no_longer_than_one_request_may_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler_module, "TICK_SECONDS", 0.01)
    bed = Bed(tmp_path)
    bed.timeout = 0.0
    for endpoint in bed.endpoints.values():
        endpoint.delay = 1e9

    async def stop_in_flight(scheduler: Scheduler) -> None:
        await until(lambda: any(endpoint.in_flight for endpoint in bed.endpoints.values()))
        scheduler.stop()

    stopping: list[asyncio.Task[None]] = []
    scheduler = await bed.start(lambda one: stopping.append(asyncio.create_task(stop_in_flight(one))))
    await stopping[0]
    assert scheduler.ending.halt is Halt.AT_ONCE and not scheduler.under_way


async def test_a_drained_stop_does_not_wait_for_requests_that_only_fail(
    tmp_path: Path, reference: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are asked again by the next start; what others had in flight is stored."""
    monkeypatch.setattr(scheduler_module, "TICK_SECONDS", 0.01)
    monkeypatch.setattr(troubles_module, "LOST_SECONDS", 0.0)
    bed = Bed(tmp_path, slots=64)
    away = bed.endpoints["cyd"] = RepeatingEndpoint("cyd", SKILLS["cyd"])
    away.health = lambda: (ReplicaStats("http://cyd/v1", away.up, 0, 8),)
    others = [one for one in bed.endpoints.values() if one is not away]

    async def stop_in_flight(scheduler: Scheduler) -> None:
        await until(lambda: away.waiting and all(endpoint.samples for endpoint in others))
        scheduler.stop()

    stopping: list[asyncio.Task[None]] = []
    scheduler = await bed.start(lambda one: stopping.append(asyncio.create_task(stop_in_flight(one))))
    await stopping[0]
    assert scheduler.ending.halt is Halt.DRAINED and not away.waiting
    wanted = reference.issued("ada", 1) + reference.issued("bob", 1)
    assert len(bed.outcomes()) >= wanted
    away.up = True
    await bed.start()
    assert bed.looks() == reference.looks()
    assert bed.outcomes() == reference.outcomes()


@pytest.mark.parametrize("capped", [False, True])
@pytest.mark.parametrize("samples", [1, 4])
async def test_an_end_loses_what_servers_have_and_nothing_that_was_to_be_repeated(
    tmp_path: Path, capped: bool, samples: int
) -> None:
    """What caps count is entered until the next start tells it."""
    bed = Bed(tmp_path, plan(budget=Budget(tokens=10**6 if capped else None)), slots=64, samples=samples)
    at_server = {"ada": 0, "bob": 0}
    away = bed.endpoints["cyd"] = RepeatingEndpoint("cyd", SKILLS["cyd"])
    for name in at_server:
        bed.endpoints[name].delay = 1e9

    async def stop_twice(scheduler: Scheduler) -> None:
        await until(lambda: away.waiting > 0 and all(bed.endpoints[name].in_flight for name in at_server))
        await scheduler._loop.safe()
        for name in at_server:
            at_server[name] = sum(len(seeds) for _, seeds in bed.endpoints[name].samples)
        scheduler.stop()
        scheduler.stop()

    stopping: list[asyncio.Task[None]] = []
    scheduler = await bed.start(lambda one: stopping.append(asyncio.create_task(stop_twice(one))))
    await stopping[0]
    assert scheduler.ending.halt is Halt.AT_ONCE
    lost = Counter[str]()
    with closing(RunReader.open(tmp_path)) as reader:
        for event in events_of_kind(reader.events(), AnswersLost):
            lost[event.model] += event.answers
        entered = dict(reader.in_flight())
    assert (lost, entered) == (({}, at_server) if capped else (at_server, {}))


@dataclass
class AskingAgainEndpoint(FakeEndpoint):
    """Has lost every answer, and asks whether it may repeat its request when the end has come."""

    end: asyncio.Event = field(default_factory=asyncio.Event)
    at_the_end: Callable[[], None] = lambda: None

    async def sample(self, prompt: Prompt, seeds: range, again: Again | None = None) -> list[Answer]:
        self.samples.append(("", seeds))
        await self.end.wait()
        self.at_the_end()
        assert again is not None and await again()
        return await super().sample(prompt, seeds, again)


async def test_a_request_that_is_given_up_while_its_loss_is_counted_does_not_end_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler_module, "TICK_SECONDS", 1e9)
    monkeypatch.setattr(troubles_module, "LOST_SECONDS", 0.0)
    bed = Bed(tmp_path, plan(budget=Budget(tokens=10**6)))
    away = bed.endpoints["cyd"] = AskingAgainEndpoint("cyd", SKILLS["cyd"])
    away.health = lambda: (ReplicaStats("http://cyd/v1", False, 0, 8),)

    async def stop_in_flight(scheduler: Scheduler) -> None:
        away.at_the_end = lambda: scheduler._loop.say(Ticked())  # taken before the loss
        await until(lambda: away.samples)
        scheduler.stop()
        away.end.set()

    stopping: list[asyncio.Task[None]] = []
    scheduler = await bed.start(lambda one: stopping.append(asyncio.create_task(stop_in_flight(one))))
    await stopping[0]
    assert scheduler.ending.halt is Halt.DRAINED and away.samples and not scheduler.under_way


@dataclass
class GivingUpEndpoint(RepeatingEndpoint):
    """The same, but that it gives one of its requests up when it has some more."""

    async def sample(self, prompt: Prompt, seeds: range, again: Again | None = None) -> list[Answer]:
        if self.waiting == 3:
            raise Unavailable("given up")
        return await super().sample(prompt, seeds, again)


async def test_the_end_does_not_wait_for_requests_of_a_lost_model_that_only_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody wants their answers any more, and they may be repeated for as long as patience lasts."""
    monkeypatch.setattr(scheduler_module, "TICK_SECONDS", 0.01)
    monkeypatch.setattr(troubles_module, "LOST_SECONDS", 0.0)
    bed = Bed(tmp_path, slots=64)
    away = bed.endpoints["cyd"] = GivingUpEndpoint("cyd", SKILLS["cyd"])
    away.health = lambda: (ReplicaStats("http://cyd/v1", False, 0, 8),)
    await bed.start()
    assert bed.controller.set_aside == {2: Lost(Cause.SERVER, "given up")}
    assert bed.controller.finished is Reason.BLOCKED and not away.waiting


@dataclass
class RefusingEndpoint(FakeEndpoint):
    """Answers the one request that its server has taken when it is told to, and refuses all others for ever."""

    answers: asyncio.Event = field(default_factory=asyncio.Event)
    looked_at: int = 0

    async def sample(self, prompt: Prompt, seeds: range, again: Again | None = None) -> list[Answer]:
        first = not self.samples
        answers = await super().sample(prompt, seeds, again)
        await (self.answers if first else asyncio.Event()).wait()
        return answers

    @property
    def stats(self) -> EndpointStats:
        self.looked_at += 1
        return EndpointStats(errors={"rate_limited": self.looked_at}, oldest=0.0 if self.answers.is_set() else 1e9)


async def test_a_drained_stop_waits_for_what_is_being_answered_while_all_else_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A provider may refuse some requests for their rate, and work on an answer that is paid."""
    monkeypatch.setattr(scheduler_module, "TICK_SECONDS", 0.01)
    monkeypatch.setattr(troubles_module, "LOST_SECONDS", 0.0)
    bed = Bed(tmp_path)
    refusing = bed.endpoints["cyd"] = RefusingEndpoint("cyd", SKILLS["cyd"])

    async def stop_and_answer(scheduler: Scheduler) -> None:
        await until(lambda: len(refusing.samples) > 1)
        scheduler.stop()
        seen = refusing.looked_at
        await until(lambda: refusing.looked_at > seen + 10 or scheduler.ending.over)
        refusing.answers.set()

    stopping: list[asyncio.Task[None]] = []
    scheduler = await bed.start(lambda one: stopping.append(asyncio.create_task(stop_and_answer(one))))
    await stopping[0]
    assert scheduler.ending.halt is Halt.DRAINED
    (kept,) = [question for model, question, _ in bed.outcomes() if model == "cyd"]
    assert kept[1:] in refusing.samples[0][0]


async def test_a_finished_run_asks_nothing_more(tmp_path: Path) -> None:
    bed = Bed(tmp_path)
    await bed.start()
    asked = [len(endpoint.samples) for endpoint in bed.endpoints.values()]
    looks = bed.looks()
    await bed.start()
    assert [len(endpoint.samples) for endpoint in bed.endpoints.values()] == asked
    assert bed.looks() == looks


async def test_a_lost_model_does_not_stop_the_others(tmp_path: Path) -> None:
    bed = Bed(tmp_path)
    cyd = bed.endpoints["cyd"]
    cyd.fail = lambda question, seeds: Unavailable("no replica left") if len(cyd.samples) > 40 else None
    await bed.start()
    assert bed.controller.set_aside == {2: Lost(Cause.SERVER, "no replica left")}
    (event,) = events_of_kind(bed.observer.events, ModelSetAside)
    assert event == ModelSetAside("cyd", "no replica left", Cause.SERVER)
    assert bed.controller.finished is Reason.BLOCKED
    assert len(bed.looks()) > 2


async def test_a_lost_model_is_tried_again_by_the_next_start(tmp_path: Path, reference: Bed) -> None:
    bed = Bed(tmp_path)
    cyd = bed.endpoints["cyd"]
    cyd.fail = lambda question, seeds: Unavailable("no replica left") if len(cyd.samples) > 40 else None
    await bed.start()
    cyd.fail = lambda question, seeds: None
    await bed.start()
    assert bed.controller.finished == reference.controller.finished
    assert bed.looks() == reference.looks()


async def test_looks_that_were_taken_without_a_model_go_when_it_comes_back(tmp_path: Path) -> None:
    bed = Bed(tmp_path)
    cyd = bed.endpoints["cyd"]
    cyd.fail = lambda question, seeds: Unavailable("no replica left") if len(cyd.samples) > 20 else None
    await bed.start()
    without = len(bed.looks())
    cyd.fail = lambda question, seeds: None
    await bed.start(lambda scheduler: asyncio.get_running_loop().call_soon(scheduler.stop))
    assert len(bed.looks()) == len(bed.controller.looks) < without


async def test_every_model_lost_ends_the_run(tmp_path: Path) -> None:
    bed = Bed(tmp_path)
    for endpoint in bed.endpoints.values():
        endpoint.fail = lambda question, seeds: Unavailable("connection refused")
    await bed.start()
    assert bed.controller.finished is Reason.BLOCKED
    assert bed.outcomes() == {}


async def test_a_refusal_at_the_start_stops_the_run_and_names_the_model(tmp_path: Path) -> None:
    bed = Bed(tmp_path)
    bed.endpoints["bob"].fail = lambda question, seeds: Rejected("401 Unauthorized: check OPENAI_API_KEY")
    with pytest.raises(Rejected, match="bob: 401 Unauthorized"):
        await bed.start()


async def test_a_refusal_later_sets_the_model_aside(tmp_path: Path) -> None:
    bed = Bed(tmp_path)
    bob = bed.endpoints["bob"]
    bob.fail = lambda question, seeds: Rejected("404 no such model") if len(bob.samples) > 30 else None
    await bed.start()
    assert list(bed.controller.set_aside) == [1]


async def test_a_grader_that_recovers_changes_nothing(tmp_path: Path, reference: Bed) -> None:
    failed: set[int] = set()

    def fails_once(answer: object, question: object) -> bool:
        seed = answer.seed  # type: ignore[attr-defined]
        again = seed in failed
        failed.add(seed)
        return seed % 5 == 0 and not again

    bed = Bed(tmp_path)
    bed.grading.fails = fails_once
    await bed.start()
    assert bed.looks() == reference.looks()


async def test_an_answer_that_cannot_be_graded_is_kept_and_graded_by_the_next_start(
    tmp_path: Path, reference: Bed
) -> None:
    bad = hashed_base(1, "bob", "q2") + 7
    bed = Bed(tmp_path)
    bed.grading.fails = lambda answer, question: answer.seed == bad
    await bed.start()
    assert bed.outcomes()["bob", "q2", 7] is None
    assert bed.controller.set_aside == {}
    assert bed.controller.ungraded[1, 2] == 1
    told = events_of_kind(bed.observer.events, AnswerUngraded)
    assert told == [AnswerUngraded("bob", "q2", "the worker was killed after 10 s")]
    before, requests = bed.looks(), len(bed.endpoints["bob"].samples)
    await bed.start()
    assert bed.looks() == before, "the grader fails again, and nothing is bought"
    assert len(bed.endpoints["bob"].samples) == requests
    bed.grading.fails = lambda answer, question: False
    asked = len(bed.endpoints["bob"].samples)
    await bed.start()
    assert bed.looks() == reference.looks()
    assert bed.outcomes().items() >= reference.outcomes().items()
    assert ("ask 2", range(bad, bad + 1)) not in bed.endpoints["bob"].samples[asked:]


async def test_wall_time_ends_the_run_with_what_is_complete(tmp_path: Path) -> None:
    bed = Bed(tmp_path, plan(budget=Budget(wall_seconds=0.4)))
    for endpoint in bed.endpoints.values():
        endpoint.delay = 0.3
    await bed.start()
    assert bed.controller.finished is Reason.WALL_TIME
    before = bed.outcomes()
    await bed.start()
    assert bed.controller.finished is Reason.WALL_TIME, "the time of earlier starts counts"
    assert bed.outcomes() == before


async def stopped_until_finished(bed: Bed, rng: random.Random) -> Scheduler:
    """Starts that are stopped after a moment each, a longer one each time, until the run is finished."""
    starts = 0

    def stop_soon(run: Scheduler) -> None:
        asyncio.get_running_loop().call_later(rng.random() * 0.1 * starts, run.stop)

    while True:
        starts += 1
        scheduler = await bed.start(stop_soon)
        if bed.controller.finished is not None:
            return scheduler


RANDOM_RUNS = [
    pytest.param(range(3), id="3"),
    pytest.param(range(3, 12), id="9", marks=pytest.mark.slow),
    pytest.param(range(12, 212), id="200", marks=pytest.mark.release),
]


@pytest.mark.parametrize("seeds", RANDOM_RUNS)
async def test_no_cap_is_ever_exceeded(tmp_path: Path, seeds: range) -> None:
    """Random caps, rounds, concurrency, stops and resumes."""
    for seed in seeds:
        rng = random.Random(seed)
        caps = Budget(trials=rng.randint(20, 400), tokens=rng.choice([None, rng.randint(400, 9000)]))
        pace = Pace(lookahead=rng.randint(0, 2))
        smallest = rng.randint(1, 4)
        trials = Trials(min=smallest, max=rng.randint(smallest, 40))
        bed = Bed(tmp_path / str(seed), plan(budget=caps, pace=pace, trials=trials), slots=rng.choice([1, 7, 64]))
        for endpoint in bed.endpoints.values():
            endpoint.delay = 0.0005
        scheduler = await stopped_until_finished(bed, rng)
        used = Cost(*(sum(getattr(usage, name) for usage in scheduler.state.spent.usages) for name in Cost._fields))
        assert len(bed.outcomes()) <= (caps.trials or 0), seed
        assert caps.tokens is None or used.tokens <= caps.tokens, seed


async def test_a_defect_is_not_swallowed(tmp_path: Path) -> None:
    bed = Bed(tmp_path)
    bed.endpoints["ada"].fail = lambda question, seeds: ZeroDivisionError()  # type: ignore[assignment,return-value]
    with pytest.raises(ZeroDivisionError):
        await bed.start()
