"""Tells expressions apart by their values, without simplifying their difference: 9^9^9^9 is not 3, and at x = 1.3
(x + y)^29 is not x^2 - 1. An integral gets its value by quadrature, where math-verify looks for an antiderivative,
which may take a minute. Of an indefinite one, the derivative is compared."""

import math
from collections.abc import Collection, Iterator
from typing import Any
from zlib import crc32

from mpmath import quad
from sympy import (
    Abs,
    Add,
    Eq,
    Expr,
    Float,
    Integer,
    Integral,
    Mul,
    Number,
    NumberSymbol,
    Pow,
    Rational,
    Symbol,
    Tuple,
    exp,
    factorial,
    log,
    preorder_traversal,
)
from sympy.functions.elementary.trigonometric import InverseTrigonometricFunction, TrigonometricFunction

CAP = 300.0
"""log10 of about the largest value that a float holds."""
PLAIN = (
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
    Integral,
    Tuple,
)
MOST_PARTS = 500
DIGITS = 20
APART = 1e-5
"""Absolute and relative difference above which values differ for math-verify, too."""
QUADRATURE_ERROR = 1e-7
"""Largest relative error of an integral."""
DEGREE = 7
"""Most often that the places of quadrature are doubled, so that it takes a few tenths of a second."""


def values_differ(one: Any, other: Any) -> bool:
    """Whether two plain expressions have different real values at one of two points; False if that is unknown.

    If one is an equation and the other is not, its right side is compared.
    """
    if isinstance(one, Eq) != isinstance(other, Eq):
        one, other = (side.rhs if isinstance(side, Eq) else side for side in (one, other))
    if not (_is_plain(one) and _is_plain(other)):
        return False
    integrals = one.atoms(Integral) | other.atoms(Integral)
    over = {limit[0] for integral in integrals for limit in integral.limits if len(limit) == 1}
    for mine, others in zip(_values(one, over), _values(other, over), strict=True):
        if mine is not None and others is not None and not _are_close(mine, others, APART):
            return True
    return False


def _are_close(one: Any, other: Any, apart: float) -> bool:
    return bool(abs(one - other) <= apart * max(1, abs(one), abs(other)))


def _is_plain(expression: Any) -> bool:
    """Whether an expression can be evaluated quickly. A single symbol may stand for a word, so it does not count."""
    if not isinstance(expression, Expr) or isinstance(expression, Symbol):
        return False
    parts = [part for part, _ in zip(preorder_traversal(expression), range(MOST_PARTS), strict=False)]
    return len(parts) < MOST_PARTS and all(isinstance(part, PLAIN) for part in parts)


def _values(expression: Any, over: Collection[Symbol]) -> Iterator[Any]:
    """The value at each point, whose coordinates lie between 1 and 2; None if not real, finite and accurate enough.

    It is that of the derivative if there are variables of indefinite integrals.
    """
    for point in "01":
        try:
            slope = expression.diff(*over) if over else expression
            at = {one: Rational(2**32 + crc32(f"{point}{one.name}".encode()), 2**32) for one in slope.free_symbols}
            value = _value_at(slope, at)
        except Exception:  # sympy may raise anything: the value is unknown then
            value = None
        yield value if getattr(value, "is_Float", False) or isinstance(value, Rational) else None


def _value_at(expression: Any, at: dict[Symbol, Rational]) -> Any:
    """The value at a point; None if it depends on the last digits of its integrals."""
    integrals = {one: _quadrature(one.subs(at)) for one in expression.atoms(Integral)}
    near = {one: value * (1.0 + QUADRATURE_ERROR) for one, value in integrals.items()}
    found, other = (expression.xreplace(known).evalf(DIGITS, subs=at, strict=True) for known in (integrals, near))
    return found if found == other or _are_close(found, other, APART / 100.0) else None


def _quadrature(integral: Any) -> Float:
    """A definite integral over one variable; raises an error unless two divisions of the interval agree on it.

    One of exactly 0 is not believed: all places may have missed where the integrand is something else.
    """
    ((variable, *ends),) = integral.limits
    low, high = map(float, ends)
    between = {(True, True): low + (high - low) / math.e, (True, False): low + 1.0, (False, True): high - 1.0}
    cut = between.get((math.isfinite(low), math.isfinite(high)), 0.1)

    def height(place: Any) -> float:
        return float(integral.function.evalf(subs={variable: place}))

    (value, error), (other, _) = (
        quad(height, way, error=True, maxdegree=DEGREE) for way in ([low, high], [low, cut, high])
    )
    if not max(error, abs(value - other)) < QUADRATURE_ERROR * abs(value):
        raise ArithmeticError("the integral is not known accurately")
    return Float(value)


def far_apart(one: Any, other: Any) -> bool:
    """Whether one expression is a plain number and the other is too large to equal it."""
    return _larger(one, other) or _larger(other, one)


def _larger(large: Any, plain: Any) -> bool:
    least, size = digits_at_least(large), _digits(plain)
    return least is not None and size is not None and least > size + 1.0


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
    return math.pow(10.0, min(digits, CAP))
