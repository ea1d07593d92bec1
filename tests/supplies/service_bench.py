"""A batch service without a network, and its model, which a supply may open repeatedly."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from batch_bench import CONFIG, SAMPLING, DirectWire, ServiceInMemory, question, truth

from adaptive_eval.config.run import ModelConfig
from adaptive_eval.core.types import Cost
from adaptive_eval.endpoints.batching import BatchKind
from adaptive_eval.endpoints.types import Answer
from adaptive_eval.machine.events import Answered, Failed, Noted, Wasted
from adaptive_eval.machine.events import Event as RunEvent
from adaptive_eval.machine.trial import Key, Request
from adaptive_eval.notes import parse_event
from adaptive_eval.notes.batches import BatchEnded, BatchPlanned, BatchTaken, PendingBatch, pending_batches
from adaptive_eval.notes.event import Event
from adaptive_eval.supplies.batches.model import ModelBatches
from adaptive_eval.supplies.batches.service import BatchService
from adaptive_eval.supplies.opening import SuppliedModel

ADA = 0


class Log:
    """Data that outlives a start: batch events, sent trials, and answers."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.reserved: set[Key] = set()
        self.answers: dict[Key, Answer] = {}
        self.lost = 0
        """Answers that were charged as lost."""

    @property
    def pending(self) -> list[PendingBatch]:
        return pending_batches(self.events)

    def of_kind(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


class ServiceStart:
    """One start of a run without a machine: it stores answers and grants the permits asked for."""

    def __init__(
        self, log: Log, supply: ModelBatches, *, delay: Callable[[], float] | None, allows: bool | None
    ) -> None:
        self.log, self.supply, self._delay, self._allows = log, supply, delay, allows
        self.failed: dict[Key, Failed] = {}
        self.asked: Counter[Key] = Counter()
        self._requests: dict[int, Request] = {}
        self._changed = asyncio.Event()
        self.is_dead = False
        """Whether nothing of it is stored any more."""
        self.hesitating: list[int] = []
        """Lost requests that wait for permission."""

    def on_event(self, event: RunEvent) -> None:
        asyncio.get_running_loop().call_soon(self._take, event)

    def _take(self, event: RunEvent) -> None:
        if self.is_dead:
            return
        match event:
            case Noted(note):
                self.log.events.append(parse_event(note.kind, {"model": "ada", **note.body}))
                self.supply.on_noted(note)
            case Answered(request, received):
                key = self._key(request)
                assert key not in self.log.answers, "it was answered twice"
                assert received[0].answer is not None
                self.log.answers[key] = received[0].answer
                if self._delay is not None:
                    asyncio.get_running_loop().call_later(self._delay(), self.store, [key])
            case Failed(request):
                key = self._key(request)
                self.failed[key] = event
                self.log.reserved.discard(key)
            case Wasted(_, answers, _, request):
                self.log.lost += answers
                if request is not None:
                    self.hesitating.append(request)
                    if self._allows is not None:
                        self.supply.allow(request, self._allows)
        self._changed.set()

    def store(self, keys: Sequence[Key]) -> None:
        if not self.is_dead:
            self.log.reserved.difference_update(keys)
            self.supply.on_stored(keys)

    def ask(self, keys: Iterable[Key]) -> None:
        """Ask for these trials, of which an earlier start may have sent some."""
        claimed = self.supply.claims(self.log.reserved)
        for key in keys:
            request = Request(len(self._requests) + 1, *key[:2], key[2], 1, 0)
            self._requests[request.id] = request
            self.log.reserved.add(key)
            self.supply.submit(request, claimed=key in claimed)
        self.supply.serve({})

    async def answered(self) -> dict[Key, Answer]:
        """Wait for every request to be answered or to fail; return the answers."""
        while any(key not in self.log.answers and key not in self.failed for key in map(self._key, self._requests)):
            self._changed.clear()
            await self._changed.wait()
        return self.log.answers

    def cancel(self) -> None:
        self.supply.cancel([number for number in self._requests if self._key(number) not in self.log.answers])

    async def die(self) -> None:
        """Simulate a kill: nothing more is stored."""
        self.is_dead = True
        await self.supply.close()

    def _key(self, request: int) -> Key:
        (key,) = self._requests[request].keys
        return key


class ServiceDesk:
    """A model at its batch service, which may be opened repeatedly."""

    def __init__(self, kind: BatchKind = "openai", service: ServiceInMemory | None = None) -> None:
        self.service = service or ServiceInMemory()
        self.kind = kind
        self.log = Log()
        self.wire: DirectWire

    def open(
        self, attempts: int = 5, *, delay: Callable[[], float] | None = lambda: 0.0, allows: bool | None = True
    ) -> ServiceStart:
        """A new start; `delay`: seconds until an answer is on disk; `allows`: whether what is lost may be asked again;
        None: a test does either."""
        self.wire = DirectWire(self.service)
        service = BatchService(CONFIG, SAMPLING, self.kind, self.wire)  # type: ignore[arg-type]
        clock = asyncio.get_running_loop().time
        config = ModelConfig(name="ada", **CONFIG.model_dump(include={"base_url", "model"}))
        model = SuppliedModel(
            config, question, lambda question, trial: trial, lambda answer: Cost(answer.completion_tokens)
        )
        start: ServiceStart
        batches = ModelBatches(
            ADA,
            model,
            service,
            attempts,
            lambda event: start.on_event(event),
            raise_error,
            is_capped=True,
            now=lambda: 1e9 + clock(),
        )
        batches.take_over(self.log.pending, {event.batch for event in self.log.of_kind(BatchTaken)})
        start = ServiceStart(self.log, batches, delay=delay, allows=allows)
        return start

    @property
    def creations(self) -> int:
        return sum(method == "POST" and path.endswith("/batches") for method, path in self.service.log)

    @property
    def sizes(self) -> list[int]:
        return [len(event.requests) for event in self.log.of_kind(BatchPlanned)]

    @property
    def ended(self) -> list[BatchEnded]:
        return self.log.of_kind(BatchEnded)


def raise_error(error: BaseException) -> None:
    raise error


def keys_of(trials: Iterable[int], number: int = 1) -> list[Key]:
    return [(ADA, number, trial) for trial in trials]


def truths(keys: Iterable[Key]) -> dict[Key, str]:
    return {key: truth(key[1], key[2]) for key in keys}
