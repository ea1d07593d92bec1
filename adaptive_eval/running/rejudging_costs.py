"""Cost of having stored answers judged anew, under the caps of the configuration.

A regrade changes all grades or none, so it is not begun unless the caps bear every verdict at its worst, on top of what
the run has spent. A reply that is lost on the way counts at its worst, and is asked for again where they bear it.

What is asked is on disk before it is sent, at its worst, and what it has cost as soon as it has come: whatever ends a
regrade before its grades are stored leaves what was spent on them as spent.
"""

from collections.abc import Sequence
from dataclasses import asdict
from functools import reduce

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.config.planning import lost_cost
from adaptive_eval.config.prepare import PreparedRun
from adaptive_eval.core.types import NO_COST, Cost
from adaptive_eval.endpoints.types import Again
from adaptive_eval.scheduler.verdict_costs import require_kept
from adaptive_eval.store import AnswersLost, CommitBatch, Regrade, RunReader, Store, TrialRecord, VerdictsAsked
from adaptive_eval.store.spending import in_flight_cost, total_spent

CAPS = {"tokens": "tokens", "usd": "USD", "gpu_seconds": "GPU seconds"}
"""Names of what is bought, as `budget` counts it."""


class RejudgingCosts:
    """What the verdicts of a regrade may cost under the caps, and have cost so far, which is kept in the store."""

    def __init__(
        self, store: Store, verdict: Cost, vote: Cost, capped: PreparedRun | None = None, beyond_caps: bool = False
    ) -> None:
        """`verdict`: the most that one may cost; `vote`: one of its replies that did not come; `capped`: the run, or
        None if no cap counts verdicts: then only what has come is entered."""
        budget = {} if capped is None or beyond_caps else asdict(capped.plan.budget)
        self._caps = {name: budget[name] for name in CAPS if budget.get(name) is not None}
        self._store, self._vote, self._is_capped, self._beyond_caps = store, vote, capped is not None, beyond_caps
        self._verdict = NO_COST if capped is None else verdict
        self._waiting = NO_COST if capped is None else _in_flight(capped, store.reader)
        self._spent = total_spent(store.reader).plus(self._waiting)
        self._wanted = self._entered = NO_COST
        self._lost = 0

    def require_room(self, answers: int) -> None:
        """Raise `ConfigError` where a cap might not bear that so many are judged."""
        self._wanted = self._verdict.times(answers)
        if short := self._short(self._spent.plus(self._wanted)):
            more, spent = getattr(self._wanted, short), getattr(self._spent, short)
            option = "gpu_hours" if short == "gpu_seconds" else short
            raise ConfigError(
                f"to judge {answers} answers anew may cost up to {more:,.6g} {CAPS[short]}, with {spent:,.6g} spent, "
                f"and the cap is {self._caps[short]:,.6g}; raise budget.{option}, or add --beyond-caps"
            )

    def can_afford(self, total: Cost) -> bool:
        """Whether the caps bear the verdicts when so much is spent before the first."""
        self._spent = total.plus(self._waiting)
        return self._short(self._spent.plus(self._wanted)) is None

    def retry_check(self, record: TrialRecord) -> Again | None:
        """A callback that counts a lost reply, and returns whether the caps allow a retry; None if no cap counts it."""

        async def may_retry() -> bool:
            self._lost += 1
            looks = self._store.reader.most_looks() or None
            self._store.commit(CommitBatch(events=[AnswersLost(record.model, 0, *self._vote, verdicts=1, looks=looks)]))
            lost = self._vote.times(self._lost)
            return self._short(self._spent.plus(self._wanted).plus(lost)) is None

        return may_retry if self._is_capped else None

    def ask(self, answers: int) -> None:
        """Enter verdicts that are asked for next."""
        self._enter(answers, self._verdict.times(answers))

    def enter_verdicts(self, verdicts: Sequence[Regrade]) -> None:
        """Replace the reserved cost of verdicts by what they have cost; raises `Unavailable` if that is more."""
        used = reduce(Cost.plus, (one.cost for one in verdicts), NO_COST)
        self._enter(0, used.plus(self._verdict.times(-len(verdicts))))
        for one in () if self._beyond_caps else verdicts:
            require_kept(one, self._verdict, self._vote)

    def taken_back(self) -> VerdictsAsked:
        """The event that comes with the grades: what they have cost is stored with each from now on."""
        return VerdictsAsked(0, *self._entered.times(-1))

    def _enter(self, answers: int, cost: Cost) -> None:
        self._entered = self._entered.plus(cost)
        self._store.commit(CommitBatch(events=[VerdictsAsked(answers, *cost)]))

    def _short(self, total: Cost) -> str | None:
        """The first cap that this would exceed."""
        return next((name for name, cap in self._caps.items() if getattr(total, name) > cap), None)


def _in_flight(prepared: PreparedRun, reader: RunReader) -> Cost:
    """Worst cost of the requests that were in flight when an earlier start was killed."""
    each = zip(prepared.config.models, prepared.plan.bench.worst_cost, strict=True)
    return in_flight_cost(reader, {model.name: lost_cost(model, worst) for model, worst in each})
