"""Expressions that a computer algebra system would expand for minutes, known by their size before it sees them.

What counts are numbers that are written in them: digits, exponents (those of nested groups multiplied), the bounds of
sums and products, factorials, binomials, and how many parts there are. An answer key may have as much of each: then
its answers may, too.
"""

import math
import re
from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import NamedTuple

MOST = {
    "digits": 300,
    "power": 30,
    "exponent": 20_000,
    "bound": 1_000,
    "factorial": 20_000,
    "binomial": 20_000,
    "parts": 60,
    "bars": 16,
}
"""An answer's limits, whatever its key has. A `power` is that of a group, an `exponent` that of a single sign."""
LIGHT = {
    "digits": 15,
    "power": 4,
    "exponent": 60,
    "factorial": 15,
    "binomial": 30,
    "parts": 12,
    "bars": 4,
    "depth": 4,
    "functions": 2,
    "series": 0,
}
"""Limits of what is surely compared in a moment; what has more may take long."""
_OPENING, _CLOSING = "({[", ")}]"
_NUMBER = re.compile(r"(?<![.\d])\d+")
"""Without the digits behind a point, which make nothing larger."""
_FACTORIAL = re.compile(r"(\d+)\s*!")
_BINOMIAL = re.compile(r"\\[dt]?binom(?![a-zA-Z])")
_NUMERIC = re.compile(r"[\d^{}()\s*+!-]+|\\cdot|\\times")
_PLAIN_SUM = re.compile(r"[\d\s+-]+")
_FUNCTION = re.compile(r"\\(?:arc)?(?:sin|cos|tan|cot|sec|csc|log|ln|exp)")
_SERIES = re.compile(r"\\(?:i{0,3}nt|oint|sum|prod|lim)(?![a-zA-Z])")
"""What math-verify works out term by term, or by trying rules."""
_POWER = re.compile(r"\s*(\d+)\s*\^\s*\{?\s*(\d+)\s*\}?\s*")


class _Group(NamedTuple):
    """A bracket that is open."""

    below: bool
    """It stands below a sign, such as the lower bound of a sum."""
    begins: int = 0
    power: float = 1.0
    """The largest within it."""


def oversized(said: str, key: str, limits: Mapping[str, int] = MOST) -> str | None:
    """The measure by which an answer is larger than its key and the limits; None if none is."""
    given, wanted = sizes(said), sizes(key)
    return next((name for name, most in limits.items() if given[name] > max(most, wanted[name])), None)


def sizes(latex: str) -> dict[str, float]:
    """The largest of each that an expression has."""
    found = dict.fromkeys(MOST, 0.0)
    found["digits"] = max((len(run) for run in _NUMBER.findall(latex)), default=0)
    for number in _FACTORIAL.findall(latex):
        found["factorial"] = max(found["factorial"], _whole(number))
    for binomial in _BINOMIAL.finditer(latex):
        found["binomial"] = max(found["binomial"], _whole(_argument(latex, binomial.end())[0]))
    found["parts"] = max(latex.count(","), latex.count("+") + latex.count("-"), latex.count(")"))
    found["bars"] = latex.count("|")
    found["depth"] = max(accumulate((sign in _OPENING) - (sign in _CLOSING) for sign in latex), default=0)
    found["functions"], found["series"] = len(_FUNCTION.findall(latex)), len(_SERIES.findall(latex))
    for name, size in _sizes_of_groups("{" + latex.replace(r"\left", "").replace(r"\right", "") + "}"):
        found[name] = max(found[name], size)
    return found


def _sizes_of_groups(latex: str) -> Iterator[tuple[str, float]]:
    """Factorials and binomials; exponents of a sign, of a group (times those within it) or of a sum's lower bound."""
    groups, before, at = [_Group(False)], _Group(False), 0
    grouped, text = False, ""
    while at < len(latex):
        sign = latex[at]
        at += 1
        if sign == "^":
            exponent, at = _argument(latex, at)
            power = before.power * _whole(exponent)
            yield "bound" if before.below else "power" if grouped else "exponent", power
            groups[-1] = groups[-1]._replace(power=max(groups[-1].power, power))
        elif sign == "!" and grouped:
            yield "factorial", _whole(text)
        elif sign in _OPENING:
            groups.append(_Group(latex[at - 2 : at - 1] == "_", begins=at))
        elif sign in _CLOSING and len(groups) > 1:
            before, grouped = groups.pop(), True
            text = latex[before.begins : at - 1]
            yield "binomial", _whole(text.partition(r"\choose")[0]) if r"\choose" in text else 0.0
            groups[-1] = groups[-1]._replace(power=max(groups[-1].power, before.power))
        elif not sign.isspace():
            before, grouped = _Group(False), False


def _argument(latex: str, at: int) -> tuple[str, int]:
    """The text of an exponent or argument that begins here, and where it ends."""
    at = len(latex) - len(latex[at:].lstrip())
    if latex[at : at + 1] != "{":
        return latex[at : at + 1], at + 1
    depths = accumulate((sign == "{") - (sign == "}") for sign in latex[at:])
    end = next((at + read for read, depth in enumerate(depths, 1) if depth == 0), len(latex))
    return latex[at + 1 : end - 1], end


def _whole(latex: str) -> float:
    """About the size of a whole number, a sum, a product or a power of whole numbers; 1 of anything with a name."""
    numbers = [float(number) for number in _NUMBER.findall(latex)]
    if not numbers or _NUMERIC.sub("", latex).strip():
        return 1.0
    if "^" in latex or "!" in latex:
        return _power_of_numbers(latex)
    return math.fsum(numbers) if _PLAIN_SUM.fullmatch(latex) else math.prod(numbers)


def _power_of_numbers(latex: str) -> float:
    """The value of a^b; infinite where it is too large, or where there is more than one power or a factorial."""
    power = _POWER.fullmatch(latex)
    try:
        return math.inf if power is None else math.pow(float(power[1]), float(power[2]))
    except OverflowError:
        return math.inf
