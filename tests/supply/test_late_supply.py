"""A supply whose models are not there at first, or never, and that overrides no more than it has to."""

import asyncio
from pathlib import Path

import pytest
from adaptive_eval.scheduler.run_end import Halt
from adaptive_eval.scheduler.scheduler import Scheduler
from adaptive_eval.supply.happenings import Say, ServerDown, ServerUp
from adaptive_eval.supply.types import Demand, Supply
from fakes import SKILLS, Bed
from patient_time import until

from adaptive_eval.base.errors import LaunchFailed
from adaptive_eval.core.types import Reason
from adaptive_eval.notes import ServersAwaited, events_of_kind
from adaptive_eval.scheduler import scheduler as scheduler_module
from adaptive_eval.scheduler import troubles as troubles_module

TURNS = 2
"""How often it is asked to serve before a model can be asked."""


class LateSupply(Supply):
    """All its models come at once, when it is `open`: by itself at the last of these turns."""

    models = range(len(SKILLS))

    def __init__(self, say: Say, turns: int = TURNS) -> None:
        self._say, self._turns, self._last = say, 0, turns
        self.is_open = False

    def servers(self, model: int) -> int:
        return int(self.is_open)

    def serve(self, demand: Demand) -> None:
        self._turns += 1
        if self._turns == self._last:
            self.open()

    def open(self) -> None:
        self.is_open = True
        for model in self.models:
            self._say(ServerUp(model))


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait is reported as soon as it is seen."""
    monkeypatch.setattr(troubles_module, "AWAITED_SECONDS", 0.0)
    monkeypatch.setattr(scheduler_module, "TICK_SECONDS", 0.01)


async def test_a_run_waits_for_models_that_are_not_there_yet(tmp_path: Path) -> None:
    bed = Bed(tmp_path)
    bed.supplies = [lambda lanes, say, journal: LateSupply(say)]
    await bed.start()
    assert bed.controller.finished in (Reason.SETTLED, Reason.OUT_OF_REACH)


def awaited(bed: Bed) -> list[str]:
    return [event.model for event in events_of_kind(bed.observer.events, ServersAwaited)]


@pytest.mark.usefixtures("impatient")
async def test_a_run_says_for_which_models_it_waits_once_each_and_goes_on_when_they_come(tmp_path: Path) -> None:
    bed, opened = Bed(tmp_path), list[LateSupply]()

    def open_supply(lanes: object, say: Say, journal: object) -> LateSupply:
        opened.append(LateSupply(say, turns=0))
        return opened[0]

    bed.supplies = [open_supply]
    running = asyncio.create_task(bed.start())
    await until(lambda: len(awaited(bed)) == len(SKILLS))
    told = opened[0]._turns
    await until(lambda: opened[0]._turns >= told + 5)
    assert sorted(awaited(bed)) == sorted(SKILLS), "each is told once"
    opened[0].open()
    await running
    assert bed.controller.finished in (Reason.SETTLED, Reason.OUT_OF_REACH)


@pytest.mark.usefixtures("impatient")
async def test_a_run_that_waits_for_servers_can_be_stopped_and_loses_nothing(tmp_path: Path) -> None:
    bed, schedulers = Bed(tmp_path), list[Scheduler]()
    bed.supplies = [lambda lanes, say, journal: LateSupply(say, turns=0)]
    running = asyncio.create_task(bed.start(schedulers.append))
    await until(lambda: len(awaited(bed)) == len(SKILLS))
    schedulers[0].stop()
    assert (await running).ending.halt is Halt.DRAINED
    bed.supplies = []
    await bed.start()
    assert bed.controller.finished in (Reason.SETTLED, Reason.OUT_OF_REACH)


async def test_a_supply_that_can_never_serve_says_so_and_ends_the_run(tmp_path: Path) -> None:
    class NoSupply(LateSupply):
        def serve(self, demand: Demand) -> None:
            self._say(ServerDown(1, LaunchFailed("the service is closed for good")))

    bed = Bed(tmp_path)
    bed.supplies = [lambda lanes, say, journal: NoSupply(say)]
    with pytest.raises(LaunchFailed, match=r"^bob: the service is closed for good"):
        await bed.start()
