"""Looks in their order, and the state that each passes to the next: latched verdicts, and the rule."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from adaptive_eval.core.corrected import ScoreCorrection, corrected_look
from adaptive_eval.core.evidence import Evidence
from adaptive_eval.core.judge import Criteria, DecidingLooks, LatchedVerdicts, first_call
from adaptive_eval.core.look import (
    JudgedLook,
    evidence_readings,
    judge_look,
    make_look,
)
from adaptive_eval.core.pair_trials import AvailableTrials
from adaptive_eval.core.plan import Plan
from adaptive_eval.core.rules import has_error_left, is_correctable, is_giving_up
from adaptive_eval.core.stages import (
    Extension,
    PairPlaces,
    StageBefore,
    at_any_looks,
    extended,
    regrouped,
)
from adaptive_eval.core.tally import Tally
from adaptive_eval.core.types import Look


class LookTaker:
    """Takes looks at the tally of a run."""

    def __init__(self, plan: Plan, *, keep: bool) -> None:
        """Without `keep`, a look takes half the time: it omits `looks`, p-values and `decided`, which are for people,
        and no other stage can continue from here."""
        self.plan, self.keep = plan, keep
        before = plan.before
        places = () if before is None else before.last_places().values()
        issued = max((run.most_issued(old_number) for run, old_number in places), default=0)
        self.tally = Tally(plan, max(plan.trials.max, issued))  # it may be lowered to less than what is in flight
        self.rule = self._new_run_rule = plan.deciding_rule
        if plan.judging.familywise and is_correctable(self.rule):
            self._new_run_rule = first_call(plan.objective, plan.bench.models, self.rule)
        self._departed = plan.departed
        self.extensions: Sequence[Extension] = ()
        """Changes of the horizon so far."""
        self.looks: list[Look] = []
        self.taken = 0
        self.last_look: JudgedLook | None = None
        """The latest look."""
        self.look_at_rounds: JudgedLook | None = None
        """The latest one without overrun: from there a run with a larger horizon goes on."""
        self.evidence: list[Evidence] = []
        """The evidence of all looks under this horizon, from which follows the error that they have spent, also for
        a new delta."""
        pairs = len(plan.judged_pairs[0])
        self._memory, self.decided = LatchedVerdicts.blank(pairs), DecidingLooks.blank(pairs)
        if before is not None:
            self._take_over(before.run.taker, before)

    def take(self, available: AvailableTrials, *, calls_stand: bool = False) -> None:
        """Take a look at all that is committed; with `calls_stand`, nothing latches anew."""
        look = self.last_look = self.look_at_rounds = self._judge(available, calls_stand=calls_stand)
        self._memory = look.memory
        self.taken += 1
        if self.keep:
            self.evidence.append(look.evidence)
            self.looks.append(self.describe(look, available))
            self.decided = self._decided_by(look)

    def describe(self, look: JudgedLook, available: AvailableTrials) -> Look:
        """The latest look as plain values."""
        return make_look(look, available, self.taken - 1, self.plan.bench.questions)

    def _take_over(self, earlier: "LookTaker", before: StageBefore) -> None:
        """Go on from the looks of the stage before, and from earlier ones with the pairs of models that come back."""
        self.taken, self.extensions = earlier.taken, earlier.extensions
        self.looks += earlier.looks
        if not before.verdicts_stand:
            self.rule = at_any_looks(self.rule)
        stages = before.pairs_of_stages(self.plan.judged_pairs)
        last = {run for run, _ in before.last_places().values()}
        for run, models in reversed([*before.stages()]):
            if run in last or run in stages:
                self.tally.take_over(run.taker.tally, models)
            if run in stages:
                self._take_over_pairs(run.taker, stages[run], is_last=run is before.run, come_back=len(stages) > 1)

    def _take_over_pairs(self, earlier: "LookTaker", places: PairPlaces, *, is_last: bool, come_back: bool) -> None:
        """Go on with the pairs of a stage, whose trials alone are counted yet. If some `come_back`, all have their
        remaining error, which is then spent at any looks."""
        plan, then = self.plan, earlier.plan
        self._memory = places.carry_each(earlier._memory, self._memory)
        self.decided = places.carry_each(earlier.decided, self.decided)
        _, (now,) = self.read_evidence(bounded=False)
        rule, raised = earlier.rule, then.trials.max != plan.trials.max
        kept_spacing = then.spacing is not None and then.spacing.allows(plan.spacing)
        if raised or come_back or (is_giving_up(rule) and not kept_spacing):
            last = places.evidence_before(now)
            rule = extended(rule, earlier.evidence, last, plan.judging.delta)
            if raised and is_last:
                extension = Extension(then.trials.max, plan.trials.max, earlier.taken, has_error_left(rule))
                self.extensions = (*self.extensions, extension)
            if has_error_left(rule):  # such a rule says itself which pairs are exhausted
                self._memory = replace(self._memory, given_up=np.zeros_like(self._memory.given_up))
        else:
            self.evidence = [places.evidence_now(look, now) for look in earlier.evidence]
        self.rule = regrouped(rule, self.rule, places)

    def withdraw(self, model: int, look: int) -> None:
        """Take back the calls and ties of a model that looks from this number on have made, and all of its p-values."""
        is_of_model = np.zeros(len(self._memory.call), dtype=bool)
        for members in self.plan.judged_pairs:
            is_of_model |= members == model
        early = (self.decided.latched != 0) & (self.decided.look < look)
        self._memory = LatchedVerdicts.blank(len(is_of_model)).where(is_of_model & ~early, self._memory)

    def include_overrun(self, available: AvailableTrials) -> None:
        """Judge the latest look again with trials that came later: calls stand, and no trial is left."""
        nothing_left = np.zeros_like(available.remaining)
        self.last_look = self._judge(replace(available, remaining=nothing_left), calls_stand=True)

    def correct(
        self, graded_look: JudgedLook, available: AvailableTrials, correction: ScoreCorrection, *, anew: bool
    ) -> tuple[JudgedLook, DecidingLooks]:
        """The latest look judged by corrected scores, and the looks that decided its pairs; `anew` as in
        `corrected_look`."""
        criteria, readings = self.read_evidence()
        look = corrected_look(graded_look, readings, criteria, available, correction, self.decided, anew=anew)
        return look, self._decided_by(look)

    def _decided_by(self, look: JudgedLook) -> DecidingLooks:
        return self.decided.with_look(self.taken, look.memory, look.evidence, look.least_z())

    def _judge(self, available: AvailableTrials, *, calls_stand: bool = False) -> JudgedLook:
        criteria, readings = self.read_evidence()
        return judge_look(self.tally.estimates, readings, self._memory, criteria, available, calls_stand=calls_stand)

    def read_evidence(self, *, bounded: bool = True) -> tuple[Criteria, list[Evidence]]:
        """The criteria of a look, and the readings of the evidence so far; unless `bounded`, only as graded."""
        plan, bounds = self.plan, self.tally.bounds() if bounded else None
        weights = plan.bench.weights
        ends = (float(weights.min()), float(weights.max())) if plan.objective.compares else None
        judged = plan.objective, self.rule, plan.judging
        criteria = Criteria(*judged, plan.estimator, self.keep, self._departed, ends, self._new_run_rule)
        paired = plan.source.paired(self.tally, plan.judged_pairs, bounded=bounds is not None)
        return criteria, evidence_readings(self.tally.estimates, criteria, bounds, paired)
