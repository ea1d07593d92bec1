"""The rubric variables (paper, Table 4) as data: each is a conjunction of comparisons on the base signals.

Four points the tables leave open are decided here, so that the categories of each schema exclude one another and
cover every trial:

- `wrong and low_conf` beside `wrong_high_conf`: the two use different thresholds and would overlap, or leave a gap.
  wrong_high_conf holds as printed, and every other wrong trial is `wrong_low_conf`.
- `correct and low_conf / mid / high_conf`: mid is not defined. The three are the tertiles cut by corr_p33 and
  corr_p66, which Table 4 defines for correct trials and no other rule uses.
- `high C`, `high B` (Verifier-Only): C >= 0.5 is already invalid. Of the trials that are not A_high, high C holds
  where C > B, high B elsewhere.
- `correct and economical` beside `correct and economical and high_conf`: the first means the low_conf rest.

The percentile thresholds of the rubric variables (paper, Table 4), fitted on one set of trials and then frozen.

A data set's thresholds move with the trials they are fitted on, and with them the meaning of the categories. Fit once
(on a pilot, or on the finished data set) and classify everything with the same `Thresholds`.
"""

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from scorio.categorical.signals import Signals
from scorio.moments import FloatArray


class Percentile(NamedTuple):
    """How a threshold is fitted: a percentile of one signal, over all trials or those with is_correct on one side."""

    signal: str
    percent: float
    correct: bool | None = None
    """None: all trials; False: the wrong ones; True: the correct ones."""


PERCENTILES: Mapping[str, Percentile] = {
    "high": Percentile("completion_bpt", 40),
    "low_wrong": Percentile("completion_bpt", 60, correct=False),
    "prompt": Percentile("prompt_bpt", 90),
    "len_p33": Percentile("token_ratio", 33),
    "len_p66": Percentile("token_ratio", 66),
    "corr_p33": Percentile("completion_bpt", 33, correct=True),
    "corr_p66": Percentile("completion_bpt", 66, correct=True),
}


@dataclass(frozen=True)
class Thresholds:
    """The fitted values of `PERCENTILES`; None: not fitted, since its signal or its trials were missing.

    Attributes:
        high: Of completion_bpt over all trials, 40th percentile.
        low_wrong: Of completion_bpt over the wrong trials, 60th percentile.
        prompt: Of prompt_bpt over all trials, 90th percentile.
        len_p33: Of token_ratio over all trials, 33rd percentile.
        len_p66: Of token_ratio over all trials, 66th percentile.
        corr_p33: Of completion_bpt over the correct trials, 33rd percentile.
        corr_p66: Of completion_bpt over the correct trials, 66th percentile.

    Examples:
        >>> from scorio.categorical import Thresholds
        >>> Thresholds(len_p33=0.2, len_p66=0.4).len_p66
        0.4
    """

    high: float | None = None
    low_wrong: float | None = None
    prompt: float | None = None
    len_p33: float | None = None
    len_p66: float | None = None
    corr_p33: float | None = None
    corr_p66: float | None = None

    def __post_init__(self) -> None:
        for name in PERCENTILES:
            value = getattr(self, name)
            if value is not None and not np.isfinite(value):
                raise ValueError(f"threshold {name} must be finite, got {value}: leave it out if it was not fitted")
        for low, high in (("len_p33", "len_p66"), ("corr_p33", "corr_p66")):
            lower, upper = getattr(self, low), getattr(self, high)
            if lower is not None and upper is not None and lower > upper:
                raise ValueError(f"threshold {low} must not be above {high}, got {lower} > {upper}")


def fit_thresholds(signals: Signals) -> Thresholds:
    """Fit every threshold that the recorded signals allow.

    Percentiles are taken over all trials given, of all models and questions and the invalid ones too, with linear
    interpolation between the order statistics.

    Args:
        signals: The base signals of the trials.

    Returns:
        The `Thresholds`; None for those that cannot be fitted.

    Examples:
        >>> from scorio.categorical import Signals, fit_thresholds
        >>> thresholds = fit_thresholds(Signals(token_ratio=[0.1, 0.2, 0.3, 0.4, 0.5]))
        >>> round(thresholds.len_p33, 3), round(thresholds.len_p66, 3), thresholds.prompt
        (0.232, 0.364, None)
    """
    return Thresholds(**{name: _fit(signals, rule, name) for name, rule in PERCENTILES.items()})


