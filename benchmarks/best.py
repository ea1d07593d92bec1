"""What picking the best models costs, and how far the pick is behind: objectives `best` and `top_k` under two rules.

A unit is one trial on all questions of a model. Regret is the mean true score of the best models minus that of those
that are picked, in points. Each row also has the size of the smallest fixed design with no more regret, which spreads
its units evenly over the models and picks the highest means; nobody knows that size beforehand.

    python benchmarks/best.py [--quick] [--runs 200] [--json PATH]
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from replays import play
from scenarios import Scenario, all_recorded, paced, simulated
from tables import Check, arguments, at_most, markdown, publish

from adaptive_eval.core import Best, NearBest, Objective, TopK
from adaptive_eval.core.near_best import MARGIN
from adaptive_eval.core.types import Reason
from adaptive_eval.simulate.worlds import World, binary, with_mean
from adaptive_eval.study.fixed import first_outcomes
from scorio.moments import FloatArray

PICKS: dict[int, Objective] = {1: Best(), 3: TopK(3)}
MAX_UNITS, MAX_REGRET = 120.0, 0.20
"""Goals for `near_best` on AIME'24, the second in points."""
WORST_RIVALS = (1, 5, 11)
"""Numbers of equal rivals that are behind the best by exactly the margin."""
WORST_CAP = 320
"""Trials per question that these may have, so that most runs end with a pick."""
FIXED_DRAWS = 2_000
"""Of the fixed design."""
HEADER = ("set", "picked", "rule", "units", "of all", "regret", "smallest", "of it", "behind", "undecided")


class Picked(NamedTuple):
    """Runs of one set: means."""

    units: float
    regret: float
    smallest: float
    """Units of the smallest fixed design with no more regret; infinite: more than are allowed."""
    behind: float
    undecided: float


def picked(scenario: Scenario, picks: int, rule: str, runs: int) -> Picked:
    """Seeded replays, and fixed designs of their size."""
    truth, w = scenario.world.truth, scenario.world.w
    models, questions, _ = scenario.world.p.shape
    choices = {**paced(scenario, "cost"), "objective": PICKS[picks]}
    if rule == "near_best":
        choices["rule"] = NearBest(start=scenario.start)
    rows = list[tuple[float, ...]]()
    for run in play(scenario, scenario.plan(**choices), runs):
        counts = run.counts
        best = highest((counts @ w / counts.sum(axis=-1)).mean(axis=1), picks)
        settled = run.finished == Reason.SETTLED
        lost = np.delete(truth, best).max() - truth[best].min()
        behind = settled and lost >= MARGIN - 1e-9
        rows.append((float(counts.sum()) / questions, regret(truth, best), float(behind), float(not settled)))
    units, mean_regret, behind_share, undecided = np.mean(rows, axis=0).tolist()
    fixed = np.mean([regret_by_trials(scenario, draw, picks) for draw in range(FIXED_DRAWS)], axis=0)
    enough = np.flatnonzero(fixed <= mean_regret)
    smallest = float(models * (enough[0] + 1)) if enough.size else np.inf
    return Picked(units, mean_regret, smallest, behind_share, undecided)


def regret(truth: FloatArray, chosen: NDArray[np.intp]) -> float:
    """How far the chosen models are behind the best, in points."""
    return 100.0 * float(np.sort(truth)[::-1][: len(chosen)].mean() - truth[chosen].mean())


def regret_by_trials(scenario: Scenario, draw: int, picks: int) -> FloatArray:
    """Regret of the fixed design with 1, 2, ... trials of each question."""
    truth = scenario.world.truth
    models, questions, _ = scenario.world.p.shape
    outcomes = first_outcomes(scenario.tape(draw), models, questions, scenario.cap)
    scores = scenario.world.w[outcomes].mean(axis=1).cumsum(axis=1)  # in proportion to the means
    return np.array([regret(truth, highest(score, picks)) for score in scores.T])


def highest(scores: FloatArray, picks: int) -> NDArray[np.intp]:
    """The models with the highest scores."""
    return np.asarray(np.argsort(-scores, kind="stable")[:picks])


def worst_case(rivals: int) -> Scenario:
    """A best model, and rivals that are equal and behind it by exactly the margin."""
    profile = 1.0 / (1.0 + np.exp(-np.random.default_rng(0).normal(0.0, 2.0, 30)))
    means = [0.5 + MARGIN, *[0.5] * rivals]
    world = World("worst", binary(np.array([with_mean(profile, mean) for mean in means])))
    return Scenario(f"{rivals} at the margin", world, cap=WORST_CAP)


def main() -> None:
    options = arguments(__doc__, runs=200, quick_runs=20, data=True).parse_args()
    sets = [simulated(name) for name in ("coins", "shared_difficulty", "many_close")] + all_recorded(options.data)
    asked = [(scenario, picks, rule) for scenario in sets for picks in PICKS for rule in ("near_best", "optimal")]
    asked += [(worst_case(rivals), 1, "near_best") for rivals in WORST_RIVALS]
    table, checks = list[tuple[object, ...]](), list[Check]()
    for scenario, picks, rule in asked[:4] if options.quick else asked:
        result = picked(scenario, picks, rule, options.runs)
        of_all = result.units / (len(scenario.world.truth) * scenario.cap)
        of_it = result.units / result.smallest
        smallest = ("more", "") if np.isinf(result.smallest) else (f"{result.smallest:.0f}", f"{of_it:.2f}")
        shares = f"{result.behind:.1%}", f"{result.undecided:.0%}"
        row = (f"{result.units:.0f}", f"{of_all:.2f}", f"{result.regret:.2f}", *smallest, *shares)
        table.append((scenario.name, picks, rule, *row))
        if (scenario.name, picks, rule) == ("aime2024", 1, "near_best"):
            checks.append(at_most("aime2024: units", result.units, MAX_UNITS, 1))
            checks.append(at_most("aime2024: regret, points", result.regret, MAX_REGRET, 2))
        if scenario.name.endswith("margin"):
            share = result.behind / len(scenario.world.truth[1:])
            checks.append(at_most(f"{scenario.name}: wrong, per pair", share, 0.05))
    about = f"{options.runs} seeded runs per row, `optimize: cost`."
    publish(options, "Picking the best", __doc__, about, markdown(HEADER, table), checks=checks)


if __name__ == "__main__":
    main()
