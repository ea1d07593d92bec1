"""How often an alarm says that a server has changed: when none has, and how soon when one has.

    python benchmarks/answer_alarms.py [--quick] [--json PATH]

A model answers 30 questions in 4 passes of 2 answers each, which the first look judges, then in 16 rounds of one. Each
question has its own share of answers of some kind (empty, cut off ...), drawn from a Beta distribution. Where a server
changes, the share of each question rises to a new one at some pass. The alarm is that of a run with four models.
"""

from itertools import product
from math import exp, inf, log

import numpy as np
from tables import arguments, at_most, markdown, publish

from adaptive_eval.core.answer_alarms import FALSE_ALARM, first_changed_pass, log_chances, tried_moments
from adaptive_eval.core.answer_kinds import AnswerKind
from scorio.moments import FloatArray, IntArray

QUESTIONS, MODELS = 30, 4
SIZES = np.array([2] * 4 + [1] * 16)
OPENING = 4
"""Passes before the first look."""
HYPOTHESES = MODELS * len(AnswerKind)
MEANS, CONCENTRATIONS = (0.02, 0.1, 0.3, 0.7), (0.3, 3.0, 100.0)
"""Shares of a kind over the questions: their means, and how alike the questions are."""
LIMITS = (0.1, 0.01)
"""Limits, for one kind of one model, at which false alarms are frequent enough to be counted."""
CHANGES = ((0.0, 1.0), (0.0, 0.3), (0.0, 0.1), (0.1, 0.5), (0.1, 0.2))
SINCE = (2, 6, 12)


def passes(shares: FloatArray, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
    """Trials and hits (T, M) of a run, from the shares (T, M) of hits."""
    trials = np.tile(SIZES[:, None], (1, QUESTIONS))
    return trials, rng.binomial(trials, shares)


def chances(trials: IntArray, hits: IntArray) -> FloatArray:
    """For each look of a run, the smallest bound on a chance, times the number of moments and looks tried."""
    smallest = []
    for number, seen in enumerate(range(OPENING, len(SIZES) + 1), 1):
        moments = tried_moments(seen)
        bound = float(log_chances(trials[:seen], hits[:seen], moments).min())
        smallest.append(exp(min(bound + log(len(moments) * number * (number + 1)), 0.0)))
    return np.array(smallest)


def without_change(runs: int, rng: np.random.Generator) -> dict[float, FloatArray]:
    """The smallest chance of each run, by the mean share."""
    worlds = {}
    for mean in MEANS:
        smallest = []
        for concentration, _ in product(CONCENTRATIONS, range(runs)):
            p = rng.beta(mean * concentration, (1.0 - mean) * concentration, QUESTIONS)
            smallest.append(chances(*passes(np.tile(p, (len(SIZES), 1)), rng)).min())
        worlds[mean] = np.array(smallest)
    return worlds


def with_change(runs: int, rng: np.random.Generator) -> list[tuple[str, ...]]:
    """For each change, how often the alarm comes, after how many answers, and how far off its moment is."""
    rows = []
    for before, after in CHANGES:
        cells, offsets = [], []
        for since in SINCE:
            delays = []
            late = (np.arange(len(SIZES)) >= since)[:, None]
            for _ in range(runs):
                trials, hits = passes(np.where(late, after, before) * np.ones(QUESTIONS), rng)
                raised = np.flatnonzero(chances(trials, hits) <= FALSE_ALARM / HYPOTHESES)
                if len(raised):
                    seen = OPENING + int(raised[0])
                    delays.append(int(SIZES[since:seen].sum()) if seen > since else -inf)
                    offsets.append(first_changed_pass(trials[:seen], hits[:seen]) - since)
            cells.append(f"{len(delays) / runs:.0%}" + (f", {np.median(delays):g}" if delays else ""))
        rows.append((f"{before:.0%} to {after:.0%}", *cells, f"{np.median(offsets):g}" if offsets else ""))
    return rows


def main() -> None:
    options = arguments(__doc__, runs=2500, quick_runs=12).parse_args()
    rng, alarm = np.random.default_rng(11), FALSE_ALARM / HYPOTHESES
    worlds = without_change(options.runs, rng)
    smallest = np.concatenate(list(worlds.values()))
    alarms = int((smallest <= alarm).sum())
    checks = [at_most(f"alarms in {len(smallest):,} runs without a change", alarms, FALSE_ALARM * len(smallest))]
    for limit in LIMITS:
        checks.append(at_most(f"runs with a chance of {limit:g} or less", (smallest <= limit).mean(), limit, 5))
    rows = []
    for mean, of_mean in worlds.items():
        shares = [f"{(of_mean <= limit).mean():.3%}" for limit in LIMITS]
        rows.append((f"{mean:g}", len(of_mean), *shares, int((of_mean <= alarm).sum())))
    changed = with_change(max(options.runs // 50, 4), rng)
    publish(
        options,
        "Alarms about servers that change",
        __doc__,
        f"Without a change (the limit of a run is {FALSE_ALARM:g}, divided among its models and kinds):",
        markdown(("mean share", "runs", *(f"chance <= {limit:g}" for limit in LIMITS), "alarms"), rows),
        "With a change after so many answers per question: how often it is noticed, the median number of answers per "
        "question until then, and how many passes too late its moment is found:",
        markdown(("share", *(f"after {SIZES[:since].sum()}" for since in SINCE), "passes off"), changed),
        checks=checks,
    )


if __name__ == "__main__":
    main()
