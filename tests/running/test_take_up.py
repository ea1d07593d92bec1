"""A start takes up everything that is stored before anything is asked, however long it takes and whatever comes."""

import asyncio
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from adaptive_eval.launch.happenings import Committed
from adaptive_eval.scheduler import scheduler
from adaptive_eval.scheduler.committer import Committer
from adaptive_eval.scheduler.meter import at_least_elapsed
from adaptive_eval.scheduler.run_end import Halt
from adaptive_eval.scheduler.scheduler import Scheduler
from fakes import QUESTIONS, Bed, FakeEndpoint, FakeGrading, plan

from adaptive_eval.base.errors import StoreError
from adaptive_eval.core.controller import Controller
from adaptive_eval.core.settings import Budget, Pace
from adaptive_eval.endpoints.types import Answer, Prompt, RetryGate
from adaptive_eval.graders.types import Grade
from adaptive_eval.notes import LooksRetaken, RegradingBegun, RunResumed, TrialsRegraded
from adaptive_eval.questions.types import Question
from adaptive_eval.report.event_words import event_sentence
from adaptive_eval.report.reader import RunReader
from adaptive_eval.store import CommitBatch

MANY_TURNS = 100


class SlowGrading(FakeGrading):
    """Takes many turns of the loop for its first answers, in which `seen` is told of each."""

    def __init__(self, seen: Callable[[], object], slow: int = 1) -> None:
        super().__init__()
        self._seen, self._slow = seen, slow

    async def grade(self, answer: Answer, question: Question, again: object = None) -> Grade:
        grade = await super().grade(answer, question)
        if self.calls <= self._slow:
            for _ in range(MANY_TURNS):
                await asyncio.sleep(0.001)
                self._seen()
        return grade


async def with_ungraded(bed: Bed, when: Callable[[Answer], bool] = lambda answer: answer.seed % 5 == 0) -> Bed:
    """The bed after a start whose grader failed on some answers."""
    bed.grading.fails = lambda answer, question: when(answer)
    await bed.start()
    assert None in bed.outcomes().values()
    return bed


def all_of_one_question(answer: Answer) -> bool:
    """Those of bob, who is set aside for that."""
    return answer.seed - Bed.request("bob", "q1", 0)[1] in range(40)


def asked(bed: Bed) -> int:
    """Requests so far, over all starts."""
    return sum(len(endpoint.samples) for endpoint in bed.endpoints.values())


async def test_nothing_is_asked_while_stored_answers_are_graded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "TICK_SECONDS", 0.001)
    reference = Bed(tmp_path / "reference")
    await reference.start()
    bed = await with_ungraded(Bed(tmp_path / "run"))
    before, seen = asked(bed), []
    bed.grading = SlowGrading(lambda: seen.append((asked(bed) - before, bed.controller.in_flight)))
    await bed.start()
    assert set(seen) == {(0, 0)}
    assert asked(bed) == len(bed.outcomes()), "nothing was bought twice"
    assert (bed.outcomes(), bed.looks()) == (reference.outcomes(), reference.looks())


async def test_looks_on_other_rounds_than_before_are_told_once(tmp_path: Path) -> None:
    """Another version may order the rounds of a run otherwise, as another pace does."""
    bed = Bed(tmp_path, replace(plan(), pace=Pace(lookahead=3)))
    await bed.start()
    before = bed.looks()
    bed.plan = replace(plan(), pace=Pace(share=0.9, opening=8))
    await bed.start()
    (told,) = (event for event in bed.observer.events if isinstance(event, LooksRetaken))
    assert told.looks == len(before) and bed.looks() != before
    assert event_sentence(told) == (
        f"looks are repeated on the stored answers, in other rounds than the {len(before)} before: verdicts "
        "may differ from those reported then"
    )
    await bed.start()
    assert sum(isinstance(event, LooksRetaken) for event in bed.observer.events) == 1, "what is stored is of today"


