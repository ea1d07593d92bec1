"""Label scores at an answer slot: what a server shows, what it does not show, and what is no log-probability."""

import math

import numpy as np
import pytest

from adaptive_eval.base.errors import GraderError
from adaptive_eval.graders.verifier import label_probabilities, label_scores

LABELS = ("A", "B", "C")


def softmax(values: np.ndarray) -> np.ndarray:
    """By hand, as an oracle for the calibration."""
    raised = np.exp(values - values.max())
    return np.asarray(raised / raised.sum())


def vocabulary(rng: np.random.Generator) -> dict[str, float]:
    """Log-probabilities of labels, with a space and without, and of many other tokens."""
    tokens = ["A", "B", "C", " A", "▁B", *(f"word{number}" for number in range(50))]
    scores = rng.normal(0.0, 3.0, len(tokens))
    return dict(zip(tokens, np.log(softmax(scores)).tolist(), strict=True))


@pytest.mark.parametrize("shown", [55, 20, 8, 5])
def test_what_is_shown_is_added_up_and_what_is_not_is_bounded(shown: int) -> None:
    bounded = 0
    for seed in range(200):
        probabilities = vocabulary(np.random.default_rng(seed))
        slot = sorted(probabilities.items(), key=lambda pair: -pair[1])[:shown]
        seen = {token for token, _ in slot}
        truth = {
            label: [value for token, value in probabilities.items() if token.strip(" ▁") == label] for label in LABELS
        }
        if not any(token.strip(" ▁") in LABELS for token in seen):
            with pytest.raises(GraderError, match="one of A, B, C"):
                label_scores(slot, LABELS)
            continue
        scores = label_scores(slot, LABELS)
        for at, label in enumerate(LABELS):
            if at in scores.unseen:
                bounded += 1
                assert label not in seen and all(value <= scores.values[at] + 1e-12 for value in truth[label])
            elif shown == 55:
                assert math.exp(scores.values[at]) == pytest.approx(sum(math.exp(value) for value in truth[label]))
        assert 0.0 < scores.share <= 1.0 + 1e-9
    assert bounded == 0 if shown == 55 else bounded > 20


def test_the_probabilities_are_as_open_as_is_said() -> None:
    rng = np.random.default_rng(1)
    opened = 0
    for _ in range(300):
        values, baseline = rng.normal(-3.0, 2.0, 3), rng.normal(-1.0, 1.0, 3)
        tokens = dict(zip(LABELS, values.tolist(), strict=True)) | {
            "The": math.log(max(1 - np.exp(values).sum(), 1e-9))
        }
        if np.exp(values).sum() > 0.99:
            continue
        slot = sorted(tokens.items(), key=lambda pair: -pair[1])[:3]
        if not {token for token, _ in slot} & set(LABELS):
            continue
        probabilities, left_open = label_probabilities(label_scores(slot, LABELS), baseline.tolist())
        truth = softmax(values - baseline)
        assert np.abs(np.array(probabilities) - truth).max() <= left_open + 1e-9
        assert sum(probabilities) == pytest.approx(1.0)
        opened += left_open > 0.0
    assert opened > 50


def test_a_token_that_comes_twice_counts_once() -> None:
    slot = [("A", math.log(0.5)), ("A", math.log(0.5)), ("B", math.log(0.3)), ("C", math.log(0.2))]
    assert label_scores(slot, LABELS).values == pytest.approx((math.log(0.5), math.log(0.3), math.log(0.2)))


@pytest.mark.parametrize(
    ("slot", "message"),
    [
        ([], "no log-probabilities"),
        ([("A", 0.5), ("B", -1.0)], "no log-probabilities"),
        ([("A", -0.1), ("B", -0.1), ("C", -0.1)], "no log-probabilities"),
        ([("A", math.nan), ("B", math.inf)], "no log-probabilities"),
        ([("The", -0.1), ("a", -3.0)], "replied 'The'"),
    ],
)
def test_what_is_no_slot_of_labels_is_an_error(slot: list[tuple[str, float]], message: str) -> None:
    with pytest.raises(GraderError, match=message):
        label_scores(slot, LABELS)
