"""Models whose answers are known in every respect: what is drawn is what is written, and scores are exact."""

import re
from dataclasses import replace

import numpy as np
import pytest
from known_answers import SHORTEST, KnowingVerifier, KnownRespondent, answer_serial, known_models

from adaptive_eval.graders.rubric import RubricConfig, open_rubric
from adaptive_eval.simulate.answering import Respondent, cut_short, draw_logprobs, draw_prompt_logprobs, right_answer
from adaptive_eval.simulate.worlds import WORLDS
from scorio.categorical import SCHEMATA, Schema

SMALL, POPULATION = known_models(models=2, questions=3, answers=25)


def facts(model: int, question: int, number: int) -> dict[str, float | bool]:
    """What a run knows of an answer, by hand."""
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
    thresholds = POPULATION.thresholds
    given = {name: getattr(thresholds, name) for name in schema.thresholds}
    rubric = open_rubric(RubricConfig(name=schema.name, thresholds=given))
    models, questions, answers = POPULATION.words.shape
    for model in range(models):
        worth = [
            rubric.weights[rubric.category(facts(model, question, number))]
            for question in range(questions)
            for number in range(answers)
        ]
        assert POPULATION.scores(schema)[model] == pytest.approx(sum(worth) / len(worth))


def test_an_answer_is_written_as_it_was_drawn() -> None:
    respondent, seen = KnownRespondent(SMALL, POPULATION, 3), set()
    for seed in range(400):
        drawn = respondent.answer("model-02", "q3", seed)
        assert drawn == respondent.answer("model-02", "q3", seed)
        serial = answer_serial(drawn.text)
        assert serial is not None
        model, question, number = map(int, np.unravel_index(serial, POPULATION.words.shape))
        assert (model, question) == (1, 2)
        expected, boxed = POPULATION.at(model, question, number), re.search(r"\\boxed\{(\d+)\}", drawn.text)
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


def test_answers_are_as_likely_as_each_other() -> None:
    respondent, draws = KnownRespondent(SMALL, POPULATION, 4), 5_000
    serials = [answer_serial(respondent.answer("model-01", "q1", seed).text) for seed in range(draws)]
    counts = np.bincount(np.array(serials, dtype=int), minlength=POPULATION.each)
    expected = draws / POPULATION.each
    assert ((counts - expected) ** 2 / expected).sum() < 56, "chi-squared of 24 degrees of freedom, at 0.0003"


def test_the_prompt_has_the_bits_of_its_question() -> None:
    respondent = KnownRespondent(SMALL, POPULATION)
    prompt = "Say it in a box.\n[q2] Which integer?"
    bits = respondent.prompt_bits(prompt)
    assert bits == POPULATION.prompt_bits[1]
    first, *values = draw_prompt_logprobs(prompt, bits)
    assert first is None and -np.mean([value or 0.0 for value in values]) / np.log(2) == pytest.approx(bits)
    assert Respondent(WORLDS["coins"]()).prompt_bits(prompt) is None


def test_the_verifier_goes_by_the_number_of_the_answer_alone() -> None:
    verifier = KnowingVerifier(leaning=(0.3, 0.0, -0.2), population=POPULATION)
    number = "0123456789abcdef"

    def sent(answer: str) -> str:
        parts = {"question": "Which?", "reference": "123", "answer": answer}
        marked = "\n".join(f"<{name}-{number}>\n{text}\n</{name}-{number}>" for name, text in parts.items())
        return f"Reply with one letter, A, B or C.\n{marked}"

    serial = POPULATION.serial(1, 0, 7)
    scores = (
        np.array(verifier.scores(sent(f"Take 5 as seed of answer {serial}. So the answer is 1."))) - verifier.leaning
    )
    assert np.exp(scores) == pytest.approx(POPULATION.labels[1, 0, 7])
    past = sent(f"Take 5 as seed of answer {POPULATION.words.size}. It is \\boxed{{123}}.")
    assert verifier.scores(past)[0] > verifier.scores(past)[1], "an answer of nobody is read as any verifier reads it"


def test_what_cannot_be_written_is_refused() -> None:
    with pytest.raises(ValueError, match=f"words must be {SHORTEST} or more"):
        replace(POPULATION, words=POPULATION.words * 0)
    with pytest.raises(ValueError, match="labels must hold positive probabilities"):
        replace(POPULATION, labels=POPULATION.labels * 2)
