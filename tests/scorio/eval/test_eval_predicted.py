"""Scores corrected by labels: beside the formula of the paper, beside labels of everything, and how often they hold."""

import numpy as np
import pytest

from scorio.eval import corrected


def graded_trials(seed: int, questions: int = 30, trials: int = 16, errs: tuple[float, float] = (0.05, 0.15)):  # type: ignore[no-untyped-def]
    """Truth by question, what a person would say of each trial, and what the grader says."""
    rng = np.random.default_rng(seed)
    chance = rng.beta(1.2, 1.2, questions)
    right = rng.random((questions, trials)) < chance[:, None]
    wrong = np.where(right, rng.random(right.shape) < errs[0], rng.random(right.shape) < errs[1])
    return chance, right.astype(float), (right ^ wrong).astype(float)


def test_of_one_question_it_is_the_formula_of_the_paper() -> None:
    _, right, graded = graded_trials(1, questions=1, trials=4000)
    at = np.arange(800)
    estimate = (float(graded.mean()), float(graded.std(ddof=1) / np.sqrt(graded.size)))
    estimated = corrected(
        estimate, graded[0, at], right[0, at], np.zeros(800, dtype=int), means=graded.mean(axis=1), trials=[4000]
    )
    rectifier = right[0, at] - graded[0, at]
    assert estimated.mu == pytest.approx(graded.mean() + rectifier.mean())
    assert estimated.shift_sigma**2 == pytest.approx(rectifier.var(ddof=1) / 800, rel=0.02)
    # the paper's has its labels beside the predictions, so that the two are independent; what they share narrows it
    independent = np.sqrt(graded.var() / graded.size + rectifier.var(ddof=1) / 800)
    shared = 2.0 * np.cov(graded[0, at], rectifier)[0, 1] / graded.size
    assert estimated.sigma == pytest.approx(np.sqrt(independent**2 + shared), rel=0.02)


def test_with_labels_of_everything_it_is_what_they_say() -> None:
    _, right, graded = graded_trials(2)
    where = np.repeat(np.arange(30), 16)
    inner = np.sqrt((graded.var(axis=1, ddof=1) / 16).sum()) / 30
    estimated = corrected(
        (float(graded.mean()), float(inner)),
        graded.ravel(),
        right.ravel(),
        where,
        means=graded.mean(axis=1),
        trials=np.full(30, 16),
    )
    assert estimated.mu == pytest.approx(right.mean())
    truth = np.sqrt((right.var(axis=1, ddof=1) / 16).sum()) / 30
    assert estimated.sigma == pytest.approx(truth, rel=0.12)


@pytest.mark.parametrize(("labels", "trials", "errs"), [(60, 8, (0.1, 0.1)), (200, 16, (0.05, 0.15))])
def test_its_intervals_hold_where_those_of_the_grader_may_not(
    labels: int, trials: int, errs: tuple[float, float]
) -> None:
    held = alone = 0
    for seed in range(200):
        chance, right, graded = graded_trials(seed, trials=trials, errs=errs)
        rng = np.random.default_rng((seed, 1))
        order = rng.random(right.shape).argsort(axis=1)
        pairs = [(q, order[q, turn]) for turn in range(trials) for q in rng.permutation(30)][:labels]
        q, t = np.array(pairs).T
        shares = (graded.sum(axis=1) + 0.5) / (trials + 1)
        sigma = float(np.sqrt((shares * (1 - shares) / trials).sum()) / 30)
        estimated = corrected(
            (float(graded.mean()), sigma),
            graded[q, t],
            right[q, t],
            q,
            means=graded.mean(axis=1),
            trials=np.full(30, trials),
        )
        held += abs(estimated.mu - chance.mean()) <= 1.96 * estimated.sigma
        alone += abs(graded.mean() - chance.mean()) <= 1.96 * sigma
    assert 0.915 <= held / 200 <= 0.99
    assert errs[0] == errs[1] or alone / 200 < 0.6


@pytest.mark.parametrize(
    ("graded", "labelled", "questions", "trials", "message"),
    [
        ([1.0], [1.0], [0], [3], "2 at least"),
        ([1.0, 0.0], [1.0], [0, 0], [3], "one length"),
        ([1.0, 0.0], [1.0, 0.0], [0, 1], [3], "each question"),
        ([1.0, 0.0], [1.0, 0.0], [0, 0], [0], "positive"),
        ([1.0, float("nan")], [1.0, 0.0], [0, 0], [3], "graded"),
    ],
)
def test_what_cannot_be_corrected_is_told(
    graded: list[float], labelled: list[float], questions: list[int], trials: list[int], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        corrected((0.5, 0.1), graded, labelled, questions, means=[0.5], trials=trials)
