"""Running sums over committed trials, for the display, warnings and the report; no decision depends on them."""

from collections import Counter
from dataclasses import dataclass, field, replace

from adaptive_eval.store import StoredOutcome
from adaptive_eval.store.alarms import SharedTraits
from adaptive_eval.store.compact import NumberSet
from adaptive_eval.store.records import NO_GRADING, GradingUse
from adaptive_eval.store.repeats import SHORTEST_REPEAT, AnswerPairs


@dataclass(slots=True)
class TrialUsage:
    """Sums over the committed trials of one model."""

    trials: int = 0
    ungraded: int = 0
    repeats: int = 0
    """Long answers that are identical to an earlier one to the same question."""
    tokens: int = 0
    usd: float = 0.0
    gpu_seconds: float = 0.0
    grading: GradingUse = NO_GRADING
    """Usage of a judge or a verifier, included in the above."""
    signals: Counter[str] = field(default_factory=Counter)
    """Number of answers with each signal: truncated, empty, timed_out ..."""
    answers: SharedTraits = field(default_factory=SharedTraits)
    """Traits that all answers may share."""
    pairs: AnswerPairs = field(default_factory=AnswerPairs)
    """Pairs of answers, to find repeats."""
    _seen: NumberSet = field(default_factory=NumberSet)

    def add(self, outcome: StoredOutcome) -> None:
        """Count one more trial."""
        self.spend(outcome)
        self.judge(outcome)

    def spend(self, outcome: StoredOutcome, times: int = 1) -> None:
        """Count the usage of one more answer, whatever its grade; with -1 take it back."""
        self.trials += times
        self.tokens += times * outcome.cost.tokens
        self.usd += times * outcome.cost.usd
        self.gpu_seconds += times * outcome.cost.gpu_seconds
        if outcome.flags:
            self.signals.update(dict.fromkeys(outcome.flags.split(), times))

    def judge(self, outcome: StoredOutcome) -> None:
        """Count the grade of an answer, unless it waits for thresholds."""
        if outcome.awaits_thresholds:
            return
        self.ungraded += outcome.category is None
        self.answers.add(outcome)
        self.pairs.add(outcome)
        if outcome.digest is not None and outcome.size >= SHORTEST_REPEAT:
            self.repeats += self._seen.add(hash((outcome.question, outcome.digest)))

    def copy(self) -> "TrialUsage":
        """A copy of the current sums, to which no trials may be added."""
        return replace(
            self, signals=self.signals.copy(), answers=self.answers.copy(), pairs=self.pairs.copy(), _seen=NumberSet()
        )
