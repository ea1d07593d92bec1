"""Answers that cannot be what was asked for: all of a model are empty, the same, unread by the grader, or wrong.

Each may be so with good reason; far oftener a grader, a prompt or a server is at fault, and no ranking can come of it.
"""

from dataclasses import dataclass, field, replace
from enum import StrEnum

from adaptive_eval.store.records import StoredOutcome

LEAST = 12
"""Answers below which all may well be alike or wrong by chance."""


class AnswerFault(StrEnum):
    """A fault of all answers of a model; of several the first tells most."""

    EMPTY = "all_empty"
    ALIKE = "all_alike"
    UNREAD = "nothing_extracted"
    WRONG = "all_wrong"
    REPEATED = "repeats"
    """The answers come again and again, which their texts one by one do not show (see `store.repeats`)."""


@dataclass(slots=True)
class SharedTraits:
    """Traits that the graded answers of one model share so far."""

    number: int = 0
    empty: int = 0
    unread: int = 0
    """The grader says that it found no answer in them."""
    right: int = 0
    categories: set[int] = field(default_factory=set)
    texts: set[int | None] = field(default_factory=set)
    """Two at most: whether there are more makes no difference."""
    questions: set[str] = field(default_factory=set)
    """The same."""

    def add(self, outcome: StoredOutcome) -> None:
        """One more; what has no grade, or has timed out, says nothing."""
        if outcome.category is None or (outcome.flags and outcome.timed_out):
            return
        self.number += 1
        self.empty += bool(outcome.flags) and "empty" in outcome.flags.split()
        self.unread += outcome.found is False
        # a grade without a word about right and wrong: category 0 is what no condition of the rubric holds for
        self.right += outcome.category > 0 if outcome.correct is None else outcome.correct
        self.categories.add(outcome.category)
        if len(self.texts) < 2:
            self.texts.add(outcome.digest)
        if len(self.questions) < 2:
            self.questions.add(outcome.question)

    def copy(self) -> "SharedTraits":
        """A copy, which later answers do not change."""
        return replace(
            self, categories=self.categories.copy(), texts=self.texts.copy(), questions=self.questions.copy()
        )

    @property
    def fault(self) -> AnswerFault | None:
        """The fault of all of them; None if they differ, or are too few to say."""
        if self.number < LEAST:
            return None
        if self.empty == self.number:
            return AnswerFault.EMPTY
        alike = len(self.texts) == 1 and None not in self.texts and len(self.questions) > 1
        if alike and self.right < self.number:
            return AnswerFault.ALIKE
        if self.unread == self.number:
            return AnswerFault.UNREAD
        return AnswerFault.WRONG if self.right == 0 and len(self.categories) == 1 else None


_SAID = {
    AnswerFault.EMPTY: "are empty",
    AnswerFault.ALIKE: "are one and the same text, whatever the question",
    AnswerFault.UNREAD: "hold nothing that the grader takes for an answer",
    AnswerFault.WRONG: "are graded wrong",
}
_MENDED = {
    AnswerFault.EMPTY: "look at what the server sends, and at max_tokens and the reasoning settings",
    AnswerFault.ALIKE: "look at the prompt and at the server",
    AnswerFault.UNREAD: "look at the grader, or ask for the answer in the form that it reads",
    AnswerFault.WRONG: "look at the grader and the answer keys, unless the questions are that hard",
}


def fault_sentence(fault: AnswerFault, number: int) -> str:
    """A sentence about this many answers."""
    return f"all {number} answers {_SAID[fault]}; {_MENDED[fault]}"
