"""Models at batch services: the requests of a start, and those that it leaves to the next start."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.endpoints import settings
from adaptive_eval.endpoints.types import EndpointStats
from adaptive_eval.machine.events import Noted
from adaptive_eval.machine.notes import note_of
from adaptive_eval.machine.records import Note
from adaptive_eval.machine.supply import Demand
from adaptive_eval.machine.trial import Key, Request
from adaptive_eval.notes import BatchPlanned, BatchTaken, Event, events_of_kind
from adaptive_eval.notes.batches import pending_batches
from adaptive_eval.supplies.batches.model import ModelBatches
from adaptive_eval.supplies.batches.service import open_batches
from adaptive_eval.supplies.opening import Models, SupplyContext


class BatchSupply:
    """The batches of all models at batch services."""

    def __init__(self, models: Mapping[int, ModelBatches]) -> None:
        self._models = models
        self._model_of: dict[int, ModelBatches] = {}
        """The model's batches of each request."""

    def claims(self, keys: Collection[Key]) -> Collection[Key]:
        """Trials in batches that have not ended."""
        return {key for number, batches in self._models.items() for key in batches.claims(_of_model(keys, number))}

    def submit(self, request: Request, *, claimed: bool) -> None:
        """Wait for the result of the request in its batch, or put it into the next."""
        self._model_of[request.id] = self._models[request.model]
        self._models[request.model].submit(request)

    def allow(self, request: int, allowed: bool) -> None:
        """Request a lost answer again, or not."""
        self._model_of[request].allow(request, allowed=allowed)

    def cancel(self, requests: Collection[int]) -> None:
        """Give up requests, and abandon their batches."""
        by_model: defaultdict[ModelBatches, list[int]] = defaultdict(list)
        for request in requests:
            by_model[self._model_of[request]].append(request)
        for batches, numbers in by_model.items():
            batches.cancel(numbers)

    def on_stored(self, keys: Sequence[Key]) -> None:
        """End the batches whose last answers are among these."""
        for number, batches in self._models.items():
            batches.on_stored(_of_model(keys, number))

    def on_noted(self, note: Note) -> None:
        """Submit a batch once its plan is on disk."""
        if note.kind == BatchPlanned.KIND and note.model is not None:
            self._models[note.model].on_planned(str(note.body["key"]))

    def leave(self) -> None:
        """Return requests without a batch, and leave the batches to the next start."""
        for batches in self._models.values():
            batches.leave()

    def serve(self, demand: Mapping[int, Demand]) -> None:
        """Continue the batches of earlier starts, whose requests are claimed by now."""
        for batches in self._models.values():
            batches.serve()

    def stats(self, model: int) -> EndpointStats:
        """The traffic of a model with its batch service."""
        return self._models[model].stats

    async def unreachable(self, model: int) -> str | None:
        """None: the service is called only to submit a batch."""
        return None

    async def close(self) -> None:
        """Leave the batches to the next start."""
        for batches in self._models.values():
            await batches.close()


def open_supply(context: SupplyContext, models: Models) -> BatchSupply:
    """Open the batch services of these models."""
    pending = pending_batches(context.events)
    known_ids = {event.batch for event in events_of_kind(context.events, BatchTaken)}
    numbers = {model.name: number for number, model in models.items()}

    def note(event: Event) -> None:
        context.post(Noted(note_of(event, numbers)))

    opened = {}
    for number, model in models.items():
        config = model.config
        assert config.batch is not None
        if (problem := config.missing_key(context.keys)) is not None:
            raise ConfigError(problem)
        service = open_batches(
            config, config.sampling, config.concurrency, config.batch, keys=context.keys, folder=context.config.folder
        )
        opened[number] = ModelBatches(
            model,
            service,
            settings.DEFAULT.attempts,
            context.post,
            note,
            context.on_error,
            is_capped=context.is_capped,
        )
        opened[number].take_over([batch for batch in pending if batch.model == model.name], known_ids)
    return BatchSupply(opened)


def _of_model(keys: Collection[Key], number: int) -> list[Key]:
    return [key for key in keys if key[0] == number]
