"""Distinguishes expressions by their values, without simplifying their difference: 9^9^9^9 is not 3, and at x = 1.3
(x + y)^29 is not x^2 - 1.

Integrals are evaluated by quadrature; math-verify would look for an antiderivative, which may take a minute. Of
indefinite integrals, the derivatives are compared.
"""

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
    Integral,
    Tuple,
)
MAX_PARTS = 500
DIGITS = 20
TOLERANCE = 1e-5
"""Absolute and relative difference above which math-verify treats values as different, too."""
QUADRATURE_ERROR = 1e-7
"""Largest relative error of an integral."""
MAX_DEGREE = 7
"""Maximum degree of the quadrature, which keeps it to a few tenths of a second."""


def values_differ(expression: Any, other: Any) -> bool:
    """Whether two plain expressions have different real values at one of two points; False if that is unknown.

    If one is an equation and the other is not, its right side is compared.
    """
    if isinstance(expression, Eq) != isinstance(other, Eq):
        expression, other = (side.rhs if isinstance(side, Eq) else side for side in (expression, other))
    if not (_is_plain(expression) and _is_plain(other)):
        return False
    integrals = expression.atoms(Integral) | other.atoms(Integral)
    variables = {limit[0] for integral in integrals for limit in integral.limits if len(limit) == 1}
    for value, other_value in zip(_values(expression, variables), _values(other, variables), strict=True):
        if value is not None and other_value is not None and not _are_close(value, other_value, TOLERANCE):
            return True
    return False


def _are_close(value: Any, other: Any, tolerance: float) -> bool:
    return bool(abs(value - other) <= tolerance * max(1, abs(value), abs(other)))


def _is_plain(expression: Any) -> bool:
    """Whether an expression can be evaluated quickly; not a single symbol, which may stand for a word."""
    if not isinstance(expression, Expr) or isinstance(expression, Symbol):
        return False
    parts = [part for part, _ in zip(preorder_traversal(expression), range(MAX_PARTS), strict=False)]
    return len(parts) < MAX_PARTS and all(isinstance(part, EVALUATED_TYPES) for part in parts)


def _values(expression: Any, variables: Collection[Symbol]) -> Iterator[Any]:
    """The value at each point, with coordinates between 1 and 2; None if not real, finite and accurate enough.

    With `variables` of indefinite integrals, the value of the derivative.
    """
    for point in "01":
        try:
            slope = expression.diff(*variables) if variables else expression
            point_values = {
                symbol: Rational(2**32 + crc32(f"{point}{symbol.name}".encode()), 2**32)
                for symbol in slope.free_symbols
            }
            value = _value_at(slope, point_values)
        except Exception:  # sympy may raise anything
            value = None
        yield value if getattr(value, "is_Float", False) or isinstance(value, Rational) else None


def _value_at(expression: Any, point: dict[Symbol, Rational]) -> Any:
    """The value at a point; None if it depends on the last digits of its integrals."""
    integrals = {integral: _quadrature(integral.subs(point)) for integral in expression.atoms(Integral)}
    nudged = {integral: area * (1.0 + QUADRATURE_ERROR) for integral, area in integrals.items()}
    value, other = (expression.xreplace(areas).evalf(DIGITS, subs=point, strict=True) for areas in (integrals, nudged))
    return value if value == other or _are_close(value, other, TOLERANCE / 100.0) else None


def _quadrature(integral: Any) -> Float:
    """A definite integral over one variable; raises an error unless two divisions of the interval agree.

    A result of exactly 0 is rejected: all nodes may have missed the region where the integrand is not 0.
    """
    ((variable, *ends),) = integral.limits
    low, high = map(float, ends)
    between = {(True, True): low + (high - low) / math.e, (True, False): low + 1.0, (False, True): high - 1.0}
    cut = between.get((math.isfinite(low), math.isfinite(high)), 0.1)

    def height(place: Any) -> float:
        return float(integral.function.evalf(subs={variable: place}))

    (value, error), (other, _) = (
        quad(height, points, error=True, maxdegree=MAX_DEGREE) for points in ([low, high], [low, cut, high])
    )
    if not max(error, abs(value - other)) < QUADRATURE_ERROR * abs(value):
        raise ArithmeticError("the integral is not known accurately")
    return Float(value)


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
