"""What the scheduler is given, and what it tells."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.core.types import NO_COST, Ask, Cost, Look, Lost, Outcome, Reason, SetAside
from adaptive_eval.endpoints.types import Answer, Endpoint, Prompt
from adaptive_eval.store import Event

BEAT_SECONDS = 2.0
"""The time of a run is stored at least so often: a kill loses no more of it."""


class Decider(Protocol):
    """The decision core as the scheduler sees it."""

    @property
    def finished(self) -> Reason | None:
        """Why the run is finished, or None."""
        ...

    @property
    def set_aside(self) -> Mapping[int, Lost]:
        """The models that the run goes on without, and why."""
        ...

    @property
    def rounds_issued(self) -> int:
        """How often there was something new to ask for."""
        ...

    def ask(self, slots: int, model: int | None = None) -> list[Ask]:
        """Trials to be run now, at most `slots`."""
        ...

    @property
    def looks_taken(self) -> int:
        """How often it has looked."""
        ...

    def is_paused(self, model: int) -> bool:
        """Whether nothing of a model is to be sent now, asked for or not."""
        ...

    def still_wanted(self) -> NDArray[np.bool_]:
        """For each model, whether further trials may be wanted, whatever comes."""
        ...

    def resting(self) -> NDArray[np.bool_]:
        """For each model, whether its server is held for what is in flight alone, unless others want more of it."""
        ...

    def awaited(self) -> Sequence[int]:
        """Models whose missing trials the next look waits for."""
        ...

    def outstanding(self, model: int) -> int:
        """Trials of a model that were asked for and not told."""
        ...

    def tell(self, events: Iterable[Outcome | SetAside]) -> list[Look]:
        """Take committed outcomes; gives a look for every round that they completed."""
        ...

    def spend_outside_plan(self, trials: int, cost: Cost) -> None:
        """Count what was spent on trials that are not told."""
        ...

    def keep(self, outcomes: Iterable[Outcome]) -> None:
        """Take outcomes of earlier starts as they come, and look at nothing yet."""
        ...

    def restore(self, outcomes: Iterable[Outcome], lost: Mapping[int, Cost]) -> list[Look]:
        """Take the outcomes of earlier starts, and what they have spent on answers that never came."""
        ...

    def take(self, outcomes: Iterable[Outcome]) -> list[Look]:
        """Take committed outcomes, of trials that were asked for or not: those that are not needed now are kept."""
        ...

    def lose(self, model: int, cost: Cost) -> None:
        """Count what was spent on answers that were lost."""
        ...

    def can_afford(self, total: Cost) -> bool:
        """Whether the caps bear this in all, for trials that are there."""
        ...

    def end_over_budget(self) -> None:
        """End the run as it stands: the caps do not bear what the trials that are there still cost."""
        ...

    def tick(self, elapsed: float, held: float) -> bool:
        """Take the time, and the GPU time for which servers were held: whether the cap on either is reached, so that
        what is in flight is cancelled."""
        ...


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
    cost: Callable[[Answer], Cost]
    lost: Cost = NO_COST
    """What an answer counts as that was asked for and lost, at most."""
    gpus: float = 0.0
    """That are paid for while its servers are held."""
    secrets: tuple[str, ...] = ()
    """What no answer is stored with, in every form (`endpoints.redaction`)."""
    recorded: bool = False
    """Its outcomes are those of an earlier run, and it is never asked."""


class Observer(Protocol):
    """Hears what happens while it happens; may not take long."""

    def looked(self, looks: Sequence[Look]) -> None:
        """Rounds were completed."""
        ...

    def happened(self, event: Event) -> None:
        """A model was set aside, or the run was stopped."""
        ...


class Halt(StrEnum):
    """How the user stopped a run."""

    DRAINED = "drained"
    """What was in flight came back first."""
    AT_ONCE = "at_once"
    """What was in flight was cancelled."""
