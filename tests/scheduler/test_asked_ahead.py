"""Idle slots are asked ahead: it changes when answers come, and nothing else."""

import asyncio
import random
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from fakes import QUESTIONS, SKILLS, Bed, FakeEndpoint, FakeGrading, plan
from patient_time import until

from adaptive_eval.core.settings import Budget, Pace
from adaptive_eval.endpoints.types import Again, Answer, Prompt, ReplicaStats
from adaptive_eval.errors import Unavailable
from adaptive_eval.scheduler import troubles as troubles_module
from adaptive_eval.scheduler.scheduler import Scheduler
from adaptive_eval.store import AnswersUnwanted, RunReader, events_of_kind

PLAIN = Pace()
AHEAD = Pace(ahead=1.0, ahead_opening=12)
Wanted = set[tuple[str, int]]


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Bed:
    """The run that asks nothing ahead."""
    bed = Bed(tmp_path_factory.mktemp("plain"), plan(pace=PLAIN))
    asyncio.run(bed.start())
    assert len(bed.looks()) > 5 and asked(bed) == len(bed.outcomes())
    return bed


def asked(bed: Bed) -> int:
    """Answers that servers were asked for."""
    return sum(len(seeds) for endpoint in bed.endpoints.values() for _, seeds in endpoint.samples)


def wanted(reference: Bed, model: str) -> Wanted:
    """The requests that rounds come to."""
    return {Bed.request(*trial) for trial in reference.outcomes() if trial[0] == model}


def rounds(bed: Bed) -> dict[tuple[str, str, int], int]:
    """The round of every stored trial."""
    with closing(RunReader.open(bed.directory)) as reader:
        return {(place.model, place.key.question, place.key.trial): place.round for place in reader.places()}


def require_same(bed: Bed, reference: Bed) -> None:
    assert bed.looks() == reference.looks()
    assert bed.outcomes() == reference.outcomes()
    assert rounds(bed) == rounds(reference)
    assert bed.controller.finished == reference.controller.finished


def in_vain(bed: Bed) -> dict[str, int]:
    """What the run has noted, by model."""
    return {one.model: one.answers for one in events_of_kind(bed.observer.events, AnswersUnwanted)}


@pytest.mark.parametrize(("slots", "samples"), [(1, 1), (16, 1), (256, 1), (64, 4)])
async def test_looks_and_what_is_stored_are_those_of_a_run_that_asks_nothing_ahead(
    tmp_path: Path, reference: Bed, slots: int, samples: int
) -> None:
    bed = Bed(tmp_path, plan(pace=AHEAD), slots=slots, samples=samples)
    await bed.start()
    require_same(bed, reference)
    places = [(question, seed) for one in bed.endpoints.values() for question, seeds in one.samples for seed in seeds]
    assert len(set(places)) == len(places), "nothing is asked twice"
    assert max(one.most_in_flight for one in bed.endpoints.values()) <= slots
    assert sum(in_vain(bed).values()) == asked(bed) - len(bed.outcomes()), "what was asked in vain is said"
    assert slots == 1 or asked(bed) > len(bed.outcomes())


async def test_stopped_and_resumed_it_is_the_same_run(tmp_path: Path, reference: Bed) -> None:
    bed = Bed(tmp_path, plan(pace=AHEAD), slots=32)
    rng, starts = random.Random(7), 0
    while bed.controller.finished is None:
        starts += 1

        def stop_soon(scheduler: Scheduler) -> None:
            loop, delay = asyncio.get_running_loop(), rng.uniform(0.0, 0.02)
            loop.call_later(delay, scheduler.stop)
            if rng.random() < 0.5:
                loop.call_later(delay, scheduler.stop)

        await bed.start(stop_soon if starts < 6 else None)
    require_same(bed, reference)


@dataclass
class UnwantedHangEndpoint(FakeEndpoint):
    """Never answers what no round will ask for."""

    wanted: Wanted = frozenset()  # type: ignore[assignment]
    hanging: int = 0

    async def sample(self, prompt: Prompt, seeds: range, again: Again | None = None) -> list[Answer]:
        assert prompt.messages is not None
        if (prompt.messages[0].content, seeds[0]) not in self.wanted:
            self.hanging += 1
            await asyncio.Event().wait()
        return await super().sample(prompt, seeds, again)


async def test_the_end_does_not_wait_for_what_nobody_wants(tmp_path: Path, reference: Bed) -> None:
    bed = Bed(tmp_path, plan(pace=AHEAD), slots=256)
    hangs = {name: UnwantedHangEndpoint(name, skill, wanted=wanted(reference, name)) for name, skill in SKILLS.items()}
    bed.endpoints.update(hangs)
    await bed.start()
    require_same(bed, reference)
    assert in_vain(bed) == {name: one.hanging for name, one in hangs.items() if one.hanging}
    assert sum(one.hanging for one in hangs.values()) > 0


