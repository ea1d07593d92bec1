"""The lines of JSON that the process of Inspect is sent."""

from typing import Any, TypedDict

Place = tuple[str, int]
"""A benchmark and a model."""


class InspectModel(TypedDict):
    """A model that the process of Inspect asks."""

    name: str
    inspect: str
    config: dict[str, Any]
    args: dict[str, Any]
    slots: int
    token_limit: int | None


class Setup(TypedDict):
    """The first line that the process of Inspect is sent; without models it lists the samples and ends."""

    tasks: dict[str, dict[str, Any] | None]
    """By the name of their benchmark; None for one whose requests have prompts, and whose answers the run grades."""
    models: list[InspectModel]
    log_dir: str
    max_retries: int | None
    """Retries of a model's request; None for as many as Inspect makes, which may wait for hours."""


class SampleRequest(TypedDict):
    """One sample to be run."""

    benchmark: str
    model: int
    sample: str
    """Its id in the task."""
    prompt: list[dict[str, str]]
    """Messages, where the benchmark has no task."""
    id: str
    seed: int


class LoggedSample(TypedDict):
    """A sample in one of Inspect's logs."""

    log: str
    id: str


class LogReading(TypedDict):
    """In place of `Setup`: the process reads these samples from their logs, and ends."""

    samples: list[LoggedSample]
