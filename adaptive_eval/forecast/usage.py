"""What a trial uses: tokens, USD, GPU time and seconds of each model's answers, by category, as far as they are known.

Means by model and category, since wrong answers are longer: over a run their sums are what counts. Seconds are
log-normal around their mean, since a round waits for the last of its answers.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.config.run import ModelConfig
from adaptive_eval.core.types import Cost
from adaptive_eval.endpoints.types import Prompt
from adaptive_eval.planning import prompt_bytes, usage_cost
from scorio.moments import FloatArray

GUESSED_SHARE = 0.25
"""Of `max_tokens`: the length of an answer where nothing is known."""
BYTES_A_TOKEN = 4.0
"""Of a prompt in English, by the makers of tokenizers."""
GUESSED_SPEED = 40.0
"""Tokens a second of one answer among many on a busy server."""
GUESSED_SPREAD = 0.5
"""Standard deviation of the logarithm of an answer's seconds."""


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """What the answers of a pilot used: sums (L, K) over the answers of each model and category."""

    trials: FloatArray
    prompt_tokens: FloatArray
    completion_tokens: FloatArray
    seconds: FloatArray
    log_spread: FloatArray
    """(L,): standard deviation of the logarithm of an answer's seconds within its category; nan where unknown."""


@dataclass(frozen=True, slots=True, eq=False)
class Usage:
    """Means (L, K) for a trial of each model that falls into each category; nan where they are not known."""

    prompt_tokens: FloatArray
    completion_tokens: FloatArray
    seconds: FloatArray
    log_spread: FloatArray

    @property
    def knows_tokens(self) -> bool:
        return bool(np.isfinite(self.completion_tokens).all())

    @property
    def knows_seconds(self) -> bool:
        return bool(np.isfinite(self.seconds).all())


def guess(models: Sequence[ModelConfig], prompts: Sequence[Sequence[Prompt]], categories: int) -> Usage:
    """A stated guess, for want of a pilot: nan for a model without `max_tokens`."""
    most = np.array([model.sampling.max_tokens or np.nan for model in models], dtype=float)
    asked = np.array([np.mean([prompt_bytes(prompt) for prompt in own]) / BYTES_A_TOKEN for own in prompts])
    completion = GUESSED_SHARE * most
    columns = (asked, completion, completion / GUESSED_SPEED)
    prompt_tokens, completion_tokens, seconds = (np.repeat(one[:, None], categories, axis=1) for one in columns)
    return Usage(prompt_tokens, completion_tokens, seconds, np.full(len(models), GUESSED_SPREAD))


def known_usage(measured: Measured, otherwise: Usage) -> tuple[Usage, NDArray[np.bool_], NDArray[np.bool_]]:
    """The pilot's means; for models without tokens, or without seconds, those of its other models, else a guess.

    Also which models' tokens, and which models' seconds, are their own.
    """
    own_tokens = measured.completion_tokens.sum(axis=1) > 0.0
    own_seconds = measured.seconds.sum(axis=1) > 0.0
    spread = np.where(own_seconds & np.isfinite(measured.log_spread), measured.log_spread, otherwise.log_spread)
    usage = Usage(
        prompt_tokens=_filled(measured.trials, measured.prompt_tokens, own_tokens, otherwise.prompt_tokens),
        completion_tokens=_filled(measured.trials, measured.completion_tokens, own_tokens, otherwise.completion_tokens),
        seconds=_filled(measured.trials, measured.seconds, own_seconds, otherwise.seconds),
        log_spread=spread,
    )
    return usage, own_tokens, own_seconds


def _filled(trials: FloatArray, sums: FloatArray, own: NDArray[np.bool_], otherwise: FloatArray) -> FloatArray:
    """Means by model and category; of a category that a model never had, the mean of all its answers."""
    if not own.any():
        return otherwise
    pooled = _means(sums[own].sum(axis=0), trials[own].sum(axis=0))
    each = _means(sums, trials)
    return np.where(own[:, None], each, pooled)


def _means(sums: FloatArray, trials: FloatArray) -> FloatArray:
    overall = sums.sum(axis=-1, keepdims=True) / np.maximum(trials.sum(axis=-1, keepdims=True), 1.0)
    return np.where(trials > 0.0, sums / np.maximum(trials, 1.0), overall)


def cost_table(models: Sequence[ModelConfig], usage: Usage) -> tuple[tuple[Cost, ...], ...]:
    """What a trial of each model and category costs; what is not known counts as nothing."""
    columns = (np.nan_to_num(each).tolist() for each in (usage.prompt_tokens, usage.completion_tokens, usage.seconds))
    rows = zip(models, *columns, strict=True)
    return tuple(tuple(usage_cost(model, *used) for used in zip(*own, strict=True)) for model, *own in rows)
