"""Places where servers of a run are started: one machine, one GPU, one node of a cluster."""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from adaptive_eval.errors import EndpointError
from adaptive_eval.store import Event

OnEvent = Callable[[Event], None]
"""Records an event."""
OnLost = Callable[[EndpointError | None], None]
"""Called when a place is lost; with an error if the model that it served is not to be served there any more."""


class PlaceLost(Exception):
    """A place was lost while a model was loaded there, which says nothing about the model."""

    def __init__(self, reason: str, for_good: EndpointError | None = None) -> None:
        """`for_good`: why the model is not to be served there any more, even where the place comes back."""
        super().__init__(reason)
        self.for_good = for_good


class ServerHost(Protocol):
    """A place where one of some models can be served at a time; hosts of a pool have the same models."""

    @property
    def models(self) -> Sequence[int]:
        """The models that can be served here."""
        ...

    @property
    def has_place(self) -> bool:
        """Whether the host can be used at once; if not, the run has to `acquire` it first."""
        ...

    @property
    def is_kept(self) -> bool:
        """Whether an earlier start of the run has left the place with what it served: it is had at once."""
        ...

    @property
    def found_model(self) -> int | None:
        """The model that an earlier start has left here, if any."""
        ...

    @property
    def own(self) -> bool:
        """Whether nobody else can take the place of its only model: that can be served again at any time."""
        ...

    @property
    def lasting(self) -> "LastingHost | None":
        """This host, if its place stays the run's while nothing is served there."""
        ...

    @property
    def overlapping(self) -> "OverlappingHost | None":
        """This host, if it may have memory for two models."""
        ...

    async def acquire(self, model: int, tell: OnEvent, lost: OnLost) -> None:
        """Have the place, probably for this model; raises `EndpointError` if it cannot be had."""
        ...

    async def load(self, model: int, tell: OnEvent) -> None:
        """Serve this model in place of the one before; raises `EndpointError` if it cannot be, and `PlaceLost`."""
        ...

    async def release(self, model: int, tell: OnEvent) -> None:
        """Stop the server of this model, if it is up; a place that had to be acquired is given back."""
        ...

    def abandon(self, model: int, error: EndpointError) -> None:
        """Tell the requests that wait for this model that nobody brings it up any more."""
        ...


class LastingHost(Protocol):
    """A place that stays the run's: a server that is stopped there can be started again at any time."""

    async def rest(self, model: int, tell: OnEvent) -> None:
        """Stop the server of this model, or put it to sleep, if it is up."""
        ...


class OverlappingHost(Protocol):
    """A place where a model can be loaded while the last answers of another one still come."""

    def has_room_for_both(self, model: int, other: int) -> bool:
        """Whether both models fit into memory."""
        ...

    def retire(self, model: int) -> None:
        """Send this model nothing new here, as another one is loaded beside it."""
        ...

    def idle(self, model: int) -> bool:
        """Whether nobody waits for an answer of its server here."""
        ...

    def leave(self, model: int, tell: OnEvent) -> Coroutine[Any, Any, None]:
        """Stop the server of a retired model; from this call on no request is sent to it."""
        ...
