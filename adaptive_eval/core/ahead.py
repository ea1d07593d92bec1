"""Trials that no round has asked for yet, and that are likely to be wanted: what idle slots may do meanwhile.

They decide nothing. A look is composed from complete rounds alone, and a trial that was asked ahead counts from when a
round asks for it, as if it had been asked then: so looks, verdicts and ranking are the same whatever was asked ahead,
and how much that is may depend on which slots are idle. What no round comes to ask for is paid for and not used.

How much is likely to be wanted follows from the latest look: a share of what a model's open comparisons need at the
soonest (`trials_needed`), and at least some part of what it has, spread over its questions as the policy would do it.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.core.compose import RoundInputs, allocated, view_of, wanted_for
from adaptive_eval.core.in_flight import BatchesInFlight, TrialArray
from adaptive_eval.core.plan import Plan
from adaptive_eval.core.types import Ask
from scorio.moments import IntArray

LEAST_AHEAD = 0.3
"""Trials that are asked ahead of an open comparison, at least, as a share of those that a model has: near a decision
the soonest is next to nothing, and often nothing comes of it."""
NO_ROUND = -1
"""The number of the round of a trial that none has asked for."""


def before_first_look(plan: Plan, flight: BatchesInFlight) -> TrialArray:
    """(L, M): what is asked ahead while nothing is known."""
    extra = min(plan.pace.ahead_opening, plan.trials.max) - flight.issued
    extra[~plan.bench.asked] = 0
    return np.maximum(extra, 0)


def likely_wanted(plan: Plan, flight: BatchesInFlight, now: RoundInputs) -> TrialArray:
    """(L, M): further trials of each question that rounds to come are likely to ask for, by the latest look."""
    pairs = now.standing.open_pairs()
    needed = np.maximum(wanted_for(plan, now, now.pace.ahead), LEAST_AHEAD * now.held)
    issued = flight.issued.sum(axis=1) + now.before
    questions = plan.bench.questions
    sets = np.ceil((now.held + needed - issued) / questions)
    left = now.most * questions - flight.issued.sum(axis=1)
    sizes = np.clip(sets.astype(np.int64) * questions, 0, np.maximum(left, 0))
    sizes[~now.in_play] = 0
    return allocated(plan.policy, view_of(now, pairs, flight.issued, sizes))


class LikelyTrials(NamedTuple):
    """Trials of one model by question and number, those first that come first."""

    question: IntArray
    trial: IntArray

    def without(self, there: NDArray[np.bool_]) -> "LikelyTrials":
        """Those that are not there."""
        return LikelyTrials(self.question[~there], self.trial[~there])

    def asks(self, model: int) -> Iterator[Ask]:
        """The trials as asks, one by one."""
        for question, trial in zip(self.question.tolist(), self.trial.tolist(), strict=True):
            yield Ask(model, question, trial, NO_ROUND)


def in_turn(issued: IntArray, extra: IntArray) -> LikelyTrials:
    """Further trials (M,) of a model, so that every question is as far on its way as the others."""
    question = np.repeat(np.arange(len(extra)), extra)
    number = np.arange(len(question)) - np.repeat(np.cumsum(extra) - extra, extra)
    order = np.argsort((number + 0.5) / extra[question], kind="stable")
    return LikelyTrials(question[order], (issued[question] + number)[order])
