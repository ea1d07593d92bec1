r"""The grader for numbers: compares the answer's last number with the key, within a tolerance.

Numbers are decimals of up to 1,000 digits, not binary floats, so 0.1 + 0.2 is 0.3, and 1e999999999 costs nothing.
"""

import math
import re
from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import Annotated, Literal

from pydantic import AfterValidator

from adaptive_eval.base.sections import config_error
from adaptive_eval.graders.answer_text import final_text, last_box, last_match
from adaptive_eval.graders.types import GraderOptions, Marks, marks
from adaptive_eval.questions.types import Question

MAX_DIGITS = 1_000
ARITHMETIC = Context(prec=MAX_DIGITS + 100, rounding=ROUND_HALF_EVEN, traps=[])
NUMBER = re.compile(
    r"(?P<top>(?:(?<!\d)[-+])?"
    r"(?:(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])(?:\.\d+)?|(?<!\d)\d+(?:\.\d+)?|(?<![\d.])\.\d+)(?:[eE][-+]?\d+)?)"
    r"(?:\s*/\s*(?P<bottom>\d+(?:\.\d+)?))?\s*(?P<percent>\\?%)?"
)
FRACTION = re.compile(r"(?:(-)\s*+)?\\[dt]?frac\s*\{\s*(-?\d+(?:\.\d+)?)\s*\}\s*\{\s*(\d+(?:\.\d+)?)\s*\}")
UNITS = re.compile(r"\\(?:text|mathrm|textbf)\s*\{[^{}]*\}|\\[,!;: $]|\^\s*\\circ|\^\s*\{\\circ\}")
"""Markup in a box that does not change the value of a number, unlike a root."""
ANSWER_PHRASE = re.compile(r"(?i:####|\banswer\b[^\n]{0,40}?(?:\bis\b|[:=]))")
SHARE = re.compile(r"\d+(\.\d+)?%")
SPELLING = str.maketrans({"−": "-", "–": "-", "\u2009": "", "\u202f": "", "\u00a0": " "})


def _check_tolerance(tolerance: float | str) -> float | str:
    if SHARE.fullmatch(tolerance) if isinstance(tolerance, str) else 0.0 <= tolerance < math.inf:
        return tolerance
    raise config_error("must be a number of at least 0, or a percentage", 'such as 0.01 or "1%"')


class Numeric(GraderOptions):
    """Correct: the answer is a number that differs from the key by at most `tolerance`.

    The answer is the number in the last box, else the first number after the last "answer is" or "####", else the last
    number in the text. Thousands commas, fractions and currency signs are understood; 50% counts as 50 and as 0.5.
    """

    kind: Literal["numeric"] = "numeric"
    tolerance: Annotated[float | str, AfterValidator(_check_tolerance)] = 0.0
    """Maximum difference from the key: 0.01, or "1%" of the key."""

    def grade(self, text: str, question: Question) -> Marks:
        number = _stated_number(final_text(text))
        if number is None:
            return marks(False, None)
        keys, values = _values(question.answer), _values(number)
        return marks(any(self._close(value, key) for value in values for key in keys), number)

    def key_problem(self, question: Question) -> str | None:
        values = _values(question.answer)
        if values and all(value.is_finite() for value in values):
            return None
        return f"needs a number as its answer, but has {question.answer!r}"

    def _close(self, value: Decimal, key: Decimal) -> bool:
        if value == key:
            return True
        if isinstance(self.tolerance, str):
            allowed = ARITHMETIC.multiply(Decimal(self.tolerance.removesuffix("%")) / 100, abs(key))
        else:
            allowed = Decimal(self.tolerance)
        return ARITHMETIC.abs(ARITHMETIC.subtract(value, key)) <= allowed


def _stated_number(text: str) -> str | None:
    """The number that the text states as its answer, as written; None if there is none."""
    box = last_box(text)
    if box is not None:
        plain_box = UNITS.sub(" ", _plain_spelling(box))
        boxed = _numbers(plain_box) if "\\" not in plain_box.replace("\\%", "") else []
        return boxed[-1] if boxed else None
    phrase = last_match(ANSWER_PHRASE, text)
    after = _numbers(text[phrase.end() :].lstrip()[:MAX_DIGITS].partition("\n")[0]) if phrase is not None else []
    if after:
        return after[0]
    numbers = _numbers(text[-10 * MAX_DIGITS :])
    return numbers[-1] if numbers else None


def _numbers(text: str) -> list[str]:
    return [match[0].strip() for match in NUMBER.finditer(_plain_spelling(text))]


def _plain_spelling(text: str) -> str:
    plain = FRACTION.sub(r"\1\2/\3", text) if "frac" in text else text
    return plain if plain.isascii() else plain.translate(SPELLING)  # it only replaces characters beyond ASCII


def _values(text: str) -> tuple[Decimal, ...]:
    """The possible values of a written number: one, two for a percentage, none if it is not a number."""
    match = NUMBER.fullmatch(_plain_spelling(text).strip().lstrip("$€£¥").strip())
    if match is None or len(match[0]) > MAX_DIGITS:
        return ()
    value = ARITHMETIC.create_decimal(match["top"].replace(",", ""))
    if match["bottom"]:
        value = ARITHMETIC.divide(value, ARITHMETIC.create_decimal(match["bottom"]))
    if value.is_nan():
        return ()
    return (value, value.scaleb(-2, ARITHMETIC)) if match["percent"] else (value,)
