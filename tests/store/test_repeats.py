"""Answers that come again: an alarm where independent samples would not, and never for what may legitimately agree."""

import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_eval.core.types import Cost
from adaptive_eval.endpoints.types import Sampling
from adaptive_eval.store import StoredOutcome
from adaptive_eval.store.repeats import (
    ALARMING,
    AnswerPairs,
    Repeated,
    SamplingFreedom,
    chance_of_agreement,
    repeated,
    said_of_repeats,
)

WARM, HOT = SamplingFreedom(0.6, False), SamplingFreedom(1.0, True)
Texts = Callable[[int, int], object]
"""The text of a question's trial."""


def pairs_of(
    texts: Texts, questions: int = 30, trials: int = 8, *, size: int = 3, right: bool = False, bits: float | None = None
) -> AnswerPairs:
    """The pairs of a model, which have come in any order."""
    found = AnswerPairs()
    cells = list(itertools.product(range(questions), range(trials)))
    np.random.default_rng(1).shuffle(cells)
    for question, trial in cells:
        digest = hash((question, texts(question, trial)))
        found.add(StoredOutcome("m", f"q{question}", trial, int(right), Cost(), "", digest, size, right, True, bits))
    return found


def letters(p: float, seed: int = 0) -> Texts:
    """Each question has a likeliest letter, which comes with this chance."""
    rng = np.random.default_rng(seed)
    return lambda question, trial: "A" if rng.random() < p else str(rng.integers(3))


def stuck(question: int, trial: int) -> str:
    """A server that ignores the seed."""
    return "the same"


def free(question: int, trial: int) -> int:
    """Long answers of a model that is sampled."""
    return trial


def alarmed(found: Repeated | None) -> bool:
    return found is not None and found.chance is not None


@given(st.lists(st.tuples(st.integers(0, 4), st.floats(0.0, 1.0)), max_size=3), st.integers(0, 12))
def test_the_chance_is_poisson_binomial(groups: list[tuple[int, float]], agreed: int) -> None:
    each = [p for number, p in groups for _ in range(number)]
    total = 0.0
    for drawn in itertools.product([0, 1], repeat=len(each)):
        if sum(drawn) >= agreed:
            total += float(np.prod([p if one else 1.0 - p for one, p in zip(drawn, each, strict=True)]))
    chance = chance_of_agreement(groups, agreed)
    assert chance == pytest.approx(total, abs=1e-9) or (chance == 1.0 and agreed <= sum(each))


def test_many_pairs_are_judged_no_more_boldly_than_a_few() -> None:
    near = chance_of_agreement([(20_000, 0.3)], 6_200)
    bounded = chance_of_agreement([(20_001, 0.3)], 6_200)
    assert near <= bounded < 30 * near


@pytest.mark.parametrize("how", [WARM, HOT, SamplingFreedom(0.5, False)])
def test_a_server_that_ignores_the_seed_is_found_by_long_answers(how: SamplingFreedom) -> None:
    (found,) = repeated([pairs_of(stuck, size=900)], [how])
    assert found is not None and found.chance is not None and found.chance < 1e-6
    assert (found.pairs, found.agreed) == (120, 120)
    assert repeated([pairs_of(free, size=900)], [how]) == [None]
    assert repeated([pairs_of(stuck, size=900)], [None]) == [None], "the likeliest answer was asked for"


