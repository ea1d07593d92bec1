"""Rubric-aware grading (paper, section 3.4 and appendix D): base signals -> rubric variables -> categories.

    thresholds = fit_thresholds(pilot)                        # once, then frozen
    R = classify(signals, SCHEMATA["format_aware"], thresholds)
    counts = scorio.Counts.from_outcomes(R, w=SCHEMATA["format_aware"].weights)

A schema declares its categories and weights up front; they are never inferred from the trials that were seen.
"""

from scorio.categorical.schema import Category, Schema, classify
from scorio.categorical.schemata import SCHEMATA
from scorio.categorical.signals import (
    Signals,
    bits_per_token,
    calibrate_verifier,
    repeated_pattern,
    signals_of,
    token_ratio,
)
from scorio.categorical.variables import Thresholds, fit_thresholds

__all__ = [
    "SCHEMATA",
    "Category",
    "Schema",
    "Signals",
    "Thresholds",
    "bits_per_token",
    "calibrate_verifier",
    "classify",
    "fit_thresholds",
    "repeated_pattern",
    "signals_of",
    "token_ratio",
]
