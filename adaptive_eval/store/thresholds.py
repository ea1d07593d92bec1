"""Fitted thresholds of a run's rubric, as stored in events, and the trials on which they are fitted."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from adaptive_eval.base.errors import GraderError
from adaptive_eval.graders.frozen import Facts, FrozenThresholds
from adaptive_eval.graders.rubric import Rubric, RubricConfig, apply_rubric, open_rubric
from adaptive_eval.graders.types import answer_facts
from adaptive_eval.store.events import events_of_kind
from adaptive_eval.store.events.event import Event
from adaptive_eval.store.events.grading import ThresholdsFrozen
from adaptive_eval.store.records import Regrade, StoredOutcome, TrialRecord


class HeldTrial(NamedTuple):
    """A trial with everything a rubric needs to give it a category."""

    outcome: StoredOutcome
    facts: Facts
    """All that a rubric may use."""
    signals: Facts
    """Those of the facts that are stored with the trial."""
    extracted: str | None

    @classmethod
    def from_record(cls, record: TrialRecord) -> "HeldTrial":
        """Convert a stored trial, without its texts, which are long."""
        facts = {**answer_facts(record.answer), **record.signals}
        return cls(record.outcome(), facts, record.signals, record.extracted)

    def verdict(self, rubric: Rubric) -> Regrade:
        """The grade that this rubric gives the trial."""
        at = self.outcome[:3]
        try:
            found = apply_rubric(self.facts, rubric, self.outcome.question)
        except GraderError as error:
            return Regrade(*at, None, self.signals, self.extracted, str(error))
        return Regrade(*at, found.category, {**self.signals, **found.measured}, self.extracted, None)


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


def frozen_event(
    section: RubricConfig, frozen: FrozenThresholds, models: Counter[str], run: str | None = None
) -> ThresholdsFrozen:
    """The event that stores fitted thresholds."""
    told = section.model_dump(mode="json", exclude_defaults=True)
    return ThresholdsFrozen(told, run, frozen.values, frozen.rest_on, frozen.medians, dict(models))
