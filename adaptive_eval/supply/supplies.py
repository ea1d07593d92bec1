"""All supplies of a run behind the interface of one.

Each is opened where a model asks for it (`running.sources`).
"""

from collections.abc import Callable, Collection, Mapping, Sequence

from adaptive_eval.notes.batches import PendingBatch
from adaptive_eval.store import Roster, Store
from adaptive_eval.supply.happenings import Say
from adaptive_eval.supply.types import Demand, Journal, Lane, Request, Supply

OpenSupply = Callable[[Sequence[Lane], Say, Journal], Supply]
"""Opens a supply of some of these models, which may put happenings on the queue of the run and record events."""


class Supplies(Supply):
    """The supplies of all models; a model that none of them has is asked at servers of others."""

    def __init__(self, lanes: Sequence[Lane], each: Sequence[OpenSupply], say: Say, journal: Journal) -> None:
        self._each = [open_supply(lanes, say, journal) for open_supply in each]
        others = Supply()
        of_model = {model: supply for supply in self._each for model in supply.models}
        self._by_model = [of_model.get(model, others) for model in range(len(lanes))]

    @property
    def models(self) -> Collection[int]:
        """All models."""
        return range(len(self._by_model))

    def servers(self, model: int) -> int:
        return self._by_model[model].servers(model)

    def take_over(self, store: Store, roster: Roster) -> Mapping[str, int]:
        return {name: count for supply in self._each for name, count in supply.take_over(store, roster).items()}

    def start(self) -> None:
        for supply in self._each:
            supply.start()

    def serve(self, demand: Demand) -> None:
        for supply in self._each:
            supply.serve(demand)

    def mark_stored(self, request: Request) -> None:
        self._by_model[request.model].mark_stored(request)

    def leave(self) -> None:
        for supply in self._each:
            supply.leave()

    async def depart(self, *, at_once: bool, finished: bool, aside: Collection[int]) -> None:
        for supply in self._each:
            await supply.depart(at_once=at_once, finished=finished, aside=aside)

    async def close(self) -> None:
        for supply in self._each:
            await supply.close()

    @property
    def is_moving(self) -> bool:
        return any(supply.is_moving for supply in self._each)

    @property
    def deserted(self) -> Collection[int]:
        return {model for supply in self._each for model in supply.deserted}

    @property
    def launched(self) -> Collection[int]:
        return {model for supply in self._each for model in supply.launched}

    @property
    def batched(self) -> Collection[int]:
        return {model for supply in self._each for model in supply.batched}

    @property
    def pending(self) -> Sequence[PendingBatch]:
        return [batch for supply in self._each for batch in supply.pending]
