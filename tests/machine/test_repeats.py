"""Repeated answers raise an alarm where independent samples would differ, never where they may agree."""

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from adaptive_eval.core.answer_kinds import answer_kinds
from adaptive_eval.endpoints.types import Answer, Sampling
from adaptive_eval.machine.facts import answer_digest
from adaptive_eval.machine.repeats import (
    MAX_QUESTIONS,
    AnswerWatch,
    Repeats,
    find_repeats,
    repeats_sentence,
    sampling_temperature,
    watched_questions,
)
from adaptive_eval.machine.trial import DONE, AnswerFacts, Trial

WARM, HOT = 0.6, 1.0
Texts = Callable[[int, int], object]
"""The text of a question's trial."""


def add(watch: AnswerWatch, question: int, number: int, digest: int | None, flags: str = "", size: int = 512) -> None:
    """Add an answer."""
    trial = Trial(0, question, number, 0, DONE, category=0, kinds=answer_kinds(flags))
    watch.add(trial, AnswerFacts(digest, size, None, True, 5))


def watched(texts: Texts, questions: int = 30, trials: int = 8, *, size: int = 3) -> AnswerWatch:
    """The watched answers of a model, added in any order."""
    watch = AnswerWatch()
    cells = list(itertools.product(range(questions), range(trials)))
    np.random.default_rng(1).shuffle(cells)
    for question, trial in cells:
        add(watch, question, trial, hash((question, texts(question, trial))), size=size)
    return watch


def letters(p: float, seed: int = 0) -> Texts:
    """Each question has a most likely letter, which comes with this chance."""
    rng = np.random.default_rng(seed)
    return lambda question, trial: "A" if rng.random() < p else str(rng.integers(3))


def stuck(question: int, trial: int) -> str:
    """A server that ignores the seed."""
    return "the same"


def free(question: int, trial: int) -> int:
    """Long answers of a sampled model."""
    return trial


def alarmed(repeats: Repeats | None) -> bool:
    return repeats is not None and repeats.is_certain


def from_trial(first: int, before: Texts) -> Texts:
    """Answers with a cache that starts at this trial."""
    return lambda question, trial: before(question, trial) if trial < first else "cached"


@pytest.mark.parametrize("how", [WARM, HOT, 0.5])
def test_a_server_that_ignores_the_seed_is_found_by_long_answers(how: float) -> None:
    assert find_repeats(watched(stuck, size=900), how) == Repeats(30, 1)
    assert find_repeats(watched(free, size=900), how) is None
    assert find_repeats(watched(stuck, size=900), None) is None, "the likeliest answer was asked for"


@pytest.mark.parametrize("size", [1, 20, 900])
@pytest.mark.parametrize("how", [WARM, HOT, 0.1])
@pytest.mark.parametrize("first", [3, 8, 20])
def test_a_cache_that_starts_in_the_middle_is_found_whatever_the_answers(size: int, how: float, first: int) -> None:
    """Answers are right and wrong, short and long, and agree in most cases before."""
    repeats = find_repeats(watched(from_trial(first, letters(0.8)), 30, first + 6, size=size), how)
    assert repeats is not None and repeats.is_certain
    assert first - 1 <= repeats.since <= first + 1 and repeats.questions >= 15
    assert f"from about trial {repeats.since} on" in repeats_sentence(repeats)


def test_a_cache_is_found_in_the_trials_that_a_look_counts() -> None:
    watch = watched(from_trial(4, free), trials=12)
    assert find_repeats(watch, HOT, [4] * 30) is None
    assert find_repeats(watch, HOT, [12] * 30) == Repeats(questions=30, since=5)


@pytest.mark.parametrize("p", [0.5, 0.9, 0.97, 0.995])
@pytest.mark.parametrize("size", [1, 900])
def test_answers_that_vary_as_often_late_as_early_raise_no_alarm(p: float, size: int) -> None:
    for seed in range(12):
        assert not alarmed(find_repeats(watched(letters(p, seed), 40, 20, size=size), 0.1))


@pytest.mark.parametrize("p", [0.5, 0.9, 0.99, 1.0])
def test_repeated_choice_letters_raise_no_alarm(p: float) -> None:
    """However certain the model is."""
    for seed in range(20):
        for how in (WARM, HOT):
            assert not alarmed(find_repeats(watched(letters(p, seed)), how)), seed


def test_undecidable_repeats_are_reported_as_such() -> None:
    repeats = find_repeats(watched(stuck), WARM)
    assert repeats == Repeats(30, 1, is_certain=False)
    assert "it is unknown" in repeats_sentence(repeats)
    assert find_repeats(watched(stuck, questions=2, trials=8), WARM) is None


def test_repeats_are_counted_within_a_question() -> None:
    watch = AnswerWatch()
    for trial, digest in enumerate([1, 2, 2, 1, 7, 7, 9]):
        add(watch, 0, trial, digest)
    add(watch, 1, 6, 9)
    add(watch, 0, 7, None, "empty")
    add(watch, 0, 8, 9, "timed_out")
    assert watch.repeated == 3
    assert find_repeats(watch, HOT) is None


def test_a_few_questions_are_watched_whatever_the_order_of_questions() -> None:
    keys = [f"q{number}" for number in range(2000)]
    watched = watched_questions(keys)
    assert len(watched) == MAX_QUESTIONS
    assert {keys[at] for at in watched} == {keys[::-1][at] for at in watched_questions(keys[::-1])}
    assert watched_questions(keys[:7]) == {*range(7)}


def test_how_freely_answers_are_drawn() -> None:
    given = ({"temperature": 0.0}, {}, {"temperature": 0.8})
    assert [sampling_temperature(Sampling.model_validate(sampling)) for sampling in given] == [None, 0.5, 0.8]


@pytest.mark.parametrize(("text", "reasoning", "counts"), [("\n", None, False), ("", " ", False), ("", "hm", True)])
def test_blank_answers_have_no_digest(text: str, reasoning: str | None, counts: bool) -> None:
    answer = Answer(text, "stop", 1, "", 0.1, reasoning)
    assert (answer_digest(answer) is not None) is counts


@pytest.mark.parametrize(("digest", "flags"), [(None, ""), (7, "timed_out")])
def test_blank_answers_and_those_that_took_too_long_are_no_repeats(digest: int | None, flags: str) -> None:
    watch = AnswerWatch()
    for question, trial in itertools.product(range(30), range(8)):
        add(watch, question, trial, digest, flags, size=900)
    assert find_repeats(watch, HOT) is None and watch.repeated == 0
