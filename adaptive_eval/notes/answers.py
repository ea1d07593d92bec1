"""Events of answers: lost or suspicious."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from adaptive_eval.notes.event import Event, optional_field


@dataclass(frozen=True, slots=True)
class AnswersLost(Event, kind="answers_lost"):
    """Answers that were requested and lost, with their maximum cost, which caps count."""

    model: str
    answers: int = 0
    tokens: int = 0
    usd: float = 0.0
    gpu_seconds: float = 0.0
    killed: bool = False
    """Whether they were in flight when an earlier start ended."""
    verdicts: int = 0
    """Replies of a judge that were lost, not the answers themselves."""
    estimated: bool | None = optional_field()
    """Whether no cap counts them: their cost is estimated from as many stored answers of the model."""
    failed: bool | None = optional_field()
    """Whether they arrived but are unusable, such as Inspect samples without a score, or verdicts without a grade; the
    cost is their actual usage."""
    discarded: bool | None = optional_field()
    """Whether they arrived and were discarded after an alarm, to be requested again; the cost is their actual usage."""
    looks: int | None = optional_field()
    """Number of looks taken when a cap counted them; None if no cap did, or before the first look."""
    ended: bool | None = optional_field()
    """Whether the caps left too little for the requests in flight, so that the run ended."""


@dataclass(frozen=True, slots=True)
class AlarmRaised(Event, kind="alarm"):
    """The answers of a model are suspicious: at the first look all share a suspicious trait; or at any look they
    repeat, too many are incomplete, or a kind of failure has become more frequent."""

    model: str
    fault: str = ""
    """An `AnswerFault`, or the signal of a kind of answers."""
    text: str = ""
    example: str | None = None
    """One of these answers."""
    since: Mapping[str, int] | None = optional_field()
    """After a change of the model's server: by question, the number of the first trial since then. Empty if answers
    repeat: all are discarded."""

    @property
    def description(self) -> str:
        """The text with its example."""
        return self.text if self.example is None else f"{self.text} ({self.example})"


_Model = TypeVar("_Model")
_Alarm = TypeVar("_Alarm")


def standing_alarms(changes: Iterable[tuple[_Model, _Alarm | None]]) -> dict[_Model, _Alarm]:
    """The latest alarm of each model, if no answers of it were discarded since: None in `changes`."""
    standing: dict[_Model, _Alarm] = {}
    for model, alarm in changes:
        standing.pop(model, None)
        if alarm is not None:
            standing[model] = alarm
    return standing


def alarms_of_events(events: Iterable[Event]) -> dict[str, AlarmRaised]:
    """The alarms of a run that stand."""
    changes = (event for event in events if isinstance(event, AlarmRaised | AnswersLost))
    return standing_alarms(
        (change.model, change if isinstance(change, AlarmRaised) else None)
        for change in changes
        if isinstance(change, AlarmRaised) or change.discarded
    )