def test_a_cache_that_serves_some_is_found() -> None:
    some = pairs_of(lambda question, trial: trial // 2 if question < 6 else trial, size=1024)
    (found,) = repeated([some], [SamplingFreedom(1.0, False)])
    assert found is not None and (found.agreed, found.pairs) == (24, 120)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("p", [0.5, 0.9, 0.99, 1.0])
def test_letters_of_a_choice_raise_no_alarm(p: float, seed: int) -> None:
    """Whoever else there is, and however sure the model is of what is right."""
    others = [pairs_of(letters(q, seed + 100)) for q in (0.5, 0.9)]
    sure = pairs_of(letters(p, seed), right=True)
    assert not any(map(alarmed, repeated([sure, *others], [WARM] * 3)))
    assert not any(map(alarmed, repeated([pairs_of(letters(p, seed))], [WARM])))


@pytest.mark.parametrize("p", [0.5, 0.9, 0.99])
def test_letters_are_judged_by_their_log_probabilities(p: float) -> None:
    """At p = 0.99 nothing is odd about 120 pairs that agree; at 0.9 it is."""
    bits = -float(np.log2(p))
    for seed in range(20):
        rng = np.random.default_rng(seed)
        drawn = AnswerPairs()
        for question, trial in itertools.product(range(30), range(8)):
            likely = rng.random() < p
            told = bits if likely else -float(np.log2(1.0 - p))
            drawn.add(StoredOutcome("m", f"q{question}", trial, 0, Cost(), "", int(likely), 1, None, None, told))
        assert repeated([drawn], [HOT]) == [None] or p == 0.99
        assert not any(map(alarmed, repeated([drawn], [HOT])))
    (found,) = repeated([pairs_of(stuck, bits=bits)], [HOT])
    assert alarmed(found) == (p < 0.95)
    (cold,) = repeated([pairs_of(stuck, bits=bits)], [WARM])
    assert cold is not None and cold.chance is None, "drawn more coldly than the log-probabilities say"


def test_short_answers_that_are_not_right_are_judged_beside_the_most_certain_other_model() -> None:
    pairs = [pairs_of(stuck), pairs_of(letters(0.6)), pairs_of(letters(0.9))]
    found = repeated(pairs, [WARM] * 3)
    assert found[1:] == [None, None]
    assert found[0] is not None and found[0].chance is not None and found[0].chance <= ALARMING and found[0].beside == 2
    told = said_of_repeats(found[0], ["ada", "bob", "cyd"])
    assert "120 of 120 pairs" in told and "were it as sure of itself as cyd" in told


@pytest.mark.parametrize(
    ("others", "drawn"),
    [([], []), ([stuck], [WARM]), ([letters(0.6)], [SamplingFreedom(1.0, False)]), ([letters(0.6)], [None])],
    ids=["alone", "another that is stuck", "one that is asked more freely", "one at temperature 0"],
)
def test_where_nothing_can_be_said_that_is_said(
    others: Sequence[Texts], drawn: Sequence[SamplingFreedom | None]
) -> None:
    found = repeated([pairs_of(stuck), *map(pairs_of, others)], [WARM, *drawn])[0]
    assert found == Repeated(120, 120, None)
    assert "nobody can tell" in said_of_repeats(found, ["m"])
    few = pairs_of(stuck, questions=2, trials=8)
    assert repeated([few], [WARM]) == [None]


def test_pairs_are_disjoint_and_of_one_question() -> None:
    def outcomes() -> Iterator[StoredOutcome]:
        for trial, digest in enumerate([1, 2, 2, 1, 7, 7, 9]):
            yield StoredOutcome("m", "q", trial, 0, Cost(), "", digest)
        yield StoredOutcome("m", "other", 6, 0, Cost(), "", 9)
        yield StoredOutcome("m", "q", 7, 0, Cost(), "empty", None)
        yield StoredOutcome("m", "q", 8, 0, Cost(), "timed_out", 9)

    found = AnswerPairs()
    for outcome in outcomes():
        found.add(outcome)
    assert (found.number, found.agreed.total()) == (3, 1)


@pytest.mark.parametrize(
    ("sampling", "drawn"),
    [
        ({"temperature": 0.0}, None),
        ({}, SamplingFreedom(0.5, False)),
        ({"temperature": 1.0}, SamplingFreedom(1.0, False)),
        ({"temperature": 1.0, "top_p": 1.0}, SamplingFreedom(1.0, True)),
        ({"temperature": 0.9, "top_p": 1.0}, SamplingFreedom(0.9, False)),
        ({"temperature": 1.0, "top_p": 1.0, "top_k": 20}, SamplingFreedom(1.0, False)),
        ({"temperature": 1.0, "top_p": 1.0, "extra_body": {"min_p": 0.1}}, SamplingFreedom(1.0, False)),
    ],
)
def test_what_log_probabilities_are_of(sampling: dict[str, object], drawn: SamplingFreedom | None) -> None:
    assert SamplingFreedom.of(Sampling.model_validate(sampling)) == drawn
