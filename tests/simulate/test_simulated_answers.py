"""What simulated models answer: the world's probabilities, reproduced by seed, written as graders expect."""

import re

import numpy as np
import pytest

from adaptive_eval.simulate.answering import AnswerForm, Respondent, forms, right_answer
from adaptive_eval.simulate.worlds import Latency, World, binary, rubric

WORLD = World("two", binary(np.array([[0.0, 0.25, 1.0], [0.5, 0.9, 0.1]])), models=("a", "b"))


def boxed(text: str) -> str | None:
    match = re.search(r"\\boxed\{(\d+)\}", text)
    return match.group(1) if match else None


def test_the_same_request_gets_the_same_answer_and_any_other_another() -> None:
    respondent, same, other = Respondent(WORLD, 1), Respondent(WORLD, 1), Respondent(WORLD, 2)
    answers = [respondent.answer("a", "q2", seed) for seed in range(200)]
    # in another order, from another server
    assert answers == [same.answer("a", "q2", seed) for seed in reversed(range(200))][::-1]
    assert len({answer.text for answer in answers}) == 200
    for others in (
        [other.answer("a", "q2", seed) for seed in range(200)],
        [respondent.answer("b", "q2", s) for s in range(200)],
    ):
        assert not {answer.text for answer in answers} & {answer.text for answer in others}


def test_categories_have_the_probabilities_of_the_world() -> None:
    respondent, trials = Respondent(WORLD, 7), 4000
    for m, model in enumerate(WORLD.models):
        for q, question in enumerate(WORLD.questions):
            right = sum(respondent.answer(model, question, seed).category for seed in range(trials))
            p = WORLD.p[m, q, 1]
            assert abs(right / trials - p) <= 5 * np.sqrt(p * (1 - p) / trials)


def test_a_right_answer_is_right_and_a_wrong_one_wrong() -> None:
    respondent = Respondent(WORLD)
    wrong = set()
    for question in WORLD.questions:
        for seed in range(300):
            answer = respondent.answer("b", question, seed)
            value = boxed(answer.text)
            assert (value == str(right_answer(question))) == (answer.category == 1)
            wrong |= {value} if answer.category == 0 else set()
    assert None not in wrong
    assert len(wrong) > 100


def test_a_rubric_is_written_out_category_by_category() -> None:
    world = rubric(models=2, questions=6)
    assert forms(tuple(world.w)) == (AnswerForm.NONE, AnswerForm.WRONG, AnswerForm.UNBOXED, AnswerForm.RIGHT)
    respondent = Respondent(world)
    seen = set()
    for question in world.questions:
        right = str(right_answer(question))
        for seed in range(200):
            answer = respondent.answer("model-01", question, seed)
            seen.add(answer.category)
            assert (boxed(answer.text) == right) == (answer.category == 3)
            assert (boxed(answer.text) is not None) == (answer.category in (1, 3))
            assert (f"answer is {right}." in answer.text) == (answer.category == 2)
    assert seen == {0, 1, 2, 3}


def test_wrong_answers_take_longer_and_say_more() -> None:
    world = World("one", binary(np.full((1, 1), 0.5)), models=("a",), latency=Latency(2.0, 0.5, 3.0))
    answers = [Respondent(world).answer("a", "q1", seed) for seed in range(4000)]
    for part, factor in ((1, 1.0), (0, 3.0)):
        seconds = np.log([answer.seconds for answer in answers if answer.category == part])
        assert seconds.mean() == pytest.approx(np.log(2.0 * factor), abs=0.05)
        assert seconds.std() == pytest.approx(0.5, abs=0.03)
        words = np.log([len(answer.text.split()) for answer in answers if answer.category == part])
        assert words.mean() == pytest.approx(np.log(200 * factor), abs=0.08)


def test_the_question_is_the_last_id_at_the_start_of_a_line() -> None:
    respondent = Respondent(WORLD)
    assert respondent.question_in("[q1] An example.\nAnswer: [q2]\n[q3] And now?") == "q3"
    assert respondent.question_in("What is [1, 2] + [q1]?") is None
    with pytest.raises(KeyError, match="q99"):
        respondent.question_in("[q1] one\n[q99] two")
