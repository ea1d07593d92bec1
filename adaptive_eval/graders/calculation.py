r"""Reads a number that is written as a calculation in LaTeX, such as `\sum_{k=0}^{1012}\binom{2024}{2k}`.

A computer algebra system tries to simplify such sums, products and binomials, which can take minutes; here they are
only computed (see `bounded`). Whatever is not plain arithmetic, or could be read in two ways (`2\frac{1}{2}`, `1/2\pi`,
`2^10`), is not read at all.
"""

import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import lru_cache

from adaptive_eval.graders import bounded
from adaptive_eval.graders.bounded import INTERVALS, NotComputable, Value, WorkAllowance
from adaptive_eval.graders.mathematics import DEGREES, normal_form

MOST_TERMS = 20_000
MOST_DEPTH = 30
LONGEST = 1_000
TOKEN = re.compile(r"\\[a-zA-Z]+|\d+(?:\.\d+)?|\.\d+|[-+*/^_!(){}\[\]=a-zA-Z]")

Names = Mapping[str, Fraction]
"""What the index of each sum around stands for."""
Term = Callable[[WorkAllowance, Names], Value]
TIMES, OVER = ("*", "\\cdot", "\\times"), ("/", "\\div")
FUNCTIONS = {"\\sin": INTERVALS.sin, "\\cos": INTERVALS.cos, "\\tan": INTERVALS.tan, "\\ln": INTERVALS.log}
BINOMIALS = ("\\binom", "\\dbinom", "\\tbinom")
REPEATED: Mapping[str, tuple[Fraction, Callable[[Value, Value, WorkAllowance], Value]]] = {
    "\\sum": (Fraction(0), bounded.add),
    "\\prod": (Fraction(1), bounded.multiply),
}


@lru_cache(maxsize=4096)
def value_of(latex: str) -> Value | None:
    """The value of a written calculation; None where it has none here."""
    if len(latex) > LONGEST or DEGREES.search(latex):
        return None
    try:
        return _Reader(normal_form(latex)).read()(WorkAllowance(), {})
    except (NotComputable, ArithmeticError, ValueError):
        return None


