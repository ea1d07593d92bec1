"""The effect of people's labels on a run, as stored in results; `label_effect` computes it."""

from dataclasses import dataclass

MIN_LABELS = 20
"""Fewest labels of a model, in each benchmark, for which its score is corrected."""


@dataclass(frozen=True, slots=True)
class LabelledModel:
    """One model with its labels, and its score by the grades alone."""

    name: str
    trials: int
    labels: int
    confusion: tuple[tuple[int, ...], ...]
    """Counts[label][grade]; the last column counts answers that the grader gave no level."""
    score: float | None
    """By the grades of the run's own answers alone, without R0."""
    sigma: float | None
    corrected: float | None = None
    """The corrected score, which is that of results; None below `MIN_LABELS` labels."""
    corrected_sigma: float | None = None
    shift: float | None = None
    """Shift of the score by its labels."""
    shift_sigma: float | None = None

    @property
    def disagreements(self) -> int:
        """Number of labels that differ from the grade."""
        return self.labels - sum(row[at] for at, row in enumerate(self.confusion))


@dataclass(frozen=True, slots=True)
class LabelledRun:
    """A run with its labels, which correct the scores, the order and the verdicts of its results."""

    digest: str
    """Digest of the file of labels."""
    grader: str
    levels: tuple[str, ...] = ()
    models: tuple[LabelledModel, ...] = ()
    """In the order of their scores by the grades alone, best first."""
    differ: bool = False
    """Whether the grader's error differs between models."""
    left_out: int = 0
    """Labels of answers that no complete round of the run has, such as those that `--ask-again` has discarded."""
    foreign: int = 0
    """Labels that the grader does not have, such as those from before a regrade."""
    foreign_names: tuple[str, ...] = ()
    problem: str | None = None
    """Why the labels say nothing about this run; None if they do."""
    alone: bool = False
    """Whether scores leave out R0, whose outcomes have no labels."""
    by_grades: str | None = None
    """The finding by the grades alone; None if no score is corrected."""

    @property
    def labels(self) -> int:
        """Number of labels that count."""
        return sum(model.labels for model in self.models)

    @property
    def corrected(self) -> frozenset[str]:
        """Models whose score is corrected."""
        return frozenset(model.name for model in self.models if model.corrected is not None)
