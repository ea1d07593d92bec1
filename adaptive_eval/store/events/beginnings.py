"""What a run has before its first round: trials of logs, outcomes of earlier runs, labels, a first part of its own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from adaptive_eval.store.events.event import Event, Json, where_known


@dataclass(frozen=True, slots=True)
class TrialsImported(Event):
    """The run begins with trials that were taken from logs."""

    KIND: ClassVar[str] = "imported"
    trials: int = 0
    files: tuple[str, ...] = ()
    without_text: int = 0
    """Of which only the grade is known."""
    missing: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """By model and reason: records of the logs that are no trials."""
    graded_by: str | None = None
    """The grader that graded them anew; None where their own grades were taken."""
    repeated: Mapping[str, int] = field(default_factory=dict)
    """By model: answers of the logs that repeat another one, and are not counted beside it."""
    repeats_count: bool = False
    """Whether answers that repeat another one are counted too, since the user has said that they are samples."""
    seeds_match: bool = False
    """Whether all have the seeds that the configuration gives them: the run goes on as if it had asked them."""
    arguments: tuple[str, ...] | None = where_known()
    """Those of `adaptive-eval run` that go on with it."""


@dataclass(frozen=True, slots=True)
class PriorTaken(Event):
    """Outcomes of an earlier run, or of greedy answers, count as R0 from now on."""

    KIND: ClassVar[str] = "prior"
    section: Json = field(default_factory=dict)
    """Of the configuration, which asks for it."""
    run: str = ""
    """The earlier run's name."""
    outcomes: Mapping[str, Mapping[str, Sequence[int]]] = field(default_factory=dict)
    """Categories by model of this run and question."""
    greedy: bool = False
    """Whether they are of greedy answers, which this run has asked for and pays for: what these have cost by now
    follows."""
    trials: int = 0
    tokens: int = 0
    usd: float = 0.0
    gpu_seconds: float = 0.0
    """Of requests."""
    counted_gpu_seconds: float = 0.0
    """What a cap on GPU time counts of it."""
    seconds: float = 0.0
    """For how long they were asked for."""
    sampled_otherwise: Sequence[str] = ()
    """Sampling settings of the earlier run that differ from those of this one, as `model.key: there → here`."""

    def body(self) -> dict[str, object]:
        whole = Event.body(self)
        if not self.greedy:
            whole = {name: whole[name] for name in ("section", "run", "outcomes", "sampled_otherwise")}
        return {name: value for name, value in whole.items() if name != "sampled_otherwise" or value}


@dataclass(frozen=True, slots=True)
class LabelsTaken(Event):
    """Labels of a file lie beside the run from now on; versions wrote it whose configuration could name that file."""

    KIND: ClassVar[str] = "labels"
    labels: int = 0
    file: str = ""


@dataclass(frozen=True, slots=True)
class GreedyBegun(Event):
    """Greedy answers are asked for before anything else; told, not stored."""

    KIND: ClassVar[str] = "greedy"
    models: int = 0
    questions: int = 0


@dataclass(frozen=True, slots=True)
class OpponentBegun(Event):
    """The model that a judge compares all others with is asked before them; told, not stored."""

    KIND: ClassVar[str] = "opponent_begun"
    model: str
    trials: int = 0
    """Answers to each question."""
    questions: int = 0


@dataclass(frozen=True, slots=True)
class OpponentAnswered(Event):
    """The answers that all others are compared with are there, and a part of the questions from now on; with what they
    have cost."""

    KIND: ClassVar[str] = "opponent"
    model: str
    least: int = 0
    """Answers to a question, at least."""
    most: int = 0
    trials: int = 0
    tokens: int = 0
    usd: float = 0.0
    gpu_seconds: float = 0.0
    """Of requests."""
    counted_gpu_seconds: float = 0.0
    """What a cap on GPU time counts of it."""
    seconds: float = 0.0
    """For how long they were asked for."""


@dataclass(frozen=True, slots=True)
class OutcomesRecorded(Event):
    """All outcomes of a model that an earlier run has; they stand in this one, and the model is never asked."""

    KIND: ClassVar[str] = "recorded"
    model: str
    """Of this run."""
    directory: str = ""
    """Of the earlier run, as the configuration names it."""
    run: str = ""
    """The name of the run that has asked the model."""
    called: str = ""
    """The model's name there."""
    counts: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """By question, how many of its answers had each category."""
    ungraded: Mapping[str, int] = field(default_factory=dict)
    """By question, how many had none."""
    meaning: Json = field(default_factory=dict)
    """How it was asked and graded there."""
    digest: str = ""
    """Of all this but the names and the directory."""
