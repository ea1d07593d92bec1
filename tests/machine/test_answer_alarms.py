"""Alarms about what all answers of a model have in common, and which answers count."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from adaptive_eval.core.answer_kinds import AnswerKind
from adaptive_eval.machine.alarms import Alarms, AlarmSettings
from adaptive_eval.machine.facts import MAX_SIZE
from adaptive_eval.machine.records import Note
from adaptive_eval.machine.repeats import SamplingFreedom
from adaptive_eval.machine.trial import DONE, AnswerFacts, Trial
from adaptive_eval.machine.usage import MIN_ANSWERS, AnswerFault, SharedTraits


def answer(
    number: int,
    digest: int | None = None,
    *,
    category: int | None = 0,
    kinds: int = 0,
    is_right: bool = False,
    has_answer: bool = True,
) -> Trial:
    """A wrong answer to one of three questions, in words of its own."""
    facts = AnswerFacts(number if digest is None else digest, MAX_SIZE, is_right, has_answer, 3)
    return Trial(0, number % 3, number // 3, 0, DONE, category=category, kinds=kinds, facts=facts)


def fault_of(answers: list[Trial]) -> AnswerFault | None:
    traits = SharedTraits()
    for trial in answers:
        assert trial.facts is not None
        traits.add(trial, trial.facts)
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


OPENING, LAST = 8, 12
"""Trials of a question in the opening, and in all."""


def alarms_after(answers: list[Trial]) -> list[Note]:
    alarms = Alarms()
    settings = AlarmSettings(freedoms={0: SamplingFreedom(1.0)})
    alarms.use(settings, ["q0", "q1", "q2"], {0: np.full(3, OPENING, dtype=np.int32)})
    for trial in answers:
        alarms.add(trial)
    return alarms.on_look([0], {0: np.full(3, OPENING)}, is_last=False)


@given(st.permutations(range(3 * LAST)), st.sampled_from(("alike", "wrong", "repeated")), st.booleans())
def test_alarms_go_by_the_opening_alone_whatever_comes_before_its_last_answer(
    order: list[int], how: str, sound_later: bool
) -> None:
    def made(number: int) -> Trial:
        if number // 3 >= OPENING and sound_later:
            return answer(number, 1000 + number, is_right=True, category=1)
        digest = {"alike": 7, "wrong": number, "repeated": number % 3}[how]
        return answer(number, digest, is_right=how == "repeated", category=int(how == "repeated"))

    opening = [trial for trial in map(made, order) if trial.number < OPENING]
    raised = alarms_after(opening)
    assert raised and alarms_after(list(map(made, order))) == raised
