"""Who is asked nothing more, and why.

A model is set aside when its servers do not answer, when too much of it cannot be graded, or when it goes beyond what
caps reserve: the core hears of it when the event is committed, and goes on without. A model that refuses its very first
request is a mistake of the configuration, which ends the run. A model is settled when nothing can want it again, and
rests while nothing is asked of it.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np

from adaptive_eval.core.types import Cause, Lost
from adaptive_eval.errors import EndpointError, Rejected
from adaptive_eval.scheduler.types import Decider
from adaptive_eval.store import (
    AnswerUngraded,
    Event,
    ModelSetAside,
    ModelSettled,
    ServersNoticed,
    SettingsChanged,
    events_of_kind,
)

REFUSALS_SECONDS = 2.0
"""How long the run waits for more when a model refuses its first request: whatever is wrong is told at once.

Models that have not said a word by then may refuse, too.
"""

ELSEWHERE = "\nwhich of the other models can be used: adaptive-eval check CONFIG"
"""Ends the error that names them, since the other models were not all heard."""

NO_ROOM = "did not start beside the last answers of another model, whose server is stopped first from now on: {}"


@dataclass(frozen=True, slots=True)
class DepartureCallbacks:
    """Whom the departures tell."""

    note: Callable[[Event], None]
    set_aside: Callable[[int], None]
    """What waits for the model is not asked any more."""
    abort: Callable[[BaseException], None]
    """The run ends with this error."""


class Departures:
    """The models that are set aside, that refused, and that are settled."""

    def __init__(
        self,
        names: Sequence[str],
        controller: Decider,
        tell: DepartureCallbacks,
        recorded: Collection[int] = frozenset(),
    ) -> None:
        """`recorded` models are asked nothing from the start: that is no departure."""
        self._names, self._controller, self._tell, self._recorded = names, controller, tell, recorded
        self.lost: dict[int, Lost] = {}
        """Models that were set aside since this start."""
        self.refused: dict[int, str] = {}
        """Models that refused their first request, and why."""
        self.settled: set[int] = set()
        """Models that nothing can want again, as far as the run goes today."""
        self.resting: set[int] = set()
        """Models that are asked nothing beside what is in flight, until others want more of them."""
        self.answers = [0] * len(names)
        """Requests of each model that were answered since this start."""
        self._told_settled: set[str] = set()
        self._ungraded: dict[int, tuple[str, str]] = {}
        """Of each model the first question since this start on which the grader failed, and its error."""

    def gone(self, model: int) -> bool:
        """Nothing more is asked of this model."""
        return model in self.lost or model in self.refused

    # -- servers --------------------------------------------------------------------------------------------------

    @property
    def heard_all(self) -> bool:
        """Every model has answered or refused."""
        silent = self.refused.keys() | set(self._recorded)
        return all(answers or model in silent for model, answers in enumerate(self.answers))

    def no_answer(self, model: int, error: EndpointError) -> None:
        """A model that refuses from the start is a mistake of the configuration; one that fails later is set aside."""
        if isinstance(error, Rejected) and not self.answers[model]:
            if not self.refused:
                asyncio.get_running_loop().call_later(REFUSALS_SECONDS, self.give_up)
            self.refused.setdefault(model, str(error))
        else:
            self.set_aside(model, Lost(Cause.SERVER, str(error)))

    def no_server(self, model: int, error: BaseException) -> None:
        """A server that does not start before anything is answered is a mistake to be mended first."""
        if not isinstance(error, EndpointError):
            self._tell.abort(error)
        elif any(self.answers):
            self.set_aside(model, Lost(Cause.SERVER, str(error)))
        else:
            self._tell.abort(type(error)(f"{self._names[model]}: {error}{ELSEWHERE}"))

    def no_further_server(self, model: int, error: BaseException) -> None:
        """The model goes on with the servers that it has."""
        if isinstance(error, EndpointError):
            self._tell.note(ServersNoticed(self._names[model], "no_further_server", str(error)))
        else:
            self._tell.abort(error)

    def too_narrow(self, model: int, error: EndpointError) -> None:
        """A model did not start beside another one: from now on its place is emptied before it is served there."""
        self._tell.note(ServersNoticed(self._names[model], "no_room_beside", NO_ROOM.format(error)))

    def give_up(self) -> None:
        """End the run with every refusal."""
        told = [f"{self._names[model]}: {reason}" for model, reason in sorted(self.refused.items())]
        self._tell.abort(Rejected("\n".join(told) + ("" if self.heard_all else ELSEWHERE)))

    # -- set aside ------------------------------------------------------------------------------------------------

    def set_aside(self, model: int, lost: Lost) -> None:
        """Go on without a model: the core hears of it when the event is committed."""
        if model in self.lost:
            return
        self.lost[model] = lost
        self._tell.set_aside(model)
        self._tell.note(ModelSetAside(self._names[model], lost.reason, lost.cause))

    def ungraded(self, model: int, question: str, error: str) -> None:
        """Tell of a model's first answer that has no grade: the run goes on."""
        if model not in self._ungraded:
            self._ungraded[model] = (question, error)
            self._tell.note(AnswerUngraded(self._names[model], question, error))

    def note_set_aside(self) -> None:
        """Record whom the core itself goes on without."""
        for model, lost in self._controller.set_aside.items():
            if model in self.lost:
                continue
            if lost.cause is Cause.GRADER and model in self._ungraded:
                example = "on question {}: {}".format(*self._ungraded[model])
                lost = lost._replace(reason=f"{lost.reason}; {example}")
            self.set_aside(model, lost)

    # -- settled --------------------------------------------------------------------------------------------------

    def restore(self, events: Sequence[Event]) -> None:
        """Hear who was told to be settled since a resume has last changed the settings: it may want them again."""
        changes = [at for at, event in enumerate(events) if isinstance(event, SettingsChanged)]
        since = events[max(changes, default=0) :]
        self._told_settled = {event.model for event in events_of_kind(since, ModelSettled)}

    def note_settled(self, launched: Collection[int]) -> None:
        """Record whom nothing can want again, each once under the settings of today; the run starts servers for those
        that are `launched`."""
        if self._controller.finished is not None:
            return
        self.resting = set(np.flatnonzero(self._controller.resting()).tolist())
        wanted = self._controller.still_wanted()
        self.settled = {model for model in range(len(self._names)) if not wanted[model] and model not in self.lost}
        for model in sorted(self.settled.difference(self._recorded)):
            name = self._names[model]
            if name not in self._told_settled:
                self._told_settled.add(name)
                self._tell.note(ModelSettled(name, launched=model in launched))
