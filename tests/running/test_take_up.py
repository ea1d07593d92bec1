"""A start first grades stored answers, before anything is asked, however long it takes and whatever happens."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from bed import MachineBed
from fakes import FakeGrading, plan

from adaptive_eval.core.settings import Budget, Pace
from adaptive_eval.endpoints.types import Answer
from adaptive_eval.graders.types import Grade
from adaptive_eval.machine.records import LOOKS_RETAKEN, REGRADED, REGRADING
from adaptive_eval.questions.types import Question
from adaptive_eval.running.driver import Driver

MANY_TURNS = 100
BOB = range(1000, 2000)
"""Seeds of bob."""


class SlowGrading(FakeGrading):
    """Takes many turns of the loop for its first answers, in each of which `on_turn` is called."""

    def __init__(self, on_turn: Callable[[], object], slow: int = 1) -> None:
        super().__init__()
        self._on_turn, self._slow = on_turn, slow

    def grade_now(self, answer: Answer, question: Question) -> Grade | None:
        return None

    async def grade(self, answer: Answer, question: Question, again: object = None) -> Grade:
        grade = await super().grade(answer, question)
        if self.calls <= self._slow:
            for _ in range(MANY_TURNS):
                await asyncio.sleep(0)
                self._on_turn()
        return grade


class HungGrading(FakeGrading):
    """Grades its first answers, and hangs on later ones, each of which is passed to `on_hung`."""

    def __init__(self, graded: int, on_hung: Callable[[], object] = lambda: None) -> None:
        super().__init__()
        self._graded, self._on_hung, self.hung = graded, on_hung, 0

    def grade_now(self, answer: Answer, question: Question) -> Grade | None:
        return None

    async def grade(self, answer: Answer, question: Question, again: object = None) -> Grade:
        if self.calls >= self._graded:
            self.hung += 1
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


async def test_a_cap_that_passes_while_stored_answers_are_graded_does_not_cost_the_looks(tmp_path: Path) -> None:
    bed = await with_ungraded(MachineBed(tmp_path), all_of_one_question)
    before = bed.looks()
    bed.plan = replace(bed.plan, budget=Budget(wall_seconds=1.0))

    def pass_the_cap() -> None:
        bed.clock.seconds = 2.0

    bed.grading = SlowGrading(pass_the_cap)
    bed.grading.fails = all_of_one_question
    await bed.start()
    assert bed.looks() == before != []


async def test_a_cap_on_time_ends_the_grading_of_stored_answers(tmp_path: Path) -> None:
    bed = await with_ungraded(MachineBed(tmp_path))
    remaining, before = ungraded(bed), asked(bed)
    unlimited, bed.plan = bed.plan, replace(bed.plan, budget=Budget(wall_seconds=1.0))

    def pass_the_cap() -> None:
        bed.clock.seconds = 2.0

    bed.grading = HungGrading(1, pass_the_cap)
    bed.grading.at_once = 1
    machine = await bed.start()
    assert asked(bed) == before and machine.controller.finished is not None
    assert ungraded(bed) >= remaining - 1
    bed.plan, bed.grading = unlimited, FakeGrading()
    await bed.start()
    assert not ungraded(bed)


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
