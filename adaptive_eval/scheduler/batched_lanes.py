"""The models of a run that are asked through batch services, all together: from one start to the next."""

from collections.abc import Collection, Mapping, Sequence

from adaptive_eval.scheduler.batch_parts import Journal, trial_id
from adaptive_eval.scheduler.batches import BatchedEndpoint
from adaptive_eval.scheduler.types import Lane
from adaptive_eval.scheduler.waiting import TrialGroup
from adaptive_eval.seeds import trial_seed
from adaptive_eval.store import BatchTaken, Event, events_of_kind
from adaptive_eval.store.pending import PendingBatch, pending_batches

Place = tuple[int, int, int]
"""Model, question and trial, by their numbers."""


class BatchedLanes:
    """What a start does with batches: it takes over those that are not over, and leaves its own to the next."""

    def __init__(self, lanes: Sequence[Lane], journal: Journal) -> None:
        self._lanes = lanes
        self._endpoints = {
            model: lane.endpoint for model, lane in enumerate(lanes) if isinstance(lane.endpoint, BatchedEndpoint)
        }
        for endpoint in self._endpoints.values():
            endpoint.bind(journal)

    def restore(self, events: Sequence[Event], stored: Sequence[Place]) -> Mapping[str, int]:
        """Take over what earlier starts have handed in; gives by model how much of it is not stored."""
        if not self._endpoints:
            return {}
        pending, known = pending_batches(events), {event.batch for event in events_of_kind(events, BatchTaken)}
        done: dict[int, set[str]] = {model: set() for model in self._endpoints}
        for model, question, trial in stored:
            if model in done:
                lane = self._lanes[model]
                done[model].add(trial_id(lane.prompt(question), trial_seed(lane.seed_base(question), trial)))
        return {
            self._lanes[model].name: endpoint.adopt(
                [one for one in pending if one.model == self._lanes[model].name], done[model], known
            )
            for model, endpoint in self._endpoints.items()
        }

    @property
    def models(self) -> Collection[int]:
        """The models that batch services answer for."""
        return self._endpoints.keys()

    @property
    def pending(self) -> list[PendingBatch]:
        """What services have, or are being handed."""
        return [one for endpoint in self._endpoints.values() for one in endpoint.pending]

    def is_pending(self, model: int) -> bool:
        """Whether a service has something of this model, or is being handed it."""
        return model in self._endpoints and self._endpoints[model].is_pending

    def back_in(self, model: int) -> float | None:
        """In how many seconds the next of its batches is expected; None where nobody knows."""
        return self._endpoints[model].back_in

    def begin(self) -> None:
        """Look after what was taken over."""
        for endpoint in self._endpoints.values():
            endpoint.begin()

    def kept(self, model: int, group: TrialGroup) -> None:
        """The answers of a request are with the store."""
        if (endpoint := self._endpoints.get(model)) is not None:
            lane = self._lanes[model]
            first = trial_seed(lane.seed_base(group.question), group.first)
            endpoint.kept(lane.prompt(group.question), range(first, first + group.size))

    def leave(self) -> None:
        """Wait for none of them any more."""
        for endpoint in self._endpoints.values():
            endpoint.leave()

    async def depart(self, *, at_once: bool, over: bool, lost: Collection[int]) -> None:
        """The start ends; where the run is `over` a next one has only models to go on with that are `lost` to this."""
        for model, endpoint in self._endpoints.items():
            await endpoint.depart(at_once, over and model not in lost)
