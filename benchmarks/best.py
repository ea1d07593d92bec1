"""What picking the best models costs, and how far the pick is behind: objectives `best` and `top_k` under two rules.

A unit is one trial on all questions of a model. Regret is the mean true score of the best models minus that of those
that are picked, in points. Each row also has the size of the smallest fixed design with no more regret, which spreads
its units evenly over the models and picks the highest means; nobody knows that size beforehand.

    python benchmarks/best.py [--quick] [--runs 200] [--json PATH] [--markdown PATH]
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scenarios import RECORDED_CAPS, Scenario, paced, recorded, simulated
from stacked import play_stacked
from tables import Check, add_data, arguments, check_table, machine, markdown, publish

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
HEADER = (
    "set", "picked", "rule", "units", "of all", "regret", "smallest", "of it", "behind",
    "undecided",
)  # fmt: skip

EXPLAINED = """\
{runs} seeded runs per row, `optimize: cost`. *Of all*: share of the trials that are allowed. *Smallest*: units of the
smallest fixed design with no more regret, and *of it* the units of the runs as its share. *Behind*: runs that end
with a pick although a model that is left out is better than a picked one by 2 points or more. *Undecided*: runs that
end without a pick, though they have a leader. *At the margin*: equal rivals, all behind the best by exactly 2 points,
with up to 320 trials per question. Its goals are for each rival, as the promise is. Machine: {machine}."""


class Picked(NamedTuple):
    """Runs of one set: means."""

    units: float
    regret: float
    smallest: float
    """Units of the smallest fixed design with no more regret; infinite: more than are allowed."""
    behind: float
    undecided: float

    @property
    def of_it(self) -> float:
        """The units as a share of those of the smallest fixed design."""
        return self.units / self.smallest


def picked(scenario: Scenario, picks: int, rule: str, runs: int) -> Picked:
    """Seeded replays, and fixed designs of their size."""
    truth, w = scenario.world.truth, scenario.world.w
    models, questions, _ = scenario.world.p.shape
    choices = {**paced(scenario, "cost"), "objective": PICKS[picks]}
    if rule == "near_best":
        choices["rule"] = NearBest(start=scenario.start)
    rows = list[tuple[float, ...]]()
    for run in play_stacked(scenario, scenario.plan(**choices), runs):
        counts = run.end.counts
        best = highest((counts @ w / counts.sum(axis=-1)).mean(axis=1), picks)
        settled = run.end.reason == Reason.SETTLED
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


def rows(scenario: Scenario, picks: int, runs: int, rules: tuple[str, ...]) -> Iterator[tuple[str, Picked]]:
    """The rules on one set."""
    for rule in rules:
        yield rule, picked(scenario, picks, rule, runs)


def main() -> None:
    parser = arguments((__doc__ or "").splitlines()[0])
    add_data(parser)
    parser.add_argument("--runs", type=int, default=200, help="seeded runs per row")
    options = parser.parse_args()
    runs = 20 if options.quick else options.runs
    sets = [simulated(name) for name in ("coins", "shared_difficulty", "many_close")]
    if options.data.is_dir():
        sets += [recorded(options.data, name) for name in RECORDED_CAPS]
    asked: list[tuple[Scenario, int, tuple[str, ...]]] = [
        (scenario, picks, ("near_best", "optimal")) for scenario in sets for picks in PICKS
    ]
    asked += [(worst_case(rivals), 1, ("near_best",)) for rivals in WORST_RIVALS]
    table, checks = list[tuple[object, ...]](), list[Check]()
    for scenario, picks, rules in asked[:2] if options.quick else asked:
        all_trials = scenario.world.p.shape[0] * scenario.cap
        for rule, result in rows(scenario, picks, runs, rules):
            table.append((
                scenario.name, picks, rule, f"{result.units:.0f}", f"{result.units / all_trials:.2f}",
                f"{result.regret:.2f}",
                *(("more", "") if np.isinf(result.smallest) else (f"{result.smallest:.0f}", f"{result.of_it:.2f}")),
                f"{result.behind:.1%}", f"{result.undecided:.0%}",
            ))  # fmt: skip
            print(*table[-1], flush=True)
            if (scenario.name, picks, rule) == ("aime2024", 1, "near_best"):
                units, regret = result.units, result.regret
                checks.append(Check("aime2024: units", round(units, 1), f"<= {MAX_UNITS:g}", units <= MAX_UNITS))
                checks.append(
                    Check("aime2024: regret, points", round(regret, 2), f"<= {MAX_REGRET:g}", regret <= MAX_REGRET)
                )
            if scenario.name.endswith("margin"):
                share = result.behind / len(scenario.world.truth[1:])
                checks.append(Check(f"{scenario.name}: wrong, per pair", round(share, 3), "<= 0.05", share <= 0.05))
    about = EXPLAINED.format(runs=runs, machine=machine())
    parts = ["# Picking the best", (__doc__ or "").strip(), about, markdown(HEADER, table), check_table(checks)]
    publish(options, "\n\n".join(parts), checks)


if __name__ == "__main__":
    main()
