"""A judge that errs, and labels of a few answers: whether corrected intervals and orders hold.

    python benchmarks/labelled.py [--quick] [--runs 200] [--json PATH]

Four models, 30 questions. The judge errs on about 10% of the answers of each, but not in the same way: of the first it
misses right answers (16%) and lets few wrong ones pass (4%), of the second the other way round, so that the second has
the better judge's score and the lower true one. Each of the seeded runs is decided on the judge's grades
by the controller with its default rule and policy, 4 to 24 trials a question. Then 60, 120 or 240 answers of each model
have a label, the questions in turn and their answers by chance, as `adaptive-eval label` draws them where all models
have as many, and scores are corrected by `scorio.eval.corrected`. Two models are in order where the 95% interval of
their difference does not contain 0; the order of the first two is called right, left open, or called wrong.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from replays import NORMAL
from tables import arguments, at_least, between, markdown, publish

from adaptive_eval.core import Bench, Controller, Look, Plan, Trials
from adaptive_eval.core.tape import Tape
from adaptive_eval.study.drive import drive_rounds
from scorio.eval import corrected

Found = NDArray[np.float64]
Told = NDArray[np.bool_]
MODELS, QUESTIONS = 4, 30
LEAST, MOST = 4, 24
MEANS = (0.56, 0.50, 0.42, 0.35)
ERRS = ((0.16, 0.04), (0.04, 0.16), (0.08, 0.12), (0.12, 0.08))
"""Of each model: the share of right answers that the judge calls wrong, and of wrong ones that it calls right."""
LABELS = (60, 120, 240)
LOW, HIGH, CALLED = 0.93, 0.98, 0.95


def chances() -> Found:
    """(L, M): how often each model is right."""
    rng = np.random.default_rng(1)
    hard = rng.normal(0.0, 1.3, QUESTIONS)
    logits = np.log(np.array(MEANS) / (1.0 - np.array(MEANS)))
    raw = 1.0 / (1.0 + np.exp(hard[None, :] - 1.3 * logits[:, None]))
    return np.asarray(np.clip(raw + (np.array(MEANS) - raw.mean(axis=1))[:, None], 0.01, 0.99))


def drawn(seed: int) -> tuple[Told, Told]:
    """(L, M, N) each: whether answers are right, and whether the judge says so."""
    rng = np.random.default_rng((3, seed))
    shape = (MODELS, QUESTIONS, 2 * MOST)
    right = rng.random(shape) < chances()[..., None]
    missed, passed = (np.array(errs)[:, None, None] for errs in zip(*ERRS, strict=True))
    wrong = rng.random(shape) < np.where(right, missed, passed)
    return right, right ^ wrong


def decided(judged: Told) -> tuple[Controller, NDArray[np.int64]]:
    """A run on the judge's grades, to its end, and how many trials of each question it has (L, M)."""
    plan = Plan(Bench(MODELS, QUESTIONS, np.array([0.0, 1.0])), trials=Trials(min=LEAST, max=MOST))
    tape = Tape(iter(np.moveaxis(judged, 2, 0).astype(np.uint8)), plan.bench.weights)
    controller = drive_rounds(Controller(plan, keep_looks=False), tape)
    return controller, np.asarray(controller.counts.sum(axis=-1), dtype=np.int64)


def corrections(
    seed: int, right: Told, judged: Told, trials: NDArray[np.int64], number: int, look: Look
) -> Iterator[tuple[float, float]]:
    """Of each model the corrected score and its standard deviation."""
    for model in range(MODELS):
        rng = np.random.default_rng((5, seed, model))
        queue = [
            (turn, rng.random(), question, trial)
            for question in range(QUESTIONS)
            for turn, trial in enumerate(rng.permutation(trials[model, question]).tolist())
        ]
        _, _, where, which = (np.array(column) for column in zip(*sorted(queue)[:number], strict=True))
        means = np.array([judged[model, q, :n].mean() for q, n in enumerate(trials[model])])
        result = corrected(
            (look.scores[model], look.sigmas[model]),
            judged[model, where, which].astype(float),
            right[model, where, which].astype(float),
            where,
            means=means,
            trials=trials[model],
        )
        yield result.mu, result.sigma


def main() -> None:
    options = arguments(__doc__, runs=200, quick_runs=30).parse_args()
    truth, numbers = chances().mean(axis=1), (0, *LABELS)
    held, sigmas, orders = (defaultdict[int, list[Any]](list) for _ in range(3))
    for seed in range(options.runs):
        right, judged = drawn(seed)
        controller, trials = decided(judged)
        look = controller.latest_look()
        assert look is not None
        for number in numbers:
            results = list(zip(look.scores, look.sigmas, strict=True))
            if number:
                results = list(corrections(seed, right, judged, trials, number, look))
            mu, sigma = np.array(results).T
            held[number] += (np.abs(mu - truth) <= NORMAL * sigma).tolist()
            sigmas[number] += sigma.tolist()
            apart = (mu[0] - mu[1]) / np.hypot(sigma[0], sigma[1])
            orders[number].append(0 if abs(apart) <= NORMAL else np.sign(apart))
    rows, checks = [], []
    for number in numbers:
        covered = float(np.mean(held[number]))
        shares = [orders[number].count(sign) / options.runs for sign in (1, 0, -1)]
        rows.append((str(number or "none"), covered, float(np.mean(sigmas[number])), *shares))
        if number and not options.quick:
            title = f"{number} labels a model: corrected 95% intervals that contain the truth"
            checks.append(between(title, covered, LOW, HIGH))
            title = f"{number} labels a model: the reversed order called right, or left open"
            checks.append(at_least(title, shares[0] + shares[1], CALLED))
    head = ("labels a model", "coverage", "mean sigma", "order right", "left open", "order wrong")
    publish(options, "A judge that errs, and labels", __doc__, markdown(head, rows), checks=checks)


if __name__ == "__main__":
    main()
