"""The configuration of a run as reports show it, to repeat the run."""

from collections.abc import Mapping
from typing import Any

import orjson
import yaml

from adaptive_eval.config.document import escape_variables
from adaptive_eval.config.normalise import INHERITED
from adaptive_eval.config.run import RunConfig
from adaptive_eval.graders.by_benchmark import ByBenchmark

PLACE_SECTIONS = {"folder", "store"}
"""Sections with paths on the machine of the run."""


def published_text(configuration: Mapping[str, object]) -> str:
    """The stored configuration as YAML, without defaults and paths on the machine."""
    return to_yaml(_published_configuration(RunConfig.model_validate_json(orjson.dumps(configuration))))


def to_yaml(settings: Mapping[str, object]) -> str:
    """Settings as a file that a run reads as they are."""
    return yaml.dump(_escaped(settings), Dumper=_DUMPER, sort_keys=False, allow_unicode=False, width=100)


_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def _escaped(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _escaped(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return list(map(_escaped, value))
    return escape_variables(value) if isinstance(value, str) else value


def _published_configuration(config: RunConfig) -> dict[str, object]:
    """The configuration without defaults and paths on the machine."""
    published: dict[str, Any] = config.model_dump(mode="json", exclude_defaults=True, exclude=PLACE_SECTIONS)
    for model in published["models"]:
        for section in INHERITED:
            if model.get(section) == published.get(section):
                model.pop(section, None)
        if model.get("simulate") or model.get("recorded") or model.get("inspect"):  # its address is never used
            del model["base_url"]
    published["grader"] = {"kind": config.grader.kind} | published.get("grader", {})
    if isinstance(config.grader, ByBenchmark):
        questions, graders = published.pop("questions")["benchmarks"], published.pop("grader")["graders"]
        for entry in published["benchmarks"]:  # as in a configuration file
            name = entry["name"]
            entry |= {
                "questions": questions[name],
                "grader": {"kind": config.grader.graders[name].kind} | graders[name],
            }
    first = ("name", "seed", "benchmarks", "questions", "models", "prompt", "sampling", "grader")
    order = [*first, *(key for key in published if key not in first)]
    return {key: published[key] for key in order if key in published}
