"""Keys of models that need no `base_url`."""

from collections.abc import Iterator
from typing import NamedTuple

from adaptive_eval.config.listed_models import Models, valid_models
from adaptive_eval.config.problems import Problem


class Way(NamedTuple):
    """Texts for messages about a model with such a key."""

    whose: str
    mend: str
    """How to mend a `base_url` beside the key."""


WAYS = {
    "recorded": Way("a recorded model, which is never asked", "remove base_url, or recorded"),
    "inspect": Way("a model that Inspect reaches", "write `args: {base_url: ...}`"),
    "launch": Way("a model whose server the run starts", "remove base_url, or launch"),
}
BESIDE = ("launch", "simulate", "batch")
"""Keys for other ways to serve a model."""


def useless_key_problems(models: Models) -> Iterator[Problem]:
    """Check that no model has keys for two ways to serve it."""
    for number, model in valid_models(models):
        way = next((key for key in WAYS if getattr(model, key)), None)
        if way is None:
            continue
        for key in BESIDE:
            if key != way and getattr(model, key):
                rule = f"has no effect on {WAYS[way].whose}"
                yield Problem(("models", number, key), rule, f"remove {key}, or {way}")
