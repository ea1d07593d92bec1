"""How many trials tell LLM9 (60.8%) from LLM10 (62.13%) (paper, section 2.9, Figure 3).

    python benchmarks/paper/separation.py [--quick] [--json PATH]

The chance that LLM10 is above LLM9 by Bayes@N, and the mean of |z|, over pairs of matrices of 30 questions, each
followed through all N. |z| is averaged as it stands: where orders are still wrong it exceeds the mean of z.
"""

import sys
from pathlib import Path

import numpy as np

from adaptive_eval.simulate.worlds import coins

sys.path.append(str(Path(__file__).parents[1]))
from tables import Check, arguments, between, markdown, publish

WORSE, BETTER = 8, 9
PRINTED = {80: (0.837, 1.14), 199: (0.947, 1.645), 285: (0.969, 1.96)}
"""The chance of the right order, and |z|, as the paper prints them."""
LOOKS = (1, 10, 20, 40, 80, 120, 199, 285, 300)


def measure(replicates: int) -> dict[int, tuple[float, float, float]]:
    """By N: the chance of the right order (ties count half), mean |z| and mean z."""
    chances = coins().p[[WORSE, BETTER], :, 1]
    questions, rng, before = chances.shape[1], np.random.default_rng(0), 0
    right = np.zeros((replicates, *chances.shape), dtype=np.int64)
    measured = {}
    for n in LOOKS:
        right += rng.binomial(n - before, chances, right.shape)
        before = n
        nu = right + 1.0
        variance = (nu * (n + 2.0 - nu)).sum(axis=-1) / ((n + 2.0) ** 2 * (n + 3.0) * questions**2)
        z = np.diff(nu.sum(axis=-1), axis=-1)[:, 0] / ((n + 2.0) * questions) / np.sqrt(variance.sum(axis=-1))
        order = float(np.mean(z > 0) + np.mean(z == 0) / 2.0)
        measured[n] = order, float(np.abs(z).mean()), float(z.mean())
    return measured


def main() -> None:
    options = arguments(__doc__).parse_args()
    measured, checks = measure(10_000 if options.quick else 40_000), list[Check]()
    for n, printed in PRINTED.items():
        order, z, _ = measured[n]
        checks.append(between(f"N = {n}: right order", order, printed[0] - 0.03, printed[0] + 0.03))
        checks.append(between(f"N = {n}: mean |z|", z, printed[1] - 0.05, printed[1] + 0.05))
    rows = [(n, *values, *(PRINTED.get(n) or ("", ""))) for n, values in measured.items()]
    table = markdown(("N", "right order", "mean |z|", "mean z", "order, printed", "|z|, printed"), rows)
    publish(options, "Separation", __doc__, table, checks=checks)


if __name__ == "__main__":
    main()
