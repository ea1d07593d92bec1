"""The horizons of a run in order: an extended run had others before the one in its plan.

A rule says itself how it continues under another horizon (`rules.Extendable`); one that does not goes on unchanged.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from adaptive_eval.core.evidence import Evidence, weigh_evidence
from adaptive_eval.core.judge import LatchedVerdicts
from adaptive_eval.core.plan import Plan
from adaptive_eval.core.rules import Extendable, Rule, has_error_left
from adaptive_eval.core.settings import Pace, Trials
from adaptive_eval.core.tally import Tally
from scorio.moments import FloatArray


class Extension(NamedTuple):
    """A change of the horizon, as it was carried out.

    The arrays cover the undecided pairs; they are empty for rules without remaining error.
    """

    before: int
    """`trials.max` before the change."""
    now: int
    looks: int
    """Looks that had been taken."""
    leaves_error: bool
    """Whether the rule limits each pair to its unspent error (`rules.ErrorLeft`)."""
    left: FloatArray
    """The unspent error of each pair, given its looks."""
    was: FloatArray
    """What |z| had to reach at the previous horizon."""
    boundary: FloatArray
    """What |z| must reach at the new one; infinite if no error was left."""


def carried_over(rule: Rule, looks: Sequence[Evidence], now: Evidence, delta: float) -> Rule:
    """The rule under another horizon: `looks` were taken under the old one, `now` is their last under the new."""
    return rule.extended(looks, now, delta) if isinstance(rule, Extendable) else rule


class CurrentHorizon:
    """The current horizon and pace, and the rule as it applies under them."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._coming: Iterator[tuple[Trials, Pace]] = iter(
            [*((stage.trials, stage.pace) for stage in plan.earlier), (plan.trials, plan.pace)]
        )
        self.trials, self.pace = next(self._coming)
        self.most = self.trials.max
        """Trials a question at the current horizon, counting those asked for under an earlier one."""
        self.rule = plan.deciding_rule
        self.extensions: list[Extension] = []
        """Changes of the horizon so far."""
        self._looked: list[Evidence] = []
        """Evidence of the looks under the current horizon, if it will change."""

    @property
    def has_next(self) -> bool:
        """Whether another horizon follows the current one."""
        return len(self.extensions) < len(self._plan.earlier)

    def ends_after(self, looks: int) -> bool:
        """Whether the horizon changes after this number of looks."""
        return self.has_next and looks >= self._plan.earlier[len(self.extensions)].looks

    def note_look(self, evidence: Evidence) -> None:
        """Keep a look's evidence for the next horizon."""
        if self.has_next:
            self._looked.append(evidence)

    def extend(self, tally: Tally, memory: LatchedVerdicts, issued: int, looks: int) -> None:
        """Change the horizon: verdicts stay latched, and the rule continues with its remaining error.

        `issued` is the most trials of any question so far, `looks` the number of looks taken.
        """
        plan, before = self._plan, self.trials.max
        self.trials, self.pace = next(self._coming)
        # trials already asked for will arrive and be looked at: a horizon before them would have no error left
        self.most = max(self.trials.max, issued)
        tally.rescale(self.most)
        known, objective = tally.estimates.on(plan.estimator), plan.objective
        paired = tally.paired(plan.judged_pairs)
        now = weigh_evidence(known, objective.reference, objective.margin, paired=paired[0] if paired else None)
        old, self.rule = self.rule, carried_over(self.rule, self._looked, now, plan.judging.delta)
        left = was = boundary = np.empty(0)
        if leaves := has_error_left(self.rule):
            undecided = (memory.call == 0) & ~memory.tie & (now.information > 0.0)
            at_horizon = replace(now, information=np.ones(len(now.z)))
            left = self.rule.remaining_error(now)[undecided]
            was, boundary = (rule.boundary(at_horizon)[undecided] for rule in (old, self.rule))
        self.extensions.append(Extension(before, self.trials.max, looks, leaves, left, was, boundary))
        self._looked = []
