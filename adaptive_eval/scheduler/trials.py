"""Where each trial stands between the core's wish for it and its category on disk.

    wanted -> booked -> in flight -> answered -> awaiting a verdict -> awaiting thresholds -> graded

A step may be left out, and nothing goes back but a request that was given back. What is graded or lost leaves the
table: the core, or nobody, has it then. The legal steps stand in `STEPS`; any other one is an error of this program.
"""

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum

from adaptive_eval.supply.types import Request


class Step(StrEnum):
    """The step of a trial."""

    WANTED = "wanted"
    """The core has asked for it; it waits for a free slot."""
    BOOKED = "booked"
    """It is sent as soon as it is on disk that it will be."""
    IN_FLIGHT = "in flight"
    """A server has it."""
    ANSWERED = "answered"
    """It is being graded, or written."""
    AWAITS_VERDICT = "awaiting a verdict"
    """It is on disk without a grade, which takes requests of its own."""
    AWAITS_THRESHOLDS = "awaiting thresholds"
    """It is on disk, and has its category when the thresholds of the rubric are fitted."""
    GRADED = "graded"
    """It is on disk with its category, or with the reason why it has none, and the core is told."""
    LOST = "lost"
    """No answer to it comes in this start of the run."""


STEPS: dict[Step | None, frozenset[Step]] = {
    None: frozenset({Step.WANTED, Step.AWAITS_THRESHOLDS}),  # the latter where an earlier start has stored the answer
    Step.WANTED: frozenset({Step.BOOKED, Step.IN_FLIGHT, Step.LOST}),
    Step.BOOKED: frozenset({Step.IN_FLIGHT, Step.LOST}),
    Step.IN_FLIGHT: frozenset({Step.ANSWERED, Step.WANTED, Step.LOST}),
    Step.ANSWERED: frozenset({Step.AWAITS_VERDICT, Step.AWAITS_THRESHOLDS, Step.GRADED}),
    Step.AWAITS_VERDICT: frozenset({Step.AWAITS_THRESHOLDS, Step.GRADED}),
    Step.AWAITS_THRESHOLDS: frozenset({Step.GRADED}),
}
"""Which steps may follow which; from None, for a trial that is not in the table."""
LAST = frozenset({Step.GRADED, Step.LOST})


class TrialTable:
    """The step of every trial that the core has asked for in this start and was not told of."""

    def __init__(self, models: int) -> None:
        self._steps: list[dict[tuple[int, int], Step]] = [{} for _ in range(models)]
        """By model: the step of each question and trial."""
        self._numbers: list[Counter[Step]] = [Counter() for _ in range(models)]
        self._unanswered: set[int] = set()
        """Models with a request that a server had and that brought no answer, asked again or not."""

    def step(self, model: int, question: int, trial: int) -> Step | None:
        """The step of a trial; None if nobody has asked for it, or it is done."""
        return self._steps[model].get((question, trial))

    def number(self, model: int, *steps: Step) -> int:
        """How many trials of a model stand at any of these steps."""
        return sum(self._numbers[model][step] for step in steps)

    def has_all(self, model: int) -> bool:
        """Whether all that a model was asked in this start was waited for, and has come."""
        return model not in self._unanswered and set(self._steps[model].values()) <= {Step.WANTED}

    def move(self, model: int, question: int, trials: Iterable[int], to: Step) -> None:
        """Have trials of a question take a step; raises `RuntimeError` if they may not."""
        steps, numbers = self._steps[model], self._numbers[model]
        for trial in trials:
            before = steps.get((question, trial))
            if to not in STEPS[before]:
                raise RuntimeError(f"trial {trial} of question {question} by model {model} is {before}, and now {to}")
            if before is Step.IN_FLIGHT and to is not Step.ANSWERED:
                self._unanswered.add(model)
            if before is not None:
                numbers[before] -= 1
            if to in LAST:
                del steps[question, trial]
            else:
                steps[question, trial] = to
                numbers[to] += 1

    def move_request(self, request: Request, to: Step) -> None:
        """Have the trials of a request take a step."""
        self.move(request.model, request.question, request.trials, to)

    def forget_wanted(self, model: int) -> None:
        """Take the trials that wait for a slot out of the table."""
        for (question, trial), step in list(self._steps[model].items()):
            if step is Step.WANTED:
                self.move(model, question, (trial,), Step.LOST)
