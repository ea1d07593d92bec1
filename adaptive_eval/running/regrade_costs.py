"""Cost of having stored answers judged anew, under the caps of the configuration.

A regrade changes all grades or none, so it goes on only while the caps cover every verdict that is left at its worst,
on top of what the run has spent. Verdicts are charged at their worst before they are asked for, and at their cost once
they have come: whatever ends a regrade before its grades are stored leaves what was spent on them as spent.
"""

from collections.abc import Sequence

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.base.numbers import plain_number
from adaptive_eval.core.settings import Budget
from adaptive_eval.core.types import NO_COST, Cost
from adaptive_eval.endpoints.types import RetryGate
from adaptive_eval.machine.charges import NO_MODEL, Charge, ChargeKind, sum_costs
from adaptive_eval.machine.events import Graded
from adaptive_eval.store.write import RunStore

CAPS = {"tokens": "tokens", "usd": "USD", "gpu_seconds": "GPU seconds"}
"""Names of what is bought, as `budget` counts it."""


class RegradeCosts:
    """Charges for the verdicts of a regrade, and what the caps allow."""

    def __init__(self, store: RunStore, verdict: Cost, vote: Cost, caps: Budget, answers: int) -> None:
        """`verdict`: the most that one may cost, `NO_COST` if no cap counts it; `vote`: one of its replies that did not
        come; `answers`: how many are to be judged."""
        self._store, self._verdict, self._vote, self._caps = store, verdict, vote, caps
        self._left = answers
        """Answers whose verdicts are not charged yet."""
        self._spent = self._charged = NO_COST
        """What the run has spent, and the part of it for verdicts of this regrade."""

    def require_room(self, beside: Cost = NO_COST) -> None:
        """Raise `ConfigError` if a cap might not allow all verdicts that are left, and what is asked beside them."""
        if self._verdict == NO_COST:
            return
        self._spent = self._store.reader.spent()
        if short := self.exceeded_cap(self._spent.plus(beside)):
            wanted = self._verdict.times(self._left).plus(beside)
            amounts = (getattr(of, short) for of in (wanted, self._spent, self._caps))
            more, spent, limit = (f"{value:,}" if short == "tokens" else plain_number(value) for value in amounts)
            option = "gpu_hours" if short == "gpu_seconds" else short
            raise ConfigError(
                f"to judge {self._left} answers again may cost up to {more} {CAPS[short]}, with {spent} spent, "
                f"and the limit is {limit}; raise budget.{option}, or add --beyond-limits"
            )

    def exceeded_cap(self, spent: Cost) -> str | None:
        """The first cap that does not cover the verdicts that are left, with so much spent before them."""
        total = spent.plus(self._verdict.times(self._left))
        caps = {name: getattr(self._caps, name) for name in CAPS}
        return next((name for name, cap in caps.items() if cap is not None and getattr(total, name) > cap), None)

    def retry_gate(self, model: int) -> RetryGate | None:
        """A callback that charges a lost reply about an answer of a model, and returns whether the caps allow another
        request; None if no cap counts it."""

        async def may_retry() -> bool:
            self._append(Charge(ChargeKind.LOST, "verdict", model, 1, self._vote))
            return self.exceeded_cap(self._spent) is None

        return None if self._verdict == NO_COST else may_retry

    def reserve(self, answers: int) -> None:
        """Charge verdicts that are asked for next, at their worst."""
        self.require_room()
        self._left -= answers
        self._charge(answers, self._verdict.times(answers))

    def settle(self, verdicts: Sequence[Graded]) -> None:
        """Charge what verdicts have cost in place of their reserves."""
        used = sum_costs(verdict.cost for verdict in verdicts)
        self._charge(0, used.plus(self._verdict.times(-len(verdicts))))

    def taken_back(self) -> Charge:
        """The charge that comes with the grades: what they have cost is stored with each from now on."""
        return _charge_of_verdicts(0, self._charged.times(-1))

    def _charge(self, answers: int, cost: Cost) -> None:
        self._charged = self._charged.plus(cost)
        self._append(_charge_of_verdicts(answers, cost))

    def _append(self, charge: Charge) -> None:
        if charge.cost != NO_COST:
            self._spent = self._spent.plus(charge.cost)
            self._store.append(charge)


def _charge_of_verdicts(answers: int, cost: Cost) -> Charge:
    return Charge(ChargeKind.REGRADE, "verdict", NO_MODEL, answers, cost)
