"""A supply whose models are not there at first, and that overrides no more than it has to."""

from pathlib import Path

from fakes import SKILLS, Bed

from adaptive_eval.core.types import Reason
from adaptive_eval.supply.happenings import Say, ServerUp
from adaptive_eval.supply.types import Demand, Supply

TURNS = 2
"""How often it is asked to settle before a model can be asked."""


class LateSupply(Supply):
    """All its models come at once, at the last of these turns."""

    models = range(len(SKILLS))

    def __init__(self, say: Say) -> None:
        self._say, self._turns = say, 0

    def servers(self, model: int) -> int:
        return int(self._turns >= TURNS)

    def settle(self, demand: Demand) -> None:
        self._turns += 1
        if self._turns == TURNS:
            for model in self.models:
                self._say(ServerUp(model))


async def test_a_run_waits_for_models_that_are_not_there_yet(tmp_path: Path) -> None:
    bed = Bed(tmp_path)
    bed.supplies = [lambda lanes, say, journal: LateSupply(say)]
    await bed.start()
    assert bed.controller.finished in (Reason.SETTLED, Reason.OUT_OF_REACH)
