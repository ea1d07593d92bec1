"""The tiny models are what they are said to be: their probabilities, worked out again, are those that are committed."""

import re

import numpy as np
import pytest
from arithmetic import (
    EOS,
    FIRST_BYTE,
    VOCABULARY,
    answer_tokens,
    byte_symbols,
    prompt_tokens,
    questions,
)
from engine_runs import true_score
from family import FAMILY, adapters, base, checkpoints, exact, weights
from llama import UNSEEN, chance, log_probabilities, shapes, token_log_probabilities
from to_gguf import gguf

NAMES = [*checkpoints(), *adapters()]
LEAST_GAP = 0.08
"""Between true scores that a test ranks: told apart in a modest number of trials."""


@pytest.mark.parametrize("name", NAMES)
def test_the_committed_probabilities_are_those_of_the_weights(name: str) -> None:
    probabilities = {}
    for problem in questions():
        probabilities[problem.prompt] = chance(
            weights(name), prompt_tokens(problem.prompt), answer_tokens(problem.answer)
        ).exact
    assert true_score(weights(name)).slack < 0.001
    assert probabilities == pytest.approx(exact()[name], abs=1e-6)


def test_every_model_has_probabilities() -> None:
    assert sorted(exact()) == sorted(NAMES)


@pytest.mark.parametrize("names", [list(checkpoints()), list(adapters())])
def test_the_true_scores_are_far_apart(names: list[str]) -> None:
    scores = sorted(true_score(weights(name)).exact for name in names)
    assert len(scores) >= 4
    assert min(np.diff(scores)) > LEAST_GAP


def test_the_files_are_small() -> None:
    assert sum(path.stat().st_size for path in FAMILY.rglob("*") if path.is_file()) < 5_000_000


def test_a_checkpoint_has_every_tensor() -> None:
    for name in checkpoints():
        assert {key: tensor.shape for key, tensor in weights(name).items()} == shapes()


def test_probabilities_sum_to_one_and_see_no_later_token() -> None:
    tokens = [*prompt_tokens("37+45="), *answer_tokens("82")]
    table = log_probabilities(weights(base()), tokens)
    assert np.exp(table).sum(axis=1) == pytest.approx(1.0)
    assert log_probabilities(weights(base()), tokens[:4]) == pytest.approx(table[:4])


def test_the_chance_is_the_product_of_its_tokens_at_any_temperature() -> None:
    prompt, answer = prompt_tokens("37+45="), answer_tokens("82")
    model = weights(base())
    product = np.exp(token_log_probabilities(model, [*prompt, *answer])[-len(answer) :].sum())
    assert chance(model, prompt, answer).exact == pytest.approx(product)
    # colder: the same odds, sharpened
    row = log_probabilities(model, prompt)[-1] / 0.5
    cold = np.exp(row - np.logaddexp.reduce(row))
    assert chance(model, prompt, [EOS], 0.5).exact == pytest.approx(cold[EOS])


def test_whatever_can_hide_in_a_text_is_counted_as_unseen() -> None:
    visible = [byte for byte in range(128) if chr(byte).isprintable() and not chr(byte).isspace()]
    seen = {FIRST_BYTE + byte for byte in visible}
    assert set(range(VOCABULARY)) - set(UNSEEN) == seen | {EOS}


@pytest.mark.slow
def test_sampled_answers_are_right_as_often_as_is_said() -> None:
    """By sampling in numpy, without the formula of `chance`."""
    rng = np.random.default_rng(0)
    name = max(checkpoints(), key=lambda checkpoint: true_score(weights(checkpoint)).exact)
    model, right, expected = weights(name), [], []
    for problem in questions()[::6]:
        expected.append(chance(model, prompt_tokens(problem.prompt), answer_tokens(problem.answer)).exact)
        right.append(np.mean([_sampled(name, problem.prompt, rng) == problem.answer for _ in range(60)]))
    spread = np.sqrt(sum(p * (1 - p) / 60 for p in expected)) / len(expected)
    assert abs(np.mean(right) - np.mean(expected)) < 4 * spread


def _sampled(name: str, prompt: str, rng: np.random.Generator) -> str:
    tokens = prompt_tokens(prompt)
    begin = len(tokens)
    while len(tokens) < begin + 8:
        row = np.exp(log_probabilities(weights(name), tokens)[-1])
        tokens.append(int(rng.choice(VOCABULARY, p=row / row.sum())))
        if tokens[-1] == EOS:
            break
    return bytes(token - FIRST_BYTE for token in tokens[begin:] if token >= FIRST_BYTE).decode(errors="replace")


def test_the_questions_are_right() -> None:
    assert len({problem.prompt for problem in questions()}) == 30
    for problem in questions():
        first, sign, second = re.fullmatch(r"(\d+)([-+*])(\d+)=", problem.prompt).groups()  # type: ignore[union-attr]
        value = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__}[sign](int(first), int(second))
        assert problem.answer == str(value)


def test_every_byte_has_a_symbol_of_its_own() -> None:
    symbols = byte_symbols()
    assert len(set(symbols)) == 256
    assert all(symbol.isprintable() and not symbol.isspace() for symbol in symbols)
    assert symbols[ord("7")] == "7"


def test_a_gguf_file_has_its_data_on_boundaries() -> None:
    data = gguf({"a": "b"}, {"one": np.ones((2, 3), "<f4"), "two": np.full(5, 2.0, "<f4")})
    assert data[:4] == b"GGUF"
    assert len(data) % 32 == 0
    assert data[-64:] == np.ones(6, "<f4").tobytes() + bytes(8) + np.full(5, 2.0, "<f4").tobytes() + bytes(12)
