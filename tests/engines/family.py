"""The committed models by name. `train.py` has made them, and says how."""

import json
from functools import cache
from pathlib import Path

from llama import Weights, read_model, with_adapter

FAMILY = Path(__file__).with_name("family")


def checkpoints() -> dict[str, Path]:
    """Whole models."""
    return {path.parent.name: path.parent for path in sorted(FAMILY.glob("*/model.safetensors"))}


def adapters() -> dict[str, Path]:
    """LoRA adapters, all of `base()`."""
    return {path.parent.name: path.parent for path in sorted(FAMILY.glob("*/adapter_model.safetensors"))}


def base() -> str:
    """The checkpoint that the adapters belong to."""
    (name,) = {
        json.loads((path / "adapter_config.json").read_text())["base_model_name_or_path"]
        for path in adapters().values()
    }
    return str(name)


@cache
def weights(name: str) -> Weights:
    """A model's weights, an adapter's merged into those of its base."""
    if name in checkpoints():
        return read_model(FAMILY / name)
    return with_adapter(weights(base()), FAMILY / name)


def exact() -> dict[str, dict[str, float]]:
    """By model and question: the committed probabilities of a right answer."""
    probabilities: dict[str, dict[str, float]] = json.loads((FAMILY / "exact.json").read_text())
    return probabilities
