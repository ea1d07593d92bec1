"""Events of the run itself: started, resumed, changed, stopped, finished."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.core.types import Reason
from adaptive_eval.notes.event import Change, Event, optional_field


@dataclass(frozen=True, slots=True)
class Override:
    """A setting of a start that overrides its file."""

    value: str
    """As typed."""
    in_file: object = None
    """The value in the file at that time."""


def with_overrides(body: dict[str, object], overrides: Mapping[str, Override] | None) -> dict[str, object]:
    """The body of a note with these overrides as plain values; as it is if there are None."""
    if overrides is None:
        return body
    return {**body, "overrides": {key: asdict(override) for key, override in overrides.items()}}


@dataclass(frozen=True, slots=True)
class RunBegun(Event):
    """A process started the run or resumed it."""

    trials: int = 0
    """Trials stored by then."""
    pid: int | None = optional_field()
    host: str | None = optional_field()
    version: str | None = optional_field()
    """The version of adaptive-eval."""
    longest_prompts: Mapping[str, int] | None = optional_field()
    """Bytes by model, as hard caps reserve them; stored so that readers need not render prompts."""
    arguments: tuple[str, ...] | None = optional_field()
    """The arguments of `adaptive-eval run` that resume it, as typed."""
    overrides: Mapping[str, Override] | None = optional_field()
    """Settings that override the file at later starts, by key."""
    judged_at_once: int | None = optional_field()
    """Number of answers for which this process requests verdicts at a time, in the order of storing."""

    def body(self) -> dict[str, object]:
        # not super(): the decorator replaces a class with slots
        return with_overrides(Event.body(self), self.overrides)


@dataclass(frozen=True, slots=True)
class RunStarted(RunBegun, kind="started"):
    """The first start of the run."""


@dataclass(frozen=True, slots=True)
class RunResumed(RunBegun, kind="resumed"):
    """A later start of the run."""


@dataclass(frozen=True, slots=True)
class SettingsChanged(Event, kind="configured"):
    """A resume changed settings, after this many trials and looks."""

    trials: int = 0
    looks: int = 0
    changes: tuple[Change, ...] = ()

    def body(self) -> dict[str, object]:
        # not super(): the decorator replaces a class with slots
        return {**Event.body(self), "changes": [change._asdict() for change in self.changes]}


@dataclass(frozen=True, slots=True)
class LooksRetaken(Event, kind="looks_retaken"):
    """A resume took looks at other rounds of the stored answers than an earlier start."""

    looks: int = 0
    """How many looks the earlier start had taken."""


@dataclass(frozen=True, slots=True)
class RunStopped(Event, kind="stopped"):
    """The run was stopped by the user or by an error before it was finished."""

    error: str | None = optional_field()
    """The kind of the error."""
    reason: str | None = optional_field()
    exit_code: ExitCode | None = optional_field()
    waited_for: tuple[str, ...] | None = optional_field()
    """Models that have answered everything requested in this and earlier starts."""


@dataclass(frozen=True, slots=True)
class RunFinished(Event, kind="finished"):
    """The run is finished."""

    reason: Reason
    waited_for: tuple[str, ...] | None = optional_field()
    """Models that have answered everything requested in all starts: answers after the last look enter their scores."""
    short_caps: Mapping[str, float] | None = optional_field()
    """If the budget ended the run: its caps that do not cover the next round, by currency, with the amounts that would.
    """
