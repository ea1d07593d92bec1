"""What a time limit cuts off at the end of a run counts once, with caps or without, also when the run then goes on."""

from dataclasses import replace
from pathlib import Path

import pytest
from batch_bench import SAMPLING, DirectModel, DirectWire, ServiceInMemory
from batch_bench import question as asked
from fakes import QUESTIONS, SKILLS, Bed

from adaptive_eval.batches.endpoint import BatchedEndpoint
from adaptive_eval.batches.supply import BatchServices
from adaptive_eval.core.plan import Plan
from adaptive_eval.core.settings import Bench, Budget, Pace, Trials
from adaptive_eval.core.types import Cost, Reason
from adaptive_eval.endpoints.batching import BatchConfig
from adaptive_eval.endpoints.types import EndpointConfig
from adaptive_eval.scheduler.scheduler import Scheduler
from adaptive_eval.store import AnswersLost, RunReader, events_of_kind
from adaptive_eval.supplies.batches.service import BatchService
from adaptive_eval.supply.types import Lane, TrialPrice

pytestmark = pytest.mark.patient
WORST = Cost(tokens=3_000)
AMPLE = 10**7
FIRST = 2 * len(QUESTIONS)
"""Trials of each model in the first round, which is the last one."""


class CutOff(Bed):
    """A run whose time is over when all of its first round is in flight, and that then has time enough."""

    def __init__(self, directory: Path, tokens: int | None) -> None:
        bench = Bench(len(SKILLS), len(QUESTIONS), [0.0, 1.0], (WORST,) * len(SKILLS))  # type: ignore[arg-type]
        budget = Budget(tokens=tokens, wall_seconds=1e6)
        super().__init__(directory, Plan(bench, trials=Trials(2, 2), pace=Pace(lookahead=0), budget=budget))
        self.slots = FIRST

    def _lane(self, name: str) -> Lane:
        lane = super()._lane(name)
        return replace(lane, price=TrialPrice(lane.price.cost, WORST))

    def is_in_flight(self) -> bool:
        return all(endpoint.in_flight == FIRST for endpoint in self.endpoints.values())

    async def cut_off(self) -> None:
        def hurry(scheduler: Scheduler) -> None:
            for endpoint in self.endpoints.values():
                endpoint.delay = 1e9
            scheduler.meter.elapsed = lambda: 1e7 * self.is_in_flight()  # type: ignore[method-assign]

        await self.start(hurry)
        assert self.controller.finished is Reason.WALL_TIME and not self.outcomes()

    async def go_on(self) -> None:
        for endpoint in self.endpoints.values():
            endpoint.delay = 0.0
        await self.start(lambda scheduler: setattr(scheduler.meter, "elapsed", lambda: 0.0))
        assert self.controller.finished is not Reason.WALL_TIME
        assert len(self.outcomes()) == len(SKILLS) * FIRST

    def lost(self) -> list[AnswersLost]:
        reader = RunReader.open(self.directory)
        try:
            assert not reader.in_flight(), "the next start would count it again"
            return events_of_kind(reader.events(), AnswersLost)
        finally:
            reader.close()


class CutOffBatches(CutOff):
    """The same at a batch service, which has a batch of each model then."""

    def __init__(self, directory: Path, tokens: int | None) -> None:
        super().__init__(directory, tokens)
        self.service = ServiceInMemory(seconds=6.0)
        self.supplies = [BatchServices]

    def _lane(self, name: str) -> Lane:
        config = EndpointConfig(base_url="http://service/v1", model=name)
        wire: object = DirectWire(self.service)
        service = BatchService(config, SAMPLING, BatchConfig(kind="openai"), wire)  # type: ignore[arg-type]
        return replace(super()._lane(name), endpoint=BatchedEndpoint(name, DirectModel(), service, 5), prompt=asked)

    def is_in_flight(self) -> bool:
        return self.service.counts["created"] == len(SKILLS)


@pytest.mark.parametrize("tokens", [None, AMPLE], ids=["without caps", "capped"])
@pytest.mark.parametrize("kind", [CutOff, CutOffBatches])
async def test_what_is_cut_off_at_the_end_counts_once(tmp_path: Path, kind: type[CutOff], tokens: int | None) -> None:
    run = kind(tmp_path, tokens)
    await run.cut_off()
    lost = run.lost()
    assert {one.model: one.answers for one in lost} == dict.fromkeys(SKILLS, FIRST)
    assert all(one.tokens == (FIRST * WORST.tokens if tokens else 0) and not one.killed for one in lost)
    await run.go_on()
    assert run.lost() == lost
