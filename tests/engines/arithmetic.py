"""The arithmetic that the tiny models are trained on and asked, and how it becomes tokens.

A prompt is `37+45=` and its answer `82`. A token is a byte: byte b is token 3 + b, after the three special tokens. A
model reads <|bos|> prompt <|answer|> and writes the answer's digits and <|eos|>.
"""

import json
import random
from pathlib import Path
from typing import NamedTuple

BOS, EOS, ANSWER = range(3)
SPECIAL = ("<|bos|>", "<|eos|>", "<|answer|>")
FIRST_BYTE = len(SPECIAL)
VOCABULARY = FIRST_BYTE + 256
CONTEXT = 32
"""Tokens that a model can read; a prompt and its answer have 12 at most."""

MIX = (("+", 14), ("-", 9), ("*", 7))
"""How many of the thirty questions have which sign; training draws them in the same proportions."""

CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{{ message['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}<|answer|>{% endif %}"
)


class Problem(NamedTuple):
    """One question and its answer."""

    prompt: str
    answer: str


def problem(sign: str, rng: random.Random) -> Problem:
    """A sum or a difference (never negative) of numbers below 100, or a product of digits."""
    below = 10 if sign == "*" else 100
    a, b = rng.randrange(below), rng.randrange(below)
    if sign == "-":
        a, b = max(a, b), min(a, b)
    value = {"+": a + b, "-": a - b, "*": a * b}[sign]
    return Problem(f"{a}{sign}{b}=", str(value))


def random_problem(rng: random.Random) -> Problem:
    """One of the problems that a model sees in training."""
    (sign,) = rng.choices([sign for sign, _ in MIX], [count for _, count in MIX])
    return problem(sign, rng)


def questions() -> list[Problem]:
    """The thirty questions of the tests, all different."""
    rng, problems = random.Random("thirty questions"), dict[str, Problem]()
    for sign, count in MIX:
        goal = len(problems) + count
        while len(problems) < goal:
            drawn = problem(sign, rng)
            problems.setdefault(drawn.prompt, drawn)
    return list(problems.values())


def text_tokens(text: str) -> list[int]:
    """The tokens of a text without special tokens."""
    return [FIRST_BYTE + byte for byte in text.encode()]


def prompt_tokens(prompt: str) -> list[int]:
    """What a model reads: the chat template's rendering of one user message, as tokens."""
    return [BOS, *text_tokens(prompt), ANSWER]


def answer_tokens(answer: str) -> list[int]:
    """What a model writes when it gives this answer and stops."""
    return [*text_tokens(answer), EOS]


def byte_symbols() -> list[str]:
    """The printable character that stands for each byte in a byte-level BPE vocabulary, as GPT-2 defined it."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(0x100, 0x200))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


def vocabulary() -> list[str]:
    """The text of each token, as tokenizers write it."""
    return [*SPECIAL, *byte_symbols()]


def write_tokenizer(folder: Path) -> None:
    """A byte-level BPE tokenizer without merges, in the format of Hugging Face, with the chat template."""
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    tokenizer = {
        "version": "1.0",
        "added_tokens": [{"id": number, "content": text, **flags} for number, text in enumerate(SPECIAL)],
        "pre_tokenizer": level,
        "decoder": level,
        "model": {"type": "BPE", "vocab": {text: number for number, text in enumerate(vocabulary())}, "merges": []},
    }
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": SPECIAL[BOS],
        "eos_token": SPECIAL[EOS],
        "model_max_length": CONTEXT,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    for name, value in (("tokenizer.json", tokenizer), ("tokenizer_config.json", settings)):
        (folder / name).write_text(json.dumps(value, ensure_ascii=False) + "\n")
