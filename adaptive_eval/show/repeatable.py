"""The published description of a run for those who want to repeat it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from adaptive_eval.config.run import RunConfig
from adaptive_eval.graders.by_benchmark import ByBenchmark
from adaptive_eval.record.lines import minute
from adaptive_eval.record.view import RunView, questions_digest
from adaptive_eval.store import RunResumed, RunStarted

PLACES = {"folder", "store"}
"""Sections that say where things lie on the machine of the run."""
SHARED = ("sampling", "prompt", "concurrency")
"""Sections that a model has from the run where it does not change them."""
BEGUN = (RunStarted.KIND, RunResumed.KIND)


@dataclass(frozen=True, slots=True)
class Repeatable:
    """The configuration and the questions, and what happened on the way."""

    version: str
    """Version of adaptive-eval at the latest start, which has the defaults."""
    configuration: Mapping[str, object]
    """Without what is at its default, and without where the run lay."""
    models: tuple[Mapping[str, object], ...]
    """The name of each model that was asked, its served name, and how its answers were drawn."""
    digest: str
    """SHA-256 of the questions."""
    events: tuple[tuple[str, str], ...]
    """When, and what, where that is worth a line."""


def repeatable(view: RunView) -> Repeatable:
    """The parts of a view that are needed to repeat the run."""
    config = RunConfig.model_validate_json(json.dumps(view.configuration))
    begun = [event for event in view.events if event.kind in BEGUN]
    return Repeatable(
        version=str(begun[-1].body.get("version", "")) if begun else "",
        configuration=_configuration(config),
        models=tuple({"name": one.name, "model": one.model} | one.sampling.model_dump() for one in config.asked),
        digest=questions_digest(view.questions),
        events=tuple((minute(event.at), event.text) for event in view.events if event.text is not None),
    )


def _configuration(config: RunConfig) -> dict[str, object]:
    whole: dict[str, Any] = config.model_dump(mode="json", exclude_defaults=True, exclude=PLACES)
    for model in whole["models"]:
        for section in SHARED:
            if model.get(section) == whole.get(section):
                model.pop(section, None)
        if (
            model.get("simulate") or model.get("recorded") or model.get("inspect")
        ):  # an address of nothing that is asked
            del model["base_url"]
    whole["grader"] = {"kind": config.grader.kind} | whole.get("grader", {})
    if isinstance(config.grader, ByBenchmark):
        questions, graders = whole.pop("questions")["benchmarks"], whole.pop("grader")["graders"]
        for entry in whole["benchmarks"]:  # as a file has them
            name = entry["name"]
            entry |= {
                "questions": questions[name],
                "grader": {"kind": config.grader.graders[name].kind} | graders[name],
            }
    first = ("name", "seed", "benchmarks", "questions", "models", "prompt", "sampling", "grader")
    order = [*first, *(key for key in whole if key not in first)]
    return {key: whole[key] for key in order if key in whole}
