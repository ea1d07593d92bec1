"""Value of outcomes of an older model as a prior for the newer one (paper, section 2.8, Figure 2).

    python benchmarks/paper/priors.py [--quick] [--json PATH]

There are eight models. The i-th answers questions rightly with probabilities drawn from Beta(i + 3, 12 - i), scaled to
the printed means; its update draws new ones from Beta(i + 3 + s, 12 - i + s') with s, s' = +-1. D trials of each
question by the original are the prior outcomes R0 of its update, which has N trials. All models then have D + N trials
a question, so they rank by their total of right answers: Bayes@N with R0 (appendix A).
"""

import sys
from pathlib import Path

import numpy as np

from adaptive_eval.simulate.worlds import with_mean
from scorio.moments import FloatArray, IntArray
from scorio.rank.order import pair_signs, tau_b

sys.path.append(str(Path(__file__).parents[1]))
from tables import arguments, at_least, at_most, between, markdown, publish

MEANS = (0.3021, 0.3166, 0.4144, 0.4985, 0.5351, 0.5759, 0.6679, 0.7487)
QUESTIONS, TRIALS, DEPTHS, LOOKS = 30, 40, (0, 1, 2, 4, 8, 16), (1, 2, 5, 10, 20, 40)
AT_A_TIME = 1000


def original_chances() -> FloatArray:
    """(L, M): chances of the original models, with the printed means."""
    index = np.arange(1, len(MEANS) + 1)[:, None]
    drawn = np.random.default_rng([0, 0]).beta(index + 3.0, 12.0 - index, (len(MEANS), QUESTIONS))
    return np.array([with_mean(row, mean) for row, mean in zip(drawn, MEANS, strict=True)])


def updated_chances(updates: int, rng: np.random.Generator) -> FloatArray:
    """(B, L, M): chances of updates of all models."""
    index = np.arange(1.0, len(MEANS) + 1)
    signs = rng.choice([-1.0, 1.0], (2, updates, len(MEANS)))
    first, second = index + 3.0 + signs[0], 12.0 - index + signs[1]
    return rng.beta(first[..., None], second[..., None], (updates, len(MEANS), QUESTIONS))


def right_answers(chances: FloatArray, trials: int, rng: np.random.Generator) -> IntArray:
    """Right answers (B, N, L) to all questions in the first 1, 2, ..., N trials."""
    drawn = [(rng.random(chances.shape, dtype=np.float32) < chances).sum(axis=-1) for _ in range(trials)]
    return np.cumsum(np.stack(drawn, axis=1), axis=1)


def measure(updates: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """(B,): tau of the true orders before and after; (D, N): sums of tau-b of the estimates with the truth."""
    updated, originals = updated_chances(updates, rng), original_chances()
    truth = pair_signs(updated.mean(axis=-1))
    before = right_answers(np.broadcast_to(originals, updated.shape), max(DEPTHS), rng)
    after = right_answers(updated, TRIALS, rng)
    totals = (after if depth == 0 else after + before[:, depth - 1 : depth] for depth in DEPTHS)
    sums = [np.nan_to_num(tau_b(pair_signs(total.astype(float)), truth[:, None])).sum(axis=0) for total in totals]
    return tau_b(pair_signs(np.array(MEANS)), truth), np.array(sums)


def main() -> None:
    options = arguments(__doc__).parse_args()
    updates, rng = 3000 if options.quick else 50_000, np.random.default_rng([0, 1])
    parts = [measure(AT_A_TIME, rng) for _ in range(updates // AT_A_TIME)]
    orders, tau = np.concatenate([order for order, _ in parts]), np.sum([sums for _, sums in parts], axis=0) / updates
    gain, mean, changed = tau - tau[0], float(orders.mean()), float(np.mean(orders < 1.0))
    checks = [
        between("tau of the orders before and after", mean, 0.87, 0.89),
        between("updates that change the order", changed, 0.83, 0.89),
    ]
    for place, depth in enumerate(DEPTHS[1:], start=1):
        if depth <= 4:
            checks.append(at_least(f"D = {depth}: least gain at N = 1 to 3", gain[place, :3].min(), 0.0, 4))
        else:
            checks.append(at_most(f"D = {depth}: gain at N = {TRIALS}", gain[place, -1], 0.0, 4))
    rows = [(depth, *(float(tau[place, n - 1]) for n in LOOKS)) for place, depth in enumerate(DEPTHS)]
    table = markdown(("D", *(f"N = {n}" for n in LOOKS)), rows)
    publish(options, "Priors", __doc__, "Mean tau-b with the truth.", table, checks=checks)


if __name__ == "__main__":
    main()
