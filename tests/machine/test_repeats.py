"""Alarms about answers: repeated ones where independent samples would differ, and what all have in common."""

import itertools
from collections.abc import Callable, Collection

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_eval.core.answer_kinds import AnswerKind, answer_kinds
from adaptive_eval.endpoints.types import Answer
from adaptive_eval.machine.alarms import Alarms, AlarmSettings, StopOn, alarm_note
from adaptive_eval.machine.facts import MAX_SIZE, answer_digest
from adaptive_eval.machine.records import IMPORTED, Note
from adaptive_eval.machine.repeats import (
    MAX_QUESTIONS,
    AnswerWatch,
    Repeats,
    Sampled,
    find_repeats,
    repeats_sentence,
    watched_questions,
)
from adaptive_eval.machine.trial import DONE, AnswerFacts, Trial
from adaptive_eval.machine.usage import MIN_ANSWERS, AnswerFault, SharedTraits
from adaptive_eval.running.resume import alarms_without_discard

WARM, HOT = Sampled(0.6), Sampled(1.0)
Texts = Callable[[int, int], object]
"""The text of a question's trial."""


def add(watch: AnswerWatch, question: int, number: int, digest: int | None, flags: str = "", size: int = 512) -> None:
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


@pytest.mark.parametrize("every", [7, 40])
def test_single_answers_that_differ_do_not_hide_a_server_that_ignores_the_seed(every: int) -> None:
    """As where requests that are computed together change a few tokens."""

    def noisy(question: int, trial: int) -> str:
        return f"another {trial}" if (question + trial) % every == 0 else "the same"

    assert alarmed(find_repeats(watched(noisy, 100, 20, size=2000), WARM))


@pytest.mark.parametrize("how", [WARM, HOT, Sampled(0.5)])
def test_a_server_that_ignores_the_seed_is_found_by_long_answers(how: Sampled) -> None:
    assert find_repeats(watched(stuck, size=900), how) == Repeats(120, 120)
    assert find_repeats(watched(free, size=900), how) is None
    assert find_repeats(watched(stuck, size=900), None) is None, "the likeliest answer was asked for"


