"""Simulated models with fully known answers: the text matches the draw, and scores are exact."""

import re

import numpy as np
import pytest
from known_answers import known_models
from known_server import KnownRespondent, answer_at, answer_serial

from adaptive_eval.graders.rubric import RubricConfig, open_rubric
from adaptive_eval.simulate.answering import cut_short, draw_logprobs, right_answer
from scorio.categorical import SCHEMATA, Schema, fit_thresholds

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
        sent = cut_short(drawn, None, None)
        assert sent.tokens == expected.words and sent.finish_reason == ("length" if expected.cut_off else "stop")
        values = draw_logprobs(drawn.noise, sent.tokens, sent.bits)
        assert -np.mean(values) / np.log(2) == pytest.approx(expected.bits) and len(set(values)) == len(values)
        seen.add(serial)
    assert len(seen) == POPULATION.each, "400 draws of 25 leave none out"
    assert len({respondent.answer("model-02", "q3", seed).text for seed in range(400)}) == 400
