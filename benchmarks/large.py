"""Large benchmarks: whether a ranking may begin before every question has a trial of every model.

Today every question has `trials.min` trials of every model before the first look. With scores as in weights.py a round
may draw a tenth of the questions: those that earlier rounds and the other models leave most uncertain more often, and
what was not drawn stands in the score by its prediction. Of the 20 best models of the recorded LiveCodeBench (400
questions, 10 trials; the recorded shares are the truth), measured are the trials until half of the decidable pairs of
neighbours are called. Decidable is a gap that one look at all 10 trials would more likely than not show. Misordered
are pairs of any two models, a run; the promise is for each of them.

    python benchmarks/large.py [--quick] [--runs 12] [--json PATH] [--markdown PATH]
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import sys

import numpy as np
from numpy.typing import NDArray
from scenarios import recorded
from tables import Check, add_data, arguments, conclude, markdown
from weights import OPENING, Play, Verdicts

from scorio.sinf.optimal import optimal_stopping

BEST, HORIZON = 20, 10
WORTH, Z = 2.0, 1.645
SIZES = (1.0, 0.1)
LEAST_CALLED = 0.5
"""Trials a question before anything is called or given up in rounds of less than one: sigmas are wild before."""
GOAL = 0.40
HEADER = (
    "trials a question of a round", "first look that counts", "until half are called", "at the end", "called",
    "pairs misordered", "bias", "sd of errors",
)  # fmt: skip
FloatArray = NDArray[np.float64]


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=12)
    add_data(parser)
    options = parser.parse_args()
    if not options.data.exists():
        sys.exit(f"{options.data} has no recorded outcomes; name their folder by --data")
    scenario = recorded(options.data, "livecodebench", best=BEST, cap=HORIZON)
    p = scenario.world.p @ scenario.world.w
    rows, half = [], {}
    for size in SIZES:
        row, half[size] = measured(p, 4 if options.quick else options.runs, size)
        rows.append(row)
        print(*row, flush=True)
    checks = [
        Check(f"trials until half are called, rounds of {size:g} over today's", round(half[size] / half[1.0], 3),
              f"<= {GOAL}", half[size] <= GOAL * half[1.0])
        for size in half if size < 1.0
    ]  # fmt: skip
    conclude(options, "Large benchmarks", __doc__.split("\n\n")[1], f"{options.runs} seeded runs a row",
             markdown(HEADER, rows), checks)  # fmt: skip


def measured(p: FloatArray, runs: int, size: float) -> tuple[tuple[object, ...], float]:
    """A row of the table, and the trials until half are called."""
    models, questions = p.shape
    play, verdicts = Play(p, runs, size < 1.0, np.random.default_rng(7), size), Verdicts(runs, models)
    start = (OPENING if size >= 1.0 else LEAST_CALLED) / HORIZON
    rule = optimal_stopping(0.1, start * (1.0 - 1e-9), WORTH, 0.0, 2.0 * size / HORIZON, 0.5 * size / HORIZON)
    first, truth, pairs = round(start * HORIZON * p.size), p.mean(axis=1), decidable(p)
    reached = np.full(runs, np.inf)
    while True:
        going = verdicts.look(play, rule, HORIZON)
        called = (verdicts.call[:, pairs[:, 0], pairs[:, 1]] == 1).mean(axis=1)
        used = play.trials.sum(axis=(1, 2))
        reached = np.where((called >= 0.5) & np.isinf(reached), used, reached)
        if not going.any():
            break
        play.ask(going)
    score, variance = play.estimates()
    errors, sign = score - truth, np.sign(truth[:, None] - truth)
    half = float(np.median(reached))
    return (
        f"{size:g}", first, f"{half:.0f}", f"{used.mean():.0f}", f"{called.mean():.2f} of {len(pairs)}",
        f"{((verdicts.call == 1) & (sign < 1.0)).sum() / runs:.2f} of {models * (models - 1) // 2}",
        f"{100.0 * np.abs(errors.mean(axis=0)).max():.2f}", float((errors / np.sqrt(variance)).std()),
    ), half  # fmt: skip


def decidable(p: FloatArray) -> NDArray[np.intp]:
    """(n, 2): the true neighbours, the better one first."""
    order = np.argsort(-p.mean(axis=1), kind="stable")
    noise = (p * (1.0 - p)).sum(axis=1) / p.shape[1] ** 2 / HORIZON
    pairs = np.stack([order[:-1], order[1:]], axis=1)
    gaps = p.mean(axis=1)[pairs[:, 0]] - p.mean(axis=1)[pairs[:, 1]]
    return np.asarray(pairs[gaps >= Z * np.sqrt(noise[pairs].sum(axis=1))])


if __name__ == "__main__":
    main()
