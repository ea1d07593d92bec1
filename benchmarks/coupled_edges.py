"""Errors of comparisons trial by trial where they are hardest to keep: 2,000 simulated runs of each world.

What is asked for is never so: two models are equal, or a copy is worse than its original by just what a gate allows.
Every PASS and every FAIL is then a mistake, and so is every call. In a world each trial of both models is drawn
together: the copy may lose what the original has (and gain nothing, or half as much), on all questions alike or on a
few; outcomes may go against each other, or have nothing to do with each other. Runs are whole arrays: a look after each
trial a question, the rule and the giving up of `core`, and the choice of the pairs that are judged trial by trial at
the first look. Of others, which independent models' tests judge, there is the share.

    python benchmarks/coupled_edges.py [--quick] [--json PATH] [--markdown PATH]
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from tables import Check, arguments, conclude, markdown

from adaptive_eval.core.judge import Judging
from adaptive_eval.core.sequential import KAPPA_BY_TRIAL, Sequential
from adaptive_eval.core.shared_trials import STANDARD_ERRORS, WORTH_PAIRING
from scorio.moments import FloatArray
from scorio.sinf import WangTsiatis, difference_values, paired_moments, predictive_power, variance_against

WEIGHTS = np.array([0.0, 1.0])
VALUES = difference_values(WEIGHTS).values
MOST_ONE_WAY, MOST_EITHER_WAY = 0.05, 0.10
HEADER = ("world", "questions", "edge", "trials", "judged by trial", "PASS", "FAIL", "trials a question")
EXPLAINED = """\
"Edge": by how much the copy is worse, and may be; at 0 both are equal, and PASS and FAIL are a call either way. "Judged
by trial": the share of runs whose first look finds that both go together, or against each other; the shares of PASS
and FAIL are of these. 5% of either are allowed, 10% together."""


class World(NamedTuple):
    """Chances of each question: both right or both wrong by `base`, but for `loses` and `gains`."""

    name: str
    base: FloatArray
    loses: FloatArray
    gains: FloatArray
    least: int = 4
    most: int = 400
    shares: str = "noise"
    """`noise`: as said; `against`: the copy is right where the original's luck is bad; `nothing`: each by itself."""

    @property
    def edge(self) -> float:
        return float((self.loses - self.gains).mean())


def worlds() -> list[World]:
    """All."""
    rng = np.random.default_rng(5)
    base = rng.beta(0.7, 0.7, 30).clip(0.1)
    none, few, some = np.zeros(30), np.zeros(30), np.zeros(30)
    few[3], some[:3] = 0.6, 0.2
    many, five = rng.beta(0.7, 0.7, 200).clip(0.1), np.full(5, 0.5)
    losing = [World("loses alone", base, none + edge, none) for edge in (0.01, 0.02, 0.05)]
    both = [World("loses and gains", base, none + 1.5 * edge, none + 0.5 * edge) for edge in (0.01, 0.02, 0.05)]
    return [
        *losing,
        *both,
        World("loses on one question", np.maximum(base, few), few, none),
        World("loses on three questions", np.maximum(base, some), some, none),
        World("loses alone", five, 0.05 + 0.0 * five, 0.0 * five),
        World("loses alone", many, 0.02 + 0.0 * many, 0.0 * many, most=80),
        World("loses alone, first look at two", base, none + 0.02, none, least=2, most=80),
        World("equal, differ in 2%", base, none + 0.01, none + 0.01),
        World("equal, against each other", base, none, none, most=80, shares="against"),
        World("equal, nothing shared", base, none, none, most=80, shares="nothing"),
    ]


def drawn(world: World, runs: int, trials: int, rng: np.random.Generator) -> tuple[NDArray[np.int8], NDArray[np.int8]]:
    """(R, M, N): outcomes of the original and of the copy."""
    luck = rng.random((runs, len(world.base), trials))
    base, loses, gains = (one[None, :, None] for one in (world.base, world.loses, world.gains))
    if world.shares != "noise":
        other = 1.0 - luck if world.shares == "against" else rng.random(luck.shape)
        return (luck < base).astype(np.int8), (other < base).astype(np.int8)
    lost, gained = luck < loses, (luck >= loses) & (luck < loses + gains)
    alike = (luck >= loses + gains) & (luck < np.maximum(base, loses + gains))
    return (lost | alike).astype(np.int8), (gained | alike).astype(np.int8)


