"""What is true of the models in a life, what goes wrong, and the ledger of whatever answers in it.

An answer follows from its model, question and seed. Its text names all three, so that whoever reads the text knows
which request it belongs to. It imports next to nothing: each answer of a command begins here, and its process would
take four times as long to load `json`, `dataclasses`, `typing` and OpenSSL.
"""

import os
from _blake2 import blake2b

SHORT, LONG, WRONG = 10, 24, 16
"""Tokens of a right answer that is brief, of one that is not, and of a wrong one."""
BYTES_A_TOKEN = 12
"""Texts are as long as that, since tokens of several answers to one request are counted together."""
CONTEXT_ERROR = "This model's maximum context length is 270 tokens. However, you requested 295 tokens."


class World:
    """What is true of the models, and what goes wrong."""

    answers = "fine"
    """Trouble with the answers of one model: `cut`, or from the middle on `empty` or `context`."""
    troubled = ""
    """The model that has it."""
    middle = 0
    """The number of its answers before the middle."""
    wire = "fine"
    """Trouble on the way: `errors`, `hangs` or `doubled`."""
    echo = "none"
    """Where the server repeats the key that it was sent: `answers` or `errors`."""
    seconds = 0.01
    """How long an answer takes."""
    judge_errs = False

    def __init__(self, models: "dict[str, dict[str, float]]", keys: "dict[str, str]", **others: object) -> None:
        self.models = models
        """The probability of a right answer to each question, by model."""
        self.keys = keys
        """The right answer to each question."""
        self.lenient: dict[str, float] = {}
        """By model the share of its answers that every grader takes for right, and that people call wrong."""
        vars(self).update(others)

    @classmethod
    def read(cls, path: str) -> "World":
        with open(path) as file:  # noqa: PTH123
            return cls(**eval(file.read()))

    def write(self, path: "os.PathLike[str]") -> None:
        with open(path, "w") as file:  # noqa: PTH123
            file.write(repr(vars(self)))

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


class Drawn:
    """An answer as it is before any trouble."""

    def __init__(self, model: str, question: str, seed: int, right: bool, tokens: int, text: str) -> None:
        self.model, self.question, self.seed = model, question, seed
        self.right, self.tokens, self.text = right, tokens, text


def share(*parts: object) -> float:
    """A number from 0 to 1 that these parts decide."""
    return int.from_bytes(blake2b(repr(parts).encode(), digest_size=8).digest(), "big") / 2**64


class Ledger:
    """The lines of all servers of a world, whatever process they are in; each line is a literal."""

    def __init__(self, path: "os.PathLike[str] | str") -> None:
        self.path = path
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, **line: object) -> None:
        os.write(self._file, repr(line).encode() + b"\n")

    def lines(self) -> "list[dict[str, Any]]":  # noqa: F821
        with open(self.path) as file:  # noqa: PTH123
            return [eval(line) for line in file]

    def count(self) -> int:
        """How many lines there are."""
        with open(self.path, "rb") as file:  # noqa: PTH123
            return file.read().count(b"\n")

    def close(self) -> None:
        os.close(self._file)


def padded(text: str, tokens: int) -> str:
    """The text at the length of so many tokens; an empty one stays empty."""
    return text and "." * (BYTES_A_TOKEN * tokens - len(text)) + text
