"""The step of each trial, from the core's request for it to its category on disk.

    wanted -> booked -> in flight -> answered -> awaiting a verdict -> graded

Steps may be skipped; only a request that is returned to the queue goes back. Graded and lost trials leave the table.
`STEPS` lists the legal transitions; any other is a bug in this program.
"""

from collections.abc import Iterable
from enum import StrEnum

from adaptive_eval.supply.types import Request


class Step(StrEnum):
    """The step of a trial."""

    WANTED = "wanted"
    """The core has asked for it; it waits for a free slot."""
    BOOKED = "booked"
    """It is sent as soon as its ledger entry is on disk."""
    IN_FLIGHT = "in flight"
    """A server has it."""
    ANSWERED = "answered"
    """It is being graded, or written."""
    AWAITS_VERDICT = "awaiting a verdict"
    """Its answer is on disk without a grade, which takes requests of its own."""
    GRADED = "graded"
    """Its answer is on disk with a category, or with the reason why it has none, and the core is told."""
    LOST = "lost"
    """It gets no answer in this start of the run."""


STEPS: dict[Step | None, frozenset[Step]] = {
    None: frozenset({Step.WANTED}),
    Step.WANTED: frozenset({Step.BOOKED, Step.IN_FLIGHT, Step.LOST}),
    Step.BOOKED: frozenset({Step.IN_FLIGHT, Step.LOST}),
    Step.IN_FLIGHT: frozenset({Step.ANSWERED, Step.WANTED, Step.LOST}),
    Step.ANSWERED: frozenset({Step.AWAITS_VERDICT, Step.GRADED}),
    Step.AWAITS_VERDICT: frozenset({Step.GRADED}),
}
"""Which steps may follow which; from None, for a trial that is not in the table."""
LAST = frozenset({Step.GRADED, Step.LOST})
NOT_UNDER_WAY = frozenset({Step.WANTED})
"""Steps of trials that no server has and no grader is to grade."""
_IN_FLIGHT, _ANSWERED = Step.IN_FLIGHT, Step.ANSWERED  # slow to look up


class TrialTable:
    """The step of every trial that the core has asked for in this start and that is not done."""

    def __init__(self, models: int) -> None:
        self._steps: list[dict[tuple[int, int], Step]] = [{} for _ in range(models)]
        """By model: the step of each question and trial."""
        self._unanswered: set[int] = set()
        """Models with a request that was in flight and got no answer, even if it was asked again."""

    def step(self, model: int, question: int, trial: int) -> Step | None:
        """The step of a trial; None if nobody has asked for it, or it is done."""
        return self._steps[model].get((question, trial))

    def under_way(self, model: int) -> list[int]:
        """The question of each trial that a server has, or whose grade is not on disk yet."""
        return [question for (question, _), step in self._steps[model].items() if step not in NOT_UNDER_WAY]

    def is_owed(self, model: int) -> bool:
        """Whether a trial of the model is yet to come, or awaits its verdict."""
        return bool(self._steps[model])

    def has_all(self, model: int) -> bool:
        """Whether every request sent to a model in this start was answered, and its answers are done."""
        return model not in self._unanswered and set(self._steps[model].values()) <= {Step.WANTED}

    def move(self, model: int, question: int, trials: Iterable[int], to: Step) -> None:
        """Move trials of a question to a step; raises `RuntimeError` if the transition is illegal."""
        steps = self._steps[model]
        for trial in trials:
            place = question, trial
            before = steps.get(place)
            if to not in STEPS[before]:
                raise RuntimeError(f"trial {trial} of question {question} by model {model} is {before}, and now {to}")
            if before is _IN_FLIGHT and to is not _ANSWERED:
                self._unanswered.add(model)
            if to in LAST:
                del steps[place]
            else:
                steps[place] = to

    def move_request(self, request: Request, to: Step) -> None:
        """Move the trials of a request to a step."""
        self.move(request.model, request.question, request.trials, to)

    def forget_wanted(self, model: int) -> None:
        """Remove the trials that wait for a slot."""
        for (question, trial), step in list(self._steps[model].items()):
            if step is Step.WANTED:
                self.move(model, question, (trial,), Step.LOST)
