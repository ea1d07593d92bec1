"""The grader for multiple choice."""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from string import ascii_uppercase
from typing import Literal, NamedTuple

from adaptive_eval.graders.answer_text import final_text, last_box, last_match
from adaptive_eval.graders.text import plain_text
from adaptive_eval.graders.types import GraderOptions, Marks, marks
from adaptive_eval.questions.types import Question

LETTERS_WITHOUT_CHOICES = 5
MAX_LINE = 2_000
"""Characters of a line, or of a short answer, that are compared with the choices."""
PHRASE_WITH_TEXT = re.compile(r"(?i:\b(?:answer|choice|option)(?: is\b|[*_]*:))[*_\"' \t]*+(.+)$", re.MULTILINE)
"""`The answer is Paris.`"""
WRAPPING = re.compile(r"\\(?:text|textbf|mathrm|mathbf|textit)\s*\{([^{}]*)\}")

# Parts of the patterns below
BEFORE = r"(?:[\s*_\"'`(\[{}$<]|\\[(\[])*+(?:\\[a-z]{1,12}\{\(?)?"
AFTER = r"[*_`)\]}\"']*+"
WORD = r"(?i:answer|choice|option|letter)"
NAMED = r"(?i:\b(?:answer|choice|option)\b)(?i:\s++(?:choice|option|letter)\b){0,2}+"
ASIDE = r"(?i:\s(?:to|for|that|which|here|among|of|from)\b[^\n.:;?!]{0,60}?(?=\s(?:is|would|must)\b))?"
"""`to the question`, as in `the answer to the question is C`."""
IS = (
    r"(?:(?i:\s++(?:is|was|would be|should be|must be)\b)|[*_\"'` \t]*+(?:[:=>\n–—]|-\s))[\s:=*_]*+"
    r"(?i:(?:is|to be|most|likely|probably|therefore|thus|clearly|the|answer|choice|option|letter)\b[\s:*_]*+){0,6}+"
)
IS_CORRECT = (
    rf"{AFTER}(?i:\s(?:is|must be)\s(?:(?:the|only|most|single|clearly|therefore)\s){{0,3}}"
    r"(?:correct|right|best|closest)\b)"
)
IS_ANSWER = rf"(?:{IS_CORRECT}\s(?i:answer|choice|option)|{AFTER}(?i:\sis\s(?:the|my)\s(?:final\s)?answer))\b"
CHOSEN = (
    r"(?i:\b(?:choose|chose|select|pick|go with|be|is|matches|(?:corresponds|closest) to|therefore|thus|so|hence)\b)"
    r",?\s(?:the\s)?"
)
WRONG = r"(?:,?\s(?:(?:is|was|are|would be)\s(?:\w+\s)?(?:not|incorrect|wrong|false)|(?:isn|can)['’]t|cannot)\b)"
ARTICLE = r"A (?!(?:and|as|at|because|but|by|for|given|if|in|is|or|since|so|when|with)\b)[a-z]"
PRONOUN = r"I\s+[a-z]"


class _Patterns(NamedTuple):
    """Ways to name one of the first letters of the alphabet."""

    stated: re.Pattern[str]
    """`The answer is (C)`, `Answer: C`, `C is the correct choice`; in the group `several`, `Answer: A or C`."""
    chosen: re.Pattern[str]
    """`Option C is correct`, `so I choose C`."""
    bold: re.Pattern[str]
    """`**C**`, `**C. Paris**`."""
    last: re.Pattern[str]
    """An end such as `that is, option C.`"""
    line: re.Pattern[str]
    """A line with only the letter, or with the letter and more: `C`, `(c)`, `Option C`, `C. Paris`."""


