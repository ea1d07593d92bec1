"""Looks in their order, and what each carries over to the next: latched verdicts, and the horizon with its rule."""

from dataclasses import replace

import numpy as np

from adaptive_eval.core.corrected import ScoreCorrection, corrected_look, deciding_looks
from adaptive_eval.core.evidence import Evidence
from adaptive_eval.core.horizon import CurrentHorizon
from adaptive_eval.core.judge import Criteria, DecidingLooks, LatchedVerdicts
from adaptive_eval.core.look import AvailableTrials, JudgedLook, evidence_readings, judge_look, make_look
from adaptive_eval.core.plan import Plan
from adaptive_eval.core.rules import has_error_left
from adaptive_eval.core.tally import Tally
from adaptive_eval.core.types import Look


class LookTaker:
    """Takes looks at the tally of a run."""

    def __init__(self, plan: Plan, *, keep: bool) -> None:
        """Without `keep`, a look takes half the time: `looks`, p-values and `decided`, which are for people, are left
        out."""
        self.plan, self.keep = plan, keep
        self.horizon = CurrentHorizon(plan)
        self.tally = Tally(
            plan.bench,
            plan.prior,
            self.horizon.most,
            coupled=plan.coupled,
            drawn=plan.drawn > 0,
            may_be_right=plan.may_be_right,
        )
        self.looks: list[Look] = []
        self.taken = 0
        self.standing: JudgedLook | None = None
        """The latest look."""
        pairs = len(plan.judged_pairs[0])
        self._memory, self.decided = LatchedVerdicts.blank(pairs), DecidingLooks.blank(pairs)

    def take(self, available: AvailableTrials, *, calls_stand: bool = False) -> None:
        """Take a look at all that is committed; with `calls_stand`, nothing latches anew."""
        standing = self.standing = self._judge(available, calls_stand=calls_stand)
        self.horizon.note_look(standing.evidence)
        self._memory = standing.memory
        self.taken += 1
        if self.keep:
            self.looks.append(self.describe(standing, available))
            self.decided = self.decided.with_look(self.taken, standing.memory, standing.evidence, standing.rule)

    def describe(self, standing: JudgedLook, available: AvailableTrials) -> Look:
        """The latest look as plain values."""
        return make_look(standing, available, self.taken - 1, self.plan.bench.questions)

    def extend(self, issued: int) -> None:
        """Change the horizon for looks from now on: latched verdicts stay, the rest may reopen. `issued` is the most
        trials of any question so far."""
        self.horizon.extend(self.tally, self._memory, issued, self.taken)
        if has_error_left(self.horizon.rule):  # such a rule says itself which pairs are exhausted
            self._memory = replace(self._memory, given_up=np.zeros_like(self._memory.given_up))

    def withdraw(self, model: int, look: int) -> None:
        """Take back the calls and ties of a model that looks from this number on have made, and all of its p-values."""
        own = np.zeros(len(self._memory.call), dtype=bool)
        for members in self.plan.judged_pairs:
            own |= members == model
        early = (self.decided.latched != 0) & (self.decided.look < look)
        self._memory = LatchedVerdicts.blank(len(own)).where(own & ~early, self._memory)

    def include_overrun(self, available: AvailableTrials) -> None:
        """Judge the latest look again with trials that came later: calls stand, and no trial is left."""
        nothing_left = np.zeros_like(available.left)
        self.standing = self._judge(replace(available, left=nothing_left), calls_stand=True)

    def correct(
        self, standing: JudgedLook, available: AvailableTrials, correction: ScoreCorrection, *, anew: bool
    ) -> tuple[JudgedLook, DecidingLooks]:
        """The latest look judged by corrected scores, and the looks that decided its pairs; `anew` as in
        `corrected_look`."""
        criteria, readings = self._read_evidence()
        look = corrected_look(standing, readings, criteria, available, correction, self.decided, anew=anew)
        return look, deciding_looks(self.decided, look, self.taken)

    def _judge(self, available: AvailableTrials, *, calls_stand: bool = False) -> JudgedLook:
        criteria, readings = self._read_evidence()
        estimates = self.tally.estimates
        return judge_look(estimates, readings, self._memory, criteria, available, calls_stand=calls_stand)

    def _read_evidence(self) -> tuple[Criteria, list[Evidence]]:
        """What a look judges by, and the readings of the evidence so far."""
        plan, tally, bounds = self.plan, self.tally, self.tally.bounds()
        criteria = Criteria(plan.objective, self.horizon.rule, plan.judging, plan.estimator, self.keep)
        paired = tally.paired(plan.judged_pairs, bounded=bounds is not None)
        return criteria, evidence_readings(tally.estimates, criteria, bounds, paired)
