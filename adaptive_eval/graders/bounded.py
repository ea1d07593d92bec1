"""Arithmetic whose cost is bounded: exact while numbers are short, then intervals, then only "at least so large".

A value is a `Fraction`; or, where that would be too long or the number is irrational, an interval of
`PRECISION` bits that certainly holds it; or, where it is too large for that, `HugeNumber`. What cannot be said raises
`NotComputable`.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

from mpmath.ctx_iv import MPIntervalContext

PRECISION = 256
MOST_BITS, MOST_BITS_OF_RATIO = 20_000, 4_000
"""Longer whole numbers, and other fractions, go on as intervals: to reduce a fraction takes the square of its bits."""
WORK = 120_000_000
"""Bits that one calculation may compute: a second or two."""
STEP = 300
"""What an operation costs besides the bits of its result; one on intervals costs ten times that."""
LARGEST = 1e9
"""Decimal digits from which on a number is `HugeNumber`."""
MOST_DIGITS = 290
MOST_FLOAT = 10**MOST_DIGITS
"""Sizes are floats: beyond this one is as large as another."""
MOST_EXACT = 10**12
"""Factorials up to here are known to a digit or so, and can be divided by each other."""
APART, SAME = 1e-5, 1e-20
"""Intervals that certainly differ by more than the first are of different numbers; by less than the second, in absolute
and in relative terms, of the same one."""

INTERVALS: Any = MPIntervalContext()
INTERVALS.prec = PRECISION
Value = Any
"""Fraction, Large, or an interval of mpmath, which has no types."""


class NotComputable(Exception):
    """A value cannot be computed here, or would take too much."""


class HugeNumber(NamedTuple):
    """A number too large to be computed: log10 of its absolute value is at least `digits`."""

    digits: float
    sign: int = 1


class WorkAllowance:
    """What one calculation may still cost."""

    def __init__(self) -> None:
        self._left = WORK

    def spend(self, cost: int) -> None:
        """Raise `NotComputable` where it is too much."""
        self._left -= cost
        if self._left < 0:
            raise NotComputable

    def short(self, value: Value) -> Value:
        """The value, paid for; as an interval where it is long."""
        if isinstance(value, Fraction):
            bits = value.numerator.bit_length() + value.denominator.bit_length()
            self.spend(STEP + bits)
            return value if bits <= (MOST_BITS if value.denominator == 1 else MOST_BITS_OF_RATIO) else interval(value)
        self.spend(10 * STEP)
        return value


def interval(value: Value) -> Any:
    """The value as an interval."""
    if isinstance(value, HugeNumber):
        raise NotComputable
    if isinstance(value, Fraction):
        return INTERVALS.mpf(value.numerator) / INTERVALS.mpf(value.denominator)
    return value


def equal(one: Value, other: Value) -> bool | None:
    """Whether two values are the same number; None where this cannot be told."""
    if isinstance(one, HugeNumber) or isinstance(other, HugeNumber):
        return False if _larger(one, other) or _larger(other, one) else None
    if isinstance(one, Fraction) and isinstance(other, Fraction):
        return one == other
    first, second = interval(one), interval(other)
    difference = abs(first - second)
    if (difference > APART) is True:
        return False
    same = (difference < SAME) is True and (difference < abs(first) * SAME) is True
    return True if same else None


def _larger(large: Value, plain: Value) -> bool:
    if not isinstance(large, HugeNumber):
        return False
    if isinstance(plain, HugeNumber):
        return large.sign != plain.sign
    return large.digits > digits(plain, upper=True) + 1.0


def digits(value: Value, *, upper: bool) -> float:
    """A bound of log10 of the absolute value of what is not `HugeNumber`."""
    if value == 0:
        return -math.inf
    logarithm = INTERVALS.log(abs(interval(value))) / INTERVALS.log(INTERVALS.mpf(10))
    return float(logarithm.b if upper else logarithm.a)


def sign_of(value: Value) -> int:
    """1, 0 or -1, where that is certain."""
    if isinstance(value, HugeNumber):
        return value.sign
    for sign, certain in ((1, value > 0), (-1, value < 0), (0, value == 0)):
        if certain is True:
            return sign
    raise NotComputable


def as_whole_number(value: Value) -> int:
    """The value, which must be known to be a whole number."""
    if isinstance(value, Fraction) and value.denominator == 1:
        return value.numerator
    raise NotComputable


def add(one: Value, other: Value, work: WorkAllowance) -> Value:
    """one + other."""
    if isinstance(one, HugeNumber) or isinstance(other, HugeNumber):
        return _add_large(one, other) if isinstance(one, HugeNumber) else _add_large(other, one)
    if isinstance(one, Fraction) and isinstance(other, Fraction):
        return work.short(one + other)
    return work.short(interval(one) + interval(other))


def _add_large(large: HugeNumber, other: Value) -> HugeNumber:
    if isinstance(other, HugeNumber):
        if other.sign != large.sign:
            raise NotComputable
        return HugeNumber(max(large.digits, other.digits), large.sign)
    if digits(other, upper=True) + 1.0 > large.digits:
        raise NotComputable
    return HugeNumber(large.digits - 1.0, large.sign)


def negative(value: Value) -> Value:
    """The value with its sign turned."""
    return HugeNumber(value.digits, -value.sign) if isinstance(value, HugeNumber) else -value


def multiply(one: Value, other: Value, work: WorkAllowance) -> Value:
    """one * other."""
    if isinstance(one, HugeNumber) or isinstance(other, HugeNumber):
        sizes = [each.digits if isinstance(each, HugeNumber) else digits(each, upper=False) for each in (one, other)]
        sign = sign_of(one) * sign_of(other)
        if sign == 0:
            return Fraction(0)
        return _large(sum(sizes), sign)
    if isinstance(one, Fraction) and isinstance(other, Fraction):
        return work.short(one * other)
    return work.short(interval(one) * interval(other))


def divide(one: Value, other: Value, work: WorkAllowance) -> Value:
    """one / other."""
    sign = sign_of(other)
    if sign == 0 or isinstance(other, HugeNumber):
        raise NotComputable
    if isinstance(one, HugeNumber):
        return _large(one.digits - digits(other, upper=True), one.sign * sign)
    if isinstance(one, Fraction) and isinstance(other, Fraction):
        return work.short(one / other)
    return work.short(interval(one) / interval(other))


def _large(size: float, sign: int) -> HugeNumber:
    """A product or a quotient, which must still be large."""
    if size < LARGEST / 2:
        raise NotComputable
    return HugeNumber(size, sign)


def power(base: Value, exponent: Value, work: WorkAllowance) -> Value:
    """base ^ exponent; the root of a negative number is none."""
    if isinstance(base, HugeNumber) or isinstance(exponent, HugeNumber):
        return _power_large(base, exponent)
    if not isinstance(exponent, Fraction) or exponent.denominator != 1:
        if sign_of(base) != 1:
            raise NotComputable
        return work.short(_exponential(interval(exponent) * INTERVALS.log(interval(base))))
    times = exponent.numerator
    if times < 0:
        return divide(Fraction(1), power(base, Fraction(-times), work), work)
    if base in (0, 1):
        return base if times else Fraction(1)
    size = digits(base, upper=False) * min(times, MOST_FLOAT)
    if abs(size) > LARGEST:
        if size < 0:
            raise NotComputable
        return HugeNumber(size, sign_of(base) ** (times % 2))
    if isinstance(base, Fraction) and times * (base.numerator.bit_length() + base.denominator.bit_length()) < MOST_BITS:
        return work.short(base**times)
    return work.short(interval(base) ** times)


def _exponential(value: Any) -> Value:
    """e^value."""
    if (value > LARGEST) is True:
        return _large(math.pow(10.0, min(digits(value, upper=False), MOST_DIGITS)) / math.log(10.0), 1)
    return INTERVALS.exp(_moderate(value))


def _moderate(value: Any) -> Any:
    if (abs(value) < LARGEST) is not True:
        raise NotComputable
    return value


def _power_large(base: Value, exponent: Value) -> HugeNumber:
    """Powers of numbers above 1 that are large, to exponents that are."""
    if sign_of(base) != 1 or sign_of(exponent) != 1:
        raise NotComputable
    size = base.digits if isinstance(base, HugeNumber) else digits(base, upper=False)
    times = exponent.digits if isinstance(exponent, HugeNumber) else digits(exponent, upper=False)
    if size <= 0.0 or times < 0.0:
        raise NotComputable
    return _large(size * math.pow(10.0, min(times, MOST_DIGITS)), 1)


def root(value: Value, degree: int, work: WorkAllowance) -> Value:
    """The real root."""
    if degree < 2 or degree > MOST_BITS or sign_of(value) < 0:
        raise NotComputable
    if value == 0:
        return Fraction(0)
    if isinstance(value, Fraction) and degree == 2:
        top, bottom = math.isqrt(value.numerator), math.isqrt(value.denominator)
        if Fraction(top * top, bottom * bottom) == value:
            return work.short(Fraction(top, bottom))
        return work.short(INTERVALS.sqrt(interval(value)))
    return power(value, Fraction(1, degree), work)


def factorial(value: Value, work: WorkAllowance) -> Value:
    """value!, from 0 on."""
    number = as_whole_number(value)
    if number < 0:
        raise NotComputable
    size = _log_factorial(min(number, MOST_FLOAT))
    if size * math.log2(10) > MOST_BITS:
        return _size_only(size)
    return work.short(Fraction(math.factorial(number)))


def binomial(above: Value, below: Value, work: WorkAllowance) -> Value:
    """The number of subsets."""
    n, k = as_whole_number(above), as_whole_number(below)
    if not 0 <= n <= MOST_EXACT:
        raise NotComputable
    if not 0 <= k <= n:
        return Fraction(0)
    size = _log_factorial(n) - _log_factorial(k) - _log_factorial(n - k)
    if size * math.log2(10) > MOST_BITS:
        return _size_only(size)
    k = min(k, n - k)
    work.spend(k * n.bit_length())  # C(n, k) is computed by about so much
    return work.short(Fraction(math.comb(n, k)))


def _log_factorial(number: int) -> float:
    """log10 number!"""
    return math.lgamma(number + 1.0) / math.log(10.0)


def _size_only(size: float) -> HugeNumber:
    """A number of which its size is known to many digits, but not itself; only sizes are compared."""
    return HugeNumber(size - 1.0 - size * 1e-9)


def function(apply: Callable[[Any], Any], value: Value, work: WorkAllowance) -> Value:
    """A function on intervals, such as the sine, at a moderate argument."""
    return work.short(apply(_moderate(interval(value))))


def floor(value: Value, work: WorkAllowance) -> Fraction:
    """The largest whole number that is not larger."""
    work.spend(20 * STEP)
    if isinstance(value, Fraction):
        return Fraction(math.floor(value))
    if digits(value, upper=True) > PRECISION / 8:
        raise NotComputable
    low, high = (math.floor(_exact(end)) for end in (value.a, value.b))
    if low != high:
        raise NotComputable
    return Fraction(low)


def _exact(end: Any) -> Fraction:
    """An end of an interval, which is a binary fraction."""
    sign, mantissa, exponent, _ = end._mpi_[0]
    size: Fraction = int(mantissa) * Fraction(2) ** int(exponent)
    return -size if sign else size
