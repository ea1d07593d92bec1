"""Format of a forecast: these dataclasses are what `plan --json` writes, field by field.

A number that does not exist is None here and null in the file. The format has a version: a field may be added under
the same version, and anything else changes it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from scorio.moments import FloatArray

FORMAT = "adaptive-eval.plan/2"


@dataclass(frozen=True, slots=True)
class Range:
    """Median over the simulated runs, and the 80% interval between the 10th and the 90th percentile."""

    median: float
    low: float
    high: float


def median_range(values: Sequence[float] | FloatArray) -> Range:
    """The median and the 80% interval; quantile p of n values is number p (n + 1), so that a further one fits."""
    low, median, high = np.quantile(np.asarray(values, dtype=float), (0.1, 0.5, 0.9), method="weibull").tolist()
    return Range(median, low, high)


@dataclass(frozen=True, slots=True)
class Costs:
    """Costs of runs; None if unknown."""

    trials: Range
    tokens: Range | None
    usd: Range | None
    """None also if no model has a price."""
    gpu_hours: Range | None
    """As `budget.gpu_hours` counts them. None also if no model has GPUs of its own."""
    seconds: Range | None
    """Time of simulated servers with the configured concurrency."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """Costs and ends of runs under one budget."""

    costs: Costs
    reached: float
    """The share of runs that reach the objective: every comparison is resolved or tied."""
    decided: Range
    """Comparisons that are resolved or tied."""
    comparisons: int
    """Number of comparisons of the objective; 0 if the budget does not cover the first round of any run."""
    ended: Mapping[str, float]
    """Shares of the runs by the reason of their end."""
    gate: Mapping[str, float] = field(default_factory=dict)
    """The chance of PASS, FAIL and UNDECIDED over all models, if there is a gate."""


@dataclass(frozen=True, slots=True)
class Undecided:
    """A comparison that may stay undecided."""

    first: str
    """The model placed higher in more of the runs that leave it undecided."""
    second: str | None
    """None: a fixed value (objectives threshold and precision)."""
    chance: float
    """The share of all runs that compare it and leave it undecided."""
    gap: float | None
    """The median of the true difference in these runs."""
    trials_needed: float | None
    """The median of the trials per question at which the difference seen at the end would be called."""


@dataclass(frozen=True, slots=True)
class SmallestDifferences:
    """The smallest differences that such a run can call, or certify as ties."""

    gap: float | None
    """The smallest true difference of which 80% are called within the budget; None if no simulated one reaches that."""
    largest: float | None
    """The largest true difference that was compared."""
    delta: float | None
    """The smallest delta with which 80% of equal pairs are certified as tied, or pass a gate, with an even budget; None
    if the objective has no ties."""


@dataclass(frozen=True, slots=True)
class FixedWithAsMany:
    """The smallest fixed design with one look that calls as many neighbours on average over some of the worlds."""

    number: float | None
    """Its trials per question; None if even the maximum calls fewer."""
    called: float
    """Neighbours that the run calls."""
    cost: float
    """The run's trials relative to that design, or to the maximum as an upper bound."""
    worlds: int


@dataclass(frozen=True, slots=True)
class PartCosts:
    """Costs of a part of the run; None if unknown."""

    trials: int
    tokens: float | None
    usd: float | None
    gpu_hours: float | None
    seconds: float | None


@dataclass(frozen=True, slots=True)
class GradeCosts:
    """Cost of the grades by a judge or a verifier, within the budget; `need` and `capped` contain it."""

    tokens: Range | None
    usd: Range | None
    gpu_hours: Range | None


@dataclass(frozen=True, slots=True)
class Forecast:
    """A forecast, as its file has it."""

    format: str
    name: str
    version: str
    """Version of adaptive-eval."""
    worlds: int
    seed: int
    pilot: str | None
    """The name of the run whose trials the worlds are drawn from; None: from a prior."""
    basis: tuple[str, ...]
    """Sentences on where the worlds come from, and what was assumed."""
    decisions: Mapping[str, object]
    """The configuration's objective, stopping, trials and budget."""
    models: tuple[str, ...]
    scores: tuple[Range, ...]
    """True score of each model over the worlds, in the same order."""
    gap: Range
    """The difference of neighbours in the true order, over the worlds."""
    need: Outlook
    """Without any cap."""
    capped: Outlook | None
    """Within the configured budget; None without one."""
    spent: PartCosts | None
    """Costs so far, contained in `need` and `capped`; None unless the pilot is the run to be continued."""
    grading: GradeCosts | None
    """None if no model is asked for grades."""
    fixed: Mapping[str, float | None]
    """Trials, tokens, usd, gpu_hours and seconds with the maximum of trials for every model."""
    times_as_long: float | None
    """Time of the run within the budget, relative to the fixed design; None if unknown."""
    undecided: tuple[Undecided, ...]
    """Within the budget, likeliest first."""
    limits: SmallestDifferences
    equal: Outlook | None = None
    """The outlook within the budget if each model of a gate had the baseline's true scores; None without a gate on a
    baseline."""
    why_optimized: str | None = None
    """Why `trials.optimize: auto` chose what the decisions name; None if it was given."""
    as_many: FixedWithAsMany | None = None
    """Cost of the run within the budget, relative to the fixed design that calls as many pairs; None if nothing is
    decided, neighbours are not compared, outcomes are known beforehand, or it would take too long."""
