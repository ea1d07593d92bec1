"""A finished run compared with the smallest fixed number of trials that calls as many pairs.

The run's own outcomes cannot answer that. At a call the gap of a pair is known to some 40%, and the number that a fixed
design needs goes with its inverse square; and a run that called many was lucky, while the fixed design is not.
Intervals of that kind contained the truth in 58 to 92% of runs where 80% were promised, and bounds that hold in one
world fail in another. What can be computed is the result in known worlds: some are drawn from what the run's outcomes
leave open, as `plan` draws them from a pilot, and in each both a run by the same plan and the fixed design take place.
If gaps come out larger than they are, both cost less, so their ratio is closer to the truth than either. Its
uncertainty has two parts: that of the draw of worlds, by the jackknife, times 1.5, since the truth is one world and not
a mean; and `OFF`. Both were chosen so that measured intervals contain the truth in at least 80% of runs.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.core import Budget, Controller, Plan, Verdict
from adaptive_eval.core.objectives import Ranking
from adaptive_eval.core.tape import Tape
from adaptive_eval.record.lines import safe_line
from adaptive_eval.record.restore import open_run
from adaptive_eval.record.results import BesideFixed
from adaptive_eval.record.results_file import write_results
from adaptive_eval.study.drive import drive_rounds
from adaptive_eval.study.fixed import calls_by_trials, smallest_fixed
from adaptive_eval.study.worlds import posterior_chances
from scorio.moments import FloatArray, IntArray

WORLDS = 20
FIXED_DRAWS = 3
"""Draws of the fixed design in each world."""
FEWEST_WORLDS = 5
MOST_TRIALS = 6_000_000
"""Trials of the fixed design in all worlds together."""
OFF = 0.07
WIDER = 1.5
LONGEST = 1000
Z_80 = float(ndtri(0.9))


def store_beside_fixed(directory: Path) -> None:
    """Compare the run in `directory`, and store the result in results.json; raises `ConfigError` if it cannot be.

    Raises `StoreError` if there is no run, or it is damaged or names a plug-in.
    """
    with open_run(directory) as stored:
        results, counts = stored.published(), stored.counts().cells.astype(np.int64)
        why_not = [f"{row.name} was set aside" for row in (results.models if results else ()) if row.set_aside]
        why_not += [] if results and results.run.status == "finished" else ["it is not finished"]
        why_not += _obstacles(stored.plan, counts)
        found = None if why_not else compare_with_fixed(stored.plan, counts, stored.setup.config.stopping.confidence)
    if results is None or found is None:
        told = safe_line("; ".join(why_not), LONGEST)
        raise ConfigError(f"{directory} cannot be compared with a fixed design: {told}. Remove --beside-fixed")
    write_results(directory, replace(results, cost=replace(results.cost, beside_fixed=found)))


class _WorldResult(NamedTuple):
    trials: float
    """Trials of a run, per question."""
    called: float
    curve: FloatArray
    """Calls of one look after 1, 2 ... trials."""


def compare_with_fixed(plan: Plan, counts: IntArray, confidence: float, seed: int = 0) -> BesideFixed | None:
    """Compare a finished run with this plan and counts (L, M, K); None if it is impossible."""
    if any(_obstacles(plan, counts)):
        return None
    bench, most, worlds = plan.bench, plan.trials.max, _affordable_worlds(plan)
    drawn = posterior_chances(counts, bench.weights, worlds, np.random.default_rng([seed, 0]))
    found = [_run_in_world(plan, chances, confidence, (seed, number)) for number, chances in enumerate(drawn)]
    number, cost = _fixed_number(found), _cost_ratio(found, most)
    others = np.array([_cost_ratio([*found[:at], *found[at + 1 :]], most) for at in range(worlds)])
    drawing = math.sqrt((worlds - 1) / worlds * float(np.square(others - others.mean()).sum()))
    error = math.hypot(OFF, WIDER * drawing)
    return BesideFixed(
        called=float(np.mean([one.called for one in found])),
        trials=float(np.mean([one.trials for one in found])),
        number=number,
        cost=cost,
        low=max(cost - Z_80 * error, 0.0),
        high=cost + Z_80 * error,
        worlds=worlds,
    )


def _affordable_worlds(plan: Plan) -> int:
    return min(WORLDS, MOST_TRIALS // (FIXED_DRAWS * plan.bench.models * plan.bench.questions * plan.trials.max))


def _obstacles(plan: Plan, counts: IntArray) -> Iterator[str]:
    """Reasons why a run with this plan and counts cannot be compared."""
    obstacles = {
        "it has one model": plan.bench.models == 1,
        "its objective compares others than neighbours in the ranking": not isinstance(plan.objective, Ranking),
        "it compares other scores than the average": plan.estimator != "average",
        "its questions are drawn (trials.draw)": bool(plan.drawn),
        "outcomes were there when it began": plan.first is not None or plan.bench.prior_counts is not None,
        "trials.max was changed": bool(plan.earlier),
        "a model has no answer to some question": not counts.any(axis=-1).all(),
        "it is so large that the simulations would take too long": _affordable_worlds(plan) < FEWEST_WORLDS,
    }
    yield from (why for why, stands in obstacles.items() if stands)


def _run_in_world(plan: Plan, chances: FloatArray, confidence: float, seed: tuple[int, int]) -> _WorldResult:
    """A run without caps, and fixed designs, in one world."""
    bench = plan.bench
    rngs = (np.random.default_rng([*seed, 1 + draw]) for draw in range(FIXED_DRAWS))
    tapes = [Tape.from_chances(chances, bench.weights, rng) for rng in rngs]
    controller = Controller(replace(plan, budget=Budget()), keep_looks=False)
    drive_rounds(controller, tapes[0])
    curves = [calls_by_trials(plan, tape, chances, confidence) for tape in tapes]
    look = controller.latest_look()
    called = 0.0 if look is None else float(look.count(Verdict.RESOLVED))
    return _WorldResult(
        float(controller.arrived.sum()) / (bench.models * bench.questions), called, np.mean(curves, axis=0)
    )


def _fixed_number(found: list[_WorldResult]) -> float | None:
    """The smallest fixed number that calls as many pairs on average over the worlds; None if above the maximum."""
    curve = np.mean([one.curve for one in found], axis=0)
    return smallest_fixed(curve, float(np.mean([one.called for one in found])))


def _cost_ratio(found: list[_WorldResult], most: int) -> float:
    """Trials of the runs relative to the fixed design, or to the maximum if even that calls fewer."""
    return float(np.mean([one.trials for one in found])) / (_fixed_number(found) or most)
