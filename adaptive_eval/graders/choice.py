"""The grader of multiple choice."""

import re
from functools import lru_cache
from string import ascii_uppercase
from typing import Literal

from adaptive_eval.graders.answer_text import final_text, last_box, last_match
from adaptive_eval.graders.text import plain_text
from adaptive_eval.graders.types import GraderOptions, Marks, marks
from adaptive_eval.questions.types import Question

LETTERS_WITHOUT_CHOICES = 5
MAX_LINE = 2_000
"""Characters of a line, or of a short answer, that are compared with the choices."""
TOLD_TEXT = re.compile(r"(?i:\b(?:answer|choice|option)(?: is\b|[*_]*:))[*_\"' \t]*+(.+)$", re.MULTILINE)
"""`The answer is Paris.`"""
WRAPPING = re.compile(r"\\(?:text|textbf|mathrm|mathbf|textit)\s*\{([^{}]*)\}")


@lru_cache(maxsize=32)
def _patterns(letters: int) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Patterns of the ways to name one of the first letters of the alphabet: told, and alone.

    Told: `The answer is (C)`, `Answer: C`, `**Option C**`; a lower-case letter, since `a` is a word, only before a
    bracket or at the end of a line. Alone: a line with only the letter, or with the choice after it: `C`, `(c)`,
    `C. Paris`.
    """
    capitals = ascii_uppercase[:letters]
    either = f"[{capitals}{capitals.lower()}]"
    told = (
        r"(?i:\b(?:answer|choice|option)\b)(?i:\s++(?:is|would be|should be|must be|choice|option|letter))*+"
        r"[\s:=*_\"'(\[{$]*+(?:\\[a-z]{1,12}\{)?(?!I\s+[a-z])"  # not the pronoun
        rf"([{capitals}](?![A-Za-z0-9'’])|[{capitals.lower()}](?=[)\]}}]|[*_\"'.$]*[ \t]*$))"
    )
    alone = rf"[\s*_(\[{{$\"']*({either})(?:[\s*_)\]}}$\"'.,:]*$|[).:]\s*\S.*$)"
    return re.compile(told, re.MULTILINE), re.compile(alone)


class Choice(GraderOptions):
    """Correct: the letter of the last choice that the answer names is the answer key.

    Searched in this order: the last box, the last "answer is X", the last "answer is" with the text of a choice, a last
    line that is only a letter (or begins with one, as in `C. Paris`), and an answer that is the text of a choice. There
    is no further guessing.
    """

    kind: Literal["choice"] = "choice"
    key: Literal["letter", "index"] = "letter"
    """Form of the answer key: a letter (or the text of a choice), or an index from 0."""

    def grade(self, text: str, question: Question) -> Marks:
        said = _stated_letter(final_text(text), question)
        return marks(said is not None and said == self._key(question), said)

    def key_problem(self, question: Question) -> str | None:
        if self._key(question) is not None:
            return None
        last = _letters(question) - 1
        if not question.choices:
            wanted = f"position 0 to {last}" if self.key == "index" else f"letter A to {ascii_uppercase[last]}"
            mend = "name the field that holds the choices as questions.fields.choices"
            return f"has no choices, and its answer {question.answer!r} is no {wanted}; {mend}"
        letters = f"a letter A to {ascii_uppercase[last]}, or the text of a choice,"
        wanted = f"a position 0 to {last}" if self.key == "index" else letters
        return f"needs {wanted} as its answer, but has {question.answer!r}; see grader.key"

    def right_answers(self, question: Question) -> tuple[str, ...]:
        return (f"Answer: {self._key(question)}",)

    def _key(self, question: Question) -> str | None:
        answer = question.answer.strip()
        if self.key == "index":
            known = answer.isdecimal() and len(answer) < 3 and int(answer) < _letters(question)
            return ascii_uppercase[int(answer)] if known else None
        return _letter_of_choice(answer, question) or _letter(answer, question)


def _letters(question: Question) -> int:
    return len(question.choices) or LETTERS_WITHOUT_CHOICES


def _stated_letter(said: str, question: Question) -> str | None:
    box = last_box(said)
    if box is not None and (letter := _letter(box, question) or _letter_of_choice(box, question)):
        return letter
    told = last_match(_patterns(_letters(question))[0], said)
    if told is not None:
        return told[1].upper()
    text = last_match(TOLD_TEXT, said)
    if text is not None and (letter := _letter_of_choice(text[1].rstrip("*_\"' \t"), question)):
        return letter
    last_line = said.rstrip().rpartition("\n")[2]
    return _letter(last_line, question) or _letter_of_choice(said, question)


def _letter(text: str, question: Question) -> str | None:
    """The letter that is all of a short text, or begins it."""
    match = _patterns(_letters(question))[1].match(WRAPPING.sub(r"\1", text[:MAX_LINE]))
    return match[1].upper() if match is not None else None


def _letter_of_choice(text: str, question: Question) -> str | None:
    """The letter of the only choice with this text."""
    wanted = plain_text(text[:MAX_LINE], ignore_case=True).rstrip(".")
    equal = [
        n for n, choice in enumerate(question.choices) if plain_text(choice, ignore_case=True).rstrip(".") == wanted
    ]
    return ascii_uppercase[equal[0]] if len(equal) == 1 else None
