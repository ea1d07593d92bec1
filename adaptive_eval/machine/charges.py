"""The account of a run: what was paid, what is reserved, and what was charged for nothing.

The costs of a trial stand in its row: reserved while it is in flight or awaits its verdict, paid afterwards. A `Charge`
is any cost without a row: answers and verdicts that were lost, discarded or of no use. Caps hold because `total`, which
counts reserves at their worst, never exceeds them when a request is sent.

USD and GPU seconds are summed in whole trillionths, so that a reserve that is taken back leaves nothing behind.
"""

from collections import defaultdict
from enum import StrEnum
from typing import NamedTuple

from adaptive_eval.core.rounds import PER_UNIT
from adaptive_eval.core.types import NO_COST, Cost
from adaptive_eval.machine.trial import DONE, HELD, JUDGING, UNGRADED, Trial

NO_MODEL = -1
"""The model of a charge that belongs to none, such as the baseline's verdicts."""


class ChargeKind(StrEnum):
    """Why something was charged that no trial has."""

    LOST = "lost"
    """It was lost on the way, and may have been generated."""
    KILLED = "killed"
    """It was in flight when a start was killed."""
    WASTED = "wasted"
    """It came, and is of no use; the cost is what it used."""
    BASELINE = "baseline"
    """A verifier was asked before any answer: its worst cost, and less what it did not use."""
    REGRADE = "regrade"
    """Verdicts of a regrade, which are counted with the answers once their grades are stored."""
    DISCARDED = "discarded"
    """It was stored, and is asked for again."""


class Charge(NamedTuple):
    """A cost that belongs to no stored trial."""

    kind: ChargeKind
    what: str
    """"answer" or "verdict"."""
    model: int
    number: int
    """How many answers or verdicts."""
    cost: Cost
    estimated: bool = False
    """Whether no cap counts it: then it is the mean cost of answers."""


class Sums:
    """Exact sums of costs."""

    __slots__ = ("gpu_seconds", "tokens", "usd")

    def __init__(self) -> None:
        self.tokens = self.usd = self.gpu_seconds = 0

    def add(self, cost: Cost, times: int = 1) -> None:
        """Add a cost `times` times."""
        tokens, usd, gpu_seconds = cost
        self.tokens += times * tokens
        if usd:
            self.usd += times * round(usd * PER_UNIT)
        if gpu_seconds:
            self.gpu_seconds += times * round(gpu_seconds * PER_UNIT)

    @property
    def cost(self) -> Cost:
        """The sum."""
        return Cost(self.tokens, self.usd / PER_UNIT, self.gpu_seconds / PER_UNIT)


class ModelAccount:
    """Sums of one model."""

    __slots__ = ("answers", "charged", "held", "largest", "paid", "replaced", "verdicts")

    def __init__(self) -> None:
        self.answers = 0
        """Stored answers."""
        self.paid, self.held, self.charged, self.verdicts = Sums(), Sums(), Sums(), Sums()
        """`verdicts` is the part of `paid` that grades have cost."""
        self.replaced = Sums()
        """The part of `charged` for verdicts on answers that were judged again."""
        self.largest = NO_COST
        """The largest tokens, USD and GPU seconds of an answer."""

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
        self._all = Sums()

    def enter(self, trial: Trial, times: int = 1) -> None:
        """Add a trial in the state it is in, or remove it with -1."""
        state = trial.state
        if state in HELD:
            held = self.models[trial.model].held
            held.add(trial.cost, times)
            held.add(trial.verdict, times)
        elif state is JUDGING or state is DONE or state is UNGRADED:
            one = self.models[trial.model]
            one.answers += times
            one.paid.add(trial.cost, times)
            if state is JUDGING:
                one.held.add(trial.verdict, times)
            else:
                one.paid.add(trial.verdict, times)
                one.verdicts.add(trial.verdict, times)
            cost, largest = trial.cost, one.largest
            if cost.tokens > largest.tokens or cost.usd > largest.usd or cost.gpu_seconds > largest.gpu_seconds:
                one.largest = Cost(
                    max(cost.tokens, largest.tokens),
                    max(cost.usd, largest.usd),
                    max(cost.gpu_seconds, largest.gpu_seconds),
                )
        else:
            return
        self._all.add(trial.cost, times)
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
        """Add what was spent before, of which only the sum matters."""
        self._all.add(cost)

    @property
    def total(self) -> Cost:
        """What caps count: paid, reserved and charged."""
        return self._all.cost

    def mean_cost(self, model: int) -> Cost:
        """Mean cost of a model's answers, or of all if it has none."""
        own = self.models[model]
        if own.answers:
            return own.mean
        answers = sum(one.answers for one in self.models.values())
        if not answers:
            return NO_COST
        means = [(one.answers, one.mean) for one in self.models.values() if one.answers]
        parts = [[number * part for part in mean] for number, mean in means]
        tokens, usd, gpu_seconds = (sum(column) / answers for column in zip(*parts, strict=True))
        return Cost(round(tokens), usd, gpu_seconds)
