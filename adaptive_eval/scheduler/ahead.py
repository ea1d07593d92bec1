"""What idle slots are asked before a round does: trials that the core is likely to want next.

An answer that nobody wants yet waits here, graded, and is stored with its round when one asks for it: so a run has on
disk what its rounds have asked for, whatever was asked ahead, and a kill loses only what no round had asked for. What
is under way when the run is finished is given up; how many answers were asked for in vain is noted.

While nothing comes of a model that rounds wait for, nothing is asked ahead of the others: they would be asked for all
that may be likely, which is much before the first look, and the model may be set aside in the end.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from adaptive_eval.core.types import Ask, Cost
from adaptive_eval.endpoints.types import Answer
from adaptive_eval.errors import GraderError
from adaptive_eval.graders.types import Grade
from adaptive_eval.scheduler.batched_lanes import Place
from adaptive_eval.scheduler.ledger import total_cost
from adaptive_eval.scheduler.types import Decider
from adaptive_eval.store import AnswersUnwanted


class EarlyAnswer(NamedTuple):
    """An answer, and what came of grading it."""

    answer: Answer
    grade: Grade | GraderError


class AskedAhead:
    """Trials that were asked for before a round did."""

    def __init__(
        self,
        controller: Decider,
        models: int,
        keep: Callable[[Place, int, EarlyAnswer], None],
        without: frozenset[int],
        held_up: Callable[[], bool],
    ) -> None:
        """`keep` stores an answer that a round has asked for, with that round; nobody asks ahead of models `without`,
        nor of any while `held_up`."""
        self._controller, self._keep, self._without, self._held_up = controller, keep, without, held_up
        self._next: list[Iterator[Ask]] = [iter(()) for _ in range(models)]
        self._looks = -1
        """How many there had been when the core said what is likely to be wanted."""
        self._flying: dict[Place, int | None] = {}
        """Under way, with the round that has asked for them since."""
        self._waiting: dict[Place, EarlyAnswer] = {}
        self._given_up = [0] * models
        """Trials that came to nothing."""
        self.unwanted = 0
        """Requests that are under way and that no round has asked for."""

    def next(self, model: int) -> Ask | None:
        """A trial of this model to be asked ahead now; None where there is none."""
        if model in self._without or self._controller.finished is not None or self._held_up():
            return None
        self._hear()
        for ask in self._next[model]:
            if (place := ask[:3]) not in self._flying and place not in self._waiting:
                self._flying[place] = None
                self.unwanted += 1
                return ask
        return None

    def _hear(self) -> None:
        """After a look other trials are likely."""
        if self._looks != self._controller.looks_taken:
            self._looks = self._controller.looks_taken
            self._next = [one.asks(model) for model, one in enumerate(self._controller.likely_next())]

    def is_here(self, ask: Ask) -> bool:
        """A round asks for a trial that is under way or waits here: nobody has to be asked for it."""
        place = ask[:3]
        if place in self._waiting:
            self._keep(place, ask.round, self._waiting.pop(place))
            return True
        if place not in self._flying:
            return False
        self.unwanted -= self._flying[place] is None
        self._flying[place] = ask.round
        return True

    def came(self, place: Place, early: EarlyAnswer) -> None:
        """An answer has come, and is graded."""
        number = self._flying.pop(place)
        if number is None:
            self.unwanted -= 1
            self._waiting[place] = early
        else:
            self._keep(place, number, early)

    def failed(self, place: Place) -> bool:
        """A request has no answer to come: whether a round waits for it."""
        number = self._flying.pop(place)
        self.unwanted -= number is None
        self._given_up[place[0]] += number is None
        return number is not None

    def in_vain(self, names: Sequence[str], cost: Callable[[int, Answer], Cost]) -> Iterator[AnswersUnwanted]:
        """What was asked for and is not wanted, once nothing more will be; `cost` says what a model's answer used."""
        for model, name in enumerate(names):
            came = [early.answer for place, early in self._waiting.items() if place[0] == model]
            cut = sum(place[0] == model for place, number in self._flying.items() if number is None)
            if asked := len(came) + cut + self._given_up[model]:
                yield AnswersUnwanted(name, asked, len(came), *total_cost(cost(model, one) for one in came))