def _fit(signals: Signals, rule: Percentile, name: str) -> float | None:
    if getattr(signals, rule.signal) is None or (rule.correct is not None and signals.is_correct is None):
        return None
    values: FloatArray = signals.require(rule.signal, f"threshold {name}")
    is_correct = None if rule.correct is None else signals.require("is_correct", f"threshold {name}")
    return fit_percentile(rule, chosen_values(rule, values, is_correct))


def chosen_values(rule: Percentile, values: FloatArray, is_correct: FloatArray | None) -> FloatArray:
    """The values that a threshold is fitted on: all, or those of the right or the wrong trials."""
    if rule.correct is None or is_correct is None:
        return values
    return np.asarray(values[(is_correct >= 0.5) == rule.correct])


def fit_percentile(rule: Percentile, values: FloatArray) -> float | None:
    """The percentile with linear interpolation between the order statistics; None of no value."""
    return float(np.percentile(values, rule.percent)) if values.size else None


class SignalCondition(NamedTuple):
    """`signal relation bound`; the bound is a number, or the name of a threshold or of another signal."""

    signal: str
    relation: Callable[[Any, Any], Any]
    bound: float | str


# Category 0 of every schema: a degenerate output, or one the verifier calls off-task. Either is enough.
INVALID = (
    SignalCondition("repeated_pattern", operator.eq, 1.0),
    SignalCondition("verifier_c", operator.ge, 0.50),
)

CORRECT = SignalCondition("is_correct", operator.ge, 0.5)
WRONG = SignalCondition("is_correct", operator.lt, 0.5)
A_NOT_HIGH = SignalCondition("verifier_a", operator.lt, 0.6)

# All comparisons of a variable must hold.
VARIABLES: Mapping[str, tuple[SignalCondition, ...]] = {
    "correct": (CORRECT,),
    "wrong": (WRONG,),
    "high_conf": (SignalCondition("completion_bpt", operator.le, "high"),),
    "low_conf": (SignalCondition("completion_bpt", operator.gt, "high"),),
    "wrong_high_conf": (WRONG, SignalCondition("completion_bpt", operator.le, "low_wrong")),
    "wrong_low_conf": (WRONG, SignalCondition("completion_bpt", operator.gt, "low_wrong")),
    "correct_high_conf": (CORRECT, SignalCondition("completion_bpt", operator.le, "corr_p33")),
    "correct_mid_conf": (
        CORRECT,
        SignalCondition("completion_bpt", operator.gt, "corr_p33"),
        SignalCondition("completion_bpt", operator.le, "corr_p66"),
    ),
    "correct_low_conf": (CORRECT, SignalCondition("completion_bpt", operator.gt, "corr_p66")),
    "ood": (SignalCondition("prompt_bpt", operator.ge, "prompt"),),
    "ind": (SignalCondition("prompt_bpt", operator.lt, "prompt"),),
    "economical": (SignalCondition("token_ratio", operator.le, "len_p33"),),
    "moderate": (
        SignalCondition("token_ratio", operator.gt, "len_p33"),
        SignalCondition("token_ratio", operator.le, "len_p66"),
    ),
    "verbose": (SignalCondition("token_ratio", operator.gt, "len_p66"),),
    "boxed": (SignalCondition("has_box", operator.ge, 0.5),),
    "unboxed": (SignalCondition("has_box", operator.lt, 0.5),),
    "A_high": (SignalCondition("verifier_a", operator.ge, 0.6),),
    "A_not_high": (A_NOT_HIGH,),
    "B_high": (A_NOT_HIGH, SignalCondition("verifier_b", operator.ge, "verifier_c")),
    "C_high": (A_NOT_HIGH, SignalCondition("verifier_c", operator.gt, "verifier_b")),
}
