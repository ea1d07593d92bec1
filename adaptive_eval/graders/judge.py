"""A judge: a language model on any server that says what an answer is, as a verdict, by criteria, or beside another."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import orjson
from pydantic import Field, field_validator, model_validator

from adaptive_eval.core.types import Cost
from adaptive_eval.endpoints.types import RESPONSE_FORMAT, Sampling
from adaptive_eval.errors import GraderError
from adaptive_eval.graders import comparing, scoring
from adaptive_eval.graders.asked import USED, AskedGrader, spent_signals
from adaptive_eval.graders.ballots import VERDICT, BallotField, Said, lines_wanted, object_wanted, reply_format
from adaptive_eval.graders.rubric import RubricConfig
from adaptive_eval.graders.scoring import JudgeCriterion
from adaptive_eval.graders.transcript import (
    ANSWER,
    InstructionWriter,
    ShownTexts,
    Transcript,
    grading_words,
    transcript_of,
    warning_words,
)
from adaptive_eval.graders.types import Marks, SignalValue
from adaptive_eval.questions.types import Question
from adaptive_eval.sections import Count, Section, refuse

NAME = r"^[A-Za-z0-9][A-Za-z0-9 _-]*$"
REFERENCE = "reference"
"""In `against`: the answer key itself."""


class JudgeLevel(Section):
    """One verdict."""

    name: str = Field(min_length=1, max_length=40, pattern=NAME)
    """What the judge says; conditions of the rubric name it, as in `when: {verdict: good}`."""
    says: str = ""
    """When it is to be given."""
    correct: bool | None = None
    """Whether the answer then counts as correct (`is_correct`)."""


RIGHT_OR_WRONG = (
    JudgeLevel(name="correct", says="it says what the reference answer says, in whatever form", correct=True),
    JudgeLevel(name="wrong", says="it says something else, or does not come to an answer", correct=False),
)


class Voted(NamedTuple):
    """What all votes on an answer come to."""

    said: Said
    """One level for each field of the ballot; () for an empty answer."""
    agreement: float
    """The share of the votes that say so."""
    order_dependent: float = 0.0
    """Of two answers that are compared: the share of the votes that depend on their order."""
    prefers_first: float = 0.0
    """How much oftener the first place was preferred than the second."""


EMPTY = Voted((), 1.0)
"""An empty answer, which is sent to nobody."""


class Judge(AskedGrader):
    """A language model says which of the verdicts an answer gets, scores it by criteria, or compares it with another.

    Signals: `verdict`, `is_correct` where the verdicts say what is correct, `has_answer`, `agreement` (the share of the
    votes), and what was used: `judge_prompt_tokens`, `judge_completion_tokens`, `judge_usd`, `judge_gpu_seconds`. With
    `scores` there is no verdict but the level of each criterion, under its name, and `score`, their weighted sum. With
    `against` the verdict is better, tie or worse, `order_dependent` is the share of the votes that were another in the
    other order, and `prefers_first` how much oftener the first place was preferred. An empty answer is sent to nobody,
    and its verdict is "". A verdict that cannot be had or read is a grader error.
    """

    kind: Literal["judge"] = "judge"
    sampling: Sampling = Sampling(temperature=0.0, max_tokens=1024)
    """How a verdict is drawn; each vote has a seed of its own, which follows from that of the answer."""
    verdicts: tuple[JudgeLevel, ...] = Field(RIGHT_OR_WRONG, min_length=2)
    """Those that it may give; default: correct and wrong."""
    scores: tuple[JudgeCriterion, ...] = Field((), max_length=scoring.MOST_CRITERIA)
    """Criteria that are scored one by one, instead of verdicts. Without a `rubric` each sum of weight times worth is a
    category."""
    against: str | None = Field(None, min_length=1)
    """Compare with this answer, in both orders, instead of verdicts: `reference`, the answer key, or a field of the
    questions (`questions.fields.metadata`) that holds the answers of another model or a person. Without a `rubric`
    better is worth 1, a tie 0.5, worse 0."""
    votes: Count = Field(1, ge=1, le=15)
    """Verdicts on each answer; more than half of them must agree. Of scores and comparisons the middle one counts."""
    structured: bool | None = None
    """Whether its server sees to the form of a reply (`response_format`, a JSON schema); default: where it takes that,
    which the first request shows."""

    @field_validator("verdicts")
    @classmethod
    def _different(cls, verdicts: tuple[JudgeLevel, ...]) -> tuple[JudgeLevel, ...]:
        if len({one.name.casefold() for one in verdicts}) < len(verdicts):
            raise refuse("must have different names", "rename one of those that are equal")
        if len({one.correct is None for one in verdicts}) > 1:
            raise refuse("must say of all or of none whether they are correct", "add `correct:` to the others")
        return verdicts

    @field_validator("scores")
    @classmethod
    def _different_criteria(cls, scores: tuple[JudgeCriterion, ...]) -> tuple[JudgeCriterion, ...]:
        if len({one.name for one in scores}) < len(scores):
            raise refuse("must have different names", "rename one of those that are equal")
        return scores

    @model_validator(mode="after")
    def _one_kind_of_reply(self) -> "Judge":
        given = [name for name in ("verdicts", "scores", "against") if getattr(self, name) != _default(name)]
        if len(given) > 1:
            raise refuse(f"has {' and '.join(given)}, which ask for different things", "keep one of them")
        if self.structured and RESPONSE_FORMAT in self.sampling.extra_body:
            raise refuse(
                f"has structured and sampling.extra_body.{RESPONSE_FORMAT}, which say the same", "remove one of them"
            )
        return self

    # -- what it is asked ---------------------------------------------------------------------------------------------

    @property
    def says_correct(self) -> bool:
        """Whether the verdicts say what is correct."""
        return not self.scores and self.against is None and self.verdicts[0].correct is not None

    @property
    def ballot(self) -> tuple[BallotField, ...]:
        """What each reply is to say."""
        if self.scores:
            return scoring.ballot_of(self.scores)
        if self.against is not None:
            return comparing.COMPARED
        return (BallotField(VERDICT, tuple(one.name for one in self.verdicts)),)

    @property
    def label_ballot(self) -> tuple[BallotField, ...]:
        """What a person says of an answer in its place."""
        return (BallotField(VERDICT, comparing.OUTCOMES),) if self.against is not None else self.ballot

    @property
    def may_be_structured(self) -> bool:
        """Whether `response_format` is sent at first."""
        return self.structured is not False and RESPONSE_FORMAT not in self.sampling.extra_body

    @property
    def structured_sampling(self) -> Sampling:
        """How a reply is drawn whose form the server sees to."""
        body = {**self.sampling.extra_body, RESPONSE_FORMAT: reply_format(self.ballot)}
        return self.sampling.model_copy(update={"extra_body": body})

    @property
    def orders(self) -> int:
        """Requests that one vote takes."""
        return 1 if self.against is None else 2

    @property
    def replies(self) -> int:
        """One a vote, and one for each order."""
        return self.votes * self.orders

    def opponent(self, question: Question) -> str:
        """The answer that others are compared with; "" where there is none."""
        if self.against == REFERENCE:
            return question.answer
        said = question.metadata.get(self.against or "")
        return "" if said is None else str(said)

    def key_problem(self, question: Question) -> str | None:
        if self.against is None or self.opponent(question).strip():
            return None
        return f"has no answer in {self.against} to compare with; see grader.against"

    def transcript(self, question: Question, answer: str) -> Transcript:
        """What the judge is sent about one answer, where nobody sees to the form of its reply."""
        return self.transcripts(question, answer, structured=False)[0]

    def transcripts(self, question: Question, answer: str, *, structured: bool) -> tuple[Transcript, ...]:
        """What the judge is sent for one vote: a transcript, or one for each order."""
        names = ANSWER if self.against is None else (comparing.FIRST, comparing.SECOND)
        words, other = self._words(names, structured=structured), self.opponent(question)
        reference = "" if self.against == REFERENCE else question.answer
        orders = ((answer,),) if self.against is None else ((answer, other), (other, answer))
        return tuple(
            transcript_of(
                ShownTexts(question.prompt, reference, dict(zip(names, texts, strict=True))),
                words=words,
                criteria=self.criteria,
                template=self.template,
                longest=self.longest,
            )
            for texts in orders
        )

    def _words(self, answers: Sequence[str], *, structured: bool) -> InstructionWriter:
        def told(number: str) -> str:
            wanted = object_wanted(self.ballot) if structured else lines_wanted(self.ballot, number)
            return f"{self._task}\n\n{warning_words(number, answers)}\n\n{wanted}"

        return told

    @property
    def _task(self) -> str:
        if self.scores:
            told = [(one.told, one.says) for one in self.scores]
            return grading_words(told, self.criteria, "criteria, each with its levels,", scoring.TASK)
        if self.against is not None:
            return grading_words(comparing.PLACES, self.criteria, "verdicts", comparing.TASK)
        return grading_words([(one.name, one.says) for one in self.verdicts], self.criteria, "verdicts")

    def _bytes(self, question: Question) -> int:
        forms = (False, True) if self.may_be_structured else (False,)
        sent = [one for form in forms for one in self.transcripts(question, "", structured=form)]
        form = len(orjson.dumps(reply_format(self.ballot))) if self.may_be_structured else 0
        return max(len(one.system.encode()) + len(one.user.encode()) for one in sent) + self.longest + form

    # -- what it has said ---------------------------------------------------------------------------------------------

    @property
    def gives(self) -> frozenset[str]:
        said = {"has_answer", "agreement", *USED}
        if self.scores:
            return frozenset({*said, scoring.SCORE, *(one.name for one in self.scores)})
        if self.against is not None:
            return frozenset({*said, VERDICT, "order_dependent", "prefers_first"})
        return frozenset({*said, VERDICT, "is_correct"} if self.says_correct else {*said, VERDICT})

    @property
    def sums_are_few(self) -> bool:
        """Each sum of scores can be a category."""
        return len(scoring.sums(self.scores)) <= scoring.MOST_SUMS

    @property
    def own_rubric(self) -> RubricConfig | None:
        """The categories that follow from what it says, where the configuration declares none."""
        if self.scores:
            return scoring.rubric_of_sums(self.scores) if self.sums_are_few else None
        return comparing.COMPARISON_RUBRIC if self.against is not None else None

    def voted(self, votes: Sequence[Sequence[Said]]) -> Voted:
        """What the votes come to, each with its replies; `GraderError` where there are too few, or they differ."""
        if 2 * len(votes) <= self.votes:
            raise GraderError("the judge has given too few verdicts")
        if self.against is not None:
            found = [comparing.compared(replies) for replies in votes]
            verdict = scoring.middle([one.verdict for one in found], comparing.OUTCOMES)
            agreement = sum(one.verdict == verdict for one in found) / self.votes
            dependent = sum(one.order_dependent for one in found) / len(found)
            return Voted((verdict,), agreement, dependent, sum(one.prefers_first for one in found) / len(found))
        said = [replies[0] for replies in votes]
        if self.scores:
            fields = zip(self.ballot, zip(*said, strict=True), strict=True)
            chosen = tuple(scoring.middle(levels, one.levels) for one, levels in fields)
            return Voted(chosen, sum(one == chosen for one in said) / self.votes)
        most, number = Counter(said).most_common(1)[0]
        if 2 * number <= self.votes:
            raise GraderError(f"the votes of the judge differ: {dict(Counter(one[0] for one in said))}")
        return Voted(most, number / self.votes)

    def signals_of(self, said: Said) -> dict[str, SignalValue]:
        """What is known of an answer of which this is said; () of an empty one."""
        if self.scores:
            levels = dict(zip((one.name for one in self.scores), said or ("",) * len(self.scores), strict=True))
            score = scoring.combined(self.scores, said) if said else scoring.least(self.scores)
            return {**levels, scoring.SCORE: score, "has_answer": bool(said)}
        verdict = said[0] if said else ""
        known: dict[str, SignalValue] = {VERDICT: verdict, "has_answer": bool(said)}
        if self.says_correct:
            known["is_correct"] = {one.name: bool(one.correct) for one in self.verdicts}.get(verdict, False)
        return known

    def said_by(self, signals: Mapping[str, Any]) -> Said:
        """What was said of an answer that has these signals; () where nothing was."""
        said = tuple(str(signals.get(one.name, "")) for one in self.label_ballot)
        return said if all(said) else ()

    def marks(self, voted: Voted, used: Cost, tokens: tuple[int, int]) -> Marks:
        """The signals of what was voted."""
        told = {**self.signals_of(voted.said), "agreement": voted.agreement}
        if self.against is not None:
            told |= {"order_dependent": voted.order_dependent, "prefers_first": voted.prefers_first}
        return Marks({**told, **spent_signals(used, *tokens)}, ", ".join(voted.said) or None)


def _default(name: str) -> object:
    return Judge.model_fields[name].default
