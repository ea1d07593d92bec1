"""A trial: one value from the moment it is wanted to the export.

    QUEUED -> RESERVED -> RUNNING -> GRADING -> JUDGING -> DONE

Models and questions are the numbers that the store gave them. `STEPS` lists the legal transitions; any other is a bug
in this program. RUNNING, GRADING, QUEUED and LOST are never stored: after a restart such a trial is RESERVED, or new.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from adaptive_eval.core.types import NO_COST, Cost
from adaptive_eval.endpoints.types import Answer
from adaptive_eval.graders.types import SignalValue

Key = tuple[int, int, int]
"""Model, question and number of a trial."""


class TrialState(StrEnum):
    """State of a trial."""

    QUEUED = "queued"
    """The core wants it; it waits for a free slot."""
    RESERVED = "reserved"
    """It is being sent; its cost is reserved at the worst case."""
    RUNNING = "running"
    """A supply has it."""
    GRADING = "grading"
    """Its answer is in memory, and is being graded."""
    JUDGING = "judging"
    """Its answer is stored without a grade, which takes requests of its own or was cut off."""
    DONE = "done"
    """Its answer is stored with a grade."""
    UNGRADED = "ungraded"
    """Its answer is stored; the grader failed on it."""
    LOST = "lost"
    """It gets no answer in this start of the run."""


QUEUED, RESERVED, RUNNING, GRADING, JUDGING, DONE, UNGRADED, LOST = TrialState

STEPS: Mapping[TrialState | None, frozenset[TrialState]] = {
    None: frozenset({QUEUED}),
    QUEUED: frozenset({RESERVED, RUNNING, LOST}),
    RESERVED: frozenset({RUNNING, QUEUED, LOST}),
    RUNNING: frozenset({GRADING, QUEUED, LOST}),
    GRADING: frozenset({JUDGING, DONE, UNGRADED}),
    JUDGING: frozenset({JUDGING, DONE, UNGRADED}),
    UNGRADED: frozenset({JUDGING}),
}
"""Legal transitions, from None for a trial that is not in the table. A request that does not wait for its rows to be on
disk is RUNNING at once. UNGRADED is left only before a log is replayed."""

OVER = frozenset({DONE, UNGRADED, LOST})
"""States in which a trial leaves the table."""
NOT_SENT = frozenset({QUEUED, LOST})
"""States of trials that nobody answers."""
IN_FLIGHT = frozenset({RESERVED, RUNNING})
HELD = frozenset({RESERVED, RUNNING, GRADING})
"""States in which the worst cost of an answer is reserved: until its row is written, since a kill loses it."""
ANSWERED = frozenset({JUDGING, DONE, UNGRADED})
"""Stored states with an answer."""


class GradeDetails(NamedTuple):
    """The details of a grade besides its category."""

    signals: Mapping[str, SignalValue] = {}
    extracted: str | None = None
    error: str | None = None
    """Why there is no category."""


class AnswerFacts(NamedTuple):
    """Facts about an answer, without its texts."""

    digest: int | None
    """Equal for identical answers; None for an empty answer."""
    size: int
    """Bytes of its texts, each counted up to a limit."""
    is_right: bool | None
    """Whether the grader counts it as right; None if it does not say."""
    has_answer: bool | None
    """Whether the grader has found an answer in it; None if it does not say."""
    completion_tokens: int
    """0 if unknown."""


class Trial(NamedTuple):
    """One sampled answer of a model to a question."""

    model: int
    question: int
    number: int
    round: int
    state: TrialState = QUEUED
    cost: Cost = NO_COST
    """Of the answer: reserved while it is in flight, then paid."""
    verdict: Cost = NO_COST
    """Of its grade: reserved until there is one, then paid."""
    category: int | None = None
    kinds: int = 0
    """Bits of `core.AnswerKind`."""
    seconds: float = 0.0
    """How long the answer took."""
    answer: Answer | None = None
    """None before it has come, and in rows that are read without texts."""
    grade: GradeDetails | None = None
    facts: AnswerFacts | None = None
    """Of rows that are read without texts; `facts_of` gives them for all others."""

    @property
    def key(self) -> Key:
        """Model, question and number."""
        return self.model, self.question, self.number

    @property
    def total(self) -> Cost:
        """Cost of the answer and its grade."""
        return self.cost if self.verdict is NO_COST else self.cost.plus(self.verdict)


class Request(NamedTuple):
    """Consecutive trials of one question and round that are asked for in one request."""

    id: int
    """Its number in this start of the run."""
    model: int
    question: int
    first: int
    """Number of the first trial."""
    size: int
    round: int

    @property
    def keys(self) -> list[Key]:
        """The trials it was sent for."""
        return [(self.model, self.question, number) for number in self.numbers]

    @property
    def numbers(self) -> range:
        """Numbers of its trials."""
        return range(self.first, self.first + self.size)
