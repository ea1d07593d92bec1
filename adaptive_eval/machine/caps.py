"""What the caps of a run allow: how much is reserved, and whether a request may be sent, or a judge be asked."""

from collections.abc import Collection

from adaptive_eval.core.account import trial_reserve
from adaptive_eval.core.types import NO_COST, Cost
from adaptive_eval.machine.charges import Account, sum_costs
from adaptive_eval.machine.events import Setting
from adaptive_eval.machine.table import TrialTable
from adaptive_eval.machine.trial import Key, Trial

UNFORESEEN = 15
"""So many times its reserve a first request may use on top of it, as far as caps provide for that."""


class Caps:
    """The caps, beside what is paid, reserved and charged."""

    def __init__(self, account: Account, table: TrialTable, judging: Collection[Key]) -> None:
        """`judging`: answers whose verdicts were asked for and are not on disk."""
        self._account, self._table, self._judging = account, table, judging
        self.answered: set[int] = set()
        """Models that have answered in this start."""
        self.has_verdict = False
        """Whether a verdict that costs something was given in this start."""

    def use(self, setting: Setting) -> None:
        """Go on under other settings."""
        self._setting, self._budget = setting, setting.plan.budget
        self.are_set = self._budget.bought
        """Whether a cap counts what lost answers have cost."""
        verdict = setting.verdict if setting.judged else NO_COST
        self.worst = {
            model: worst if worst.is_unbounded else worst.plus(verdict.times(-1))
            for model, worst in zip(setting.roster, setting.plan.bench.worst_cost, strict=True)
        }
        """The most that an answer of each model may cost, without its grade."""

    def reserve(self, model: int) -> Cost:
        """The cost to reserve for an answer of a model."""
        return trial_reserve(self.worst[model], self._account.models[model].largest) if self.are_set else NO_COST

    def verdict_reserve(self, trial: Trial) -> Cost:
        """The cost to reserve for the grade of an answer."""
        return self._setting.verdict if self.are_set and trial.question in self._setting.judged else NO_COST

    def short_of(self, more: Cost) -> dict[str, float]:
        """The caps that do not cover this on top of all that is paid, reserved or charged, with the totals."""
        return self._budget.short_of((0.0, *self._account.total.plus(more)))

    def cover(self, more: Cost) -> bool:
        """Whether the caps cover this on top of all that is paid, reserved or charged."""
        return self._budget.covers(self._account.total.plus(more))

    def allow_request(self, model: int, cost: Cost) -> bool:
        """Whether the caps allow a request to a model that may cost this.

        Before a model has answered, nobody knows what its server adds to prompts. So its first request of a start is
        sent alone, unless the caps cover all first requests at many times their reserve (`UNFORESEEN`). Until one is
        answered, nothing else is sent that would leave less than that."""
        known, flying = self.answered | self._setting.remembers, self._table.in_flight
        reserved = self._unproven_verdicts() if len(self._judging) > 1 else NO_COST
        is_one_of_many = model not in known and flying[model] > 0
        for asked in flying.keys() - known:
            if flying[asked] > 1 or is_one_of_many:  # else its only request may exceed the caps alone
                reserved = reserved.plus(self._account.models[asked].held.cost)
        return self.cover(cost.plus(_unforeseen(reserved.plus(cost) if is_one_of_many else reserved)))

    def allow_verdict(self, trial: Trial) -> bool:
        """Whether a judge may be asked about an answer, whose reserve is in the account: the first verdict of a start
        is waited for as the first answer of a model is."""
        if self.has_verdict or not self.are_set or not self._judging:
            return True
        return self.cover(_unforeseen(trial.verdict.plus(self._unproven_verdicts())))

    def _unproven_verdicts(self) -> Cost:
        """The reserves of verdicts in flight, until one was given in this start."""
        trials, asked = self._table.trials, () if self.has_verdict else self._judging
        return sum_costs(trials[key].verdict for key in asked if key in trials)


def _unforeseen(reserved: Cost) -> Cost:
    """What caps provide for beyond the reserves of first requests, should their servers use more."""
    return reserved.times(UNFORESEEN)._replace(gpu_seconds=0.0)
