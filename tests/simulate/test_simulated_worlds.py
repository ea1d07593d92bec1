"""Simulated answers and faults: their shares, their independence, and models with fully known answers."""

import re
from collections import Counter

import numpy as np
import pytest
from known_answers import known_models
from known_server import KnownRespondent, answer_at, answer_serial

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.graders.rubric import RubricConfig, open_rubric
from adaptive_eval.simulate.answering import AnswerForm, Respondent, draw_logprobs, forms, right_answer
from adaptive_eval.simulate.faults import Fault, Faults, TimeWindow, parse_faults
from adaptive_eval.simulate.worlds import Latency, World, binary, rubric
from scorio.categorical import SCHEMATA, Schema, fit_thresholds

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


def test_a_rubric_is_written_out_category_by_category() -> None:
    world = rubric(models=2, questions=6)
    assert forms(tuple(world.w)) == (AnswerForm.NONE, AnswerForm.WRONG, AnswerForm.UNBOXED, AnswerForm.RIGHT)
    respondent = Respondent(world)
    seen, wrong = set(), set()
    for question in world.questions:
        right = str(right_answer(question))
        for seed in range(200):
            answer = respondent.answer("model-01", question, seed)
            seen.add(answer.category)
            assert (boxed(answer.text) == right) == (answer.category == 3)
            assert (boxed(answer.text) is not None) == (answer.category in (1, 3))
            assert (f"answer is {right}." in answer.text) == (answer.category == 2)
            wrong |= {boxed(answer.text)} if answer.category == 1 else set()
    assert seen == {0, 1, 2, 3} and len(wrong) > 100, "wrong answers differ"


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


SMALL, POPULATION = known_models(models=2, questions=3, answers=25)


def facts(model: int, question: int, number: int) -> dict[str, float | bool]:
    """The facts that a run stores of an answer, by hand."""
    at = model, question, number
    a, b, c = POPULATION.labels[at].tolist()
    return {
        "is_correct": bool(POPULATION.is_correct[at]),
        "has_box": bool(POPULATION.has_box[at]),
        "token_ratio": int(POPULATION.words[at]) / 32768,
        "repeated_pattern": float(POPULATION.cut_off[at]),
        "completion_bpt": float(POPULATION.bits[at]),
        "prompt_bpt": float(POPULATION.prompt_bits[question]),
        "verifier_a": a,
        "verifier_b": b,
        "verifier_c": c,
    }


@pytest.mark.parametrize("schema", SCHEMATA.values(), ids=lambda schema: schema.name)
def test_true_scores_are_the_means_over_all_answers_one_by_one(schema: Schema) -> None:
    thresholds = fit_thresholds(POPULATION.signals)
    given = {name: getattr(thresholds, name) for name in schema.thresholds}
    rubric = open_rubric(RubricConfig(name=schema.name, thresholds=given))
    models, questions, answers = POPULATION.words.shape
    for model in range(models):
        worth = [
            rubric.weights[rubric.category(facts(model, question, number))]
            for question in range(questions)
            for number in range(answers)
        ]
        assert POPULATION.scores(schema, thresholds)[model] == pytest.approx(sum(worth) / len(worth))


def test_an_answer_is_written_as_it_was_drawn() -> None:
    respondent, seen = KnownRespondent(SMALL, POPULATION, 3), set()
    for seed in range(400):
        drawn = respondent.answer("model-02", "q3", seed)
        assert drawn == respondent.answer("model-02", "q3", seed)
        serial = answer_serial(drawn.text)
        assert serial is not None
        model, question, number = map(int, np.unravel_index(serial, POPULATION.words.shape))
        assert (model, question) == (1, 2)
        expected, boxed = answer_at(POPULATION, model, question, number), re.search(r"\\boxed\{(\d+)\}", drawn.text)
        number_in_text = re.findall(r"\d{3}", drawn.text)[-1]
        assert (number_in_text == str(right_answer("q3"))) == expected.is_correct == bool(drawn.category)
        assert (boxed is not None) == expected.has_box and drawn.bits == expected.bits
        sent = drawn.cut_short(None, None)
        assert sent.tokens == expected.words and sent.finish_reason == ("length" if expected.cut_off else "stop")
        values = draw_logprobs(drawn.noise, sent.tokens, sent.bits)
        assert -np.mean(values) / np.log(2) == pytest.approx(expected.bits) and len(set(values)) == len(values)
        seen.add(serial)
    assert len(seen) == POPULATION.each, "400 draws of 25 leave none out"
    assert len({respondent.answer("model-02", "q3", seed).text for seed in range(400)}) == 400


def test_faults_have_their_shares_at_every_attempt() -> None:
    faults = Faults(rate_limited=0.1, server_error=0.2, reset=0.05, hang=0.02)
    for attempt in (0, 3):
        drawn = Counter(faults.draw(("m", seed), attempt) for seed in range(20_000))
        for fault, share in (
            (Fault.RATE_LIMITED, 0.1),
            (Fault.SERVER_ERROR, 0.2),
            (Fault.RESET, 0.05),
            (Fault.HANG, 0.02),
        ):
            assert drawn[fault] / 20_000 == pytest.approx(share, abs=5 * (share * (1 - share) / 20_000) ** 0.5)


def test_the_next_attempt_draws_anew_and_the_same_one_again() -> None:
    faults = Faults(server_error=0.5)
    requests = [("m", seed) for seed in range(400)]
    first = [faults.draw(request, 0) for request in requests]
    second = [faults.draw(request, 1) for request in requests]
    assert first == [faults.draw(request, 0) for request in requests]
    both = sum(a is not None and b is not None for a, b in zip(first, second, strict=True))
    assert both == pytest.approx(100, abs=45)
    assert [Faults(server_error=0.5, seed=1).draw(request, 0) for request in requests] != first


def test_faults_are_asked_for_by_name() -> None:
    asked = ["reset=0.05", "down=10:5", "down=30:2.5", "ignore_n", "slow=3", "seed=4"]
    assert parse_faults(asked) == Faults(
        reset=0.05, down=(TimeWindow(10.0, 5.0), TimeWindow(30.0, 2.5)), ignore_n=True, slow=3.0, seed=4
    )
    assert parse_faults([]) == Faults()


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ("rest=0.1", "unknown fault"),
        ("reset=often", "a number"),
        ("down=10", "START:LENGTH"),
        ("ignore_n=maybe", "no value"),
        ("hang=1.5", "less than 1"),
        ("hang=-0.1", "not be negative"),
    ],
)
def test_bad_faults_are_refused(setting: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        parse_faults([setting])
