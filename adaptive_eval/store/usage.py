"""Running sums of what was committed, for the display, the warnings and the report: nothing that decides anything."""

from collections import Counter
from dataclasses import dataclass, field, replace

from adaptive_eval.store import StoredOutcome
from adaptive_eval.store.alarms import SharedTraits
from adaptive_eval.store.compact import NumberSet
from adaptive_eval.store.records import NO_GRADING, GradingUse
from adaptive_eval.store.repeats import SHORTEST_REPEAT, AnswerPairs


@dataclass(slots=True)
class TrialUsage:
    """The committed trials of one model."""

    trials: int = 0
    ungraded: int = 0
    repeats: int = 0
    """Long answers that equal, word for word, an earlier one to the same question."""
    tokens: int = 0
    usd: float = 0.0
    gpu_seconds: float = 0.0
    grading: GradingUse = NO_GRADING
    """Usage of grades by a judge or a verifier: part of the above."""
    signals: Counter[str] = field(default_factory=Counter)
    """Signals of the answers: truncated, empty, timed_out ..."""
    answers: SharedTraits = field(default_factory=SharedTraits)
    """Traits that all of them may share."""
    pairs: AnswerPairs = field(default_factory=AnswerPairs)
    """Whether answers come again."""
    _seen: NumberSet = field(default_factory=NumberSet)

    def add(self, outcome: StoredOutcome) -> None:
        """Count one more trial."""
        self.spend(outcome)
        self.judge(outcome)

    def spend(self, outcome: StoredOutcome) -> None:
        """Count the usage of one more answer, whatever its grade."""
        self.trials += 1
        self.tokens += outcome.cost.tokens
        self.usd += outcome.cost.usd
        self.gpu_seconds += outcome.cost.gpu_seconds
        if outcome.flags:
            self.signals.update(outcome.flags.split())

    def judge(self, outcome: StoredOutcome) -> None:
        """Count its grade, if it has one."""
        if outcome.awaits_thresholds:
            return
        self.ungraded += outcome.category is None
        self.answers.add(outcome)
        self.pairs.add(outcome)
        if outcome.digest is not None and outcome.size >= SHORTEST_REPEAT:
            self.repeats += self._seen.add(hash((outcome.question, outcome.digest)))

    def copy(self) -> "TrialUsage":
        """The sums as they are now; the copy is not counted on with."""
        return replace(
            self, signals=self.signals.copy(), answers=self.answers.copy(), pairs=self.pairs.copy(), _seen=NumberSet()
        )
