"""What can happen to a run, apart from trials and looks: one class a kind, with its facts as fields.

An event is stored as a kind and a JSON object with its fields. A field that an earlier version did not write has its
default, one that a later version writes besides is passed over, and so is what a kind means that only a later version
knows: who reads it gets an `UnknownEvent`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache, partial
from typing import Any, ClassVar, NamedTuple, TypeVar

from pydantic import TypeAdapter, ValidationError

from adaptive_eval.core.types import Cause, Reason
from adaptive_eval.errors import ExitCode, StoreError

Json = Mapping[str, object]
LEFT_OUT = "left out where it is None"


class Change(NamedTuple):
    """One setting that differs."""

    path: str
    was: object = None
    now: object = None

    def __str__(self) -> str:
        return f"{self.path}: {_shown(self.was)} → {_shown(self.now)}"


SHOWN_CHARACTERS = 80


def _shown(value: object) -> str:
    if value is None:
        return "not set"
    text = repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 1]}…"


def _where_known() -> Any:
    """A field that is not stored where there is nothing to say."""
    return field(default=None, metadata={LEFT_OUT: True})


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to the run."""

    KIND: ClassVar[str]
    """What it is called where it is stored."""
    at: float = field(default=0.0, kw_only=True)
    """Seconds since 1970; set by the store when it is committed."""

    @property
    def kind(self) -> str:
        """What it is called where it is stored."""
        return self.KIND

    def body(self) -> dict[str, object]:
        """Its fields as they are stored."""
        values = {one.name: (getattr(self, one.name), one.metadata) for one in fields(self) if one.name != "at"}
        return {
            name: value
            for name, (value, metadata) in values.items()
            if value is not None or not metadata.get(LEFT_OUT, False)
        }


@dataclass(frozen=True, slots=True)
class UnknownEvent(Event):
    """One that a later version of adaptive-eval has written."""

    called: str
    content: Json = field(default_factory=dict)

    @property
    def kind(self) -> str:
        return self.called

    def body(self) -> dict[str, object]:
        return dict(self.content)


@dataclass(frozen=True, slots=True)
class RunBegun(Event):
    """A process took the run up: to begin it, or to go on with it."""

    trials: int = 0
    """Stored by then."""
    pid: int | None = _where_known()
    host: str | None = _where_known()
    version: str | None = _where_known()
    """Of adaptive-eval."""
    longest_prompts: Mapping[str, int] | None = _where_known()
    """Bytes by model: what hard caps have reserved, so that who reads the run need not render a prompt."""


@dataclass(frozen=True, slots=True)
class RunStarted(RunBegun):
    """The first one."""

    KIND: ClassVar[str] = "started"


@dataclass(frozen=True, slots=True)
class RunResumed(RunBegun):
    """A later one."""

    KIND: ClassVar[str] = "resumed"


@dataclass(frozen=True, slots=True)
class SettingsChanged(Event):
    """A resume changed settings, after so many trials and looks; earlier versions did not say how many looks."""

    KIND: ClassVar[str] = "configured"
    trials: int = 0
    looks: int | None = _where_known()
    changes: tuple[Change, ...] = ()

    def body(self) -> dict[str, object]:
        # not super(): a class with slots is made anew by its decorator
        return {**Event.body(self), "changes": [change._asdict() for change in self.changes]}


@dataclass(frozen=True, slots=True)
class ModelSetAside(Event):
    """The run goes on without a model."""

    KIND: ClassVar[str] = "set_aside"
    model: str
    reason: str = ""
    cause: Cause = Cause.SERVER


@dataclass(frozen=True, slots=True)
class AnswerUngraded(Event):
    """The grader failed on an answer of a model, for the first time since the run was started; the run goes on."""

    KIND: ClassVar[str] = "ungraded"
    model: str
    question: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class AnswersLost(Event):
    """Answers that were asked for and lost, and what they count as: the most that they may have cost."""

    KIND: ClassVar[str] = "answers_lost"
    model: str
    answers: int = 0
    tokens: int = 0
    usd: float = 0.0
    gpu_seconds: float = 0.0
    killed: bool = False
    """They were in flight when an earlier start ended."""
    verdicts: int = 0
    """A judge's replies on answers that are there, which were lost in their place."""