def test_a_cache_that_serves_some_is_found() -> None:
    watch = watched(lambda question, trial: trial // 2 if question < 6 else trial, size=1024)
    assert find_repeats(watch, HOT) == Repeats(120, 24)


@pytest.mark.parametrize("size", [1, 20, 900])
@pytest.mark.parametrize("how", [WARM, HOT, Sampled(0.1)])
@pytest.mark.parametrize("first", [3, 8, 20])
def test_a_cache_that_starts_in_the_middle_is_found_whatever_the_answers(size: int, how: Sampled, first: int) -> None:
    """Answers are right and wrong, short and long, and agree in most cases before."""
    repeats = find_repeats(watched(from_trial(first, letters(0.8)), 30, first + 6, size=size), how)
    assert repeats is not None and repeats.is_certain and repeats.since is not None
    assert first - 1 <= repeats.since <= first + 1 and repeats.questions >= 15
    assert f"from about trial {repeats.since} on" in repeats_sentence(repeats)


def test_a_cache_is_found_in_the_trials_that_a_look_counts() -> None:
    watch = watched(from_trial(4, free), trials=12)
    assert find_repeats(watch, WARM, [4] * 30) is None
    found = find_repeats(watch, WARM, [12] * 30)
    assert found is not None and (found.is_certain, found.since, found.questions) == (True, 5, 30)


@pytest.mark.parametrize("together", [2, 3, 4])
def test_a_server_that_copies_one_answer_for_each_that_a_request_asks_for_is_found(together: int) -> None:
    how = WARM._replace(together=together)
    for seed in range(20):
        letter = sampled_letters(seed)

        def copied(question: int, trial: int, letter: Texts = letter) -> object:
            return letter(question, trial - trial % together)

        assert alarmed(find_repeats(watched(copied, 60, 24), how)), seed
        assert not any(alarmed(find_repeats(watched(letter, 60, trials), how)) for trials in (4, 8, 24)), seed


def sampled_letters(seed: int) -> Texts:
    """A model that is not sure of any question; its answers are there in any order."""
    picked = np.random.default_rng(seed).choice(list("ABC"), (60, 24), p=[0.6, 0.2, 0.2])
    return lambda question, trial: picked[question, trial]


@pytest.mark.parametrize("trials", [4, 8])
@pytest.mark.parametrize("size", [210, 500])
def test_a_form_that_comes_out_alike_nearly_always_raises_no_alarm(size: int, trials: int) -> None:
    """As where names and dates are taken from a page at a low temperature."""

    def filled(question: int, trial: int) -> str:
        return "the same" if rng.random() < 0.95 else str(trial)

    for seed in range(40):
        rng = np.random.default_rng(seed)
        assert not alarmed(find_repeats(watched(filled, 30, trials, size=size), WARM)), seed


@pytest.mark.parametrize("p", [0.5, 0.9, 0.97, 0.995])
@pytest.mark.parametrize("size", [1, 900])
def test_answers_that_vary_as_often_late_as_early_raise_no_alarm(p: float, size: int) -> None:
    for seed in range(12):
        repeats = find_repeats(watched(letters(p, seed), 40, 20, size=size), Sampled(0.1))
        assert repeats is None or repeats.since is None


def test_undecidable_repeats_are_reported_as_such() -> None:
    """Short answers, however wrong they are."""
    repeats = find_repeats(watched(stuck, size=199), HOT)
    assert repeats == Repeats(120, 120, is_certain=False)
    assert "it is unknown" in repeats_sentence(repeats)
    assert find_repeats(watched(stuck, questions=2, trials=8), WARM) is None


def test_pairs_are_disjoint_and_of_one_question() -> None:
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


@pytest.mark.parametrize(("temperature", "assumed"), [(0.0, None), (None, 0.5), (0.7, 0.7)])
def test_the_temperature_that_samples_are_assumed_to_have(temperature: float | None, assumed: float | None) -> None:
    assert Sampled.how(temperature, 2) == (None if assumed is None else Sampled(assumed, 2))


@pytest.mark.parametrize(("text", "reasoning", "counts"), [("\n", None, False), ("", " ", False), ("", "hm", True)])
def test_blank_answers_have_no_digest(text: str, reasoning: str | None, counts: bool) -> None:
    assert (answer_digest(Answer(text, "stop", 1, "", 0.1, reasoning)) is not None) is counts


def test_blank_answers_and_those_that_took_too_long_are_no_repeats() -> None:
    for digest, flags in ((None, ""), (7, "timed_out")):
        watch = AnswerWatch()
        for question, trial in itertools.product(range(30), range(8)):
            add(watch, question, trial, digest, flags, size=900)
        assert find_repeats(watch, HOT) is None and watch.repeated == 0


def answer(
    number: int,
    digest: int | None = None,
    *,
    category: int | None = 0,
    kinds: int = 0,
    is_right: bool | None = False,
    has_answer: bool = True,
) -> Trial:
    """A wrong answer to one of three questions, in words of its own."""
    facts = AnswerFacts(number if digest is None else digest, MAX_SIZE, is_right, has_answer, 3)
    return Trial(0, number % 3, number // 3, 0, DONE, category=category, kinds=kinds, facts=facts)


def fault_of(answers: list[Trial], lowest: Collection[int] = (0,)) -> AnswerFault | None:
    traits = SharedTraits()
    for trial in answers:
        assert trial.facts is not None
        traits.add(trial, trial.facts, lowest)
    return traits.fault


def test_what_all_answers_have_in_common() -> None:
    numbers = range(MIN_ANSWERS)
    wrong = [answer(number) for number in numbers]
    assert fault_of(wrong) is AnswerFault.WRONG
    assert fault_of(wrong[1:]) is None
    assert fault_of([*wrong[1:], answer(0, is_right=True, category=1)]) is None
    assert fault_of([answer(number, has_answer=False) for number in numbers]) is AnswerFault.UNREAD
    assert fault_of([answer(number, 7) for number in numbers]) is AnswerFault.ALIKE
    assert fault_of([answer(number, 7, is_right=True, category=1) for number in numbers]) is None
    assert fault_of([answer(number, kinds=AnswerKind.EMPTY) for number in numbers]) is AnswerFault.EMPTY
    late = AnswerKind.EMPTY | AnswerKind.TIMED_OUT
    assert fault_of([answer(number, kinds=late) for number in numbers]) is None
    assert fault_of([answer(number, category=None) for number in numbers]) is None
    assert fault_of([answer(number, category=number % 2) for number in numbers]) is None
    unsaid = [answer(number, category=number % 2, is_right=None) for number in numbers]
    assert fault_of(unsaid, lowest={0, 1}) is AnswerFault.WRONG
    assert fault_of(unsaid, lowest={0}) is fault_of(unsaid, lowest={1}) is None


OPENING, LAST = 8, 12
"""Trials of a question in the opening, and in all."""


def alarms_after(answers: list[Trial]) -> list[Note]:
    alarms = Alarms()
    settings = AlarmSettings(sampled={0: Sampled(1.0)})
    alarms.use(settings, ["q0", "q1", "q2"], {0: np.full(3, OPENING, dtype=np.int32)}, np.array([0.0, 1.0]))
    for trial in answers:
        alarms.add(trial)
    return alarms.on_look([0], {0: np.full(3, OPENING)}, is_last=False)


@given(st.permutations(range(3 * LAST)), st.sampled_from(("alike", "wrong", "repeated")), st.booleans())
def test_alarms_go_by_the_opening_alone_in_whatever_order(order: list[int], how: str, sound_later: bool) -> None:
    def made(number: int) -> Trial:
        if number // 3 >= OPENING and sound_later:
            return answer(number, 1000 + number, is_right=True, category=1)
        digest = {"alike": 7, "wrong": number, "repeated": number % 3}[how]
        return answer(number, digest, is_right=how == "repeated", category=int(how == "repeated"))

    raised = alarms_after([trial for trial in map(made, order) if trial.number < OPENING])
    assert raised and alarms_after(list(map(made, order))) == raised


@pytest.mark.parametrize(("stop_on", "counted", "kept"), [("all", False, 0), ("never", False, 1), ("all", True, 1)])
def test_repeats_that_count_are_not_discarded(stop_on: StopOn, counted: bool, kept: int) -> None:
    """What an earlier alarm says of a changed server still is."""
    imported = Note(IMPORTED, None, {"repeats_count": counted})
    changed = alarm_note(0, "empty", "changed", since={"q": 5})
    repeats = alarm_note(0, AnswerFault.REPEATED, "the same", since={})
    assert alarms_without_discard([imported, repeats], stop_on) == [repeats][kept:]
    assert alarms_without_discard([imported, changed, repeats], stop_on) == [[repeats], [changed]][kept]