@lru_cache(maxsize=32)
def _patterns(letters: int) -> _Patterns:
    """The patterns for so many letters.

    A lower-case letter counts only before a bracket or at the end of a line, since `a` is a word.
    """
    capitals = ascii_uppercase[:letters]
    either = f"[{capitals}{capitals.lower()}]"
    capital = rf"(?<![\w'’])([{capitals}])(?![\w'’+#]|-\w)"
    lower = rf"(?<![\w'’])([{capitals.lower()}])(?=[)\]}}]|[*_`\"'.$]*[ \t]*$)"
    or_another = (
        rf"(?:\s(?:and|or|&)\s|/|,\s)[*_`(\[{{\"']*+(?!{PRONOUN})[{capitals}]\b(?!{AFTER}\s(?:is|was|has|does)\b)"
    )
    letter = rf"(?!{ARTICLE}|{PRONOUN})(?:{capital}|{lower})(?!{AFTER}(?:{WRONG}|{or_another}))"
    stated = (
        rf"(?P<several>{NAMED}{ASIDE}{IS}{BEFORE}[{capitals}]{AFTER}{or_another})"
        rf"|{NAMED}{ASIDE}{IS}(?:not {BEFORE}{either}\W{{1,4}}but )?{BEFORE}{letter}"
        rf"|{capital}{IS_ANSWER}"
    )
    chosen = (
        rf"(?:^|[.,;:!?]\s|\b(?:{WORD}|(?i:so|thus|therefore|hence|that))\s)[ *_\"'`(]*+{capital}{IS_CORRECT}"
        rf"|{CHOSEN}(?:(?:{WORD}\s){{1,2}}|[*_\"'`]*+(?=\()){BEFORE}{letter}"
        rf"|(?i:\b(?:choose|select|pick|go with)\s)[*_\"'`]*+{letter}"
    )
    bold = rf"\*\*(?:{WORD}\s)?[(\[]?{letter}(?:[)\].:]*\*\*|[).:]{{1,3}} [^*\n]{{1,300}}\*\*)"
    last = rf"(?<!not )(?<!than )\b(?:{WORD}|(?i:therefore|thus|hence|so)),?\s{BEFORE}{letter}[*_`)\]}}\"'$.]*\s*\Z"
    line = (
        rf"[\s*_`(\[{{$\"']*(?:{WORD}[\s*_(]*)?(?P<letter>{either})"
        rf"(?:[\s*_`)\]}}$\"'.,:]*$|[).:][\s*_]*(?P<text>[^\s*_].*)$)"
    )
    return _Patterns(*(re.compile(pattern, re.MULTILINE) for pattern in (stated, chosen, bold, last, line)))


class Choice(GraderOptions):
    """Correct: the last choice named in the answer is the answer key.

    Searched in this order: the last box; the last "answer is X" or "X is the correct choice"; the last "answer is" with
    the text of a choice; a last or first line that is a letter, or a letter and its choice, as in `C. Paris`; the only
    letter that is called correct or chosen, stands in bold, or ends the answer as in "that is option C"; an answer that
    is the text of a choice; a last line that begins with a letter. What is called wrong ("option D is incorrect") and
    "A or B" do not count. There is no further guessing.
    """

    kind: Literal["choice"] = "choice"
    key: Literal["letter", "index"] = "letter"
    """Form of the answer key: a letter (or the text of a choice), or an index from 0."""

    def grade(self, text: str, question: Question) -> Marks:
        letter = _stated_letter(final_text(text), question)
        return marks(letter is not None and letter == self._key(question), letter)

    def key_problem(self, question: Question) -> str | None:
        if self._key(question) is not None:
            return None
        if self.key == "letter" and (chosen := _letter_of_choice(question.answer, question)):
            letter = _letter(question.answer, question)
            return (
                f"has the answer {question.answer!r}, which is the letter of one choice and the text of another; "
                f"write ({letter}) for choice {letter}, or ({chosen}) for the text"
            )
        last = _letters(question) - 1
        if not question.choices:
            expected = f"an index from 0 to {last}" if self.key == "index" else f"a letter A to {ascii_uppercase[last]}"
            hint = "set questions.fields.choices to the field with the choices"
            return f"has no choices, and its answer {question.answer!r} is not {expected}; {hint}"
        letters = f"a letter A to {ascii_uppercase[last]}, or the text of a choice,"
        expected = f"an index from 0 to {last}" if self.key == "index" else letters
        return f"needs {expected} as its answer, but has {question.answer!r}; see grader.key"

    def right_answers(self, question: Question) -> tuple[str, ...]:
        return (f"Answer: {self._key(question)}",)

    def _key(self, question: Question) -> str | None:
        answer = question.answer.strip()
        if self.key == "index":
            is_index = answer.isdecimal() and len(answer) < 3 and int(answer) < _letters(question)
            return ascii_uppercase[int(answer)] if is_index else None
        by_text, by_letter = _letter_of_choice(answer, question), _letter(answer, question)
        return None if by_text and by_letter and by_text != by_letter else by_text or by_letter


