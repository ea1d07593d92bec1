"""Distinguishes expressions by their values, without simplifying their difference: 9^9^9^9 is not 3, and at x = 1.3
(x + y)^29 is not x^2 - 1. Integrals are left to math-verify.
"""

import math
from collections.abc import Iterator
from typing import Any
from zlib import crc32

from sympy import (
    Abs,
    Add,
    Eq,
    Expr,
    Integer,
    Mul,
    Number,
    NumberSymbol,
    Pow,
    Rational,
    Symbol,
    exp,
    factorial,
    log,
    preorder_traversal,
)
from sympy.functions.elementary.trigonometric import InverseTrigonometricFunction, TrigonometricFunction

MAX_LOG10 = 300.0
"""log10 of about the largest float."""
EVALUATED_TYPES = (
    Add,
    Mul,
    Pow,
    exp,
    log,
    Abs,
    TrigonometricFunction,
    InverseTrigonometricFunction,
    Number,
    NumberSymbol,
    Symbol,
)
MAX_PARTS = 500
DIGITS = 20
TOLERANCE = 1e-5
"""Absolute and relative difference above which math-verify treats values as different, too."""


def values_differ(expression: Any, other: Any) -> bool:
    """Whether two plain expressions have different real values at one of two points; False if that is unknown.

    If one is an equation and the other is not, its right side is compared.
    """
    if isinstance(expression, Eq) != isinstance(other, Eq):
        expression, other = (side.rhs if isinstance(side, Eq) else side for side in (expression, other))
    if not (_is_plain(expression) and _is_plain(other)):
        return False
    return any(
        value is not None and other_value is not None and not _are_close(value, other_value)
        for value, other_value in zip(_values(expression), _values(other), strict=True)
    )


def _are_close(value: Any, other: Any) -> bool:
    return bool(abs(value - other) <= TOLERANCE * max(1, abs(value), abs(other)))


def _is_plain(expression: Any) -> bool:
    """Whether an expression can be evaluated quickly; not a single symbol, which may stand for a word."""
    if not isinstance(expression, Expr) or isinstance(expression, Symbol):
        return False
    parts = [part for part, _ in zip(preorder_traversal(expression), range(MAX_PARTS), strict=False)]
    return len(parts) < MAX_PARTS and all(isinstance(part, EVALUATED_TYPES) for part in parts)


def _values(expression: Any) -> Iterator[Any]:
    """The value at each point, with coordinates between 1 and 2; None if not real and finite."""
    for point in "01":
        coordinates = {
            symbol: Rational(2**32 + crc32(f"{point}{symbol.name}".encode()), 2**32)
            for symbol in expression.free_symbols
        }
        try:
            value = expression.evalf(DIGITS, subs=coordinates, strict=True)
        except Exception:  # sympy may raise anything
            value = None
        yield value if getattr(value, "is_Float", False) or isinstance(value, Rational) else None


def far_apart(expression: Any, other: Any) -> bool:
    """Whether one expression is a plain number and the other is too large to equal it."""
    return _larger(expression, other) or _larger(other, expression)


def _larger(large: Any, plain: Any) -> bool:
    lower_bound, size = digits_at_least(large), _digits(plain)
    return lower_bound is not None and size is not None and lower_bound > size + 1.0


def _digits(number: Any) -> float | None:
    """log10 of the absolute value of a rational number; None for other expressions."""
    if not isinstance(number, Rational) or number.q == 0:
        return None
    top, bottom = abs(int(number.p)), int(number.q)
    return (math.log10(top) if top else -math.inf) - math.log10(bottom)


def digits_at_least(expression: Any) -> float | None:
    """A lower bound of log10 of an expression of integers, products, powers and factorials; None for others.

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
    """10^digits, limited to what a float holds."""
    return math.pow(10.0, min(digits, MAX_LOG10))
