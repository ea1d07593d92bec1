"""The identity of a run: its name, its configuration, and the settings that its trials depend on."""

from collections.abc import Mapping
from dataclasses import dataclass

from adaptive_eval.machine.records import Json


@dataclass(frozen=True, slots=True)
class RunHeader:
    """Name and configuration of a run, and what its trials depend on."""

    name: str
    configuration: Json
    """The whole configuration as plain values, without secrets."""
    meaning: Json
    """Settings that every trial depends on: seed, prompt, grader, rubric."""
    models: Mapping[str, Json]
    """Settings that the trials of each model depend on: its served name and sampling."""
    questions: Mapping[str, Json]
    """Every question by id, with everything a grader or a report needs."""
