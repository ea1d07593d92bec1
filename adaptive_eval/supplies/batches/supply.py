"""Opens models at batch services, with the batches that earlier starts have left."""

from collections.abc import Collection, Mapping, Sequence

from adaptive_eval.endpoints import settings
from adaptive_eval.endpoints.batching import MAX_REQUESTS, BatchKind
from adaptive_eval.machine.trial import Key
from adaptive_eval.notes import BatchEnded, BatchTaken, Event, events_of_kind
from adaptive_eval.notes.batches import PendingBatch, pending_batches
from adaptive_eval.supplies.batches.calls import trial_id
from adaptive_eval.supplies.batches.model import ModelBatches
from adaptive_eval.supplies.batches.service import BatchService, open_batches
from adaptive_eval.supplies.batches.types import ID
from adaptive_eval.supplies.opening import Models, SuppliedModel, SupplyContext


def open_supply(context: SupplyContext, models: Models) -> Mapping[int, ModelBatches]:
    """Open these models, each with its own batches."""
    pending = pending_batches(context.events)
    known_ids = {event.batch for event in events_of_kind(context.events, BatchTaken)}
    opened = {}
    for number, model in models.items():
        assert model.config.batch is not None
        service = _open_service(context, model, model.config.batch)
        opened[number] = ModelBatches(
            number,
            model,
            service,
            settings.DEFAULT.attempts,
            context.post,
            context.on_error,
            is_capped=context.is_capped,
            has_answered=model.name in context.answered,
        )
        opened[number].take_over([batch for batch in pending if batch.model == model.name], known_ids)
    return opened


def _open_service(context: SupplyContext, model: SuppliedModel, kind: BatchKind) -> BatchService:
    config = model.config
    limits = context.config.concurrency.with_limits(config.concurrency)
    return open_batches(config, config.sampling, limits, kind, keys=context.keys, folder=context.config.folder)


def kept_trials(events: Sequence[Event], reserved: Collection[Key], models: Collection[str]) -> set[Key]:
    """Trials among the reserved ones in pending batches of other models than these, which are collected once the run
    has their model again."""
    pending = {name for batch in pending_batches(events) if batch.model not in models for name in batch.requests}
    return {key for key in reserved if trial_id(key) in pending}


async def cancel_left(context: SupplyContext, models: Models, reserved: Collection[Key]) -> list[BatchEnded]:
    """Cancel the batches of models that have no `batch` any more; returns those that are over.

    One that cannot be cancelled now stays pending for the next start.
    """
    direct = {model.name: model for model in models.values() if model.config.batch is None and model.config.replicas}
    in_flight, ended = set(map(trial_id, reserved)), list[BatchEnded]()
    for batch in pending_batches(context.events):
        if (model := direct.get(batch.model)) is not None and await _cancel(context, model, batch):
            missing = len(in_flight.intersection(batch.requests))
            ended.append(BatchEnded(batch.model, batch.key, "abandoned", missing=missing, lost=missing))
    return ended


async def _cancel(context: SupplyContext, model: SuppliedModel, batch: PendingBatch) -> bool:
    """Cancel a batch at the service that the model had; returns whether it is over, or will be."""
    kind = next((kind for kind in MAX_REQUESTS if kind == batch.service), None)
    if kind is None or batch.batch is None or not ID.fullmatch(batch.batch):
        return False
    service = _open_service(context, model, kind)
    try:
        return await service.cancel(batch.batch)
    finally:
        await service.wire.close()
