"""What an objective asks for, as its entry in the registry says it: for pages, and for sentences about a run."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from adaptive_eval.core.registry import OBJECTIVES


@dataclass(frozen=True, slots=True)
class ObjectiveView:
    """What the objective asks for, as its entry in the registry says it; of a plug-in nothing more is known."""

    compares: bool
    """Its pairs are comparisons; else each score is judged by itself."""
    in_order: bool
    """Each model is compared with the next one in the order."""
    baseline: str | None
    """The model that all others are compared with."""
    first: int | None
    """How many models are to be told apart from the rest."""
    value: float | None
    """What each score is held against."""
    half_width: float | None
    """How precisely each score is wanted."""


def objective_view(decisions: Mapping[str, object]) -> ObjectiveView:
    """What the objective of these decisions asks for; its options are known by their types."""
    section = cast(Mapping[str, Any], decisions.get("objective", {}))
    entry = OBJECTIVES.get(str(section.get("kind")))
    given = {} if entry is None else {option.type: section.get(option.name) for option in entry.options}
    return ObjectiveView(
        compares=entry is None or entry.compares,
        in_order=entry is not None and entry.in_order,
        baseline=given.get("model"),
        first=given.get("models"),
        value=given.get("score"),
        half_width=given.get("difference"),
    )
