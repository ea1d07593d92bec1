"""Fitted thresholds of a run's rubric, as stored in events."""

from collections import Counter
from collections.abc import Sequence

from adaptive_eval.graders.frozen import FrozenThresholds
from adaptive_eval.graders.rubric import Rubric, RubricConfig, open_rubric
from adaptive_eval.notes import events_of_kind
from adaptive_eval.notes.event import Event
from adaptive_eval.notes.grading import ThresholdsFrozen


def kept_thresholds(section: RubricConfig, events: Sequence[Event]) -> ThresholdsFrozen | None:
    """The newest event that froze thresholds for this rubric; None if there is none."""
    told = section.model_dump(mode="json", exclude_defaults=True)
    kept = [event for event in events_of_kind(events, ThresholdsFrozen) if event.section == told]
    return kept[-1] if kept else None


def thresholds_from_event(event: ThresholdsFrozen | None) -> FrozenThresholds:
    """Convert the event to thresholds; without an event, to none."""
    return FrozenThresholds() if event is None else FrozenThresholds(event.values, event.rest_on, event.medians)


def kept_rubric(section: RubricConfig, events: Sequence[Event]) -> Rubric:
    """The rubric of a stored run, with its frozen thresholds."""
    return open_rubric(section, thresholds_from_event(kept_thresholds(section, events)))


def frozen_event(section: RubricConfig, frozen: FrozenThresholds, models: Counter[str], run: str) -> ThresholdsFrozen:
    """The event that stores thresholds fitted on trials of the `run`."""
    told = section.model_dump(mode="json", exclude_defaults=True)
    return ThresholdsFrozen(told, run, frozen.values, frozen.rest_on, frozen.medians, dict(models))
