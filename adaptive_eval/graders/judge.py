"""The judge: a language model that grades answers by verdicts, by criteria, or by comparison with another answer."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import orjson
from pydantic import Field, field_validator, model_validator

from adaptive_eval.base.errors import GraderError
from adaptive_eval.base.sections import Count, config_error
from adaptive_eval.core.types import Cost
from adaptive_eval.endpoints.types import RESPONSE_FORMAT, Sampling
from adaptive_eval.graders.asked import USAGE_SIGNALS, AskedGrader, GraderSampling, ReplyUse, usage_signals
from adaptive_eval.graders.ballots import Levels, json_instructions, line_instructions, reply_format
from adaptive_eval.graders.comparing import AnswersOfModel, ByComparison
from adaptive_eval.graders.judge_forms import ByVerdicts, JudgeForm, JudgeLevel, VoteResult
from adaptive_eval.graders.rubric import RubricConfig
from adaptive_eval.graders.scoring import MAX_CRITERIA, ByScores, JudgeCriterion
from adaptive_eval.graders.transcript import Transcript, make_transcript, warning_words
from adaptive_eval.graders.types import Marks, SignalValue
from adaptive_eval.questions.types import Question

RIGHT_OR_WRONG = (
    JudgeLevel(name="correct", says="it says what the reference answer says, in whatever form", correct=True),
    JudgeLevel(name="wrong", says="it says something else, or does not come to an answer", correct=False),
)


class Judge(AskedGrader):
    """A language model that gives an answer a verdict, scores it by criteria, or compares it with another answer.

    Signals: `verdict`; `is_correct` if the verdicts declare `correct`; `has_answer`; `agreement`, the share of votes
    that agree (with several judges also `agreement_1`, `agreement_2` ..., each judge's agreement with the decision);
    and the usage: `judge_prompt_tokens`, `judge_completion_tokens`, `judge_usd`, `judge_gpu_seconds`, `judge_seconds`.
    With `scores` each criterion's level is a signal of its name, in place of a verdict, and `score` is their weighted
    sum. With `compare_to` the verdict is better, tie or worse; `order_dependent` is the share of votes that change with
    the order, and `prefers_first` how much more often the first place was preferred. An empty answer has the verdict
    "" without a request. A missing or unreadable verdict is a grader error.
    """

    kind: Literal["judge"] = "judge"
    sampling: GraderSampling = GraderSampling(temperature=0.0, max_tokens=1024)
    """Sampling parameters of its verdicts; the seed of a vote is derived from the answer's seed."""
    verdicts: tuple[JudgeLevel, ...] = Field(RIGHT_OR_WRONG, min_length=2)
    """The possible verdicts; default: correct and wrong."""
    scores: tuple[JudgeCriterion, ...] = Field((), max_length=MAX_CRITERIA)
    """Criteria to score separately, instead of verdicts. Without a `rubric` each weighted sum is a category."""
    compare_to: Annotated[str, Field(min_length=1)] | AnswersOfModel | None = None
    """Another answer to compare with in both orders, instead of verdicts: `reference`, the answer key; a field of the
    questions (`questions.fields.metadata`) with the answers of another model or a person; or the answers of a model in
    an earlier run, trial by trial. Without a `rubric` better scores 1, a tie 0.5, worse 0."""
    votes: Count = Field(1, ge=1, le=15)
    """Verdicts per judge and answer. Must be odd, since more than half must agree; of scores the median counts."""
    structured: bool | None = None
    """Make the server enforce the format of replies (`response_format`, a JSON schema); default: if it supports it."""

    @field_validator("verdicts")
    @classmethod
    def _check_verdicts(cls, verdicts: tuple[JudgeLevel, ...]) -> tuple[JudgeLevel, ...]:
        if len({verdict.name.casefold() for verdict in verdicts}) < len(verdicts):
            raise config_error("must have different names", "rename one of those that are equal")
        if len({verdict.correct is None for verdict in verdicts}) > 1:
            raise config_error("must have `correct` either all or none", "add `correct:` to the others")
        return verdicts

    @field_validator("scores")
    @classmethod
    def _check_criteria(cls, scores: tuple[JudgeCriterion, ...]) -> tuple[JudgeCriterion, ...]:
        if len({criterion.name for criterion in scores}) < len(scores):
            raise config_error("must have different names", "rename one of those that are equal")
        return scores

    @model_validator(mode="after")
    def _check_one_reply_kind(self) -> "Judge":
        defaults = {name: Judge.model_fields[name].default for name in ("verdicts", "scores", "compare_to")}
        given = [name for name, default in defaults.items() if getattr(self, name) != default]
        if len(given) > 1:
            raise config_error(f"has {' and '.join(given)}, which exclude each other", "keep one of them")
        if not (len(self.server) > 1 or self.scores or self.compare_to) and self.votes % 2 == 0:
            hint = "use 1 or 3: if half of the votes are for and half against, an answer has no grade"
            raise config_error(f"has an even number of votes, {self.votes}", hint)
        if self.structured and RESPONSE_FORMAT in self.sampling.extra_body:
            raise config_error(
                f"has structured and sampling.extra_body.{RESPONSE_FORMAT}, which do the same", "remove one of them"
            )
        return self

    @property
    def form(self) -> JudgeForm:
        """The kind of reply to request: scores, a comparison, or a verdict."""
        if self.scores:
            return ByScores(self.scores)
        return (
            ByVerdicts(self.verdicts)
            if self.compare_to is None
            else ByComparison(self.compare_to, self.max_answer_bytes)
        )

    # -- requests -----------------------------------------------------------------------------------------------------

    @property
    def may_be_structured(self) -> bool:
        """Whether `response_format` is sent at first."""
        return self.structured is not False and RESPONSE_FORMAT not in self.sampling.extra_body

    @property
    def structured_sampling(self) -> Sampling:
        """The sampling settings of a reply whose format the server enforces."""
        body = {**self.sampling.extra_body, RESPONSE_FORMAT: reply_format(self.form.ballot)}
        return Sampling(**{**self.sampling.given, "extra_body": body})

    @property
    def replies(self) -> int:
        """Replies for each answer: one for each vote and order."""
        return self.votes * self.form.orders

    @property
    def agreements(self) -> tuple[str, ...]:
        """Names of a panel's signals for each judge's agreement with the decision."""
        is_panel = len(self.server) > 1
        return tuple(f"agreement_{number}" for number in range(1, len(self.server) + 1)) if is_panel else ()

    def key_problem(self, question: Question) -> str | None:
        return self.form.key_problem(question)

    def transcript(self, question: Question, answer: str) -> Transcript:
        """The request about an answer if the server does not enforce the format of the reply."""
        return self.transcripts(question, answer, structured=False)[0]

    def transcripts(self, question: Question, answer: str, *, structured: bool) -> tuple[Transcript, ...]:
        """The requests for one vote, one for each order."""
        form = self.form

        def words(number: str) -> str:
            reply_instructions = (
                json_instructions(form.ballot) if structured else line_instructions(form.ballot, number)
            )
            return f"{form.task(self.criteria)}\n\n{warning_words(number, form.answers)}\n\n{reply_instructions}"

        return tuple(
            make_transcript(
                shown, words=words, criteria=self.criteria, template=self.template, longest=self.max_answer_bytes
            )
            for shown in form.shown(question, answer)
        )

    def _bytes(self, question: Question, seen: int) -> int:
        forms = (False, True) if self.may_be_structured else (False,)
        transcripts = [transcript for form in forms for transcript in self.transcripts(question, "", structured=form)]
        structured = len(orjson.dumps(reply_format(self.form.ballot))) if self.may_be_structured else 0
        answers = seen + (self.max_answer_bytes if isinstance(self.compare_to, AnswersOfModel) else 0)
        return (
            max(len(transcript.system.encode()) + len(transcript.user.encode()) for transcript in transcripts)
            + answers
            + structured
        )

    # -- replies ------------------------------------------------------------------------------------------------------

    @property
    def gives(self) -> frozenset[str]:
        return frozenset({"has_answer", "agreement", *USAGE_SIGNALS, *self.agreements, *self.form.gives})

    @property
    def own_rubric(self) -> RubricConfig | None:
        return self.form.own_rubric

    def voted(self, votes: Sequence[Sequence[Levels]]) -> VoteResult:
        """The decision of the votes; raises `GraderError` if they are too few or disagree."""
        requested = self.votes * len(self.server)
        if 2 * len(votes) <= requested:
            raise GraderError("the judge gave too few verdicts")
        return self.form.voted(votes, requested)

    def make_signals(self, levels: Levels) -> dict[str, SignalValue]:
        """Signals of an answer with this verdict, which is () for an empty answer."""
        return self.form.make_signals(levels)

    def levels_of(self, signals: Mapping[str, Any]) -> Levels:
        """The verdict of an answer with these signals; () if there is none."""
        levels = tuple(str(signals.get(field.name, "")) for field in self.form.label_ballot)
        return levels if all(levels) else ()

    def marks(self, voted: VoteResult, used: Cost, replies: ReplyUse) -> Marks:
        """The signals of a decision, with its cost."""
        signals = {**self.form.signals_of_vote(voted), "agreement": voted.agreement}
        return Marks({**signals, **usage_signals(used, replies)}, ", ".join(voted.levels) or None)
