"""Models that are asked through batch services: the requests of a start, and those that it leaves to the next."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence

from adaptive_eval.batches.calls import trial_id
from adaptive_eval.batches.endpoint import BatchedEndpoint
from adaptive_eval.endpoints.types import Endpoint
from adaptive_eval.notes.batches import PendingBatch, pending_batches
from adaptive_eval.running.sources import Models, OpenedSource, SourceContext
from adaptive_eval.store import BatchTaken, Roster, Store, events_of_kind
from adaptive_eval.supplies.batches.service import open_batches
from adaptive_eval.supply.happenings import Say
from adaptive_eval.supply.types import Journal, Lane, Request, Supply


def open_source(context: SourceContext, models: Models) -> OpenedSource:
    """Open these models, which are asked directly where patience with batches ends."""
    return OpenedSource(_endpoints(context, models), BatchServices)


def _endpoints(context: SourceContext, models: Models) -> Iterator[tuple[int, Endpoint]]:
    keys, folder = context.keys, context.config.folder
    for number, model in models.items():
        assert model.batch is not None
        service = open_batches(model, model.sampling, model.concurrency, model.batch, keys=keys, folder=folder)
        yield number, BatchedEndpoint(model.name, context.open(model), service, model.concurrency.attempts)


class BatchServices(Supply):
    """The batches of all models that are asked through batch services."""

    def __init__(self, lanes: Sequence[Lane], say: Say, journal: Journal) -> None:
        self._lanes = lanes
        self._endpoints = {
            model: lane.endpoint for model, lane in enumerate(lanes) if isinstance(lane.endpoint, BatchedEndpoint)
        }
        for endpoint in self._endpoints.values():
            endpoint.use_journal(journal)

    @property
    def models(self) -> Collection[int]:
        """The models that are asked through batch services."""
        return self._endpoints.keys()

    batched = models

    def take_over(self, store: Store, roster: Roster) -> Mapping[str, int]:
        """Take over the batches of earlier starts; gives, by model, how many of their requests are not stored."""
        if not self._endpoints:
            return {}
        events = store.reader.events()
        pending, taken = pending_batches(events), {event.batch for event in events_of_kind(events, BatchTaken)}
        stored = self._stored_ids(store, roster)
        return {
            self._lanes[model].name: endpoint.take_over(
                [batch for batch in pending if batch.model == self._lanes[model].name], stored[model], taken
            )
            for model, endpoint in self._endpoints.items()
        }

    def _stored_ids(self, store: Store, roster: Roster) -> Mapping[int, set[str]]:
        """Request ids of the trials that are stored, by model."""
        ids: defaultdict[int, set[str]] = defaultdict(set)
        for outcome in store.reader.outcomes():
            if outcome.model not in roster.models:
                continue
            model, question = roster.cell(outcome.model, outcome.question)
            if model in self._endpoints:
                lane = self._lanes[model]
                ids[model].add(trial_id(lane.prompt(question), lane.seed(question, outcome.trial)))
        return ids

    def start(self) -> None:
        """Look after the batches that were taken over."""
        for endpoint in self._endpoints.values():
            endpoint.start()

    def mark_stored(self, request: Request) -> None:
        """End the batch of these answers, if they are the last ones that were to be stored."""
        if (endpoint := self._endpoints.get(request.model)) is not None:
            lane = self._lanes[request.model]
            endpoint.book.mark_stored(lane.prompt(request.question), request.seeds(lane))

    def leave(self) -> None:
        """Wait for no batch any more: the next start collects them."""
        for endpoint in self._endpoints.values():
            endpoint.leave()

    async def depart(self, *, at_once: bool, finished: bool, aside: Collection[int]) -> None:
        """Leave the batches to the next start; of a finished run, cancel those of models that are not set aside."""
        for model, endpoint in self._endpoints.items():
            await endpoint.depart(at_once, finished and model not in aside)

    @property
    def pending(self) -> Sequence[PendingBatch]:
        return [batch for endpoint in self._endpoints.values() for batch in endpoint.book.pending]