async def test_what_nobody_wants_may_fail(tmp_path: Path, reference: Bed) -> None:
    bed = Bed(tmp_path, plan(pace=AHEAD), slots=256)
    for name, endpoint in bed.endpoints.items():
        known = wanted(reference, name)
        endpoint.fail = lambda question, seeds, known=known: (  # type: ignore[misc]
            None if (question, seeds[0]) in known else Unavailable("the server went away")
        )
    await bed.start()
    require_same(bed, reference)
    assert not bed.controller.set_aside and in_vain(bed)


async def test_a_wanted_answer_that_was_asked_ahead_and_fails_sets_its_model_aside(tmp_path: Path) -> None:
    """From the eighth trial on: asked ahead before the first look, and wanted later."""
    bed = Bed(tmp_path, plan(pace=AHEAD), slots=256)
    last = {Bed.request("cyd", question.id, trial) for question in QUESTIONS for trial in range(8, 40)}
    bed.endpoints["cyd"].fail = lambda question, seeds: (
        Unavailable("the server went away") if (question, seeds[0]) in last else None
    )
    await bed.start()
    assert list(bed.controller.set_aside) == [list(SKILLS).index("cyd")]


@dataclass
class HeldEndpoint(FakeEndpoint):
    """Answers nothing until it is let go."""

    held: asyncio.Event = field(default_factory=asyncio.Event)

    async def sample(self, prompt: Prompt, seeds: range, again: Again | None = None) -> list[Answer]:
        await self.held.wait()
        return await super().sample(prompt, seeds, again)


async def test_while_nothing_comes_of_a_model_the_others_are_asked_what_rounds_want_and_no_more(
    tmp_path: Path, reference: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(troubles_module, "LOST_SECONDS", 0.0)
    bed = Bed(tmp_path, plan(pace=AHEAD), slots=256)
    stuck = bed.endpoints["cyd"] = HeldEndpoint("cyd", SKILLS["cyd"])
    stuck.health = lambda: (ReplicaStats("http://cyd/v1", stuck.held.is_set(), 0, 256),)
    others = [one for one in bed.endpoints.values() if one is not stuck]
    asked_meanwhile: list[int] = []
    letting_go: list[asyncio.Task[None]] = []

    async def let_go(scheduler: Scheduler) -> None:
        await until(lambda: all(one.samples and not one.in_flight for one in others))
        asked_meanwhile.append(asked(bed))
        stuck.held.set()
        scheduler._tell_troubles()

    def begin(scheduler: Scheduler) -> None:
        scheduler._tell_troubles()
        letting_go.append(asyncio.get_running_loop().create_task(let_go(scheduler)))

    await bed.start(begin)
    require_same(bed, reference)
    assert asked_meanwhile == [sum(reference.issued(name, 1) for name in ("ada", "bob"))]
    assert asked(bed) > len(bed.outcomes()), "later it is asked ahead"


@pytest.mark.parametrize("budget", [Budget(trials=400), Budget(tokens=4000)])
async def test_where_caps_count_trials_nothing_is_asked_ahead(tmp_path: Path, budget: Budget) -> None:
    bed = Bed(tmp_path, plan(pace=AHEAD, budget=budget), slots=256)
    await bed.start()
    assert asked(bed) == len(bed.outcomes()) and not in_vain(bed)


async def test_where_grades_take_requests_nothing_is_asked_ahead(tmp_path: Path, reference: Bed) -> None:
    class Lasting(FakeGrading):
        lasting = True
        lost_vote = FakeGrading.lost

        async def grade(self, answer: Answer, question: object, again: Again | None = None) -> object:  # type: ignore[override]
            return await super().grade(answer, question)  # type: ignore[arg-type]

    bed = Bed(tmp_path, plan(pace=AHEAD), slots=64)
    bed.grading = Lasting()
    await bed.start()
    assert bed.looks() == reference.looks()
    assert asked(bed) == len(bed.outcomes())


async def test_answers_without_a_grade_and_time_outs_count_as_ever(tmp_path: Path) -> None:
    def disturbed(directory: Path, pace: Pace) -> Bed:
        bed = Bed(directory, plan(pace=pace), slots=64)
        bed.grading = FakeGrading(lambda answer, question: answer.seed % 29 == 0)
        for endpoint in bed.endpoints.values():
            endpoint.late = lambda question, seed: seed % 11 == 0
        return bed

    plain, ahead = disturbed(tmp_path / "plain", PLAIN), disturbed(tmp_path / "ahead", AHEAD)
    await plain.start()
    await ahead.start()
    require_same(ahead, plain)


def test_only_what_the_pace_says_differs() -> None:
    assert replace(AHEAD, ahead=0.0, ahead_opening=0) == PLAIN