async def test_a_cap_that_passes_while_stored_answers_are_graded_does_not_cost_the_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "TICK_SECONDS", 0.001)
    bed = await with_ungraded(Bed(tmp_path), all_of_one_question)
    before = bed.looks()
    bed.plan = plan(budget=Budget(wall_seconds=0.001))
    bed.grading = SlowGrading(lambda: None)
    await bed.start()
    assert bed.looks() == before != []


class HungGrading(FakeGrading):
    """Grades its first answers, and never ends with the next, of which `seen` is told."""

    def __init__(self, graded: int, seen: Callable[[], object] = lambda: None) -> None:
        super().__init__()
        self._graded, self._seen, self.hung = graded, seen, 0

    async def grade(self, answer: Answer, question: Question, again: object = None) -> Grade:
        if self.calls >= self._graded:
            self.hung += 1
            self._seen()
            await asyncio.get_running_loop().create_future()
        return await super().grade(answer, question)


async def test_a_cap_on_time_ends_the_grading_of_stored_answers(tmp_path: Path) -> None:
    bed = await with_ungraded(Bed(tmp_path))
    ungraded, before = list(bed.outcomes().values()).count(None), asked(bed)
    with closing(RunReader.open(tmp_path)) as reader:
        used = at_least_elapsed(reader)
    bed.plan, unlimited = plan(budget=Budget(wall_seconds=used + 0.3)), bed.plan
    bed.grading = HungGrading(1)
    bed.grading.at_once = 1
    await bed.start()
    assert asked(bed) == before and bed.controller.finished is not None
    assert list(bed.outcomes().values()).count(None) >= ungraded - 1
    bed.plan, bed.grading = unlimited, FakeGrading()
    await bed.start()
    assert None not in bed.outcomes().values()


async def test_answers_whose_grading_was_cut_off_are_kept_for_the_next_start(tmp_path: Path) -> None:
    runs: list[Scheduler] = []

    def stop_at_once() -> None:
        if bed.grading.hung == 3:
            runs[0].stop()
            runs[0].stop()

    bed = Bed(tmp_path / "run")
    bed.grading = HungGrading(4, stop_at_once)
    await bed.start(runs.append)
    stored = bed.outcomes()
    assert list(stored.values()).count(None) == bed.grading.hung >= 3 and len(stored) == 4 + bed.grading.hung
    bed.grading = FakeGrading()
    await bed.start()
    assert None not in bed.outcomes().values() and bed.outcomes().keys() >= stored.keys()
    reference = Bed(tmp_path / "reference")
    await reference.start()
    assert bed.looks() == reference.looks()


@pytest.mark.parametrize("times", [1, 2])
async def test_grading_stored_answers_can_be_stopped_and_keeps_what_is_done(tmp_path: Path, times: int) -> None:
    bed = await with_ungraded(Bed(tmp_path))
    ungraded, before = list(bed.outcomes().values()).count(None), asked(bed)
    assert ungraded > 2
    runs: list[Scheduler] = []

    def stop_at_the_second() -> None:
        if bed.grading.calls == 2:
            for _ in range(times):
                runs[0].stop()

    bed.grading = SlowGrading(stop_at_the_second, slow=2)
    bed.grading.at_once = 1
    ended = await bed.start(runs.append)
    assert ended.ending.halt is (Halt.DRAINED if times == 1 else Halt.AT_ONCE)
    assert list(bed.outcomes().values()).count(None) == ungraded - 1
    assert asked(bed) == before
    kinds = [event.kind for event in bed.observer.events if event.kind in (RegradingBegun.KIND, TrialsRegraded.KIND)]
    assert kinds == [RegradingBegun.KIND, TrialsRegraded.KIND]


