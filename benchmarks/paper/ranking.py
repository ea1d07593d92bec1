"""The coins ranked with and without uncertainty (paper, section 2.9, Table 1).

    python benchmarks/paper/ranking.py [--quick] [--json PATH]

The table has the ranks of LLM11 to LLM1 by their true means, by Bayes@80, and by Bayes@80 if neighbours with z below
1.645 share a rank. The paper prints one draw. Here many are made: how often each row is as printed, and the third row
of those draws whose second row is the printed one. LLM4 and LLM5 are equal.
"""

import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np

from adaptive_eval.simulate.worlds import COIN_MEANS, coins
from scorio.counts import Counts
from scorio.eval import bayes
from scorio.moments import FloatArray, IntArray
from scorio.rank import rank_scores, rank_with_uncertainty

sys.path.append(str(Path(__file__).parents[1]))
from tables import Check, arguments, at_most, markdown, publish, with_errors

TRIALS, THRESHOLD, EQUAL = 80, 1.645, (3, 4)
Ranks = tuple[int, ...]
GOLD: Ranks = (1, 2, 3, 5, 4, 6, 7, 7, 8, 9, 10)
WITHOUT: Ranks = (1, 3, 2, 5, 4, 6, 7, 8, 9, 10, 11)
WITH: Ranks = (1, 2, 2, 3, 3, 4, 5, 5, 5, 6, 7)
"""The paper's three rows, LLM11 to LLM1."""


class Draw(NamedTuple):
    """Ranks of one draw of 80 trials."""

    without: Ranks
    grouped: Ranks
    apart: bool
    """Whether the equal pair has a z of at least 1.645."""


def best_first(ranks: IntArray | FloatArray) -> Ranks:
    return tuple(int(rank) for rank in ranks[::-1])


def ranked(mu: FloatArray, sigma: FloatArray) -> Draw:
    """The ranks by these means and standard deviations."""
    z = abs(mu[EQUAL[0]] - mu[EQUAL[1]]) / np.hypot(*sigma[list(EQUAL)])
    grouped = rank_with_uncertainty(mu, sigma, THRESHOLD).ranking
    return Draw(best_first(rank_scores(mu, "dense")), best_first(grouped), bool(z >= THRESHOLD))


def expected() -> Ranks:
    """Ranks with uncertainty of the counts that the true chances give on average."""
    chances = coins().p[..., 1]
    nu = np.stack([TRIALS * (1.0 - chances) + 1.0, TRIALS * chances + 1.0], axis=-1)
    total = nu.sum(axis=-1)
    variance = (nu.prod(axis=-1) / total**2 / (total + 1.0)).sum(axis=1) / chances.shape[1] ** 2
    return ranked((nu[..., 1] / total).mean(axis=1), np.sqrt(variance)).grouped


def main() -> None:
    options = arguments(__doc__).parse_args()
    replicates, rng, draws = 1000 if options.quick else 10_000, np.random.default_rng(0), list[Draw]()
    for _ in range(replicates):
        right = rng.binomial(TRIALS, coins().p[..., 1])
        mu, sigma = bayes(Counts(np.stack([TRIALS - right, right], axis=-1), np.array([0.0, 1.0])))
        draws.append(ranked(np.asarray(mu), np.asarray(sigma)))
    printed = [draw for draw in draws if draw.without == WITHOUT]
    commonest, times = Counter(draw.grouped for draw in draws).most_common(1)[0]
    shown = Counter(draw.grouped for draw in printed).most_common(1)[0][0] if printed else ()
    gold, apart = best_first(rank_scores(COIN_MEANS, "dense")), float(np.mean([draw.apart for draw in draws]))
    rows = [
        ("by the true means", *gold),
        ("with uncertainty, expected counts", *expected()),
        ("with uncertainty, commonest of all draws", *commonest),
        ("with uncertainty, commonest where row 2 is as printed", *shown),
    ]
    checks = [
        Check("row 1 as printed", str(gold == GOLD), "True", gold == GOLD),
        Check("row 3 of expected counts as printed", str(expected() == WITH), "True", expected() == WITH),
        Check("row 3 of the commonest draw as printed", str(commonest == WITH), "True", commonest == WITH),
        Check("row 3 where row 2 is as printed", str(shown == WITH), "True", None if options.quick else shown == WITH),
        Check("share of the commonest row 3", round(times / replicates, 4)),
        Check("share of draws with row 2 as printed", round(len(printed) / replicates, 4)),
        at_most("equal coins told apart (promised: 10%)", apart, with_errors(0.10, replicates), 4),
    ]
    head = ("ranks", *(f"LLM{number}" for number in range(len(COIN_MEANS), 0, -1)))
    publish(options, "Ranking", __doc__, markdown(head, rows), checks=checks)


if __name__ == "__main__":
    main()
