"""Scores corrected for a judge's place, from what both orders said: the true ones are known here."""

from collections import Counter

import numpy as np
import pytest

from adaptive_eval.graders.comparing import FIRST, OUTCOMES, SECOND, TIE, combine_orders
from adaptive_eval.record.orders import share_by_content
from adaptive_eval.store import ComparisonCount

TRUTH = {"atlas": (0.6, 0.1), "birch": (0.45, 0.2), "cedar": (0.2, 0.1)}
"""How often each model's answer is better, and as good."""


def judged(seed: int, meant: float, first: float, n: int = 400) -> tuple[list[ComparisonCount], dict[str, float]]:
    """What a judge says of n answers of each model, and the scores by it: its grader's own code takes both orders."""
    rng = np.random.default_rng(seed)
    found: Counter[tuple[bool, float, bool]] = Counter()
    scores = {}
    for name, (better, tie) in TRUTH.items():
        truths = np.repeat([1, 0, -1], np.rint(np.array([better, tie, 1.0 - better - tie]) * n).astype(int))
        score = 0.0
        for truth in truths.tolist():
            replies = []
            for stands_first in (True, False):
                place = FIRST if rng.random() < first else SECOND
                content = TIE if truth == 0 else FIRST if (truth > 0) == stands_first else SECOND
                replies.append((content if rng.random() < meant else place,))
            both = combine_orders(replies)
            found[both.order_dependent, both.prefers_first, both.verdict != TIE] += 1
            score += OUTCOMES.index(both.verdict) / 2.0
        scores[name] = score / len(truths)
    return [ComparisonCount(a, b, c, True, trials) for (a, b, c), trials in found.items()], scores


@pytest.mark.parametrize(("meant", "first"), [(1.0, 0.5), (0.8, 1.0), (0.7, 0.5), (0.6, 0.1), (0.4, 0.9)])
def test_the_share_of_meant_replies_is_found_without_labels_and_gives_the_true_scores(
    meant: float, first: float
) -> None:
    shares, held = [], []
    away: dict[str, list[float]] = {name: [] for name in TRUTH}
    for seed in range(60):
        counts, scores = judged(seed, meant, first)
        found = share_by_content(counts)
        assert found is not None
        shares.append(found[0])
        held.append(abs(found[0] - meant) <= 1.96 * found[1] + 1e-9)
        for name, (better, tie) in TRUTH.items():
            away[name].append(0.5 + (scores[name] - 0.5) / found[0] - (better + tie / 2.0))
    assert np.mean(shares) == pytest.approx(meant, abs=0.01)
    assert np.mean(held) >= 0.88
    for name, each in away.items():
        assert abs(np.mean(each)) < 0.012, name  # without correction it is up to 0.11


def test_a_few_comparisons_and_those_that_nobody_was_asked_about_correct_nothing() -> None:
    assert share_by_content([ComparisonCount(0.0, 0.0, True, True, 49)]) is None
    assert share_by_content([]) is None
    assert share_by_content([ComparisonCount(1.0, 1.0, False, True, 400)]) == pytest.approx((0.0, 0.0), abs=1e-9)