@dataclass(frozen=True, slots=True)
class AnswersUnwanted(Event):
    """Answers that idle slots were asked for ahead, and that no round had come to want when the run ended."""

    KIND: ClassVar[str] = "unwanted"
    model: str
    answers: int = 0
    came: int = 0
    """Of them; the others were given up on their way, and nobody knows what they have cost."""
    tokens: int = 0
    """This and what follows: of those that came."""
    usd: float = 0.0
    gpu_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class ReplicaLost(Event):
    """One of a model's servers fails for a while."""

    KIND: ClassVar[str] = "replica_lost"
    model: str
    replica: str


@dataclass(frozen=True, slots=True)
class ReplicaBack(Event):
    """It answers again."""

    KIND: ClassVar[str] = "replica_back"
    model: str
    replica: str


@dataclass(frozen=True, slots=True)
class OnlyFailures(Event):
    """Nothing but failures from a model for a while; its requests are repeated."""

    KIND: ClassVar[str] = "retrying"
    model: str
    seconds: int = 0
    errors: Mapping[str, int] = field(default_factory=dict)
    """By kind, so far."""


@dataclass(frozen=True, slots=True)
class ServersNoticed(Event):
    """Something about a model's servers that a reader of the results should know."""

    KIND: ClassVar[str] = "noticed"
    model: str
    """"" where it is those of a judge."""
    notice: str = ""
    """Its kind."""
    text: str = ""


@dataclass(frozen=True, slots=True)
class AlarmRaised(Event):
    """After the opening: all answers of a model have something in common that should not be."""

    KIND: ClassVar[str] = "alarm"
    model: str
    fault: str = ""
    """A `AnswerFault`."""
    text: str = ""
    example: str | None = None
    """One of these answers."""

    @property
    def words(self) -> str:
        """With the example."""
        return self.text if self.example is None else f"{self.text} ({self.example})"


@dataclass(frozen=True, slots=True)
class PlaceAwaited(Event):
    """Servers cannot be started yet: another run has their place."""

    KIND: ClassVar[str] = "waiting"
    on: str
    by: str = ""
    """Who has it."""


@dataclass(frozen=True, slots=True)
class ServerLaunching(Event):
    """The server of a model is started."""

    KIND: ClassVar[str] = "launching"
    model: str
    command: tuple[str, ...] = ()
    version: str | None = None
    """Of the server, where it was up before."""
    log: str = ""
    """Where its output goes."""
    on: str | None = _where_known()
    """The place that it shares with others."""
    waited: float | None = _where_known()
    """Seconds that other runs had this place."""


@dataclass(frozen=True, slots=True)
class ServerLaunched(Event):
    """It is ready."""

    KIND: ClassVar[str] = "launched"
    model: str
    command: tuple[str, ...] = ()
    version: str | None = None
    """Of the server's software, where it tells one."""
    log: str = ""
    on: str | None = _where_known()
    """The place that it shares with others, one of which was stopped in this time."""
    seconds: float = 0.0
    """How long that took."""


@dataclass(frozen=True, slots=True)
class ServerDied(Event):
    """A server that was up has ended by itself, or hangs, and is started again."""

    KIND: ClassVar[str] = "server_died"
    model: str
    reason: str = ""
    restart: int = 0
    of: int = 0
    on: str | None = _where_known()
    """The place that it shares with others."""


@dataclass(frozen=True, slots=True)
class ServerReleased(Event):
    """A server that was up was stopped, and its place is free, while the run goes on."""

    KIND: ClassVar[str] = "released"
    model: str
    on: str | None = _where_known()
    """The place that it shared with others, one of which comes up next."""


@dataclass(frozen=True, slots=True)
class SiteAwaited(Event):
    """A site of a model has no place in the cluster yet."""

    KIND: ClassVar[str] = "site_awaited"
    model: str
    on: str = ""
    """The site, such as "site 1"."""
    asked: str = ""
    """The resources that it takes."""
    missing: str = ""
    """Why they are not to be had."""


