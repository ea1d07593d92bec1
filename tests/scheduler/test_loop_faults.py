"""A store, a supply or a user that comes at the worst moment: nothing that was graded is lost, no error is hidden, and
the next start goes on as if nothing had been."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from fakes import Bed, plan

from adaptive_eval.base.errors import StoreError
from adaptive_eval.core.settings import Pace, Trials
from adaptive_eval.scheduler.scheduler import Scheduler
from adaptive_eval.store import CommitBatch, Store
from adaptive_eval.supply.happenings import Happening
from adaptive_eval.supply.supplies import Supplies

SMALL = plan(trials=Trials(1, 3), pace=Pace(lookahead=1))


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Bed:
    """The run that nothing disturbs."""
    bed = Bed(tmp_path_factory.mktemp("undisturbed"), SMALL)
    asyncio.run(bed.start())
    return bed


def small(directory: Path) -> Bed:
    bed = Bed(directory, SMALL, slots=4)
    for endpoint in bed.endpoints.values():
        endpoint.delay = 0.0
    return bed


async def goes_on(bed: Bed, reference: Bed) -> None:
    """The next start comes to what an undisturbed run comes to, and no task was left behind."""
    assert asyncio.all_tasks() == {asyncio.current_task()}
    await bed.start()
    assert bed.looks() == reference.looks() and bed.outcomes() == reference.outcomes()


@pytest.mark.parametrize("stops", [0, 1, 2])
@pytest.mark.parametrize("failing", [2, 3, 4])
async def test_a_commit_that_fails_is_told_however_the_run_is_stopped_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reference: Bed, stops: int, failing: int
) -> None:
    bed, commits, really, loop = small(tmp_path), [0], Store.commit, asyncio.get_running_loop()
    depart, found = Supplies.depart, list[Scheduler]()

    def commit(store: Store, batch: CommitBatch) -> CommitBatch:
        commits[0] += 1
        if commits[0] == failing:
            for _ in range(stops):
                loop.call_soon_threadsafe(found[0].stop)
            raise StoreError("the disk is full")
        return really(store, batch)

    async def slowly(supply: Supplies, **named: Any) -> None:
        while commits[0] < failing or found[0]._loop.journal.committer._writing is not None:  # noqa: ASYNC110
            await asyncio.sleep(0)
        await depart(supply, **named)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "commit", commit)
        patch.setattr(Supplies, "depart", slowly)
        with pytest.raises(StoreError, match="the disk is full"):
            await bed.start(found.append)
    await goes_on(bed, reference)


@pytest.mark.parametrize("method", ["take_over", "start", "serve", "mark_stored", "depart", "close"])
async def test_a_supply_that_raises_ends_the_run_and_what_was_graded_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reference: Bed, method: str
) -> None:
    bed, really, calls = small(tmp_path), getattr(Supplies, method), [0]

    def broken(supply: Supplies, *arguments: Any, **named: Any) -> Any:
        calls[0] += 1
        if method in ("serve", "mark_stored") and calls[0] < 3:
            return really(supply, *arguments, **named)
        raise ZeroDivisionError(method)

    def stop_soon(scheduler: Scheduler) -> None:
        if method in ("depart", "close"):
            stop_at(monkeypatch, scheduler, moment=20, stops=2)

    with monkeypatch.context() as patch:
        patch.setattr(Supplies, method, broken)
        with pytest.raises(ZeroDivisionError, match=method):
            await bed.start(stop_soon)
    assert bed.grading.calls == len(bed.outcomes()), "an answer was graded, and is not stored"
    await goes_on(bed, reference)


FEW = (1, 2, 3, 5, 8, 13, 21, 34, 55)


@pytest.mark.parametrize(
    ("moments", "stops"),
    [
        pytest.param(FEW, 2, id="some"),
        pytest.param(range(1, 90), 1, marks=pytest.mark.release, id="all"),
        pytest.param(range(1, 90), 2, marks=pytest.mark.release, id="all, at once"),
    ],
)
async def test_a_run_that_is_stopped_at_any_moment_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reference: Bed, moments: Sequence[int], stops: int
) -> None:
    for moment in moments:
        bed = small(tmp_path / str(moment))
        await bed.start(lambda scheduler, moment=moment: stop_at(monkeypatch, scheduler, moment, stops))  # type: ignore[misc]
        assert bed.grading.calls == len(bed.outcomes())
        await goes_on(bed, reference)


def stop_at(monkeypatch: pytest.MonkeyPatch, scheduler: Scheduler, moment: int, stops: int) -> None:
    """Have the run stopped when so many things have happened."""
    take, taken = scheduler._loop._take, [0]

    def counted(happening: Happening) -> None:
        taken[0] += 1
        for _ in range(stops if taken[0] == moment else 0):
            scheduler.stop()
        take(happening)

    monkeypatch.setattr(scheduler._loop, "_take", counted)
