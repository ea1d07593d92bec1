"""The models of a file for checks across sections, and the keys that make a `base_url` unnecessary."""

from collections.abc import Iterator
from typing import NamedTuple

from adaptive_eval.config.run import ModelConfig

Models = tuple[ModelConfig | None, ...]
"""The models of the file in order; None for invalid models."""


def valid_models(models: Models) -> Iterator[tuple[int, ModelConfig]]:
    """The valid models with their indices."""
    return ((number, model) for number, model in enumerate(models) if model is not None)


def asked_models(models: Models) -> Iterator[tuple[int, ModelConfig]]:
    """The valid models that are not recorded, with their indices."""
    return ((number, model) for number, model in valid_models(models) if model.recorded is None)


def recorded_models(models: Models) -> Iterator[tuple[int, ModelConfig]]:
    """The valid recorded models, which are never asked, with their indices."""
    return ((number, model) for number, model in valid_models(models) if model.recorded is not None)


class ServedWithoutUrl(NamedTuple):
    """A description of models that need no `base_url`, and the hint if they have one."""

    model: str
    hint: str


SERVED_WITHOUT_URL = {
    "recorded": ServedWithoutUrl("a recorded model, which is never asked", "remove base_url, or recorded"),
    "inspect": ServedWithoutUrl("a model that Inspect asks", "write `inspect: {model: ..., args: {base_url: ...}}`"),
    "launch": ServedWithoutUrl("a model whose server the run starts", "remove base_url, or launch"),
}
"""The keys of models that need no `base_url`."""
