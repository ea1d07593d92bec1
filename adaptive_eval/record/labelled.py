"""What labels of people say of a run, for reports; `adaptive_eval.labels` finds it out."""

from dataclasses import dataclass

from adaptive_eval.core.result import TWO_SIDED_95

LABELS_FILE = "labels.jsonl"
"""The labels of a run, in its directory."""
MIN_LABELS = 20
"""Fewest labels of a model for which its score is corrected."""


@dataclass(frozen=True, slots=True)
class LabelledModel:
    """One model with its labels."""

    name: str
    trials: int
    labels: int
    confusion: tuple[tuple[int, ...], ...]
    """Counts[label][grade]; the last column counts answers that the grader gave no level."""
    score: float | None
    sigma: float | None
    corrected: float | None = None
    """The corrected score; None below `MIN_LABELS` labels."""
    corrected_sigma: float | None = None
    shift: float | None = None
    """Shift of the score by its labels."""
    shift_sigma: float | None = None

    @property
    def disagreements(self) -> int:
        """Number of labels that differ from the grade."""
        return self.labels - sum(row[at] for at, row in enumerate(self.confusion))


@dataclass(frozen=True, slots=True)
class LabelledPair:
    """Two models with corrected scores; `ahead` has the better uncorrected score."""

    ahead: str
    behind: str
    difference: float
    sigma: float
    """Standard error of the difference, including both corrections."""

    @property
    def corrected_order(self) -> str:
        """The order by corrected scores: the same, the other way round, or open."""
        if abs(self.difference) <= TWO_SIDED_95 * self.sigma:
            return "open"
        return "the same order" if self.difference > 0 else "the other way round"


@dataclass(frozen=True, slots=True)
class LabelledRun:
    """A run with its labels."""

    run: str
    grader: str
    levels: tuple[str, ...] = ()
    weights: tuple[float, ...] = ()
    models: tuple[LabelledModel, ...] = ()
    pairs: tuple[LabelledPair, ...] = ()
    """Pairs of corrected models."""
    differ: bool = False
    """Whether the grader's error differs between models."""
    left_out: int = 0
    """Labels of answers that no complete round of the run has."""
    problem: str | None = None
    """Why the labels say nothing about this run; None if they do."""
    alone: bool = False
    """Whether scores leave out R0, whose outcomes have no labels."""
