"""What is true of the models in a life, what goes wrong, and the ledger of whatever answers in it.

An answer follows from its model, question and seed. Its text names all three, so that whoever reads the text knows
which request it belongs to. It needs the standard library alone, and little of that: each answer of a command begins
here.
"""

import json
import os
import re
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

SHORT, LONG, WRONG = 10, 24, 16
"""Tokens of a right answer that is brief, of one that is not, and of a wrong one."""
BYTES_A_TOKEN = 12
"""Texts are as long as that, since tokens of several answers to one request are counted together."""
QUESTION = re.compile(r"\[([a-z]+\d+)\]")
ANSWER = re.compile(r"The answer is (\d+)")
CONTEXT_ERROR = "This model's maximum context length is 270 tokens. However, you requested 295 tokens."


@dataclass
class World:
    """What is true of the models, and what goes wrong."""

    models: dict[str, dict[str, float]]
    """The probability of a right answer to each question, by model."""
    keys: dict[str, str]
    """The right answer to each question."""
    answers: str = "fine"
    """Trouble with the answers of one model: `cut`, or from the middle on `empty` or `context`."""
    troubled: str = ""
    """The model that has it."""
    middle: int = 0
    """The number of its answers before the middle."""
    wire: str = "fine"
    """Trouble on the way: `errors`, `hangs` or `doubled`."""
    echo: str = "none"
    """Where the server repeats the key that it was sent: `answers` or `errors`."""
    seconds: float = 0.01
    """How long an answer takes."""
    lenient: dict[str, float] = field(default_factory=dict)
    """By model the share of its answers that every grader takes for right, and that people call wrong."""
    judge_errs: bool = False

    @classmethod
    def read(cls, path: Path) -> "World":
        return cls(**json.loads(path.read_text()))

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))

    def answer(self, model: str, question: str, seed: int, temperature: float) -> "Drawn":
        """What a model says; trouble does not change what it would have said."""
        draw = share(question, seed) if temperature > 0 else 0.5
        right = draw < self.models[model][question]
        brief = share("brief", model, question, seed) < 0.5
        key = int(self.keys[question])
        number = key if right else key + 1 + seed % 7
        tokens = (SHORT if brief else LONG) if right else WRONG
        return Drawn(model, question, seed, right, tokens, f"Case {model}/{question}/{seed}. The answer is {number}.")

    def people_say_right(self, answer: "Drawn") -> bool:
        """What a person says who labels the answer."""
        lenient = share("lenient", answer.model, answer.question, answer.seed) < self.lenient.get(answer.model, 0.0)
        return answer.right and not lenient


class Drawn(NamedTuple):
    """An answer as it is before any trouble."""

    model: str
    question: str
    seed: int
    right: bool
    tokens: int
    text: str


def share(*parts: object) -> float:
    """A number from 0 to 1 that these parts decide."""
    return int.from_bytes(blake2b(repr(parts).encode(), digest_size=8).digest(), "big") / 2**64


class Ledger:
    """The lines of all servers of a world, whatever process they are in."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, **line: object) -> None:
        os.write(self._file, json.dumps(line).encode() + b"\n")

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.path.read_text().splitlines()]

    def close(self) -> None:
        os.close(self._file)


def padded(text: str, tokens: int) -> str:
    """The text at the length of so many tokens; an empty one stays empty."""
    return text and "." * (BYTES_A_TOKEN * tokens - len(text)) + text
