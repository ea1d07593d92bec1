"""Published description of a run, for those who want to repeat it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from adaptive_eval.config.run import RunConfig
from adaptive_eval.graders.by_benchmark import ByBenchmark
from adaptive_eval.record.lines import minute
from adaptive_eval.record.view import RunView, questions_digest
from adaptive_eval.store import RunResumed, RunStarted

PLACE_SECTIONS = {"folder", "store"}
"""Sections with places on the machine of the run."""
SHARED_SECTIONS = ("sampling", "prompt", "concurrency")
"""Sections that a model inherits from the run."""
START_EVENTS = (RunStarted.KIND, RunResumed.KIND)


@dataclass(frozen=True, slots=True)
class Repeatable:
    """Configuration, models, digest of the questions, and events of a run."""

    version: str
    """Version of adaptive-eval at the latest start, which determines the defaults."""
    configuration: Mapping[str, object]
    """The configuration without defaults and without places on the machine."""
    models: tuple[Mapping[str, object], ...]
    """Name, served name and sampling settings of each model that was asked."""
    digest: str
    """SHA-256 of the questions."""
    events: tuple[tuple[str, str], ...]
    """Time and text of each event that is worth a line."""


def repeatable(view: RunView) -> Repeatable:
    """Extract from a view what is needed to repeat the run."""
    config = RunConfig.model_validate_json(json.dumps(view.configuration))
    begun = [event for event in view.events if event.kind in START_EVENTS]
    return Repeatable(
        version=str(begun[-1].body.get("version", "")) if begun else "",
        configuration=_configuration(config),
        models=tuple({"name": one.name, "model": one.model} | one.sampling.model_dump() for one in config.asked),
        digest=questions_digest(view.questions),
        events=tuple((minute(event.at), event.text) for event in view.events if event.text is not None),
    )


def _configuration(config: RunConfig) -> dict[str, object]:
    whole: dict[str, Any] = config.model_dump(mode="json", exclude_defaults=True, exclude=PLACE_SECTIONS)
    for model in whole["models"]:
        for section in SHARED_SECTIONS:
            if model.get(section) == whole.get(section):
                model.pop(section, None)
        if (
            model.get("simulate") or model.get("recorded") or model.get("inspect")
        ):  # an address of nothing that is asked
            del model["base_url"]
    whole["grader"] = {"kind": config.grader.kind} | whole.get("grader", {})
    if isinstance(config.grader, ByBenchmark):
        questions, graders = whole.pop("questions")["benchmarks"], whole.pop("grader")["graders"]
        for entry in whole["benchmarks"]:  # as in a configuration file
            name = entry["name"]
            entry |= {
                "questions": questions[name],
                "grader": {"kind": config.grader.graders[name].kind} | graders[name],
            }
    first = ("name", "seed", "benchmarks", "questions", "models", "prompt", "sampling", "grader")
    order = [*first, *(key for key in whole if key not in first)]
    return {key: whole[key] for key in order if key in whole}