def chosen(first: NDArray[np.int8], second: NDArray[np.int8]) -> NDArray[np.bool_]:
    """(R,): as `SharedTrials` decides it."""
    n = first.shape[2]

    def squares(values: NDArray[np.int8]) -> FloatArray:
        return np.asarray(n * values.var(axis=2))

    x, y, both = squares(first), squares(second), squares(second - first)
    apart = (x + y).sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        far = np.abs(both.sum(axis=1) / apart - 1.0)
        noise = 2.0 * np.sqrt((x * y / (n - 1)).sum(axis=1)) / apart
    return np.asarray(far >= np.maximum(WORTH_PAIRING, STANDARD_ERRORS * noise))


def played(world: World, runs: int, rng: np.random.Generator) -> tuple[float, float, float, float]:
    """The share that is judged by trial; of these those that pass and that fail; and the trials a question."""
    rule = WangTsiatis(KAPPA_BY_TRIAL, world.least / world.most * (1.0 - 1e-9))
    c = rule.critical(2.0 * (1.0 - Sequential().confidence))
    futility = Judging().futility
    assert futility is not None
    counts = np.zeros((runs, len(world.base), 3), int)
    verdict, ended = np.zeros(runs, int), np.full(runs, world.most)
    going, n, by_trial = np.arange(runs), 0, np.ones(runs, bool)
    while n < world.most and len(going):
        first, second = drawn(world, len(going), world.least if n == 0 else 1, rng)
        if n == 0:
            by_trial = chosen(first, second)
        for column in range(3):
            counts[going, :, column] += (second - first == column - 1).sum(axis=2)
        n += first.shape[2]
        going = going[by_trial[going]] if n == world.least else going
        found = paired_moments(counts[going], WEIGHTS, VALUES, world.most)
        z = (found.mean + world.edge) / np.sqrt(variance_against(found, np.full(len(going), world.edge), VALUES))
        t = np.full(len(going), n / world.most)
        called = np.abs(z) >= rule.at(t, c)
        hopeless = predictive_power(z, t, rule.at(np.ones_like(t), c)) < futility * (1.0 - t)
        verdict[going[called]] = np.sign(z[called])
        ended[going[called | hopeless]] = n
        going = going[~(called | hopeless)]
    if not by_trial.any():
        return 0.0, 0.0, 0.0, 0.0
    of = verdict[by_trial]
    return float(by_trial.mean()), float((of > 0).mean()), float((of < 0).mean()), float(ended[by_trial].mean())


def main() -> None:
    options = arguments(__doc__.splitlines()[0]).parse_args()
    runs, table, checks = 100 if options.quick else 2000, [], []
    for number, world in enumerate(worlds()):
        share, passed, failed, trials = played(world, runs, np.random.default_rng(number))
        edge = f"{100 * world.edge:.1f} points"
        size = (len(world.base), edge, f"{world.least} to {world.most}")
        table.append((world.name, *size, f"{share:.1%}", f"{passed:.1%}", f"{failed:.1%}", f"{trials:.0f}"))
        print(*table[-1], flush=True)
        judged = max(share * runs, 1.0)
        said = f"{world.name}, {len(world.base)} questions, {edge}, {world.least} to {world.most}"
        worst, noise = max(passed, failed), 2.0 * np.sqrt(0.0475 / judged)
        goal = f"<= 0.05 + {noise:.3f}"
        checks.append(Check(f"{said}: PASS or FAIL", round(worst, 3), goal, worst <= MOST_ONE_WAY + noise))
        called, noise = passed + failed, 2.0 * np.sqrt(0.09 / judged)
        holds = called <= MOST_EITHER_WAY + noise
        checks.append(Check(f"{said}: any call", round(called, 3), f"<= 0.1 + {noise:.3f}", holds))
    title = "Comparisons trial by trial, at the edge"
    conclude(options, title, EXPLAINED, f"{runs:,} simulated runs a world", markdown(HEADER, table), checks)


if __name__ == "__main__":
    main()
