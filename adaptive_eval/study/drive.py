"""Runs a controller on a tape, trial by trial or by whole rounds, with the same looks."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from adaptive_eval.core.controller import Controller
from adaptive_eval.core.rounds import Batch
from adaptive_eval.core.tape import Categories, Tape, TrialArrays
from adaptive_eval.core.types import NO_COST, Cost, Look, Outcome
from scorio.moments import IntArray

MAX_BATCH = 1 << 16

CostTable = Sequence[Sequence[Cost]]
"""Cost of a trial, by model and category."""


def drive(
    controller: Controller,
    tape: Tape,
    on_look: Callable[[Look], None] | None = None,
    on_outcomes: Callable[[Sequence[Outcome]], None] | None = None,
) -> Controller:
    """Run the controller on the tape until it finishes, with outcomes in batches."""
    while controller.finished is None:
        outcomes = list[Outcome]()
        for model, question, trial, _ in controller.ask(MAX_BATCH):
            category, kinds = tape.answer(model, question, trial)
            outcomes.append(Outcome(model, question, trial, category, NO_COST, kinds))
        if on_outcomes is not None:
            on_outcomes(outcomes)
        for look in controller.tell(outcomes):
            if on_look is not None:
                on_look(look)
    return controller


class DrawnBatch(NamedTuple):
    """A tape's outcomes for the trials of a batch, in the order in which they are asked."""

    trials: TrialArrays
    categories: Categories
    counts: IntArray
    """(M, K)."""

    @classmethod
    def of(cls, batch: Batch, tape: Tape) -> "DrawnBatch":
        """The tape's outcomes for a batch, one by one and as counts."""
        trials = TrialArrays(np.full(batch.size, batch.model), *batch.places())
        outcomes, shape = tape.look_up(trials), (len(batch.slots.extra), len(tape.weights))
        counts = np.bincount(trials.question * shape[1] + outcomes, minlength=math.prod(shape))
        return cls(trials, outcomes, counts.reshape(shape))


def drive_rounds(controller: Controller, tape: Tape, costs: CostTable | None = None) -> Controller:
    """Run the controller by whole rounds, which takes a tenth of the time."""
    while controller.finished is None:
        batches = controller.ask_batches()
        controller.tell_counts([(batch, DrawnBatch.of(batch, tape).counts) for batch in batches], costs)
    return controller
