"""Places where servers of a run are started: one machine, one GPU, one node of a cluster."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from adaptive_eval.base.errors import EndpointError
from adaptive_eval.notes import Event

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


class ServerHost(ABC):
    """A place where one of some models can be served at a time; hosts of a pool have the same models.

    What is not abstract is what it is where others may get a place as soon as nothing is served there.
    """

    is_kept = False
    """Whether an earlier start of the run has left the place with what it served: it is had at once."""
    found_model: int | None = None
    """The model that an earlier start has left here, if any."""
    own = False
    """Whether nobody else can take the place of its only model: that can be served again at any time."""

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
    async def acquire(self, model: int, tell: OnEvent, lost: OnLost) -> None:
        """Have the place, probably for this model; raises `EndpointError` if it cannot be had."""

    @abstractmethod
    async def load(self, model: int, tell: OnEvent) -> None:
        """Serve this model in place of the one before; raises `EndpointError` if it cannot be, and `PlaceLost`."""

    @abstractmethod
    async def release(self, model: int, tell: OnEvent) -> None:
        """Stop the server of this model, if it is up; a place that had to be acquired is given back."""

    @abstractmethod
    def abandon(self, model: int, error: EndpointError) -> None:
        """Tell the requests that wait for this model that nobody brings it up any more."""

    @abstractmethod
    async def unload(self, *, at_once: bool = False) -> None:
        """Serve nothing, and stop what sleeps."""

    @abstractmethod
    def kill(self) -> None:
        """Make what is being stopped end at once."""

    async def rest(self, model: int, tell: OnEvent) -> None:
        """Stop the server of this model, or put it to sleep, if it is up; only where nobody else can take the place."""
        raise NotImplementedError
