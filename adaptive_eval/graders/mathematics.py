r"""The grader for mathematics: compares the last box as text, then as a number, then as an expression.

The first two comparisons decide nearly all answers to competition problems in microseconds. math-verify decides the
others in a worker process. Its own time limits are off, since they need the main thread and count a timeout as "not
equal"; here a comparison that takes too long is a grader error.

Some decisions of math-verify (see the tests): (1,2) and [1,2] differ; the key 0.333 is not 1/3 (use `numeric` with a
tolerance), but 0.33333333 is; 50% equals 0.5 and 50; units after a number are ignored; x = 3 equals 3.

Markup that only changes the appearance is removed before LaTeX is compared as text.
"""

import logging
import re
from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal

from adaptive_eval.base.errors import GraderError
from adaptive_eval.graders.answer_text import final_text, last_box, last_match
from adaptive_eval.graders.oversized import oversized, sizes
from adaptive_eval.graders.types import INLINE_CHARACTERS, GraderOptions, Marks, marks
from adaptive_eval.questions.types import Question

REMOVED = re.compile(
    r"\\(?:left|right|[bB]igg?[lr]?|displaystyle|limits|q?quad)(?![a-zA-Z])"  # sizes and wide spaces
    r"|\\[,!;:> ()\[\]]|\\?\$|~"  # narrow spaces, and the signs around a formula
    r"|(?<!\d)\s+|\s+(?!\d)"
)
UNWRAPPED = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mbox|operatorname)\{([^{}]*)\}")
SHORT_FRACTION = re.compile(r"\\frac(\d)(\d)(?!\d)")
DEGREES = re.compile(r"\^(?:\\circ|\{\\circ\})|°")
THOUSANDS = re.compile(r"(?<![\d.,{}])\d{1,3}(?:(?:,|\{,\})\d{3})+(?![\d,{])")
SPACED_COMMA = re.compile(r",\s")
DECIMAL = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)")
RATIO = re.compile(r"([-+]?)(?:\\frac\{(-?\d+)\}\{(\d+)\}|(\d+)/(\d+))")
IN_BASE = re.compile(r"\d\w*_(?:\{\(?(\w+)\)?\}|(\w))", re.ASCII)
"""A number with its base: `101_2`, `101_{(2)}`."""
MAX_DIGITS = 1_000


def normal_form(latex: str) -> str:
    r"""The expression without spaces, sizes, `\left`, dollar signs, `\text`, degree signs and a final full stop.

    A space between two digits stays: `1 2` is not 12. Case is ignored only if there is no command, since \Phi is not
    \phi.
    """
    text = latex.strip().replace("\\dfrac", "\\frac").replace("\\tfrac", "\\frac").replace("−", "-")
    text = UNWRAPPED.sub(r"\1", REMOVED.sub("", UNWRAPPED.sub(r"\1", text)))
    text = SHORT_FRACTION.sub(r"\\frac{\1}{\2}", DEGREES.sub("", text)).replace("\\%", "%").rstrip(".")
    return text if "\\" in text else text.casefold()


def rational(latex: str) -> Fraction | None:
    r"""The value of an integer, a decimal, `a/b` or `\frac{a}{b}`; None for other expressions.

    A comma separates thousands only between groups of three digits and without a space: `1,000` is a number, `(1,2)`
    and `1, 200` are not.
    """
    text = normal_form(latex)
    if len(text) > MAX_DIGITS:
        return None
    if THOUSANDS.fullmatch(text.lstrip("-+")) and not SPACED_COMMA.search(latex):
        text = text.replace("{,}", "").replace(",", "")
    if DECIMAL.fullmatch(text):
        return Fraction(text)
    match = RATIO.fullmatch(text)
    if match is None:
        return None
    top, bottom = int(match[2] or match[4]), int(match[3] or match[5])
    return Fraction(-top if match[1] == "-" else top, bottom) if bottom else None


MAX_EXPRESSION = 1_000
MAX_DEPTH = 30
"""Maximum length and nesting to compare as expressions; other answers are compared only as text and as numbers."""
TAIL_CHARACTERS = 1_000
"""Without a box, only this many characters at the end are searched for an answer."""
EMPHASIS = re.compile(r"(?<![\w*`)])(\*\*|__|\*|`)([^*_`\n]+)\1(?![\w*`(])")
"""Markdown around an answer, which math-verify would read as a power or a part of the answer."""
TOLERANCE = 1e-5
"""Difference above which math-verify treats numbers as different, too; it rounds to six decimals."""


