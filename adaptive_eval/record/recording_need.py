"""Trials that a recording would need, where the recorded model's own error leaves a comparison undecided."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from adaptive_eval.record.lines import safe_name
from adaptive_eval.record.results import PairRow, Results

LONGEST_NAME = 40


class RecordingNeed(NamedTuple):
    """Trials per question of a recorded model, and of its opponent, that would probably decide their comparison."""

    trials: int
    model: str
    there: float

    def __str__(self) -> str:
        name = safe_name(self.model, LONGEST_NAME)
        return f"a recording of {name} with about {self.trials:,} trials a question, in place of {self.there:,.0f}"


def recording_need(results: Results, pair: PairRow) -> RecordingNeed | None:
    """The recording that an undecided pair needs; None if more trials of the other model alone would be cheaper.

    N trials of both give the difference a variance of sum(s^2 n) / N, with the current s^2 and n of each. The boundary
    at the horizon is about the current one times the square root of the information.
    """
    two = [row for row in results.models if row.name in (pair.better, pair.worse) and row.sigma]
    recorded = next((row for row in two if row.recorded is not None), None)
    if recorded is None or not (pair.boundary and pair.information and pair.sigma) or pair.difference is None:
        return None
    decisions = cast(Mapping[str, Mapping[str, Any]], results.decisions)
    questions = results.fixed_each / decisions["trials"]["max"]
    tie = 0.0 if results.gate else (decisions["stopping"]["delta"] - abs(pair.difference)) / pair.sigma
    times = pair.information * (pair.boundary / max(abs(pair.z or 0.0), tie, 1e-6)) ** 2
    squares = [(row.sigma or 0.0) ** 2 for row in two]
    depth = sum(square * row.trials for square, row in zip(squares, two, strict=True)) / sum(squares) / questions
    there = recorded.trials / questions
    trials = max(math.ceil(times * depth), math.floor(there) + 1)
    return None if (pair.trials_needed or math.inf) < 2 * trials else RecordingNeed(trials, recorded.name, there)
