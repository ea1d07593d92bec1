"""Cost of having stored answers judged anew, under the caps of the configuration.

A regrade changes all grades or none, so it is not begun unless the caps cover every verdict at its worst, on top of
what the run has spent. A reply that is lost on the way counts at its worst, and is asked for again if they cover it.

What is asked is charged before it is sent, at its worst, and what it has cost as soon as it has come: whatever ends a
regrade before its grades are stored leaves what was spent on them as spent.
"""

from collections.abc import Sequence
from dataclasses import asdict

from adaptive_eval.base.errors import ConfigError, Unavailable
from adaptive_eval.core.settings import Budget
from adaptive_eval.core.types import NO_COST, Cost
from adaptive_eval.endpoints.types import RetryGate
from adaptive_eval.machine.charges import NO_MODEL, Charge, ChargeKind
from adaptive_eval.machine.events import Graded
from adaptive_eval.machine.follow_up import VERDICT_EXCEEDED
from adaptive_eval.store.write import RunStore

CAPS = {"tokens": "tokens", "usd": "USD", "gpu_seconds": "GPU seconds"}
"""Names of what is bought, as `budget` counts it."""


class RegradeCosts:
    """Costs of the verdicts of a regrade: what the caps allow, and what was paid so far and charged in the store."""

    def __init__(
        self, store: RunStore, verdict: Cost, vote: Cost, budget: Budget | None, *, beyond_limits: bool = False
    ) -> None:
        """`verdict`: the most that one may cost; `vote`: one of its replies that did not come; `budget`: the caps, or
        None if none counts verdicts: then only what has come is charged."""
        caps = {} if budget is None or beyond_limits else asdict(budget)
        self._caps = {name: caps[name] for name in CAPS if caps.get(name) is not None}
        self._store, self._vote, self._beyond_limits = store, vote, beyond_limits
        self._is_capped = budget is not None
        self._verdict = verdict if self._is_capped else NO_COST
        self._spent = store.reader.spent()
        self._wanted = self._charged = NO_COST
        self._lost = 0

    def require_room(self, answers: int, beside: Cost) -> None:
        """Raise `ConfigError` if a cap might not allow that so many are judged, and what is asked beside them."""
        self._wanted = self._verdict.times(answers)
        wanted = self._wanted.plus(beside)
        if short := self._exceeded_cap(self._spent.plus(wanted)):
            amounts = getattr(wanted, short), getattr(self._spent, short), self._caps[short]
            more, spent, limit = (f"{value:,}" if short == "tokens" else f"{value:,.6g}" for value in amounts)
            option = "gpu_hours" if short == "gpu_seconds" else short
            raise ConfigError(
                f"to judge {answers} answers again may cost up to {more} {CAPS[short]}, with {spent} spent, "
                f"and the limit is {limit}; raise budget.{option}, or add --beyond-limits"
            )

    def can_afford(self, total: Cost) -> bool:
        """Whether the caps cover the verdicts when so much is spent before the first."""
        self._spent = total
        return self._exceeded_cap(self._spent.plus(self._wanted)) is None

    def retry_gate(self, model: int) -> RetryGate | None:
        """A callback that charges a lost reply about an answer of a model, and returns whether the caps allow another
        request; None if no cap counts it."""

        async def may_retry() -> bool:
            self._lost += 1
            self._store.append(Charge(ChargeKind.LOST, "verdict", model, 1, self._vote))
            lost = self._vote.times(self._lost)
            return self._exceeded_cap(self._spent.plus(self._wanted).plus(lost)) is None

        return may_retry if self._is_capped else None

    def reserve(self, answers: int) -> None:
        """Charge verdicts that are asked for next, at their worst."""
        self._charge(answers, self._verdict.times(answers))

    def settle(self, verdicts: Sequence[Graded]) -> None:
        """Charge what verdicts have cost in place of their reserves; raises `Unavailable` if that is more."""
        used = NO_COST
        for verdict in verdicts:
            used = used.plus(verdict.cost)
        self._charge(0, used.plus(self._verdict.times(-len(verdicts))))
        for verdict in () if self._beyond_limits else verdicts:
            if 0 < self._verdict.tokens < verdict.cost.tokens - self._vote.tokens:
                raise Unavailable(VERDICT_EXCEEDED.format(verdict.cost.tokens, self._verdict.tokens))

    def taken_back(self) -> Charge:
        """The charge that comes with the grades: what they have cost is stored with each from now on."""
        return self._regrade_charge(0, self._charged.times(-1))

    def _charge(self, answers: int, cost: Cost) -> None:
        if cost != NO_COST:
            self._charged = self._charged.plus(cost)
            self._store.append(self._regrade_charge(answers, cost))

    def _regrade_charge(self, answers: int, cost: Cost) -> Charge:
        return Charge(ChargeKind.REGRADE, "verdict", NO_MODEL, answers, cost)

    def _exceeded_cap(self, total: Cost) -> str | None:
        """The first cap that this would exceed."""
        return next((name for name, cap in self._caps.items() if getattr(total, name) > cap), None)