class _Reader:
    """Recursive descent; a method reads one kind of expression and gives what computes it."""

    def __init__(self, text: str) -> None:
        self._tokens = TOKEN.findall(text)
        if "".join(self._tokens) != text:
            raise NotComputable
        self._at = 0
        self._depth = 0

    def read(self) -> Term:
        """The whole text."""
        term = self._sum()
        if self._next is not None:
            raise NotComputable
        return term

    @property
    def _next(self) -> str | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _take(self, *expected: str) -> str:
        token = self._next
        if token is None or (expected and token not in expected):
            raise NotComputable
        self._at += 1
        return token

    def _sum(self) -> Term:
        """a + b - c, with a sign before it perhaps."""
        self._depth += 1
        if self._depth > MOST_DEPTH:
            raise NotComputable
        total = self._product() if self._next not in ("+", "-") else _constant(Fraction(0))
        while self._next in ("+", "-"):
            total = _combined(total, self._take(), self._product())
        self._depth -= 1
        return total

    def _product(self) -> Term:
        """Factors with signs between them, or none; a divisor must be the last factor."""
        factor, plain = self._factor()
        product = factor
        while (token := self._next) is not None and token not in ("+", "-", ")", "}", "]", "=", "\\rfloor", "\\rceil"):
            sign = self._take() if token in (*TIMES, *OVER) else ""
            if not sign and (token[0].isdigit() or (plain and token in ("\\frac", *BINOMIALS))):
                raise NotComputable
            factor, plain = self._factor()
            product = _combined(product, sign or "*", factor)
            if sign in OVER and self._next not in (None, "+", "-", ")", "}", "]", *TIMES):
                raise NotComputable
        return product

    def _factor(self) -> tuple[Term, bool]:
        """A base with what stands behind it: ! or an exponent; and whether it is a written number alone."""
        plain = (self._next or " ")[0].isdigit()
        base = self._base()
        if self._next == "!":
            self._take()
            base, plain = _factorial(base), False
        elif self._next == "^":
            self._take()
            base, plain = _power(base, self._exponent()), False
        if self._next in ("!", "^", "_"):
            raise NotComputable
        return base, plain

    def _exponent(self) -> Term:
        token = self._next
        if token == "{":
            return self._group()
        if token is None or len(token) > 1:
            raise NotComputable
        return self._base()

    def _group(self, opening: str = "{", closing: str = "}") -> Term:
        self._take(opening)
        inside = self._sum()
        self._take(closing)
        return inside

    def _base(self) -> Term:
        token = self._next or ""
        if token in ("(", "{"):
            return self._group(token, ")" if token == "(" else "}")
        self._take()
        if token[:1].isdigit() or token.startswith("."):
            return _constant(Fraction(token))
        if token.isalpha():
            return _named(token)
        return self._command(token)

    def _command(self, token: str) -> Term:
        if token == "\\pi":
            return lambda work, names: INTERVALS.pi + 0
        if token == "\\frac":
            return _combined(self._group(), "/", self._group())
        if token in BINOMIALS:
            return _binomial(self._group(), self._group())
        if token == "\\sqrt":
            degree = self._group("[", "]") if self._next == "[" else _constant(Fraction(2))
            return _root(self._group(), degree)
        if token in REPEATED:
            return self._repeated(token)
        if token in FUNCTIONS and self._next in ("(", "{"):
            return _applied(token, self._base())
        if token == "\\lfloor":
            inside = self._sum()
            self._take("\\rfloor")
            return lambda work, names: bounded.floor(inside(work, names), work)
        raise NotComputable

    def _repeated(self, token: str) -> Term:
        r"""`\sum_{k=a}^{b}` of the product behind it."""
        self._take("_")
        self._take("{")
        name = self._take()
        self._take("=")
        first = self._sum()
        self._take("}")
        self._take("^")
        last = self._exponent()
        body = self._product()
        nothing, combine = REPEATED[token]
        if not name.isalpha():
            raise NotComputable

        def computed(work: WorkAllowance, names: Names) -> Value:
            begin, end = bounded.as_whole_number(first(work, names)), bounded.as_whole_number(last(work, names))
            if end - begin >= MOST_TERMS:
                raise NotComputable
            total: Value = nothing
            for index in range(begin, end + 1):
                total = combine(total, body(work, {**names, name: Fraction(index)}), work)
            return total

        return computed


def _constant(value: Fraction) -> Term:
    return lambda work, names: value


def _named(name: str) -> Term:
    def computed(work: WorkAllowance, names: Names) -> Value:
        if name not in names:
            raise NotComputable
        return names[name]

    return computed


def _combined(one: Term, sign: str, other: Term) -> Term:
    def computed(work: WorkAllowance, names: Names) -> Value:
        first, second = one(work, names), other(work, names)
        if sign in TIMES:
            return bounded.multiply(first, second, work)
        if sign in OVER:
            return bounded.divide(first, second, work)
        return bounded.add(first, second if sign == "+" else bounded.negative(second), work)

    return computed


def _power(base: Term, exponent: Term) -> Term:
    return lambda work, names: bounded.power(base(work, names), exponent(work, names), work)


def _root(inside: Term, degree: Term) -> Term:
    return lambda work, names: bounded.root(inside(work, names), bounded.as_whole_number(degree(work, names)), work)


def _factorial(inside: Term) -> Term:
    return lambda work, names: bounded.factorial(inside(work, names), work)


def _binomial(above: Term, below: Term) -> Term:
    return lambda work, names: bounded.binomial(above(work, names), below(work, names), work)


def _applied(name: str, inside: Term) -> Term:
    return lambda work, names: bounded.function(FUNCTIONS[name], inside(work, names), work)
