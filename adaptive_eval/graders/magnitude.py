"""Numbers too large to be written out, told apart from plain ones without computing them: 9^9^9^9 is not 3."""

import math
from typing import Any

from sympy import Integer, Mul, Pow, Rational, factorial

CAP = 300.0
"""log10 of about the largest value that a float holds."""


def far_apart(one: Any, other: Any) -> bool:
    """One expression is a plain number, and the other is so large that it cannot be equal."""
    return _larger(one, other) or _larger(other, one)


def _larger(large: Any, plain: Any) -> bool:
    least, size = digits_at_least(large), _digits(plain)
    return least is not None and size is not None and least > size + 1.0


def _digits(number: Any) -> float | None:
    """log10 of the absolute value of a number that is written out."""
    if not isinstance(number, Rational) or number.q == 0:
        return None
    top, bottom = abs(int(number.p)), int(number.q)
    return (math.log10(top) if top else -math.inf) - math.log10(bottom)


def digits_at_least(expression: Any) -> float | None:
    """A lower bound of log10 of an expression made of whole numbers, products, powers and factorials; None for others.

    log10 b^e = e log10 b;  log10 n! = ln Gamma(n + 1) / ln 10.  Every part is at least 1, so each bound carries over.
    """
    if isinstance(expression, Integer):
        return math.log10(int(expression)) if expression >= 1 else None
    if not isinstance(expression, Mul | Pow | factorial):
        return None
    parts: list[float] = []
    for part in expression.args:
        digits = digits_at_least(part)
        if digits is None:
            return None
        parts.append(digits)
    if isinstance(expression, Mul):
        return math.fsum(parts)
    if isinstance(expression, Pow):
        return parts[0] * _value(parts[1])
    return math.lgamma(_value(parts[0]) + 1.0) / math.log(10.0)


def _value(digits: float) -> float:
    """10^digits, as large as a float holds."""
    return math.pow(10.0, min(digits, CAP))
