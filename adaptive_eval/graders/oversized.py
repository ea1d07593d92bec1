"""Recognises, by their size, expressions that a computer algebra system would expand for minutes.

Measures are digits, exponents (multiplied for nested groups), the bounds of sums and products, factorials, binomials,
and the number of parts. If the answer key exceeds a limit, answers may be as large as the key.
"""

import math
import re
from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

MAX_SIZES = {
    "digits": 300,
    "power": 30,
    "exponent": 20_000,
    "bound": 1_000,
    "factorial": 20_000,
    "binomial": 20_000,
    "parts": 60,
    "bars": 16,
}
"""Limits for an answer, unless its key is larger. `power` is for groups, `exponent` for single characters."""
_OPENING, _CLOSING = "({[", ")}]"
_NUMBER = re.compile(r"(?<![.\d])\d+")
"""Excludes decimals, which do not make an expression larger."""
_FACTORIAL = re.compile(r"(\d+)\s*!")
_BINOMIAL = re.compile(r"\\[dt]?binom(?![a-zA-Z])")
_NUMERIC = re.compile(r"[\d^{}()\s*+!-]+|\\cdot|\\times")
_PLAIN_SUM = re.compile(r"[\d\s+-]+")
_DIGITS = re.compile(r"\s*(\d+)")
"""An exponent without braces, which math-verify reads as one number: 10^12 is not 10^1 times 2."""
_POWER = re.compile(r"\s*(\d+)\s*\^\s*\{?\s*(\d+)\s*\}?\s*")


class _Group(NamedTuple):
    """An open bracket."""

    below: bool
    """Whether it is a subscript, such as the lower bound of a sum."""
    begins: int = 0
    power: float = 1.0
    """The largest exponent within it."""


def oversized(answer: str, key: str) -> str | None:
    """The first measure by which an answer exceeds both its key and the limits; None if there is none."""
    answer_sizes, key_sizes = sizes(answer), sizes(key)
    return next((name for name, limit in MAX_SIZES.items() if answer_sizes[name] > max(limit, key_sizes[name])), None)


def sizes(latex: str) -> dict[str, float]:
    """The largest value of each measure in an expression."""
    largest = dict.fromkeys(MAX_SIZES, 0.0)
    largest["digits"] = max((len(run) for run in _NUMBER.findall(latex)), default=0)
    for number in _FACTORIAL.findall(latex):
        largest["factorial"] = max(largest["factorial"], _approximate_value(number))
    for binomial in _BINOMIAL.finditer(latex):
        largest["binomial"] = max(largest["binomial"], _approximate_value(_argument(latex, binomial.end())[0]))
    largest["parts"] = max(latex.count(","), latex.count("+") + latex.count("-"), latex.count(")"))
    largest["bars"] = latex.count("|")
    largest["depth"] = max(accumulate((sign in _OPENING) - (sign in _CLOSING) for sign in latex), default=0)
    for name, size in _sizes_of_groups("{" + latex.replace(r"\left", "").replace(r"\right", "") + "}"):
        largest[name] = max(largest[name], size)
    return largest


def _sizes_of_groups(latex: str) -> Iterator[tuple[str, float]]:
    """Sizes of factorials, binomials, and exponents of a character, a group or a sum's lower bound."""
    groups, before, at = [_Group(False)], _Group(False), 0
    grouped, text = False, ""
    while at < len(latex):
        sign = latex[at]
        at += 1
        if sign == "^":
            number = _DIGITS.match(latex, at)
            exponent, at = _argument(latex, at) if number is None else (number[1], number.end())
            power = before.power * _approximate_value(exponent)
            yield "bound" if before.below else "power" if grouped else "exponent", power
            groups[-1] = groups[-1]._replace(power=max(groups[-1].power, power))
        elif sign == "!" and grouped:
            yield "factorial", _approximate_value(text)
        elif sign in _OPENING:
            groups.append(_Group(latex[at - 2 : at - 1] == "_", begins=at))
        elif sign in _CLOSING and len(groups) > 1:
            before, grouped = groups.pop(), True
            text = latex[before.begins : at - 1]
            yield "binomial", _approximate_value(text.partition(r"\choose")[0]) if r"\choose" in text else 0.0
            groups[-1] = groups[-1]._replace(power=max(groups[-1].power, before.power))
        elif not sign.isspace():
            before, grouped = _Group(False), False


def _argument(latex: str, at: int) -> tuple[str, int]:
    """The exponent or argument at this position, and the position of its end."""
    at = len(latex) - len(latex[at:].lstrip())
    if latex[at : at + 1] != "{":
        return latex[at : at + 1], at + 1
    depths = accumulate((sign == "{") - (sign == "}") for sign in latex[at:])
    end = next((at + read for read, depth in enumerate(depths, 1) if depth == 0), len(latex))
    return latex[at + 1 : end - 1], end


def _approximate_value(latex: str) -> float:
    """The approximate value of an integer, or a sum, product or power of integers; 1 if it contains names."""
    numbers = [float(number) for number in _NUMBER.findall(latex)]
    if not numbers or _NUMERIC.sub("", latex).strip():
        return 1.0
    if "^" in latex or "!" in latex:
        return _power_of_numbers(latex)
    return math.fsum(numbers) if _PLAIN_SUM.fullmatch(latex) else math.prod(numbers)


def _power_of_numbers(latex: str) -> float:
    """The value of a^b; infinity if it is too large, or has several powers or a factorial."""
    power = _POWER.fullmatch(latex)
    try:
        return math.inf if power is None else math.pow(float(power[1]), float(power[2]))
    except OverflowError:
        return math.inf