@dataclass(frozen=True, slots=True)
class SitePlaced(Event):
    """A site of a model has its place in the cluster; its server comes next."""

    KIND: ClassVar[str] = "site_placed"
    model: str
    on: str = ""
    node: str = ""
    resources: Mapping[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    """How long that took."""
    found: bool = False
    """It was there, from an earlier start of the run."""
    pid: int | None = _where_known()
    """Of its process on the node."""
    node_id: str | None = _where_known()
    """What the cluster calls the node; `node` is the name of the machine."""
    devices: str | None = _where_known()
    """Which GPUs of the machine are its own, as CUDA_VISIBLE_DEVICES names them."""


@dataclass(frozen=True, slots=True)
class SiteLost(Event):
    """A site of a model is gone: what it was asked is asked again, and it is placed anew."""

    KIND: ClassVar[str] = "site_lost"
    model: str
    on: str = ""
    node: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ModelSettled(Event):
    """No comparison can want a model again while the run goes on as it is: what serves it may go."""

    KIND: ClassVar[str] = "settled"
    model: str
    launched: bool = False
    """The run has started its server, and stops it."""


@dataclass(frozen=True, slots=True)
class SettledCommandEnded(Event):
    """The command that somebody wants to be run when a model is settled has ended, well or badly."""

    KIND: ClassVar[str] = "settled_command"
    model: str
    problem: str | None = _where_known()
    """What went wrong."""


@dataclass(frozen=True, slots=True)
class BatchPlanned(Event):
    """A batch of requests will be handed in to a provider's batch service: nothing was sent yet."""

    KIND: ClassVar[str] = "batch_planned"
    model: str
    key: str
    """Of our own; it stands in the batch, by which that is found again."""
    requests: tuple[str, ...] = ()
    """The ids of its requests."""
    planned: float = 0.0
    """Seconds since 1970."""


@dataclass(frozen=True, slots=True)
class BatchTaken(Event):
    """The service has it."""

    KIND: ClassVar[str] = "batch_taken"
    model: str
    key: str
    batch: str = ""
    """What the service calls it."""
    size: int = 0
    """Requests in it."""
    since: float = 0.0
    """Seconds since 1970."""


@dataclass(frozen=True, slots=True)
class BatchCancelled(Event):
    """It took longer than there was patience: what it does not have is asked for directly."""

    KIND: ClassVar[str] = "batch_cancelled"
    model: str
    key: str


@dataclass(frozen=True, slots=True)
class BatchEnded(Event):
    """Every answer of it that came is stored."""

    KIND: ClassVar[str] = "batch_ended"
    model: str
    key: str
    said: str = ""
    """The service's word for its end."""
    came: int = 0
    missing: int = 0
    """To be asked for again."""
    lost: int = 0
    """Of these, those that may have been generated and paid for."""


@dataclass(frozen=True, slots=True)
class RegradingBegun(Event):
    """Answers without a grade are graded once more before the run goes on; told, not stored."""

    KIND: ClassVar[str] = "regrading"
    trials: int = 0


@dataclass(frozen=True, slots=True)
class TrialsRegraded(Event):
    """So many trials have got their grades anew."""

    KIND: ClassVar[str] = "regraded"
    trials: int = 0
    so_far: int | None = _where_known()
    """When a run goes on, over the groups of this start."""
    of: int | None = _where_known()
    answers: int | None = _where_known()
    """When all of a run are graded by another grader."""
    changed: int | None = _where_known()
    """Of these, those with another category than before."""
    failed: int | None = _where_known()
    """Those that have no grade now."""


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
    """Those that repeat another one are counted too, since the user has said that they are samples."""


@dataclass(frozen=True, slots=True)
class GraderChosen(Event):
    """A grader that gives the imported trials the grades of their logs, as far as a sample shows."""

    KIND: ClassVar[str] = "grader_chosen"
    grader: str
    compared: int = 0
    """Stored answers that it has graded."""


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
    """They are of greedy answers, which this run has asked for and pays for: what these have cost by now follows."""
    trials: int = 0
    tokens: int = 0
    usd: float = 0.0
    gpu_seconds: float = 0.0
    """Of requests."""
    counted_gpu_seconds: float = 0.0
    """What a cap on GPU time counts of it."""
    seconds: float = 0.0
    """For how long they were asked for."""

    def body(self) -> dict[str, object]:
        whole = Event.body(self)
        return whole if self.greedy else {name: whole[name] for name in ("section", "run", "outcomes")}


@dataclass(frozen=True, slots=True)
class LabelsTaken(Event):
    """Labels of a file of the user's lie beside the run from now on."""

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


@dataclass(frozen=True, slots=True)
class ThresholdsFrozen(Event):
    """Percentiles that the rubric compares with, and lengths that are usual: fitted once, they move no more."""

    KIND: ClassVar[str] = "thresholds"
    section: Json = field(default_factory=dict)
    """The rubric, as the configuration has it."""
    run: str | None = _where_known()
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
class AnswersKept(Event):
    """Texts that were to leave the ledger stay in it, since their place cannot be written; it is tried again."""

    KIND: ClassVar[str] = "answers_kept"
    reason: str


@dataclass(frozen=True, slots=True)
class VerdictsAsked(Event):
    """`regrade` asks a judge about so many answers, which counts at its worst; or has heard it, and takes back what
    that did not use; or has stored the grades with what they cost, and takes back all of it.

    What is left was spent on grades that never became those of the run.
    """

    KIND: ClassVar[str] = "verdicts_asked"
    answers: int = 0
    tokens: int = 0
    usd: float = 0.0
    gpu_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class VerdictsInVain(Event):
    """Requests for grades of a model's answers that are stored, and in what these have cost, but led to no grade of
    today: a verdict could not be read, a reply to it was lost, or another one has taken its place."""

    KIND: ClassVar[str] = "verdicts_in_vain"
    model: str
    verdicts: int = 0
    tokens: int = 0
    usd: float = 0.0
    gpu_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class RunStopped(Event):
    """The run ended before it was finished: by the user, or by an error."""

    KIND: ClassVar[str] = "stopped"
    error: str | None = _where_known()
    """Its kind."""
    reason: str | None = _where_known()
    exit_code: ExitCode | None = _where_known()


@dataclass(frozen=True, slots=True)
class RunFinished(Event):
    """The run has come to its end."""

    KIND: ClassVar[str] = "finished"
    reason: Reason


CLASSES: tuple[type[Event], ...] = (
    RunStarted,
    RunResumed,
    SettingsChanged,
    ModelSetAside,
    AnswersLost,
    AnswersUnwanted,
    AnswerUngraded,
    ReplicaLost,
    ReplicaBack,
    OnlyFailures,
    ServersNoticed,
    AlarmRaised,
    PlaceAwaited,
    ServerLaunching,
    ServerLaunched,
    ServerDied,
    ServerReleased,
    SiteAwaited,
    SitePlaced,
    SiteLost,
    ModelSettled,
    SettledCommandEnded,
    BatchPlanned,
    BatchTaken,
    BatchCancelled,
    BatchEnded,
    RegradingBegun,
    TrialsRegraded,
    TrialsImported,
    GraderChosen,
    PriorTaken,
    GreedyBegun,
    LabelsTaken,
    OpponentBegun,
    OpponentAnswered,
    OutcomesRecorded,
    ThresholdsFrozen,
    BaselineAsked,
    AnswersKept,
    VerdictsAsked,
    VerdictsInVain,
    RunStopped,
    RunFinished,
)
_READERS: dict[str, Callable[[], TypeAdapter[Event]]] = {
    one.KIND: cache(partial(TypeAdapter[Event], one)) for one in CLASSES
}
"""Each is made when the first event of its kind is read."""

Found = TypeVar("Found", bound=Event)


def event_of(kind: str, body: object, at: float = 0.0) -> Event:
    """The event that was stored so; raises `StoreError` where a kind that is known lacks what it cannot do without."""
    if kind not in _READERS:
        return UnknownEvent(kind, body if isinstance(body, Mapping) else {}, at=at)
    if not isinstance(body, Mapping):
        raise StoreError(f"an event of the kind {kind} is damaged: it has no fields")
    try:
        return _READERS[kind]().validate_python({**body, "at": at})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise StoreError(f"an event of the kind {kind} is damaged: {where}: {first['msg']}") from error


def events_of_kind(events: Sequence[Event], kind: type[Found]) -> list[Found]:
    """Those of one kind, in their order."""
    return [event for event in events if isinstance(event, kind)]


def since_the_start(events: Sequence[Event]) -> Sequence[Event]:
    """What has happened since the run was last begun or resumed."""
    starts = [at for at, event in enumerate(events) if isinstance(event, RunBegun)]
    return events[max(starts, default=0) :]
