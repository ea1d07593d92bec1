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
    r"(?<!\^)(?<!\^[-{])(?<!\^\{-)"  # not an exponent
    r"(?:(?<!\d)(?<!\d\$)(?P<sign>[-+])[$€£¥]?)?"
    r"(?:(?<![\d.,/])(?P<whole>\d{1,3}) {1,3}(?=\d{1,3}/\d))?"
    r"(?P<top>(?:(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])(?:\.\d+)?|(?<!\d)\d++(?:\.\d++)?+|(?<![\d.])\.\d++)(?:[eE][-+]?\d+)?)"
    r"(?!\s*\^\s*\{?[-+(]?\w)"  # nor its base
    r"(?:\s*/\s*(?P<bottom>\d+(?:\.\d+)?))?\s*(?P<percent>\\?%)?"
)
"""A number, such as -$1,234.50, 2 1/2 or 5%."""
FRACTION = re.compile(r"(?:(-)\s*+)?\\[dt]?frac\s*\{\s*(-?\d+(?:\.\d+)?)\s*\}\s*\{\s*(\d+(?:\.\d+)?)\s*\}")
SHORT_FRACTION = re.compile(r"\\[dt]?frac\s*(\d)\s*(\d)")
POWER_OF_TEN = re.compile(
    r"(?:(?<=[\d.])\s*(?:×|⋅|·|\\?\*|x|\\times|\\cdot)\s*|(?<![\w.,^{])(?P<alone>))10\s*\^\s*(\{\s*)?"
    r"(?P<exponent>[-+]?\d+)(?(2)\s*\})"
)
SUPERSCRIPT = re.compile("[⁻⁰¹²³⁴-⁹]+")
SUPERSCRIPTS = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
THOUSANDS = re.compile(r"(?<=\d)(?:\{,\}|,\\!|\\[,;:! ]|~|[\u00a0\u2009\u202f])(?=\d{3}(?!\d))")
"""What separates thousands, besides a comma."""
UNITS = re.compile(
    r"\\(?:text|mathrm|textbf)\s*\{(?:[^{}]|\{[^{}]*\})*\}(?:\s*\^\s*(?:\{[^{}]*\}|-?\d))?"
    r"|\\[,!;: ]|\\approx|\^\s*\\circ|\^\s*\{\\circ\}"
)
"""Markup in a box that does not change the value of a number, unlike a root."""
WRAPPING = re.compile(r"\\(?:text|mathrm|textbf|mathbf)\s*\{([^{}]*)\}")
ANSWER_PHRASE = re.compile(r"(?i:####|\banswer\b[^\n]{0,40}?(?:\bis\b|[:=]))")
SHARE = re.compile(r"\d+(\.\d+)?%")
SPELLING = str.maketrans({"−": "-", "–": "-", "\u2009": " ", "\u202f": " ", "\u00a0": " "})


def _check_tolerance(tolerance: float | str) -> float | str:
    if SHARE.fullmatch(tolerance) if isinstance(tolerance, str) else 0.0 <= tolerance < math.inf:
        return tolerance
    raise config_error("must be a number of at least 0, or a percentage", 'such as 0.01 or "1%"')


class Numeric(GraderOptions):
    """Correct: the answer is a number that differs from the key by at most `tolerance`.

    The answer is the number in the last box, else the first number after the last "answer is" or "####", else the last
    number in the text. Separators of thousands, fractions, powers of ten and currency signs are understood; 50% counts
    as 50 and as 0.5.
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
        plain = _plain_spelling(box)
        boxed = _numbers_of_box(UNITS.sub(" ", plain)) or _numbers_of_box(WRAPPING.sub(r"\1", plain))
        return boxed[-1] if boxed else None
    phrase = last_match(ANSWER_PHRASE, text)
    after = (
        _numbers(text[phrase.end() :].lstrip(" \t\r\n:*_")[:MAX_DIGITS].partition("\n")[0])
        if phrase is not None
        else []
    )
    if after:
        return after[0]
    numbers = _numbers(text[-10 * MAX_DIGITS :])
    return numbers[-1] if numbers else None


def _numbers_of_box(plain: str) -> list[str]:
    """The numbers of a box; none if there is more in it than numbers, text and signs, such as a root."""
    return [] if "\\" in plain.replace("\\%", "") else _numbers(plain)


def _numbers(text: str) -> list[str]:
    return [match[0].strip() for match in NUMBER.finditer(_plain_spelling(text))]


def _plain_spelling(text: str) -> str:
    r"""The text with numbers in ASCII: `70{,}000` as 70000, `2\frac{1}{2}` as 2 1/2, `1.5 × 10³` as 1.5e3."""
    plain = THOUSANDS.sub("", text).replace("{,}", ".").replace("\\$", "$")
    if not plain.isascii():
        plain = SUPERSCRIPT.sub(lambda match: "^" + match[0].translate(SUPERSCRIPTS), plain).translate(SPELLING)
    if "frac" in plain:
        plain = SHORT_FRACTION.sub(r"\\frac{\1}{\2}", plain)
        plain = FRACTION.sub(lambda match: f"{match[1] or ' '}{match[2]}/{match[3]}", plain)
    return POWER_OF_TEN.sub(lambda match: ("e" if match["alone"] is None else "1e") + match["exponent"], plain)


def _values(text: str) -> tuple[Decimal, ...]:
    """The possible values of a written number: one, two for a percentage, none if it is not a number."""
    match = NUMBER.fullmatch(_plain_spelling(text).strip().lstrip("$€£¥").strip())
    if match is None or len(match[0]) > MAX_DIGITS:
        return ()
    value = ARITHMETIC.create_decimal(match["top"].replace(",", ""))
    if match["bottom"]:
        value = ARITHMETIC.divide(value, ARITHMETIC.create_decimal(match["bottom"]))
    if match["whole"]:
        value = ARITHMETIC.add(value, Decimal(match["whole"]))
    if value.is_nan():
        return ()
    if match["sign"] == "-":
        value = value.copy_negate()
    return (value, value.scaleb(-2, ARITHMETIC)) if match["percent"] else (value,)
