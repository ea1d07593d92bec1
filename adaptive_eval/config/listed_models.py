"""The models of a file, of which some may have mistakes of their own, as the checks between sections see them."""

from collections.abc import Iterator

from adaptive_eval.config.run import ModelConfig

Models = tuple[ModelConfig | None, ...]
"""The models of the file in their order, None for those with mistakes of their own."""


def valid_models(models: Models) -> Iterator[tuple[int, ModelConfig]]:
    """The models without mistakes of their own, with their numbers."""
    return ((number, model) for number, model in enumerate(models) if model is not None)


def asked_models(models: Models) -> Iterator[tuple[int, ModelConfig]]:
    """The models that are asked, with their numbers."""
    return ((number, model) for number, model in valid_models(models) if model.recorded is None)