class Math(GraderOptions):
    r"""Correct: the last box equals the answer key as text, as a number or as an expression (math-verify).

    Without a box, the answer is the last expression that math-verify finds in the text. The signal `has_box` says
    whether there was a box.
    """

    kind: Literal["math"] = "math"

    @property
    def gives(self) -> frozenset[str]:
        return super().gives | {"has_box", "method"}

    def quick(self, text: str, question: Question) -> Marks | None:
        if len(text) > INLINE_CHARACTERS:
            return None
        box = last_box(final_text(text))
        if box is None:
            return None if text.strip() else _marks(False, None, "none")
        return _mark_by_value(box, question.answer)

    def grade(self, text: str, question: Question) -> Marks:
        final = final_text(text)
        box = last_box(final)
        expression = _last_expression(final) if box is None else box
        if expression is None:
            return _marks(False, None, "none")
        marked = _mark_by_value(expression, question.answer) or _marks(
            _math_equal(question.answer, expression), expression, "expression"
        )
        return marked._replace(signals={**marked.signals, "has_box": box is not None})

    def right_answers(self, question: Question) -> tuple[str, ...]:
        return rf"\boxed{{{unwrapped_key(question.answer)}}}", question.answer

    def warm_up(self) -> None:
        """Load math-verify and build its parser."""
        _parsed("x+1")


def _marks(correct: bool, extracted: str | None, method: str) -> Marks:
    return marks(correct, extracted, has_box=extracted is not None, method=method)


@lru_cache(maxsize=16_384)
def _read(expression: str) -> tuple[str, Fraction | None]:
    """The normal form of an expression, and its value if it is a plain number."""
    return normal_form(expression), rational(expression)


def _mark_by_value(expression: str, key: str) -> Marks | None:
    """The marks if comparing text or numbers decides; None otherwise."""
    (text, value), (key_text, key_value) = _read(expression), _read(unwrapped_key(key))
    if text == key_text:
        return _marks(True, expression, "text")
    bases = [match[1] or match[2] for match in map(IN_BASE.fullmatch, (text, key_text)) if match is not None]
    if len(set(bases)) == 2:  # math-verify ignores them
        return _marks(False, expression, "text")
    if value is None or key_value is None:
        return None
    if value == key_value or abs(value - key_value) > TOLERANCE:
        return _marks(value == key_value, expression, "number")
    return None


@lru_cache(maxsize=4096)
def unwrapped_key(key: str) -> str:
    r"""The answer key without dollar signs or a box around it."""
    return last_box(key) or key.strip().strip("$").strip()


@lru_cache(maxsize=16_384)
def _math_equal(key: str, expression: str) -> bool:
    """Whether the two expressions are equal according to math-verify."""
    if len(expression) > MAX_EXPRESSION or sizes(expression)["depth"] > MAX_DEPTH:
        return False
    if (exceeded := oversized(expression, unwrapped_key(key))) is not None:
        raise GraderError(f"cannot compare an answer of this size ({exceeded}) with its key")
    gold, given = _parsed(unwrapped_key(key)), _parsed(expression)
    equal: bool = _math_verify().verify(gold, given, timeout_seconds=None, raise_on_error=True)
    return equal


@lru_cache(maxsize=4096)
def _parsed(expression: str) -> list[Any]:
    r"""Parse `\boxed{expression}` by math-verify: the expression, and its text."""
    parsed: list[Any] = _math_verify().parse(rf"\boxed{{{expression}}}", parsing_timeout=None)
    return parsed


def _last_expression(final: str) -> str | None:
    """The text of the last expression that math-verify finds near the end."""
    tail = EMPHASIS.sub(r"\2", final[-TAIL_CHARACTERS:]).replace("−", "-")
    parsed = _math_verify().parse(tail, parsing_timeout=None) if tail.strip() else []
    texts = [part for part in parsed if isinstance(part, str) and part.strip()]
    if not texts:
        return None
    in_base = last_match(IN_BASE, tail)
    return in_base[0] if in_base is not None and in_base[0].startswith(f"{texts[-1]}_") else texts[-1]


@lru_cache(maxsize=1)
def _math_verify() -> Any:
    import math_verify

    logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns that it runs without its own time limits
    return math_verify