def _letters(question: Question) -> int:
    return len(question.choices) or LETTERS_WITHOUT_CHOICES


def _stated_letter(final: str, question: Question) -> str | None:
    patterns = _patterns(_letters(question))
    box = last_box(final)
    if box is not None and (letter := _letter(box, question) or _letter_of_choice(box, question)):
        return letter
    if (stated := last_match(patterns.stated, final)) is not None:
        if stated["several"] is None:
            return _named(stated)
        final = final[stated.end() :]  # it may choose one of them
    text = last_match(PHRASE_WITH_TEXT, final)
    if text is not None and (letter := _letter_of_choice(text[1].rstrip("*_\"' \t"), question)):
        return letter
    lines = final.strip().splitlines() or [""]
    return (
        _letter_alone(lines[-1], lines[-2:-1], question)
        or _letter_alone(lines[0], lines[1:2], question)
        or _only_letter(patterns.chosen.finditer(final))
        or _only_letter(patterns.bold.finditer(final))
        or _only_letter(patterns.last.finditer(final))
        or _letter_of_choice(final, question)
        or _letter_of_last_line(lines, question)
    )


def _named(match: re.Match[str]) -> str:
    """The letter that a match names."""
    return next(group for group in match.groups() if group is not None).upper()


def _only_letter(matches: Iterable[re.Match[str]]) -> str | None:
    """The letter that all matches name."""
    letters = set(map(_named, matches))
    return letters.pop() if len(letters) == 1 else None


def _line(text: str, question: Question) -> re.Match[str] | None:
    return _patterns(_letters(question)).line.match(WRAPPING.sub(r"\1", text[:MAX_LINE]))


def _letter(text: str, question: Question) -> str | None:
    """The letter that a short text consists of, or begins with."""
    match = _line(text, question)
    return _named(match) if match is not None else None


def _letter_alone(line: str, beside: Sequence[str], question: Question) -> str | None:
    """The letter that a line consists of, or that stands there before its choice and not in a list."""
    match = _line(line, question)
    if match is None:
        return None
    letter, text = _named(match), plain_text(match["text"] or "", ignore_case=True)
    if not text:
        return letter
    in_list = any(_letter(other, question) for other in beside)
    choice = question.choices[ascii_uppercase.index(letter)] if question.choices else None
    has_choice = choice is not None and text.startswith(plain_text(choice, ignore_case=True).rstrip("."))
    return letter if has_choice and not in_list else None


def _letter_of_last_line(lines: Sequence[str], question: Question) -> str | None:
    """The capital with which the last line begins, if no line begins with another letter, as in a list."""
    last = _line(lines[-1], question)
    if last is None or not last["letter"].isupper():
        return None
    return _only_letter(filter(None, (_line(line, question) for line in lines)))


def _letter_of_choice(text: str, question: Question) -> str | None:
    """The letter of the only choice with this text."""
    plain = plain_text(text[:MAX_LINE], ignore_case=True).rstrip(".")
    equal = [
        n for n, choice in enumerate(question.choices) if plain_text(choice, ignore_case=True).rstrip(".") == plain
    ]
    return ascii_uppercase[equal[0]] if len(equal) == 1 else None
