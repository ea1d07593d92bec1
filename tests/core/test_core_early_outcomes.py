"""Outcomes kept for later rounds, compared with a plain dict; their sums are exact, however large."""

import math
import random
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest

from adaptive_eval.core import Cost, Outcome
from adaptive_eval.core import early_outcomes as early
from adaptive_eval.core.early_outcomes import EarlyOutcomes
from adaptive_eval.core.rounds import PER_UNIT, UNGRADED, Batch, exact_sum, trillionths

MODELS, QUESTIONS = 3, 5


def outcomes(rng: random.Random) -> Iterator[Outcome]:
    places = [
        (model, question, trial) for model in range(MODELS) for question in range(QUESTIONS) for trial in range(9)
    ]
    rng.shuffle(places)
    for place in places[:100]:
        cost = Cost(rng.randrange(2**40), rng.random(), 1e3 * rng.random())
        yield Outcome(*place, rng.choice([0, 1, None]), cost, rng.choice([0, 0, 16, 32]), rng.random())


@pytest.mark.parametrize("at_once", [7, 10**6])
def test_a_batch_takes_the_early_outcomes_that_belong_to_it(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early, "_CHUNK_RECORDS", at_once)
    rng = random.Random(4)
    early_outcomes, remaining = EarlyOutcomes(), {}
    for outcome in outcomes(rng):
        early_outcomes.keep(outcome)
        remaining[outcome[:3]] = outcome
    issued = np.zeros((MODELS, QUESTIONS), np.int32)
    while remaining:
        model = rng.randrange(MODELS)
        extra = np.array([rng.randrange(3) for _ in range(QUESTIONS)])
        batch = Batch(model, 0, issued[model].copy(), extra)
        issued[model] += extra.astype(np.int32)
        expected = {
            place: remaining.pop(place)
            for question in range(QUESTIONS)
            for trial in range(int(batch.slots.first[question]), int(batch.slots.first[question] + extra[question]))
            if (place := (model, question, trial)) in remaining
        }
        part = early_outcomes.take(batch)
        assert len(early_outcomes) == len(remaining) and early_outcomes.kept_outcomes(model) == sum(
            place[0] == model for place in remaining
        )
        if part is None:
            assert not expected
            continue
        in_order = [expected[place] for place in sorted(expected, key=lambda place: batch.slots.slot(*place[1:]) or 0)]
        triples = list(zip(part.questions.tolist(), part.trials.tolist(), part.categories.tolist(), strict=True))
        assert triples == [
            (item.question, item.trial, UNGRADED if item.category is None else item.category) for item in in_order
        ]
        assert part.kinds.tolist() == [item.kinds for item in in_order]
        assert part.spent.tokens == sum(item.cost.tokens for item in expected.values())
        assert part.spent.usd == sum(round(item.cost.usd * PER_UNIT) for item in expected.values())
        assert part.spent.seconds == sum(round(item.seconds * PER_UNIT) for item in expected.values())
        assert batch.store_part(part) and batch.missing == batch.size - len(expected)
        assert not batch.store_part(part), "the same trials were told twice"
        remaining_cost = sum(round(item.cost.gpu_seconds * PER_UNIT) for item in remaining.values())
        assert early_outcomes.cost.gpu_seconds == remaining_cost / PER_UNIT
    assert not early_outcomes and early_outcomes.cost == Cost()


def test_sums_are_exact_however_large() -> None:
    rng = np.random.default_rng(1)
    for values in (rng.random(1000), rng.random(1000) * 1e9, np.array([2.0**53, -1.0, 0.5, 1e-12]), np.empty(0)):
        assert trillionths(values) == sum(round(value * PER_UNIT) for value in values.tolist())
    numbers = np.array([2**62, 2**62, 2**62, -5], dtype=np.int64)
    assert exact_sum(numbers) == 3 * 2**62 - 5
    assert math.isclose(trillionths(np.array([0.1] * 10)), Fraction(PER_UNIT))
