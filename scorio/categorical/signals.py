"""The base signals of a trial (paper, appendix D.1), one array per signal with one value per trial.

The base signals of trials that were recorded one by one, as the paper's inference files have them.

    {"seed": 1234, "data_id": 6, "model": "...",
     "output": {"finish_reason": "stop", "num_completion_tokens": 22818},
     "tokens": {"completion_avg_logprob": -0.09, "prompt_avg_logprob": -4.2},
     "processed_results": {"is_correct": 0, "has_box": 1}}

Log-probabilities are natural; instead of a mean a record may have the perplexity, `completion_ppl` or `prompt_ppl`.

Contextual calibration of a verifier's label logits (paper, appendix D.1).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from scorio import _validate
from scorio.moments import FloatArray


def calibrate_verifier(logits: ArrayLike, baseline: ArrayLike, temperature: float = 1.0) -> FloatArray:
    """p(y | x) = softmax((s_y - b_y) / T) over the last axis, the labels (A, B, C for correct, wrong, off-task).

    `logits` (..., labels) are the scores s of the labels at the answer slot; `baseline` holds those of a content-free
    prompt, either one per label for all trials or one row per trial. The columns are the signals verifier_a, _b, _c.

    Args:
        logits: The scores of the labels, (..., labels).
        baseline: Those of a content-free prompt, (labels,) or (..., labels).
        temperature: T, above 0.

    Returns:
        The probabilities (..., labels), which sum to 1 over the labels.

    Examples:
        >>> import numpy as np
        >>> from scorio.categorical import calibrate_verifier
        >>> np.round(calibrate_verifier([[2.0, 1.0, 0.0]], baseline=[1.0, 1.0, 1.0]), 3)
        array([[0.665, 0.245, 0.09 ]])
    """
    scores, content_free = _validate.floats(logits, "logits"), _validate.floats(baseline, "baseline")
    if scores.ndim == 0 or scores.shape[-1] < 2:
        raise ValueError(f"logits must have at least 2 labels on the last axis, got shape {scores.shape}")
    if content_free.shape not in (scores.shape, scores.shape[-1:]):
        raise ValueError(
            f"baseline must hold one value per label, shape {scores.shape[-1:]} or that of logits {scores.shape}, "
            f"got {content_free.shape}"
        )
    from scipy.special import softmax  # here, since rubrics are read by commands that need no scipy

    probabilities: FloatArray = softmax(
        (scores - content_free) / _validate.positive(temperature, "temperature"), axis=-1
    )
    return probabilities


TOKEN_CAP = 32_768
"""The completion length that the paper calls 1."""


@dataclass(frozen=True, eq=False)
class Signals:
    """Base signals of a set of trials, arrays of one shape; None: not recorded, NaN: missing for that trial.

    Neither is an error until a schema needs the signal.

    Examples:
        >>> from scorio.categorical import Signals
        >>> made = dict(repeated_pattern=[0, 0, 0, 1], verifier_c=[0.1, 0.0, 0.2, 0.0])
        >>> signals = Signals(is_correct=[1, 1, 0, 1], has_box=[1, 0, 1, 1], **made)
        >>> signals.shape, signals.is_correct
        ((4,), array([1., 1., 0., 1.]))
    """

    has_box: FloatArray | None = None
    """1 if a final boxed answer is present."""
    is_correct: FloatArray | None = None
    """1 if the answer is correct."""
    token_ratio: FloatArray | None = None
    """Completion tokens / 32,768."""
    repeated_pattern: FloatArray | None = None
    """0 if finish_reason is stop, else 1."""
    prompt_bpt: FloatArray | None = None
    """Negative mean log-probability of the prompt, in bits per token."""
    completion_bpt: FloatArray | None = None
    """Negative mean log-probability of the completion, in bits per token."""
    verifier_a: FloatArray | None = None
    """Calibrated probability that the verifier calls the answer correct (A)."""
    verifier_b: FloatArray | None = None
    """The same for wrong (B)."""
    verifier_c: FloatArray | None = None
    """The same for irrelevant or off-task (C)."""

    def __post_init__(self) -> None:
        shapes = {}
        for field in fields(self):
            given = getattr(self, field.name)
            if given is not None:
                values = _checked(field.name, given)
                object.__setattr__(self, field.name, values)
                shapes[field.name] = values.shape
        if not shapes:
            raise ValueError("signals must hold at least one signal, got none")
        if len(set(shapes.values())) > 1:
            raise ValueError(f"signals must have one value per trial each, got the shapes {shapes}")

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape that all signals share."""
        return next(values.shape for name in RANGES if (values := getattr(self, name)) is not None)

    def require(self, name: str, reason: str) -> FloatArray:
        """The signal of every trial, or an error that names it and who needs it.

        Args:
            name: The name of the signal.
            reason: Who needs it, for the message.

        Returns:
            The values of the signal.

        Examples:
            >>> from scorio.categorical import Signals
            >>> Signals(is_correct=[1, 0]).require("is_correct", "the example")
            array([1., 0.])
        """
        values: FloatArray | None = getattr(self, name)
        if values is None:
            raise ValueError(
                f"signal {name} is missing: {reason} needs it; record it, or give zeros where it cannot occur"
            )
        missing = np.count_nonzero(np.isnan(values))
        if missing:
            raise ValueError(f"signal {name} is missing (NaN) for {missing} of {values.size} trials: {reason} needs it")
        return values


