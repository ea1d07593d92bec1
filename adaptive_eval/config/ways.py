"""Ways to have answers of a model that need no address, by the key of the model that asks for each."""

from collections.abc import Iterator
from typing import NamedTuple

from adaptive_eval.config.listed_models import Models, valid_models
from adaptive_eval.config.problems import Problem


class Way(NamedTuple):
    """What is said of models with such a key, and what to do about a `base_url` beside it."""

    whose: str
    mend: str


WAYS = {
    "recorded": Way("a recorded model, which is never asked", "remove base_url, or recorded"),
    "inspect": Way("a model that Inspect reaches", "write `args: {base_url: ...}`"),
    "launch": Way("a model whose server the run starts", "remove base_url, or launch"),
}
BESIDE = ("launch", "simulate", "batch")
"""Keys that say how a model is served otherwise."""


def useless_key_problems(models: Models) -> Iterator[Problem]:
    """Check that no model is to be served in two ways."""
    for number, model in valid_models(models):
        way = next((key for key in WAYS if getattr(model, key)), None)
        if way is None:
            continue
        for key in BESIDE:
            if key != way and getattr(model, key):
                rule = f"is of no use to {WAYS[way].whose}"
                yield Problem(("models", number, key), rule, f"remove {key}, or {way}")
