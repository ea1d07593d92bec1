"""The account of a run: paid costs, reserves, and charges without a result.

The costs of a trial are in its row: reserved while it is in flight or awaits its verdict, paid afterwards. A `Charge`
is any cost without a row: answers and verdicts that were lost, discarded or useless. Caps hold because `total`, which
counts reserves at their maximum, never exceeds them when a request is sent.

USD and GPU seconds are summed in whole trillionths, so that a released reserve leaves no remainder.
"""

from collections import defaultdict
from collections.abc import Iterable
from enum import StrEnum
from functools import reduce
from typing import NamedTuple

from adaptive_eval.core.rounds import WholeSums
from adaptive_eval.core.types import NO_COST, Cost
from adaptive_eval.machine.trial import DONE, HELD, JUDGING, UNGRADED, Trial

NO_MODEL = -1
"""Model of a charge that belongs to no model, such as the baseline's verdicts."""


def sum_costs(costs: Iterable[Cost]) -> Cost:
    """The sum of costs, in their order."""
    return reduce(Cost.plus, costs, NO_COST)


class ChargeKind(StrEnum):
    """Reason for a charge without a trial."""

    LOST = "lost"
    """It was lost on the way, and may have been generated."""
    KILLED = "killed"
    """It was in flight when a start was killed, or left to a batch service that the run no longer uses."""
    WASTED = "wasted"
    """It arrived but is useless; the cost is its actual usage."""
    BASELINE = "baseline"
    """The baseline request of a verifier: its maximum cost, less the part that it did not use."""
    REGRADE = "regrade"
    """Verdicts of a regrade, which are counted with the answers once their grades are stored."""
    DISCARDED = "discarded"
    """It was stored, was discarded after an alarm, and is requested again."""
    UNANSWERED = "unanswered"
    """It failed each time, or came too late, and is requested again."""


class Charge(NamedTuple):
    """A cost that belongs to no stored trial."""

    kind: ChargeKind
    what: str
    """"answer" or "verdict"."""
    model: int
    number: int
    """Number of answers or verdicts."""
    cost: Cost
    estimated: bool = False
    """Whether no cap counts it: then it is the mean cost of answers."""


def is_verdict_reserved(trial: Trial) -> bool:
    """Whether costs are reserved for a verdict on an answer."""
    return trial.state is JUDGING and trial.verdict != NO_COST


def earlier_verdict(trial: Trial, *, was_asked: bool) -> Charge | None:
    """The charge for an earlier verdict on an answer that is graded again; None if there is none. `was_asked`: whether
    a killed start may have asked a judge for one that is reserved."""
    is_reserved = is_verdict_reserved(trial)
    if trial.verdict == NO_COST or (is_reserved and not was_asked):
        return None
    return Charge(ChargeKind.KILLED if is_reserved else ChargeKind.WASTED, "verdict", trial.model, 1, trial.verdict)


class ModelAccount:
    """Sums of one model."""

    __slots__ = ("answers", "charged", "held", "largest", "paid", "replaced", "verdicts")

    def __init__(self) -> None:
        self.answers = 0
        """Stored answers."""
        self.paid, self.held, self.charged, self.verdicts = WholeSums(), WholeSums(), WholeSums(), WholeSums()
        """`verdicts` is the part of `paid` for grades."""
        self.replaced = WholeSums()
        """The part of `charged` for verdicts on answers that were judged again."""
        self.largest = NO_COST
        """Maximum tokens, USD and GPU seconds of an answer."""

    def note_largest(self, cost: Cost) -> None:
        """An answer has cost this."""
        largest = self.largest
        if cost.tokens > largest.tokens or cost.usd > largest.usd or cost.gpu_seconds > largest.gpu_seconds:
            self.largest = Cost(
                max(cost.tokens, largest.tokens),
                max(cost.usd, largest.usd),
                max(cost.gpu_seconds, largest.gpu_seconds),
            )

    @property
    def mean(self) -> Cost:
        """Mean cost of an answer without its grade."""
        if not self.answers:
            return NO_COST
        paid, verdicts = self.paid.cost, self.verdicts.cost
        tokens = round((paid.tokens - verdicts.tokens) / self.answers)
        return Cost(
            tokens, (paid.usd - verdicts.usd) / self.answers, (paid.gpu_seconds - verdicts.gpu_seconds) / self.answers
        )


class Account:
    """All sums of a run, by model; `enter` and `charge` are the only places where they change."""

    def __init__(self) -> None:
        self.models: defaultdict[int, ModelAccount] = defaultdict(ModelAccount)
        self._all = WholeSums()

    def enter(self, trial: Trial, times: int = 1) -> None:
        """Add a trial in its current state, or remove it with `times` = -1."""
        state = trial.state
        if state in HELD:
            if trial.cost is NO_COST and trial.verdict is NO_COST:  # no cap counts it
                return
            held = self.models[trial.model].held
            held.add(trial.cost, times)
            held.add(trial.verdict, times)
        elif state is JUDGING or state is DONE or state is UNGRADED:
            account = self.models[trial.model]
            account.answers += times
            account.paid.add(trial.cost, times)
            if trial.verdict is NO_COST:
                pass
            elif state is JUDGING:
                account.held.add(trial.verdict, times)
            else:
                account.paid.add(trial.verdict, times)
                account.verdicts.add(trial.verdict, times)
            account.note_largest(trial.cost)
        else:
            return
        self._all.add(trial.cost, times)
        if trial.verdict is not NO_COST:
            self._all.add(trial.verdict, times)

    def charge(self, charge: Charge) -> None:
        """Add a charge."""
        model = self.models[charge.model]
        model.charged.add(charge.cost)
        if charge.kind is ChargeKind.WASTED and charge.what == "verdict":
            model.replaced.add(charge.cost)
        if not charge.estimated:
            self._all.add(charge.cost)

    def add_outside(self, cost: Cost) -> None:
        """Add an earlier cost, of which only the sum matters."""
        self._all.add(cost)

    @property
    def total(self) -> Cost:
        """The costs that caps count: paid, reserved and charged."""
        return self._all.cost

    def mean_cost(self, model: int) -> Cost:
        """Mean cost of a model's answers, or of all answers if it has none."""
        model_account = self.models[model]
        if model_account.answers:
            return model_account.mean
        answers = sum(account.answers for account in self.models.values())
        if not answers:
            return NO_COST
        means = [(account.answers, account.mean) for account in self.models.values() if account.answers]
        weighted = [[number * amount for amount in mean] for number, mean in means]
        tokens, usd, gpu_seconds = (sum(column) / answers for column in zip(*weighted, strict=True))
        return Cost(round(tokens), usd, gpu_seconds)