async def test_a_model_whose_answer_still_has_no_grade_is_asked_nothing(tmp_path: Path) -> None:
    bed = await with_ungraded(Bed(tmp_path), all_of_one_question)
    before = len(bed.endpoints["bob"].samples)
    await bed.start()
    assert list(bed.controller.set_aside) == [1]
    assert len(bed.endpoints["bob"].samples) == before


async def test_an_ungraded_answer_counts_as_paid_after_a_resume(tmp_path: Path) -> None:
    bed = await with_ungraded(Bed(tmp_path))
    resumed = await bed.start()
    assert sum(usage.trials for usage in resumed.state.spent.usages) == len(bed.outcomes())
    assert sum(usage.ungraded for usage in resumed.state.spent.usages) == list(bed.outcomes().values()).count(None)


async def test_a_defect_in_the_grader_while_stored_answers_are_graded_asks_nothing(tmp_path: Path) -> None:
    bed = await with_ungraded(Bed(tmp_path))
    before = asked(bed)

    def broken(answer: Answer, question: Question) -> bool:
        raise ZeroDivisionError

    bed.grading.fails = broken
    with pytest.raises(ZeroDivisionError):
        await bed.start()
    assert asked(bed) == before


def test_the_core_takes_no_earlier_outcomes_once_it_was_asked() -> None:
    controller = Controller(plan())
    controller.ask(len(QUESTIONS))
    with pytest.raises(ValueError, match="before anything is asked"):
        controller.restore([])


class SlowStore:
    """Commits when it is let."""

    def __init__(self) -> None:
        self.let = asyncio.Event()
        self.loop = asyncio.get_running_loop()
        self.began = asyncio.Event()
        self.error: StoreError | None = None

    def commit(self, batch: CommitBatch) -> CommitBatch:
        self.loop.call_soon_threadsafe(self.began.set)
        asyncio.run_coroutine_threadsafe(self.let.wait(), self.loop).result()
        if self.error is not None:
            raise self.error
        return batch


@pytest.mark.parametrize("error", [None, StoreError("no space left")])
async def test_what_is_being_written_when_the_writer_is_cancelled_is_reported_once(error: StoreError | None) -> None:
    store, told = SlowStore(), list[Committed]()
    store.error = error
    committer = Committer(store, told.append, elapsed=lambda: 0.0)
    writer = asyncio.create_task(committer.run())
    committer.next_batch().events.append(RunResumed())
    await store.began.wait()
    writer.cancel()
    await asyncio.gather(writer, return_exceptions=True)
    assert not committer.idle and not told
    store.let.set()
    if error is None:
        await committer.flush()
    else:
        with pytest.raises(StoreError):
            await committer.flush()
    assert committer.idle
    assert [event.kind for one in told for event in one.batch.events] == ([] if error else [RunResumed.KIND])
    committer.close()


async def test_what_is_in_flight_of_a_model_that_was_set_aside_is_stored_before_the_end(tmp_path: Path) -> None:
    bed = Bed(tmp_path)
    late = asyncio.Event()
    slow = Bed.request("bob", "q2", 3)[1]  # of the round that runs ahead

    class Late(FakeEndpoint):
        async def sample(self, prompt: Prompt, seeds: range, again: RetryGate | None = None) -> list[Answer]:
            answers = await super().sample(prompt, seeds)
            if slow in seeds:
                await late.wait()
            return answers

    bed.endpoints["bob"] = Late("bob", 0.5)
    bed.grading.fails = lambda answer, question: all_of_one_question(answer)

    async def answer_late() -> None:
        left = MANY_TURNS
        for _ in range(100 * MANY_TURNS):
            left -= bed.controller.finished is not None
            if left == 0:
                break
            await asyncio.sleep(0.001)
        late.set()

    waiting: list[asyncio.Task[None]] = []
    await bed.start(lambda run: waiting.append(asyncio.create_task(answer_late())))
    await waiting[0]
    assert list(bed.controller.set_aside) == [1]
    assert len(bed.outcomes()) == asked(bed)
