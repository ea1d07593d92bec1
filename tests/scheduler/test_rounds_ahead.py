"""Rounds in flight ahead of the looks: they change what is asked, and neither looks nor what is kept."""

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import SKILLS, Bed, FakeEndpoint, plan
from patient_time import until

from adaptive_eval.base.errors import Unavailable
from adaptive_eval.core.settings import Pace
from adaptive_eval.endpoints.types import Again, Answer, Prompt
from adaptive_eval.scheduler.scheduler import Scheduler

HELD = Pace(lookahead=4, held=True)


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Bed:
    """The run with one request at a time."""
    bed = Bed(tmp_path_factory.mktemp("one"), plan(pace=HELD), slots=1)
    asyncio.run(bed.start())
    assert len(bed.looks()) > 5
    return bed


def asked(bed: Bed) -> int:
    """Answers that servers were asked for."""
    return sum(len(seeds) for endpoint in bed.endpoints.values() for _, seeds in endpoint.samples)


@pytest.mark.parametrize("slots", [1, 16, 256])
async def test_every_answer_that_was_asked_for_is_stored_and_looks_do_not_depend_on_slots(
    tmp_path: Path, reference: Bed, slots: int
) -> None:
    bed = Bed(tmp_path, plan(pace=HELD), slots=slots)
    await bed.start()
    assert bed.looks() == reference.looks() and bed.controller.finished == reference.controller.finished
    assert len(bed.outcomes()) == asked(bed) == bed.controller.arrived.sum()
    seen = int(bed.controller.counts.sum())
    assert seen == reference.controller.counts.sum() and asked(bed) - seen == bed.controller.parked.sum()
    assert slots < 256 or asked(bed) > seen
    looks = bed.looks()
    await bed.start()  # a finished run is taken up again
    assert bed.looks() == looks and len(bed.outcomes()) == asked(bed)
    assert bed.controller.arrived.sum() == asked(bed), "what was asked ahead is there"


async def test_stopped_and_resumed_it_comes_to_the_same_looks(tmp_path: Path, reference: Bed) -> None:
    bed = Bed(tmp_path, plan(pace=HELD), slots=32)
    rng, starts = random.Random(7), 0
    while bed.controller.finished is None:
        starts += 1

        def stop_soon(scheduler: Scheduler) -> None:
            loop, delay = asyncio.get_running_loop(), rng.uniform(0.0, 0.02)
            loop.call_later(delay, scheduler.stop)
            if rng.random() < 0.5:
                loop.call_later(delay, scheduler.stop)

        await bed.start(stop_soon if starts < 6 else None)
    assert bed.looks() == reference.looks()


class LateFailures(FakeEndpoint):
    """Fails what no look has come to in the run with one request at a time, once nobody wants its model any more."""

    known: frozenset[tuple[str, int]] = frozenset()
    unwanted: Callable[[], bool] = bool

    async def sample(self, prompt: Prompt, seeds: range, again: Again | None = None) -> list[Answer]:
        assert prompt.messages is not None
        if (prompt.messages[0].content, seeds[0]) not in self.known:
            await until(self.unwanted)
            raise Unavailable("the server went away")
        return await super().sample(prompt, seeds, again)


async def test_what_fails_of_a_model_that_nobody_wants_any_more_sets_it_not_aside(
    tmp_path: Path, reference: Bed
) -> None:
    bed = Bed(tmp_path, plan(pace=HELD), slots=4)
    for model, (name, skill) in enumerate(SKILLS.items()):
        bed.endpoints[name] = one = LateFailures(name, skill)
        one.unwanted = lambda model=model: bed.controller.is_paused(model)
        one.known = frozenset(Bed.request(*trial) for trial in reference.outcomes() if trial[0] == name)
    await bed.start()
    assert not bed.controller.set_aside
    assert bed.looks() == reference.looks()
