"""Events before the first round: imported trials, outcomes of earlier runs, and labels."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from adaptive_eval.notes.event import Event, Json, optional_field


@dataclass(frozen=True, slots=True)
class TrialsImported(Event, kind="imported"):
    """The run begins with trials imported from logs."""

    trials: int = 0
    files: tuple[str, ...] = ()
    without_text: int = 0
    """Number of imported trials that have only a grade."""
    missing: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """By model and reason: records of the logs that are not trials."""
    graded_by: str | None = None
    """The grader that graded them again; None if the grades of the logs were kept."""
    repeated: Mapping[str, int] = field(default_factory=dict)
    """By model: answers of the logs that repeat another one and are omitted."""
    repeats_count: bool = False
    """Whether repeated answers count too, since the user has confirmed that they are samples."""
    seeds_match: bool = False
    """Whether all have the seeds of the configuration, so that the run continues as if it had requested them."""
    arguments: tuple[str, ...] | None = optional_field()
    """The arguments of `adaptive-eval run` that resume it."""
    lacks_questions: bool | None = optional_field()
    """True if the logs lack what it takes to ask the models again: only another configuration can request trials."""

    @property
    def has_unchecked_grades(self) -> bool:
        """Whether grades came without texts that a grader could have compared."""
        return self.without_text > 0 and not self.seeds_match


@dataclass(frozen=True, slots=True)
class PriorTaken(Event, kind="prior"):
    """Outcomes of another run count as R0 from now on."""

    section: Json = field(default_factory=dict)
    """The section of the configuration that asks for it."""
    run: str = ""
    """The other run's name."""
    outcomes: Mapping[str, Mapping[str, Sequence[int]]] = field(default_factory=dict)
    """Categories by model of this run and question."""
    sampled_otherwise: Sequence[str] = ()
    """Sampling settings of the other run that differ from those of this one, as `model.key: there → here`."""
    kinds: Mapping[str, Mapping[str, Sequence[int]]] | None = optional_field()
    """The same for the kinds of these answers, as bits of `AnswerKind`, where one is not plain text."""
    corrected: Sequence[str] | None = optional_field()
    """Models of this run whose scores labels correct in the other one; here their grades count."""
    alarms: Mapping[str, str] | None = optional_field()
    """By model of this run: the alarm about its answers in the other one, which let them count."""
    same_seeds: bool | None = optional_field()
    """True if a model was asked there with the seeds and settings that it has here."""

    def body(self) -> dict[str, object]:
        return {name: value for name, value in Event.body(self).items() if name != "sampled_otherwise" or value}


@dataclass(frozen=True, slots=True)
class OutcomesRecorded(Event, kind="recorded"):
    """All outcomes that an earlier run has for a model; they count in this run, and the model is never asked."""

    model: str
    """Its name in this run."""
    directory: str = ""
    """Directory of the earlier run, as the configuration names it."""
    run: str = ""
    """The name of the earlier run."""
    called: str = ""
    """The model's name in that run."""
    outcomes: Mapping[str, Sequence[int | None]] = field(default_factory=dict)
    """By question, the category of each answer, in the order of their numbers; None: it has no grade."""
    meaning: Json = field(default_factory=dict)
    """The settings with which its answers were requested and graded there."""
    digest: str = ""
    """Digest of all this except the names and the directory."""
    kinds: Mapping[str, Sequence[int]] | None = optional_field()
    """The same for the kinds of these answers, as bits of `AnswerKind`, where one is not plain text."""
    shared_seed: int | None = optional_field()
    """The seed of the run that asked, if its seeds are the same for all models and places are trial numbers: these
    trials can then be compared with those of other models one by one."""
    corrected: bool | None = optional_field()
    """True if labels correct its score in the earlier run; here its grades count."""
    alarm: str | None = optional_field()
    """The alarm about its answers in the run that asked it, which let them count."""


def has_foreign_trials(events: Iterable[Event]) -> bool:
    """Whether trials were imported whose seeds are unknown or not those of the configuration."""
    return any(isinstance(event, TrialsImported) and not event.seeds_match for event in events)


def counted_runs(events: Iterable[Event]) -> list[PriorTaken | OutcomesRecorded]:
    """What a run has counted of others, also of models and runs that it no longer has. Only their grades are known, so
    that the run's own answers cannot be graded otherwise."""
    return [event for event in events if isinstance(event, PriorTaken | OutcomesRecorded)]
