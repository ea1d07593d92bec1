"""Opens models at batch services, with the batches that earlier starts have left."""

from collections.abc import Mapping

from adaptive_eval.endpoints import settings
from adaptive_eval.notes import BatchTaken, events_of_kind
from adaptive_eval.notes.batches import pending_batches
from adaptive_eval.supplies.batches.model import ModelBatches
from adaptive_eval.supplies.batches.service import open_batches
from adaptive_eval.supplies.opening import Models, SupplyContext


def open_supply(context: SupplyContext, models: Models) -> Mapping[int, ModelBatches]:
    """Open these models, each with its own batches."""
    pending = pending_batches(context.events)
    known_ids = {event.batch for event in events_of_kind(context.events, BatchTaken)}
    opened = {}
    for number, model in models.items():
        config = model.config
        assert config.batch is not None
        limits = context.config.concurrency.with_limits(config.concurrency)
        service = open_batches(
            config, config.sampling, limits, config.batch, keys=context.keys, folder=context.config.folder
        )
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
