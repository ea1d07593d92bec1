"""A tape gives each trial one outcome: recorded ones first and once each, by the cell's shares beyond them."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from thoroughness import examples

from adaptive_eval.core.tape import Tape
from adaptive_eval.exchange.recording import count_outcomes

BINARY = np.array([0.0, 1.0])
FOUR = np.array([0.0, 0.0, 0.5, 1.0])


def draw(tape: Tape, shape: tuple[int, int], depth: int) -> np.ndarray:
    cells = itertools.product(range(shape[0]), range(shape[1]), range(depth))
    return np.array([tape.category(*cell) for cell in cells]).reshape(*shape, depth)


@given(arrays(np.int64, (2, 3, 4), elements=st.integers(0, 6)), st.integers(0, 2**31))
@settings(max_examples=examples(60), deadline=None)
def test_counts_are_drawn_without_replacement(counts: np.ndarray, seed: int) -> None:
    counts[..., 1] += counts.sum(axis=-1) == 0
    held = counts.sum(axis=-1)
    outcomes = draw(Tape.from_counts(counts, FOUR, np.random.default_rng(seed)), (2, 3), int(held.max()))
    for model, question in itertools.product(range(2), range(3)):
        cell = outcomes[model, question, : held[model, question]]
        assert np.bincount(cell, minlength=4).tolist() == counts[model, question].tolist()


def test_counts_come_in_random_order() -> None:
    counts = np.full((400, 1, 2), 3)
    outcomes = draw(Tape.from_counts(counts, BINARY, np.random.default_rng(0)), (400, 1), 6)[:, 0]
    # every trial alike: the share of successes at each place is that of the urn, 3 s.e. = 0.075
    assert outcomes.mean(axis=0) == pytest.approx(0.5, abs=0.075)
    # without replacement a success makes the next one rarer: P(1 after 1) = 2/5
    assert outcomes[outcomes[:, 0] == 1, 1].mean() == pytest.approx(0.4, abs=0.105)


def test_beyond_its_record_a_cell_is_drawn_by_its_shares() -> None:
    counts = np.array([[[1, 3, 0, 0], [0, 0, 0, 2], [5, 0, 5, 0]]])
    outcomes = draw(Tape.from_counts(counts, FOUR, np.random.default_rng(1)), (1, 3), 2000)[0]
    assert set(outcomes[1]) == {3}
    assert set(outcomes[2]) == {0, 2}
    assert (outcomes[0, 4:] == 1).mean() == pytest.approx(0.75, abs=0.03)
    assert (outcomes[2, 10:] == 2).mean() == pytest.approx(0.5, abs=0.035)


def test_recorded_outcomes_keep_their_order_without_the_missing_ones() -> None:
    outcomes = np.array([[[0, 1, -1, 1], [-1, -1, 1, -1], [2, -1, 0, 3]]], dtype=np.int8)
    tape = Tape.from_trials(outcomes, count_outcomes(outcomes), FOUR, np.random.default_rng(2))
    rows = draw(tape, (1, 3), 60)[0]
    assert rows[0, :3].tolist() == [0, 1, 1]
    assert rows[1].tolist() == [1] * 60, "the share of a cell that was right once of once"
    assert rows[2, :3].tolist() == [2, 0, 3]
    assert set(rows[2, 3:]) == {0, 2, 3}


@pytest.mark.parametrize("order", [1, -1])
def test_a_trial_is_the_same_whatever_was_asked_before(order: int) -> None:
    counts = np.array([[[2, 5], [1, 1]], [[4, 0], [3, 9]]])
    cells = list(itertools.product(range(2), range(2), range(20)))[::order]
    tape = Tape.from_counts(counts, BINARY, np.random.default_rng(4))
    asked = {cell: tape.category(*cell) for cell in cells}
    again = Tape.from_counts(counts, BINARY, np.random.default_rng(4))
    assert {cell: again.category(*cell) for cell in sorted(cells)} == asked
    other = Tape.from_counts(counts, BINARY, np.random.default_rng(5))
    assert {cell: other.category(*cell) for cell in sorted(cells)} != asked