UNBOUNDED = ("token_ratio", "prompt_bpt", "completion_bpt")
RANGES = {field.name: (0.0, np.inf if field.name in UNBOUNDED else 1.0) for field in fields(Signals)}
"""The base signals and the values that each may take."""


def token_ratio(completion_tokens: ArrayLike) -> FloatArray:
    """Completion tokens as a share of 32,768.

    Args:
        completion_tokens: The tokens of each completion.

    Returns:
        The share of each completion, in the shape given.

    Examples:
        >>> from scorio.categorical import token_ratio
        >>> token_ratio([16384, 32768])
        array([0.5, 1. ])
    """
    return np.asarray(completion_tokens, dtype=float) / TOKEN_CAP


def repeated_pattern(finish_reasons: Sequence[str]) -> FloatArray:
    """0 where the model stopped by itself (finish_reason "stop"), 1 where it did not: a degenerate output.

    Args:
        finish_reasons: The finish_reason of each trial.

    Returns:
        0 or 1 for each reason.

    Examples:
        >>> from scorio.categorical import repeated_pattern
        >>> repeated_pattern(["stop", "length"])
        array([0., 1.])
    """
    return np.array([reason != "stop" for reason in finish_reasons], dtype=float)


def bits_per_token(logprob_sum: ArrayLike, tokens: ArrayLike) -> FloatArray:
    """-sum(log p) / (tokens ln 2), for natural-log probabilities as servers report them; NaN without tokens.

    Args:
        logprob_sum: The sum of the natural log-probabilities of each text.
        tokens: The number of its tokens.

    Returns:
        The bits per token of each text.

    Examples:
        >>> import numpy as np
        >>> from scorio.categorical import bits_per_token
        >>> np.round(bits_per_token([-69.3, -10.0], [100, 0]), 3)
        array([ 1., nan])
    """
    count = np.asarray(tokens, dtype=float)
    total = np.asarray(logprob_sum, dtype=float)
    bits = np.full(np.broadcast_shapes(total.shape, count.shape), np.nan)
    np.divide(-total, count * np.log(2.0), out=bits, where=count > 0)
    return bits


def _checked(name: str, given: ArrayLike) -> FloatArray:
    """A read-only copy as floats, every value NaN or in the range of the signal."""
    values = np.array(given, dtype=float)
    low, high = RANGES[name]
    outside = (values < low) | (values > high) | np.isinf(values)
    if outside.any():
        limits = f"between {low:g} and {high:g}" if np.isfinite(high) else f"finite and at least {low:g}"
        raise ValueError(f"signal {name} must be {limits} (NaN: missing), got {values[outside][0]}")
    values.setflags(write=False)
    return values


def signals_of(records: Iterable[Mapping[str, Any]]) -> Signals:
    """One value per record: NaN if a record lacks the signal. A signal that no record has is not recorded.

    Args:
        records: The trials, as mappings with the parts output, tokens and processed_results; a part may be absent.

    Returns:
        The `Signals` of the records, in their order.

    Examples:
        >>> from scorio.categorical import signals_of
        >>> record = {"output": {"finish_reason": "stop"}, "processed_results": {"is_correct": 1, "has_box": 0}}
        >>> signals = signals_of([record])
        >>> signals.is_correct, signals.has_box, signals.repeated_pattern
        (array([1.]), array([0.]), array([0.]))
    """
    rows = [_row(record) for record in records]
    if not rows:
        raise ValueError("records must hold at least one trial, got none")
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    recorded = {name: values for name, values in columns.items() if not all(map(math.isnan, values))}
    return Signals(**recorded)  # type: ignore[arg-type]


def _row(record: Mapping[str, Any]) -> dict[str, float]:
    output, tokens = record.get("output") or {}, record.get("tokens") or {}
    results, reason = record.get("processed_results") or {}, output.get("finish_reason")
    return {
        "has_box": _number(results.get("has_box")),
        "is_correct": _number(results.get("is_correct")),
        "token_ratio": float(token_ratio(_number(output.get("num_completion_tokens")))),
        "repeated_pattern": math.nan if reason is None else float(reason != "stop"),
        "prompt_bpt": _bits(tokens, "prompt"),
        "completion_bpt": _bits(tokens, "completion"),
    }


def _bits(tokens: Mapping[str, Any], part: str) -> float:
    """-mean(ln p) / ln 2 = log2(perplexity)."""
    mean, perplexity = tokens.get(f"{part}_avg_logprob"), tokens.get(f"{part}_ppl")
    if mean is not None:
        return -float(mean) / math.log(2.0)
    return math.nan if perplexity is None else math.log2(perplexity)


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)
