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
    SUREST,
    AnswerPairs,
    RepeatsFound,
    SamplingFreedom,
    chance_of_agreement,
    find_repeats,
    repeats_sentence,
    sure_repeat_chance,
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


def alarmed(found: RepeatsFound | None) -> bool:
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
    (found,) = find_repeats([pairs_of(stuck, size=900)], [how])
    assert found is not None and found.chance is not None and found.chance < 1e-6
    assert (found.pairs, found.agreed) == (120, 120)
    assert find_repeats([pairs_of(free, size=900)], [how]) == [None]
    assert find_repeats([pairs_of(stuck, size=900)], [None]) == [None], "the likeliest answer was asked for"


def test_a_cache_that_serves_some_is_found() -> None:
    some = pairs_of(lambda question, trial: trial // 2 if question < 6 else trial, size=1024)
    (found,) = find_repeats([some], [SamplingFreedom(1.0, False)])
    assert found is not None and (found.agreed, found.pairs) == (24, 120)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("p", [0.5, 0.9, 0.99, 1.0])
def test_letters_of_a_choice_raise_no_alarm(p: float, seed: int) -> None:
    """Whoever else there is, and however sure the model is of what is right."""
    others = [pairs_of(letters(q, seed + 100)) for q in (0.5, 0.9)]
    sure = pairs_of(letters(p, seed), right=True)
    assert not any(map(alarmed, find_repeats([sure, *others], [WARM] * 3)))
    assert not any(map(alarmed, find_repeats([pairs_of(letters(p, seed))], [WARM])))


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
        assert find_repeats([drawn], [HOT]) == [None] or p == 0.99
        assert not any(map(alarmed, find_repeats([drawn], [HOT])))
    (found,) = find_repeats([pairs_of(stuck, bits=bits)], [HOT])
    assert alarmed(found) == (p < 0.95)
    (cold,) = find_repeats([pairs_of(stuck, bits=bits)], [WARM])
    assert cold is not None and cold.chance is None, "drawn more coldly than the log-probabilities say"


@pytest.mark.parametrize(
    "others", [[], [stuck], [letters(0.6)]], ids=["alone", "beside its like", "beside a sampled one"]
)
def test_where_nothing_can_be_said_that_is_said(others: Sequence[Texts]) -> None:
    how = WARM._replace(cut=True)
    found = find_repeats([pairs_of(stuck), *map(pairs_of, others)], [how, *([how] * len(others))])[0]
    assert found == RepeatsFound(120, 120, None)
    assert "nobody can tell" in repeats_sentence(found)
    few = pairs_of(stuck, questions=2, trials=8)
    assert find_repeats([few], [WARM]) == [None]


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


SURENESS = {
    "as sure as is assumed": lambda rng, n: np.full(n, (1.0 + np.sqrt(2.0 * SUREST - 1.0)) / 2.0),
    "of most questions": lambda rng, n: np.where(rng.random(n) < 0.7, 0.995, rng.uniform(0.4, 0.9, n)),
    "of many": lambda rng, n: rng.beta(5.0, 1.0, n),
    "of few": lambda rng, n: 0.25 + 0.75 * rng.beta(1.5, 1.5, n),
}
"""How likely the likeliest of four letters is at temperature 1, question by question: of none of them it is right."""


def sampled(rng: np.random.Generator, sure: str, questions: int, temperature: float, size: int = 3) -> AnswerPairs:
    """Four answers of an honest server to each question."""
    top = SURENESS[sure](rng, questions)
    spread = [1.0, 0.01, 0.01] if sure == "as sure as is assumed" else np.ones(3)
    others = rng.dirichlet(spread, questions) * (1.0 - top)[:, None]
    p = np.column_stack([top, others]) ** (1.0 / temperature)
    upto = (p / p.sum(axis=1, keepdims=True)).cumsum(axis=1)
    letters = (rng.random((questions, 4, 1)) > upto[:, None]).sum(axis=2).tolist()
    return pairs_of(lambda question, trial: letters[question][trial], questions, 4, size=size)


@pytest.mark.parametrize(
    "models", [120, pytest.param(2000, marks=pytest.mark.slow), pytest.param(6000, marks=pytest.mark.release)]
)
def test_short_answers_of_honest_servers_raise_hardly_an_alarm(models: int) -> None:
    """At most one model in 500."""
    rng, alarms = np.random.default_rng(5), 0
    for _ in range(models):
        questions, temperature = int(rng.choice([15, 30, 100])), float(rng.choice([0.5, 0.6, 0.8, 1.0]))
        pairs = sampled(rng, str(rng.choice(list(SURENESS))), questions, temperature)
        alarms += sum(map(alarmed, find_repeats([pairs], [SamplingFreedom(temperature, False)])))
    assert alarms <= 0.002 * models


@pytest.mark.parametrize("sure", SURENESS)
@pytest.mark.parametrize("temperature", [0.5, 0.6, 1.0])
def test_a_model_that_is_alone_is_not_taken_for_surer_than_it_may_be(sure: str, temperature: float) -> None:
    """The bound on how often short answers come again holds for each kind of model."""
    rng, again = np.random.default_rng(7), []
    for _ in range(10):
        pairs = sampled(rng, sure, 200, temperature)
        again.append(pairs.agreed.total() / pairs.number)
    assert np.mean(again) <= sure_repeat_chance(0, temperature) + 3.0 * np.std(again) / np.sqrt(len(again))


@pytest.mark.parametrize(
    ("size", "temperature", "enough"),
    [(4, 1.0, 66), (40, 1.0, 40), (120, 1.0, 23), (199, 1.0, 19), (4, 0.8, 132), (120, 0.6, 59), (199, 0.6, 40)],
)
def test_a_cache_is_found_by_short_answers_once_there_are_enough(size: int, temperature: float, enough: int) -> None:
    """Answers of 1 to 50 tokens that are not right."""
    how = SamplingFreedom(temperature, False)
    (found,) = find_repeats([pairs_of(stuck, enough, 4, size=size)], [how])
    assert found is not None and found.surest and found.chance is not None and found.chance <= ALARMING
    assert "were it so sure that 90% of its pairs agree" in repeats_sentence(found)
    assert not any(map(alarmed, find_repeats([pairs_of(stuck, enough - 1, 4, size=size)], [how])))
    assert not any(map(alarmed, find_repeats([pairs_of(stuck, 300, 4, size=size, right=True)], [how])))
    cut = how._replace(cut=True)
    assert not any(map(alarmed, find_repeats([pairs_of(stuck, enough, 4, size=size)], [cut])))


def test_the_length_of_a_choice_says_nothing() -> None:
    """Twenty words around one of four letters are no twenty words of its own."""
    choices = AnswerPairs()
    for question, trial in itertools.product(range(40), range(4)):
        choices.add(StoredOutcome("m", f"q{question}", trial, 0, Cost(), "", question % 4, 160, False, True))
    assert not any(map(alarmed, find_repeats([choices], [HOT])))
    assert any(map(alarmed, find_repeats([pairs_of(stuck, 40, 4, size=160)], [HOT])))


def test_questions_of_which_a_model_is_sure_count_once() -> None:
    """Forty pairs each say no more of a model that is sure of a question than one pair does."""
    how = SamplingFreedom(1.0, False)
    assert not any(map(alarmed, find_repeats([pairs_of(stuck, 40, 80)], [how])))
    assert any(map(alarmed, find_repeats([pairs_of(stuck, 80, 4)], [how])))


def test_pairs_that_differ_from_each_other_show_that_a_model_is_sampled() -> None:
    (found,) = find_repeats([pairs_of(lambda question, trial: trial // 2, 100, 4)], [SamplingFreedom(1.0, False)])
    assert found is None


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
    found = SamplingFreedom.from_sampling(Sampling.model_validate(sampling))
    assert (found and found[:2]) == (drawn and drawn[:2])
    assert found is None or (not found.cut) == (sampling.keys() == {"temperature", "top_p"})
