"""Events of grading: failures, regrading, fitted thresholds, and the cost of judges and verifiers."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from adaptive_eval.notes.event import Event, Json, optional_field
from adaptive_eval.notes.lives import Override, with_overrides


@dataclass(frozen=True, slots=True)
class AnswerUngraded(Event, kind="ungraded"):
    """The grader failed on an answer of a model for the first time since the latest start; the run goes on."""

    model: str
    question: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class RegradingBegun(Event, kind="regrading"):
    """Ungraded answers are graded again before the run goes on; reported, not stored."""

    trials: int = 0
    late: bool | None = optional_field()
    """Whether the time limit is reached, so that judges are not asked."""


@dataclass(frozen=True, slots=True)
class TrialsRegraded(Event, kind="regraded"):
    """Trials were graded again."""

    trials: int = 0
    so_far: int | None = optional_field()
    """When a run is resumed: the progress over all groups of this start."""
    of: int | None = optional_field()
    short_caps: Mapping[str, float] | None = optional_field()
    """When a run is resumed: the caps, by currency, that do not cover the verdicts on all of these, with the totals
    that would. None if they do."""
    answers: int | None = optional_field()
    """When a whole run is regraded: the number of answers."""
    changed: int | None = optional_field()
    """How many answers have a different category now."""
    failed: int | None = optional_field()
    """How many answers have no grade now; when a run is resumed, of those `so_far`."""
    opening: int | None = optional_field()
    """The id of the last trial that a rule requested without seeing these grades: the trials of round 0 up to it are
    those of the first look. None if looks are taken as before."""
    arguments: tuple[str, ...] | None = optional_field()
    """The arguments of `adaptive-eval run` that continue with these grades."""
    overrides: Mapping[str, Override] | None = optional_field()
    """Settings that override the file at later starts, by key; None when a run is resumed."""

    def body(self) -> dict[str, object]:
        # not super(): the decorator replaces a class with slots
        return with_overrides(Event.body(self), self.overrides)


@dataclass(frozen=True, slots=True)
class GraderChosen(Event, kind="grader_chosen"):
    """A grader was found that reproduces the grades of the imported logs on a sample."""

    grader: str
    compared: int = 0
    """Stored answers in that sample."""


@dataclass(frozen=True, slots=True)
class ThresholdsFrozen(Event, kind="thresholds"):
    """The thresholds and typical lengths of the rubric were fitted, and are fixed from now on."""

    section: Json = field(default_factory=dict)
    """The rubric section of the configuration."""
    run: str = ""
    """The name of the run whose trials they were fitted on."""
    values: Mapping[str, float] = field(default_factory=dict)
    rest_on: Mapping[str, int] = field(default_factory=dict)
    """Number of trials on which each was fitted."""
    medians: Mapping[str, float] = field(default_factory=dict)
    """Median tokens of an answer to each question, if the rubric uses `length_ratio`."""
    models: Mapping[str, int] = field(default_factory=dict)
    """Number of trials of each model among those used for fitting."""


@dataclass(frozen=True, slots=True)
class BaselineAsked(Event, kind="baseline"):
    """A verifier has returned the label scores of a request without content, which is sent once per run."""

    asked_as: str = ""
    """Digest of everything that the scores depend on."""
    scores: tuple[float, ...] = ()
    """Log-probabilities of the labels."""
    unseen: tuple[int, ...] = ()
    """Indices of the labels for which only a bound is known."""
