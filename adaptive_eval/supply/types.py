"""Models and their requests (`Lane`, `Request`); the interface of a supply, and what it may know of a run (`Demand`).

A *supply* is a source of answers of some models: servers of others, servers that the run starts, batch services. All
are asked through the `Endpoint` of a model. Supplies differ in when a model can be asked, what is started and stopped
for it, and what is left behind when a run ends. A supply tells what happened by putting it on the queue of the run
(`supply.happenings`); it calls no other part.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from adaptive_eval.base.seeds import SEED_SPAN, trial_seed
from adaptive_eval.core.types import NO_COST, Cost
from adaptive_eval.endpoints.types import Answer, Endpoint, Prompt
from adaptive_eval.notes.batches import PendingBatch
from adaptive_eval.store import Event, Roster, Store


@dataclass(frozen=True, slots=True)
class TrialPrice:
    """Cost of the trials of a model."""

    cost: Callable[[Answer], Cost]
    """The cost of an answer."""
    worst: Cost = NO_COST
    """The most that an answer may cost, and what it counts as when it was requested and lost."""
    gpus: float = 0.0
    """GPUs that are paid for while the servers are held."""


@dataclass(frozen=True, slots=True)
class Lane:
    """One model: its server, what it is asked, and how much at a time."""

    name: str
    endpoint: Endpoint
    prompt: Callable[[int], Prompt]
    """The prompt of a question."""
    seed_base: Callable[[int], int]
    """The seed of a question's trial 0."""
    slots: int
    """Requests in flight: the sum of the replicas' concurrency."""
    samples_per_request: int
    price: TrialPrice
    timeout: float = math.inf
    """For how many seconds an answer is waited for once the run is stopped."""
    addresses: tuple[str, ...] = ()
    """Addresses of servers of others, whose time counts once if models share them; empty: nobody else is served."""

    def seed(self, question: int, trial: int) -> int:
        """The seed of a trial."""
        return trial_seed(self.seed_base(question), trial)


class Request(NamedTuple):
    """Consecutive trials of one question and round that are asked for in one request."""

    model: int
    question: int
    first: int
    """The number of the first trial."""
    size: int
    round: int

    @property
    def trials(self) -> range:
        """The numbers of its trials."""
        return range(self.first, self.first + self.size)

    def seeds(self, lane: Lane) -> range:
        """The seeds of its trials."""
        first = lane.seed(self.question, self.first)
        return range(first, first + self.size)


def trials_per_request(lane: Lane, question: int, first: int) -> int:
    """How many trials from `first` on fit into one request: its seeds may not run over the end of their range."""
    wanted = lane.samples_per_request
    return wanted if wanted == 1 else min(wanted, SEED_SPAN - lane.seed(question, first))


class Demand(Protocol):
    """The requests that each model has now and later, for a supply that starts and stops servers."""

    def is_wanted(self, model: int) -> bool:
        """Whether there is something to ask this model now."""

    def has_queue_for(self, model: int, servers: int) -> bool:
        """Whether at least as much is waiting as so many servers of the model take at a time."""

    def is_owed(self, model: int) -> bool:
        """Whether a trial that was asked of this model is not committed yet."""

    def is_settled(self, model: int) -> bool:
        """Whether the model is done, as far as anybody can know: nothing more to ask, and nothing in flight."""

    def is_parked(self, model: int) -> bool:
        """Whether the model has nothing to ask and nothing in flight until trials of others want it again."""


class Supply:
    """A source of answers of some models. This base class is that of servers of others, which are always there.

    A run waits for models without a server, and says so when it has waited a while (`ServersAwaited`). A model that no
    server can serve any more has to be told (`ServerDown`): then the run goes on without it, or ends if none has
    answered yet.
    """

    @property
    def models(self) -> Collection[int]:
        """The models that this supply answers for."""
        return ()

    def servers(self, model: int) -> int:
        """How many servers of a model can be asked now, each with the lane's slots."""
        return 1

    def take_over(self, store: Store, roster: Roster) -> Mapping[str, int]:
        """Take over the requests that earlier starts have left under way, before anything is asked.

        Gives, by model, how many trials of them are not stored.
        """
        return {}

    def start(self) -> None:
        """Go on with what was taken over."""

    def serve(self, demand: Demand) -> None:
        """Start and stop the servers that are due: called after each commit, and twice a second."""

    def mark_stored(self, request: Request) -> None:
        """Let go of a request whose answers are in the next commit; `Journal.safe` waits for it."""

    def leave(self) -> None:
        """The run is stopping: wait no more for what can be left to the next start."""

    async def depart(self, *, at_once: bool, finished: bool, aside: Collection[int]) -> None:
        """Leave what is under way to the next start, or give it up if the run is finished.

        After a finished run, a next start can only go on with models that this one has set `aside`.
        """

    async def close(self) -> None:
        """Begin nothing more, and abandon what was begun."""

    @property
    def is_moving(self) -> bool:
        """Whether a server is being started or stopped."""
        return False

    @property
    def deserted(self) -> Collection[int]:
        """Models of which no server is up, on its way, or still about to give its last answers."""
        return ()

    @property
    def launched(self) -> Collection[int]:
        """Models whose servers the run starts itself."""
        return ()

    @property
    def batched(self) -> Collection[int]:
        """Models that are asked through batch services, whose time nobody pays for."""
        return ()

    @property
    def pending(self) -> Sequence[PendingBatch]:
        """The batches that services have, or are being handed."""
        return ()


class Journal(Protocol):
    """The record of events that a later start has to know."""

    def note(self, event: Event) -> None:
        """Record an event."""

    async def safe(self) -> None:
        """Wait until what was recorded by now is on disk."""
