"""How answers were graded: without success, anew, by thresholds that were fitted, by a judge that costs something."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from adaptive_eval.store.events.event import Event, Json, where_known


@dataclass(frozen=True, slots=True)
class AnswerUngraded(Event):
    """The grader failed on an answer of a model, for the first time since the run was started; the run goes on."""

    KIND: ClassVar[str] = "ungraded"
    model: str
    question: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class RegradingBegun(Event):
    """Answers without a grade are graded once more before the run goes on; told, not stored."""

    KIND: ClassVar[str] = "regrading"
    trials: int = 0


@dataclass(frozen=True, slots=True)
class TrialsRegraded(Event):
    """Trials were graded again."""

    KIND: ClassVar[str] = "regraded"
    trials: int = 0
    so_far: int | None = where_known()
    """When a run goes on, over the groups of this start."""
    of: int | None = where_known()
    answers: int | None = where_known()
    """When all of a run are graded by another grader."""
    changed: int | None = where_known()
    """How many of these answers have another category than before."""
    failed: int | None = where_known()
    """How many answers have no grade now."""
    opening: int | None = where_known()
    """Of the trials up to this one, those of round 0 are what the first look has: a rule that did not see these grades
    has asked for them. None where looks are taken as before."""
    arguments: tuple[str, ...] | None = where_known()
    """Those of `adaptive-eval run` that go on by these grades."""


@dataclass(frozen=True, slots=True)
class GraderChosen(Event):
    """A grader that gives the imported trials the grades of their logs, as far as a sample shows."""

    KIND: ClassVar[str] = "grader_chosen"
    grader: str
    compared: int = 0
    """Stored answers that it has graded."""


@dataclass(frozen=True, slots=True)
class ThresholdsFrozen(Event):
    """Percentiles that the rubric compares with, and lengths that are usual: fitted once, they move no more."""

    KIND: ClassVar[str] = "thresholds"
    section: Json = field(default_factory=dict)
    """The rubric, as the configuration has it."""
    run: str | None = where_known()
    """The earlier run that they come from; None: this run's opening."""
    values: Mapping[str, float] = field(default_factory=dict)
    rest_on: Mapping[str, int] = field(default_factory=dict)
    """Trials that each was fitted on."""
    medians: Mapping[str, float] = field(default_factory=dict)
    """Tokens of an answer to each question, where the rubric looks at `length_ratio`."""
    models: Mapping[str, int] = field(default_factory=dict)
    """Trials of each model among those that all were fitted on."""


@dataclass(frozen=True, slots=True)
class BaselineAsked(Event):
    """A verifier is asked for the label scores of a request without content, or has given them: once for a run.

    Asking counts at its worst, and the scores take back what they did not use of it.
    """

    KIND: ClassVar[str] = "baseline"
    asked_as: str = ""
    """What the scores depend on, as a digest."""
    scores: tuple[float, ...] = ()
    """Log-probabilities of the labels; empty where they are asked for."""
    unseen: tuple[int, ...] = ()
    """Labels of which only a bound is known, by number."""
    tokens: int = 0
    usd: float = 0.0
    gpu_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class VerdictsAsked(Event):
    """A reservation by `regrade` for the verdicts of a judge, at its worst; or, negative, the part that was not used.

    When the grades are stored with their cost, the rest is taken back. So the sum of these events is what was spent on
    grades that never became those of the run.
    """

    KIND: ClassVar[str] = "verdicts_asked"
    answers: int = 0
    tokens: int = 0
    usd: float = 0.0
    gpu_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class VerdictsWasted(Event):
    """Verdicts on stored answers that were paid for and gave no grade of today.

    Their replies could not be read or were lost, or other verdicts took their place. The trials include their cost.
    """

    KIND: ClassVar[str] = "verdicts_in_vain"
    model: str
    verdicts: int = 0
    tokens: int = 0
    usd: float = 0.0
    gpu_seconds: float = 0.0
