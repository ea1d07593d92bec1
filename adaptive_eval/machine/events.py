"""The input of the machine (events) and its output (actions)."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from adaptive_eval.core.plan import Plan
from adaptive_eval.core.types import NO_COST, Cost, Look, Reason
from adaptive_eval.endpoints.types import Answer
from adaptive_eval.machine.alarms import AlarmSettings
from adaptive_eval.machine.follow_up import RequestFailure
from adaptive_eval.machine.records import Json, Note, Row
from adaptive_eval.machine.trial import GradeDetails, Key, Request, Trial

# -- settings ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Setting:
    """All that decides besides the log. Models are the numbers of the store."""

    plan: Plan
    """Without the stage before, which the machine adds."""
    roster: tuple[int, ...]
    """The model at each position of the core."""
    slots: Mapping[int, int]
    """Requests of each model that may be in flight; 0: until a server is up."""
    seed: Callable[[int, int, int], int]
    """The seed of a trial, by model, question and number: those of a request must follow each other."""
    describe: Callable[[Look], Json]
    """Turns a look into plain values."""
    samples: Mapping[int, int] = field(default_factory=dict)
    """Most trials per request, by model; default 1."""
    remembers: frozenset[int] = frozenset()
    """Models whose requests outlive a process: each is stored before it is sent, and claimed by the next start."""
    own_grades: frozenset[int] = frozenset()
    """Models whose answers come with their grades, and are lost without."""
    judged: frozenset[int] = frozenset()
    """Questions whose answers are graded by requests."""
    verdict: Cost = NO_COST
    """The most that a grade may cost, if caps count it."""
    vote: Cost = NO_COST
    """The part of it that a reply costs which was lost on the way."""
    verdicts_at_once: int = 64
    """Answers that are judged at the same time."""
    benchmarks: Sequence[int] = ()
    """The benchmark of each question; empty if there is one."""
    questions: Sequence[str] = ()
    """The key of each question."""
    alarms: AlarmSettings = field(default_factory=AlarmSettings)
    verdicts_stand: bool = True
    """Whether the verdicts of the stage before this one stand."""

    @property
    def position(self) -> dict[int, int]:
        """The place of each model in the roster."""
        return {model: place for place, model in enumerate(self.roster)}


# -- events ------------------------------------------------------------------------------------------------------------


class Replayed(NamedTuple):
    """Rows of earlier starts, in the order of the log; read without texts."""

    rows: Sequence[Row]


class Opened(NamedTuple):
    """The whole log was replayed."""

    claimed: Collection[Key] = ()
    """Trials that a supply still has, from an earlier start."""
    kept: Collection[Key] = ()
    """Trials that a batch service has, of models that the run does not have now: they stay reserved."""
    last: int = 0
    """The newest sequence number, also of what has no row any more."""
    is_explained: bool = True
    """Whether a note says why looks may be taken again."""
    unreachable: Mapping[int, str] = {}
    """Models with answers of which no server can be reached now, and why."""
    waited: Collection[int] = ()
    """Models of which all that was asked in earlier starts has come, if there were any."""
    in_flight: Mapping[int, int] = {}
    """By model: trials without a row that an earlier start had in flight."""


class Ungraded(NamedTuple):
    """A stored answer without a grade."""

    seq: int
    """The place of its row, at which it stays."""
    trial: Trial
    reserve: Cost = NO_COST
    """The most that its grade may cost."""
    was_asked: bool = False
    """Whether a killed start may have asked a judge about it."""


class Regrade(NamedTuple):
    """Stored answers without a grade are to be graded, before the log is replayed."""

    answers: Sequence[Ungraded]
    is_late: bool = False
    """The time was over when this start began."""


class StageBegun(NamedTuple):
    """The settings of a run changed here, after looks; the rows before were replayed."""

    setting: "Setting"
    returning: Iterable[Trial] = ()
    """Stored answers of models that were in the run before, were taken out, and come back."""


class Committed(NamedTuple):
    """Rows of this start are on disk."""

    rows: Sequence[Row]


class Received(NamedTuple):
    """An answer to one trial of a request."""

    number: int
    answer: Answer | None
    cost: Cost
    seconds: float = 0.0
    kinds: int = 0
    reserve: Cost = NO_COST
    """The most that its grade may cost."""


class Answered(NamedTuple):
    """A server has answered trials of a request: usually all, some if the supply has split it."""

    request: int
    answers: Sequence[Received]


class Failed(NamedTuple):
    """A request gets no further answers."""

    request: int
    kind: RequestFailure
    reason: str = ""


class Wasted(NamedTuple):
    """Answers of a model were lost on the way, or are of no use."""

    model: int
    answers: int
    cost: Cost | None = None
    """Their usage; None if unknown."""
    request: int | None = None
    """The request that is to be repeated if the caps allow it: `Allow` follows. None: nobody waits."""


class Graded(NamedTuple):
    """A grader has given its verdict on an answer, or failed on it."""

    key: Key
    category: int | None
    details: GradeDetails = GradeDetails()
    cost: Cost = NO_COST
    has_failed: bool = False
    """Whether there is no category because the grader has failed, and not because there is no answer."""


class GradingCutOff(NamedTuple):
    """Grading has ended without a result; the next start grades the answer."""

    key: Key


class VerdictWasted(NamedTuple):
    """A reply of a judge was lost on the way: it is asked for again if the caps allow it (`Allow` follows)."""

    key: Key
    cost: Cost


class Capacity(NamedTuple):
    """The number of requests of a model that may be in flight."""

    model: int
    slots: int


class Unservable(NamedTuple):
    """No server can serve a model any more."""

    model: int
    reason: str
    was_served: bool = False
    """Whether it was served in this start: then the run goes on without it, even if nothing has answered yet."""


class Hopeless(NamedTuple):
    """The requests of a model only fail, and no answer can be expected now."""

    model: int


class Noted(NamedTuple):
    """A supply has an event to record."""

    note: Note


class Tick(NamedTuple):
    """Time has passed."""

    elapsed: float
    """Seconds that the run was active, over all starts."""
    held: float = 0.0
    """GPU seconds for which servers were held."""


class Stop(NamedTuple):
    """Ask nothing more; in flight requests are waited for."""

    at_once: bool = False
    """Cancel them instead."""


Event = (
    Replayed
    | Opened
    | Regrade
    | StageBegun
    | Committed
    | Answered
    | Failed
    | Wasted
    | Graded
    | GradingCutOff
    | VerdictWasted
    | Capacity
    | Unservable
    | Hopeless
    | Noted
    | Tick
    | Stop
)

# -- actions -----------------------------------------------------------------------------------------------------------


class AbortKind(StrEnum):
    """Reasons why a run cannot go on."""

    REFUSED = "refused"
    """Models refuse their first requests."""
    UNSERVABLE = "unservable"
    """A model cannot be served, and none has answered yet."""
    GRADER = "grader"
    """The grader has failed on all of the first answers."""
    GRADER_SERVER = "grader_server"
    """The same, if it asks a server."""
    VERDICT_COST = "verdict_cost"
    """A verdict has cost more than was reserved for it."""
    ALARM = "alarm"
    """The answers of models cannot be what was asked for; what is in flight is waited for."""


class Write(NamedTuple):
    """Store rows, all or none; rows of earlier actions are stored with them or before."""

    rows: Sequence[Row]


class Send(NamedTuple):
    """Send a request; `claimed`: an earlier start has sent it, and its supply has said that it still has it."""

    request: Request
    claimed: bool = False


class Cancel(NamedTuple):
    """Cancel requests and gradings: each ends with `Failed` or `GradingCutOff`, unless it was answered before."""

    requests: Sequence[int]
    gradings: Sequence[Key] = ()


class GradeAnswer(NamedTuple):
    """Grade an answer at once."""

    trial: Trial


class JudgeAnswer(NamedTuple):
    """Have a stored answer judged by requests."""

    trial: Trial


class Allow(NamedTuple):
    """A lost request or verdict may be repeated, or not."""

    target: int | Key
    allowed: bool


class Abort(NamedTuple):
    """The run cannot go on."""

    kind: AbortKind
    reasons: Mapping[int, str]
    """By model."""


class MakeReport(NamedTuple):
    """Store a report of what is decided now with the rows so far."""

    is_over: bool
    """Whether the end of this start was decided."""


class Finish(NamedTuple):
    """This start is over; None: it was stopped."""

    reason: Reason | None


Action = Write | Send | Cancel | GradeAnswer | JudgeAnswer | Allow | Abort | MakeReport | Finish
