"""Graders that compare text: `exact`, `contains`, `regex`."""

import re
import unicodedata
from functools import lru_cache
from typing import Literal

from pydantic import field_validator

from adaptive_eval.base.sections import config_error
from adaptive_eval.graders.answer_text import final_text, last_match
from adaptive_eval.graders.types import GraderOptions, Marks, marks, usual_answers
from adaptive_eval.questions.types import Question


def plain_text(text: str, ignore_case: bool) -> str:
    """The text in Unicode NFC, with single spaces, and case-folded if case is ignored."""
    composed = " ".join(unicodedata.normalize("NFC", text).split())
    return composed.casefold() if ignore_case else composed


class Exact(GraderOptions):
    """Correct: the whole answer equals the answer key, ignoring differences in spaces."""

    kind: Literal["exact"] = "exact"
    ignore_case: bool = False
    """Ignore upper and lower case."""

    def grade(self, text: str, question: Question) -> Marks:
        answer = final_text(text).strip()
        correct = plain_text(answer, self.ignore_case) == plain_text(question.answer, self.ignore_case)
        return marks(correct, answer or None)


UNSPACED = (
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    r"\uff66-\uff9f\U00020000-\U0003ffff"
)
"""Scripts without spaces between words: Thai, Lao, Burmese, Khmer, Japanese, Chinese."""
IN_WORD = rf"[^\W_{UNSPACED}]"
HANGUL = re.compile(r"[\uac00-\ud7a3]")
STARTS_NUMBER = re.compile(r"[-−+]?\.?\d")
SIGN_BEFORE = r"(?<!^[-−–.])(?<![^\w)\]][-−–.])"
NUMBER_BEFORE = r"(?:(?<!\d[.,/])|(?<=[./]\d[./])|(?<=[./]\d\d[./]))"
NUMBER_AFTER = r"(?:(?!\.\d{0,20}[1-9]|[,/]\d)|(?=[./]\d{1,2}[./]\d))"
"""What would make another number of it: a sign, decimals, thousands, a fraction; a date may go on."""


class Contains(GraderOptions):
    """Correct: the answer key occurs somewhere in the answer, as whole words and numbers: 5 does not match 15 or 2.5.

    A key in a script without spaces between words, such as Chinese, may occur anywhere.
    """

    kind: Literal["contains"] = "contains"
    ignore_case: bool = True
    """Ignore upper and lower case."""

    def grade(self, text: str, question: Question) -> Marks:
        answer = plain_text(final_text(text), self.ignore_case)
        key = plain_text(question.answer, self.ignore_case)
        correct = _whole(key).search(answer) is not None
        return marks(correct, question.answer if correct else None, has_answer=bool(answer))


@lru_cache(maxsize=4096)
def _whole(key: str) -> re.Pattern[str]:
    """The pattern of a key that is not a part of a longer word or number."""
    first, last = re.match(IN_WORD, key), re.match(IN_WORD, key[-1:])
    before, after = rf"(?<!{IN_WORD})" if first else "", ""
    if STARTS_NUMBER.match(key):
        before = rf"(?<!{IN_WORD}){SIGN_BEFORE}{NUMBER_BEFORE}" + ("0?" if key[0] == "." else "")
    if last and not HANGUL.match(key[-1]):  # particles follow without a space
        after = rf"(?!{IN_WORD})" + (NUMBER_AFTER if key[-1].isdecimal() else r"(?![+#]+(?!\w))")
    return re.compile(before + re.escape(key) + after)


class Regex(GraderOptions):
    """Correct: the text that a pattern extracts from the answer equals the answer key.

    It always runs in a worker, since a pattern may take forever on some texts.
    """

    kind: Literal["regex"] = "regex"
    pattern: str
    """A Python regular expression; its first group, or the group `answer`, or the whole match is the answer. The last
    match counts; for the first begin with `\\A(?s:.*?)`."""
    ignore_case: bool = False
    """Ignore upper and lower case."""

    @field_validator("pattern")
    @classmethod
    def _check_pattern(cls, pattern: str) -> str:
        try:
            re.compile(pattern)
        except re.error as error:
            raise config_error(
                f"must be a regular expression: {error}", "in YAML, single quotes preserve backslashes"
            ) from None
        return pattern

    def quick(self, text: str, question: Question) -> Marks | None:
        return None

    @property
    def knows_right_answers(self) -> bool:
        """False: the pattern may require a form of answer that is unknown here."""
        return False

    def right_answers(self, question: Question) -> tuple[str, ...]:
        return usual_answers(question.answer)

    def grade(self, text: str, question: Question) -> Marks:
        expression = re.compile(self.pattern, re.IGNORECASE if self.ignore_case else 0)
        match = last_match(expression, final_text(text))
        answer = _matched_answer(match) if match is not None else None
        correct = answer is not None and plain_text(answer, self.ignore_case) == plain_text(
            question.answer, self.ignore_case
        )
        return marks(correct, answer)


def _matched_answer(match: re.Match[str]) -> str | None:
    if "answer" in match.re.groupindex:
        answer: str | None = match["answer"]
        return answer
    return next((group for group in match.groups() if group is not None), match[0])
