"""Graders that compare text: `exact`, `contains`, `regex`."""

import re
import unicodedata
from typing import Literal

from pydantic import field_validator

from adaptive_eval.base.sections import refuse
from adaptive_eval.graders.answer_text import final_text, last_match
from adaptive_eval.graders.types import GraderOptions, Marks, marks, usual_answers
from adaptive_eval.questions.types import Question


def plain_text(text: str, ignore_case: bool) -> str:
    """The text in Unicode's composed form (NFC), with single spaces, and case-folded if case is ignored."""
    composed = " ".join(unicodedata.normalize("NFC", text).split())
    return composed.casefold() if ignore_case else composed


class Exact(GraderOptions):
    """Correct: the whole answer is the answer key, up to spaces."""

    kind: Literal["exact"] = "exact"
    ignore_case: bool = False
    """Ignore upper and lower case."""

    def grade(self, text: str, question: Question) -> Marks:
        said = final_text(text).strip()
        correct = plain_text(said, self.ignore_case) == plain_text(question.answer, self.ignore_case)
        return marks(correct, said or None)


class Contains(GraderOptions):
    """Correct: the answer key occurs somewhere in the answer, as whole words."""

    kind: Literal["contains"] = "contains"
    ignore_case: bool = True
    """Ignore upper and lower case."""
    whole_words: bool = True
    """Do not find 5 in 15, or cat in concatenate."""

    def grade(self, text: str, question: Question) -> Marks:
        said = plain_text(final_text(text), self.ignore_case)
        key = plain_text(question.answer, self.ignore_case)
        found = self._occurs(key, said)
        return marks(found, question.answer if found else None, has_answer=bool(said))

    def _occurs(self, key: str, said: str) -> bool:
        start = said.find(key)
        while start >= 0:
            end = start + len(key)
            if not self.whole_words or not (_is_within_word(said, start) or _is_within_word(said, end)):
                return True
            start = said.find(key, start + 1)
        return False


def _is_within_word(text: str, cut: int) -> bool:
    """Whether a word continues across this position of a text."""
    return 0 < cut < len(text) and text[cut - 1].isalnum() and text[cut].isalnum()


class Regex(GraderOptions):
    """Correct: what a pattern extracts from the answer is the answer key.

    It always runs in a worker, since a pattern may take forever on some text.
    """

    kind: Literal["regex"] = "regex"
    pattern: str
    """A Python regular expression; its first group, or the group `answer`, or the whole match is the answer."""
    take: Literal["first", "last"] = "last"
    """The match that counts, if there are several."""
    ignore_case: bool = False
    """Ignore upper and lower case."""

    @field_validator("pattern")
    @classmethod
    def _check_pattern(cls, pattern: str) -> str:
        try:
            re.compile(pattern)
        except re.error as error:
            raise refuse(
                f"must be a regular expression: {error}", "in single quotes, YAML leaves backslashes alone"
            ) from None
        return pattern

    def quick(self, text: str, question: Question) -> Marks | None:
        return None

    @property
    def knows_right_answers(self) -> bool:
        """False: the pattern may require a form of answer that is not known here."""
        return False

    def right_answers(self, question: Question) -> tuple[str, ...]:
        return usual_answers(question.answer)

    def grade(self, text: str, question: Question) -> Marks:
        expression = re.compile(self.pattern, re.IGNORECASE if self.ignore_case else 0)
        final = final_text(text)
        found = expression.search(final) if self.take == "first" else last_match(expression, final)
        said = _matched_answer(found) if found is not None else None
        correct = said is not None and plain_text(said, self.ignore_case) == plain_text(
            question.answer, self.ignore_case
        )
        return marks(correct, said)


def _matched_answer(match: re.Match[str]) -> str | None:
    if "answer" in match.re.groupindex:
        taken: str | None = match["answer"]
        return taken
    return next((group for group in match.groups() if group is not None), match[0])
