"""Lines of JSON that are sent to the process of Inspect."""

from typing import Any, TypedDict

Place = tuple[str, int]
"""Name of a benchmark and number of a model."""


class InspectModel(TypedDict):
    """A model that the process of Inspect asks."""

    name: str
    inspect: str
    config: dict[str, Any]
    args: dict[str, Any]
    slots: int
    token_limit: int | None


class Setup(TypedDict):
    """The first line to the process of Inspect; without models it lists the samples and ends."""

    tasks: dict[str, dict[str, Any] | None]
    """Tasks by benchmark; None if its requests contain prompts and the run grades the answers."""
    models: list[InspectModel]
    log_dir: str
    secrets: list[str]
    """Texts to remove from everything the process writes."""
    max_retries: int | None
    """Maximum retries of a request to a model; None for Inspect's default, which may wait for hours."""


class SampleRequest(TypedDict):
    """Request to run one sample."""

    benchmark: str
    model: int
    sample: str
    """Id of the sample in the task."""
    prompt: list[dict[str, str]]
    """Messages, if the benchmark has no task."""
    id: str
    seed: int
