"""The tokens of an answer with their log-probabilities, where `logprobs: tokens` keeps them."""

from collections.abc import Sequence
from itertools import islice
from typing import Any

from adaptive_eval.endpoints.parsing import TokenLogprobs
from adaptive_eval.endpoints.types import AnswerLogprobs

_MOST = 2**31
"""No log-probability is larger; infinities and NaN are not smaller."""


def named_logprobs(choice: dict[str, Any], before: int) -> AnswerLogprobs | None:
    """The tokens of a choice, without so many of an echoed prompt; None where there are none."""
    told = choice.get("logprobs")
    if isinstance(told, TokenLogprobs):
        texts, values = _long_texts(told), told.values
    elif not isinstance(told, dict):
        return None
    elif isinstance(content := told.get("content"), list):
        tokens = [one for one in content if isinstance(one, dict)]
        texts, values = [one.get("token") for one in tokens], [one.get("logprob") for one in tokens]
    else:
        listed, named = told.get("token_logprobs"), told.get("tokens")
        values = listed if isinstance(listed, list) else []
        texts = named if isinstance(named, list) else []
    texts = [*texts, *[""] * (len(values) - len(texts))]
    shown = tuple(text if isinstance(text, str) else "" for text in islice(texts, before, len(values)))
    return AnswerLogprobs(shown, tuple(map(_known, values[before:]))) if shown else None


def _long_texts(told: TokenLogprobs) -> Sequence[object]:
    if told.source is None:
        return []
    from adaptive_eval.endpoints.long_responses import texts_of_tokens  # it was read by msgspec, which is there

    return texts_of_tokens(*told.source)


def _known(value: object) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) < _MOST:
        return None
    return float(value)
