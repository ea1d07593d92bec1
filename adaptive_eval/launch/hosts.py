"""Places where servers of a run are started: one machine, one GPU, one node of a cluster."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from adaptive_eval.base.errors import EndpointError
from adaptive_eval.notes import Event

OnEvent = Callable[[Event], None]
"""Records an event."""
OnLost = Callable[[EndpointError | None], None]
"""Called when a place is lost; with an error if its model must not be served there again."""


class PlaceLost(Exception):
    """A place was lost while it loaded a model; this is not the model's fault."""

    def __init__(self, reason: str, for_good: EndpointError | None = None) -> None:
        """`for_good`: why the model must not be served there again, even if the place comes back."""
        super().__init__(reason)
        self.for_good = for_good


class ServerHost(ABC):
    """A place where one of several models can be served at a time; hosts of a pool have the same models.

    The defaults are for places that others may get as soon as nothing is served there.
    """

    own = False
    """Whether the place belongs to its only model: the model can be served again at any time."""

    @property
    @abstractmethod
    def models(self) -> Sequence[int]:
        """The models that can be served here."""

    @property
    @abstractmethod
    def has_place(self) -> bool:
        """Whether the host can be used at once; if not, the run has to `acquire` it first."""

    @property
    @abstractmethod
    def up(self) -> bool:
        """Whether one of its models is served, or a place is held for it."""

    @abstractmethod
    async def acquire(self, model: int, on_event: OnEvent, on_lost: OnLost) -> None:
        """Get the place, probably for this model; raises `EndpointError` if it is not available."""

    @abstractmethod
    async def load(self, model: int, on_event: OnEvent) -> None:
        """Serve this model instead of the previous one; raises `EndpointError` if that fails, and `PlaceLost`."""

    @abstractmethod
    async def release(self, model: int, on_event: OnEvent) -> None:
        """Stop the server of this model, if it is up; an acquired place is released."""

    @abstractmethod
    def abandon(self, model: int, error: EndpointError) -> None:
        """Fail the requests that wait for this model: it will not be served here any more."""

    @abstractmethod
    async def unload(self, *, at_once: bool = False) -> None:
        """Stop all servers, including sleeping ones."""

    @abstractmethod
    def kill(self) -> None:
        """Kill all servers that are stopping."""

    async def suspend(self, model: int, on_event: OnEvent) -> None:
        """Stop the server of this model, or put it to sleep, if it is up; only if no other model can take the place."""
        raise NotImplementedError
