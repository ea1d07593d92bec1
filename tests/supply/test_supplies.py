"""All supplies of a run as one: each model is asked where its own supply says, and batches of earlier starts go on."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from adaptive_eval.batches.book import BatchBook
from adaptive_eval.batches.calls import trial_id
from adaptive_eval.batches.endpoint import BatchedEndpoint
from adaptive_eval.batches.supply import BatchServices
from adaptive_eval.supply.happenings import Happening
from adaptive_eval.supply.pool import open_pool
from adaptive_eval.supply.supplies import Supplies
from adaptive_eval.supply.types import Lane, Request, TrialPrice

from adaptive_eval.base.roster import Roster
from adaptive_eval.core.types import NO_COST
from adaptive_eval.endpoints.types import Answer, Prompt
from adaptive_eval.notes import BatchPlanned, BatchTaken, Event
from adaptive_eval.report.records import AWAITS_VERDICT, TrialRecord
from adaptive_eval.storage.header import RunHeader
from adaptive_eval.store import CommitBatch, Store

ADA, BOB, CYD = range(3)
NAMES = ("ada", "bob", "cyd")
KEYS = ("q1", "q0")
"""The questions in the order of today, which is not that of the store."""


class HostOfCyd:
    """A place where cyd can be served."""

    models = (CYD,)


class NoJournal:
    """Nothing is recorded in these tests."""

    def note(self, event: Event) -> None:
        raise AssertionError("nothing happens to a batch")

    async def safe(self) -> None:
        raise AssertionError("nothing is handed in")


def lane(model: int, endpoint: Any) -> Lane:
    return Lane(
        NAMES[model],
        endpoint,
        prompt=lambda number: Prompt(text=f"ask {KEYS[number]}"),
        seed_base=lambda number: 1000 * number,
        slots=2,
        samples_per_request=1,
        price=TrialPrice(lambda answer: NO_COST),
    )


def batch_id(question: int, trial: int) -> str:
    """The id of a trial's request."""
    return trial_id(Prompt(text=f"ask {KEYS[question]}"), 1000 * question + trial)


def opened() -> Supplies:
    """Supplies of ada, whose servers are others', bob, who is asked in batches, and cyd, who is served here."""
    nobody: Any = None
    batched = BatchedEndpoint("bob", nobody, nobody, attempts=1)
    said: list[Happening] = []
    hosts: Any = [HostOfCyd()]
    lanes = [lane(ADA, nobody), lane(BOB, batched), lane(CYD, nobody)]
    return Supplies(lanes, [partial(open_pool, hosts), BatchServices], said.append, NoJournal())


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A run of which an earlier start has handed in five requests of bob, and stored three answers."""
    header = RunHeader("run", {}, {}, {name: {} for name in NAMES}, {key: {} for key in sorted(KEYS)})
    one = Store.open(tmp_path, header).store
    ids = [batch_id(0, trial) for trial in range(3)] + [batch_id(1, trial) for trial in range(2)]
    planned, taken = BatchPlanned("bob", "key", tuple(ids), 1.0), BatchTaken("bob", "key", "batch-1", 5, 2.0)
    answer = Answer("right", "stop", 0, "batch", 1.0)
    trials = [
        TrialRecord("bob", "q1", 0, 0, answer, 1),
        TrialRecord("bob", "q1", 1, 0, answer, None, grader_error=AWAITS_VERDICT),
        TrialRecord("bob", "q0", 1, 0, answer, None, grader_error="it has failed"),
        TrialRecord("ada", "q0", 0, 0, answer, 1),
    ]
    one.commit(CommitBatch(trials=trials, events=[planned, taken]))
    yield one
    one.close()


def test_each_model_has_the_servers_that_its_own_supply_says() -> None:
    supplies = opened()
    assert [supplies.servers(model) for model in (ADA, BOB, CYD)] == [1, 1, 0]
    assert (set(supplies.launched), set(supplies.batched), set(supplies.deserted)) == ({CYD}, {BOB}, {CYD})
    assert not supplies.is_moving and not supplies.pending


def test_what_is_stored_is_left_out_of_the_batches_of_earlier_starts_graded_or_not(store: Store) -> None:
    supplies = opened()
    assert supplies.take_over(store, Roster.of(NAMES, KEYS)) == {"bob": 2}
    (batch,) = supplies.pending
    assert (batch.model, batch.batch, batch.since) == ("bob", "batch-1", 2.0)
    assert set(batch.requests) == {batch_id(0, 2), batch_id(1, 0)}


def test_a_model_that_has_left_the_run_takes_nothing_over(store: Store) -> None:
    supplies = opened()
    assert supplies.take_over(store, Roster.of(("ann", "bob", "cyd"), KEYS)) == {"bob": 2}


def test_a_request_is_marked_as_stored_with_its_seeds_at_the_supply_of_its_model_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    marked: list[tuple[str | None, range]] = []
    monkeypatch.setattr(BatchBook, "mark_stored", lambda self, prompt, seeds: marked.append((prompt.text, seeds)))
    supplies = opened()
    for model in (ADA, BOB, CYD):
        supplies.mark_stored(Request(model, 1, 2, 3, 0))
    assert marked == [("ask q0", range(1002, 1005))]
