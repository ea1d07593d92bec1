"""The grader for multiple choice."""

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
PHRASE_WITH_TEXT = re.compile(r"(?i:\b(?:answer|choice|option)(?: is\b|[*_]*:))[*_\"' \t]*+(.+)$", re.MULTILINE)
"""`The answer is Paris.`"""
WRAPPING = re.compile(r"\\(?:text|textbf|mathrm|mathbf|textit)\s*\{([^{}]*)\}")


@lru_cache(maxsize=32)
def _patterns(letters: int) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Patterns for one of the first letters of the alphabet: in a phrase, and on a line of its own.

    In a phrase: `The answer is (C)`, `Answer: C`, `**Option C**`. A lower-case letter counts only before a bracket or
    at the end of a line, since `a` is a word. On its own: a line with only the letter, or the letter and the choice:
    `C`, `(c)`, `C. Paris`.
    """
    capitals = ascii_uppercase[:letters]
    either = f"[{capitals}{capitals.lower()}]"
    in_phrase = (
        r"(?i:\b(?:answer|choice|option)\b)(?i:\s++(?:is|would be|should be|must be|choice|option|letter))*+"
        r"[\s:=*_\"'(\[{$]*+(?:\\[a-z]{1,12}\{)?(?!I\s+[a-z])"  # not the pronoun
        rf"([{capitals}](?![A-Za-z0-9'’])|[{capitals.lower()}](?=[)\]}}]|[*_\"'.$]*[ \t]*$))"
    )
    on_its_own = rf"[\s*_(\[{{$\"']*({either})(?:[\s*_)\]}}$\"'.,:]*$|[).:]\s*\S.*$)"
    return re.compile(in_phrase, re.MULTILINE), re.compile(on_its_own)


class Choice(GraderOptions):
    """Correct: the last choice named in the answer is the answer key.

    Searched in this order: the last box; the last "answer is X"; the last "answer is" with the text of a choice; a last
    line that is a letter, or begins with one, as in `C. Paris`; an answer that is the text of a choice. There is no
    further guessing.
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
        return _letter_of_choice(answer, question) or _letter(answer, question)


def _letters(question: Question) -> int:
    return len(question.choices) or LETTERS_WITHOUT_CHOICES


def _stated_letter(final: str, question: Question) -> str | None:
    box = last_box(final)
    if box is not None and (letter := _letter(box, question) or _letter_of_choice(box, question)):
        return letter
    phrase = last_match(_patterns(_letters(question))[0], final)
    if phrase is not None:
        return phrase[1].upper()
    text = last_match(PHRASE_WITH_TEXT, final)
    if text is not None and (letter := _letter_of_choice(text[1].rstrip("*_\"' \t"), question)):
        return letter
    last_line = final.rstrip().rpartition("\n")[2]
    return _letter(last_line, question) or _letter_of_choice(final, question)


def _letter(text: str, question: Question) -> str | None:
    """The letter that a short text consists of, or begins with."""
    match = _patterns(_letters(question))[1].match(WRAPPING.sub(r"\1", text[:MAX_LINE]))
    return match[1].upper() if match is not None else None


def _letter_of_choice(text: str, question: Question) -> str | None:
    """The letter of the only choice with this text."""
    plain = plain_text(text[:MAX_LINE], ignore_case=True).rstrip(".")
    equal = [
        n for n, choice in enumerate(question.choices) if plain_text(choice, ignore_case=True).rstrip(".") == plain
    ]
    return ascii_uppercase[equal[0]] if len(equal) == 1 else None
