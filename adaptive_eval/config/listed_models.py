"""The models of a file for checks across sections."""

from collections.abc import Iterator

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
