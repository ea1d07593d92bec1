"""Trials with which a recorded model would have to be recorded, where its own error keeps a comparison undecided."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from adaptive_eval.record.lines import safe_name
from adaptive_eval.record.results import PairRow, Results

LONGEST_NAME = 40


class RecordingNeed(NamedTuple):
    """Trials a question of a recorded model, and of the one compared with it, that would about decide the pair."""

    trials: int
    model: str
    there: float
    """Trials a question that are recorded."""

    def __str__(self) -> str:
        name = safe_name(self.model, LONGEST_NAME)
        return f"a recording of {name} with about {self.trials:,} trials a question, in place of {self.there:,.0f}"


def recording_need(results: Results, pair: PairRow) -> RecordingNeed | None:
    """The trials that an undecided pair needs of its recorded model; None where trials of the other alone are nearer.

    With n_l trials of variance s_l^2 today, N of both leave the difference a variance of sum(s_l^2 n_l) / N. The
    boundary at the horizon is about today's times the root of the information.
    """
    two = [row for row in results.models if row.name in (pair.better, pair.worse)]
    recorded = next((row for row in two if row.recorded is not None), None)
    numbers = (pair.z, pair.boundary, pair.information, pair.sigma, pair.difference, *(row.sigma for row in two))
    if recorded is None or any(number is None for number in numbers):
        return None
    decisions = cast(Mapping[str, Mapping[str, Any]], results.decisions)
    asked = sum(row.recorded is None for row in results.models)
    questions = results.cost.fixed_trials / asked / decisions["trials"]["max"]
    z, boundary, information, sigma, gap, *sigmas = (cast(float, number) for number in numbers)
    tie = 0.0 if results.gate else (decisions["stopping"]["delta"] - abs(gap)) / sigma
    squares = [one * one for one in sigmas]
    times = information * (boundary / max(abs(z), tie, 1e-6)) ** 2
    depth = sum(square * row.trials for square, row in zip(squares, two, strict=True)) / sum(squares) / questions
    there = recorded.trials / questions
    trials = max(math.ceil(times * depth), math.floor(there) + 1)
    return None if (pair.trials_needed or math.inf) < 2 * trials else RecordingNeed(trials, recorded.name, there)
