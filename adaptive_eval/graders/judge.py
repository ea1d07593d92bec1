"""The judge: a language model that grades answers by verdicts, by criteria, or by comparison with another answer."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Annotated, Any, Literal

import orjson
from pydantic import Field, field_validator, model_validator

from adaptive_eval.base.errors import GraderError
from adaptive_eval.base.sections import config_error
from adaptive_eval.endpoints.types import RESPONSE_FORMAT, Sampling, Signal
from adaptive_eval.graders.asked import USAGE_SIGNALS, AskedGrader, GraderReply, GraderSampling, Vote
from adaptive_eval.graders.ballots import (
    Levels,
    json_instructions,
    line_instructions,
    parse_json_ballot,
    parse_line_ballot,
    reply_format,
)
from adaptive_eval.graders.judge_forms import (
    COMPARISON_RUBRIC,
    CombinedVotes,
    ComparisonForm,
    JudgeForm,
    JudgeLevel,
    criteria_form,
    verdict_form,
)
from adaptive_eval.graders.rubric import RubricConfig, require_range
from adaptive_eval.graders.scoring import (
    MAX_CRITERIA,
    MAX_SUMS,
    JudgeCriterion,
    possible_scores,
    score_name,
    score_rubric,
)
from adaptive_eval.graders.types import Marks, SignalValue
from adaptive_eval.questions.types import Question

RIGHT_OR_WRONG = (
    JudgeLevel(name="correct", meaning="it says what the reference answer says, in whatever form", correct=True),
    JudgeLevel(name="wrong", meaning="it says something else, or does not come to an answer", correct=False),
)

_INCOMPLETE: Mapping[Signal, str] = {
    "truncated": "its reply was cut off: raise grader.sampling.max_tokens",
    "content_filter": "its server filtered the reply",
    "refusal": "it refused",
}
"""Replies that may say something else than their texts."""


class Judge(AskedGrader):
    """A language model that gives an answer a verdict, scores it by criteria, or compares it with another answer.

    Signals: `verdict`; `is_correct` if the verdicts declare `correct`; `has_answer`; `agreement`, the share of votes
    that agree (with several judges also `agreement_1`, `agreement_2` ..., each judge's agreement with the decision, and
    `failed_votes_1` ..., how many votes of a judge did not come or cannot be read, if any); and the usage:
    `judge_prompt_tokens`, `judge_completion_tokens`, `judge_usd`, `judge_gpu_seconds`, `judge_seconds`. With `scores`
    each criterion's level is a signal of its name, in place of a verdict, and `score` is their weighted sum. With
    `compare_to` the verdict is better, tie or worse; `order_dependent` is the share of votes that change with the
    order, and `prefers_first` how much more often the first place was preferred. An empty answer has the verdict ""
    without a request. A missing or unreadable verdict is a grader error, and so is one that was cut off or filtered.
    """

    kind: Literal["judge"] = "judge"
    sampling: GraderSampling = GraderSampling(temperature=0.0, max_tokens=1024)
    """Sampling parameters of its verdicts; the seed of a vote is derived from the answer's seed."""
    verdicts: tuple[JudgeLevel, ...] = Field(RIGHT_OR_WRONG, min_length=2)
    """The possible verdicts; default: correct and wrong."""
    scores: tuple[JudgeCriterion, ...] = Field((), max_length=MAX_CRITERIA)
    """Criteria to score separately, instead of verdicts. Without a `rubric` each weighted sum is a category."""
    compare_to: Annotated[str, Field(min_length=1)] | None = None
    """Another answer to compare with in both orders, instead of verdicts: `reference`, the answer key; or a field of
    the questions (`questions.fields.metadata`) with the answers of another model or a person. Without a `rubric` better
    scores 1, a tie 0.5, worse 0."""

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
        if scores and len(sums := possible_scores(scores)) <= MAX_SUMS:
            require_range(sums)
            if len({score_name(total) for total in sums}) < len(sums):
                raise config_error("have sums that are almost equal", "bring their weights closer together")
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
        return self

    @property
    def form(self) -> JudgeForm:
        """The kind of reply to request: scores, a comparison, or a verdict."""
        if self.scores:
            return criteria_form(self.scores)
        if self.compare_to is None:
            return verdict_form(self.verdicts)
        return ComparisonForm(compare_to=self.compare_to)

    def key_problem(self, question: Question) -> str | None:
        return self.form.key_problem(question)

    def reply_sampling(self, *, structured: bool) -> Sampling:
        if not structured:
            return self.sampling
        body = {**self.sampling.extra_body, RESPONSE_FORMAT: reply_format(self.form.ballot)}
        return self.sampling.model_copy(update={"extra_body": body})

    def reply_instructions(self, number: str, *, structured: bool) -> str:
        ballot = self.form.ballot
        return json_instructions(ballot) if structured else line_instructions(ballot, number)

    @property
    def _more_bytes(self) -> int:
        return len(orjson.dumps(reply_format(self.form.ballot))) if self.may_be_structured else 0

    @property
    def gives(self) -> frozenset[str]:
        panel = [*chain.from_iterable(self._panel_names)] if len(self.server) > 1 else ()
        return frozenset({*panel, *USAGE_SIGNALS, *self.form.signals(()), *self.form.certain})

    @property
    def _panel_names(self) -> Sequence[tuple[str, str]]:
        """Names of a panel's signals for each judge: its agreement with the decision, and its failed votes."""
        return [(f"agreement_{number}", f"failed_votes_{number}") for number in range(1, len(self.server) + 1)]

    @property
    def _requested(self) -> int:
        """Votes that are requested on an answer."""
        return self.votes * len(self.server)

    @property
    def needs_rubric(self) -> bool:
        """Whether the configuration must declare categories, since there are too many possible scores."""
        return len(possible_scores(self.scores)) > MAX_SUMS

    @property
    def own_rubric(self) -> RubricConfig | None:
        if self.scores:
            return None if self.needs_rubric else score_rubric(self.scores)
        return None if self.compare_to is None else COMPARISON_RUBRIC

    # -- grades --------------------------------------------------------------------------------------------------------

    def decided(self, question: Question, answer: str) -> Marks | None:
        levels = self.form.decided(question, answer, self.max_answer_bytes)
        return None if levels is None else self._marks(CombinedVotes(levels, self.form.certain))

    def decide(self, votes_by_server: Sequence[Sequence[Vote]], baseline: Sequence[float] = ()) -> Marks:
        errors: list[GraderError] = []
        ballots_by_server = [[*self._readable(votes, errors)] for votes in votes_by_server]
        readable = [*chain.from_iterable(ballots_by_server)]
        try:
            decision = self.voted(readable)
        except GraderError:
            if not errors:
                raise
            few = f"; without it, the votes have no majority ({len(readable)} of {self._requested})"
            raise GraderError(f"{errors[0]}{few if readable and len(self.server) > 1 else ''}") from None
        shares: dict[str, SignalValue] = {}
        if len(self.server) > 1:
            for names, votes, ballots in zip(self._panel_names, votes_by_server, ballots_by_server, strict=True):
                agreement, failed = names
                if chosen := [self.form.voted([ballot], 1).levels for ballot in ballots]:
                    shares[agreement] = chosen.count(decision.levels) / len(chosen)
                if len(ballots) < len(votes):
                    shares[failed] = len(votes) - len(ballots)
        marks = self._marks(decision)
        return marks._replace(signals={**marks.signals, **shares})

    def _readable(self, votes: Sequence[Vote], errors: list[GraderError]) -> Iterator[Sequence[Levels]]:
        """The levels of each vote that can be read; adds the errors of the others."""
        for vote in votes:
            try:
                yield [self._levels(reply) for reply in vote]
            except GraderError as error:
                errors.append(error)

    def _levels(self, reply: GraderReply) -> Levels:
        answer, ballot = reply.received(), self.form.ballot
        for signal, problem in _INCOMPLETE.items():
            if signal in answer.signals and not (reply.structured and signal == "truncated"):  # an object shows its end
                raise GraderError(f"the judge gave no verdict: {problem}")
        if reply.structured:
            return parse_json_ballot(answer.text, ballot)
        return parse_line_ballot(answer.text, reply.sent.number, ballot)

    def voted(self, votes: Sequence[Sequence[Levels]]) -> CombinedVotes:
        """The decision of the votes; raises `GraderError` if they are too few or disagree."""
        if 2 * len(votes) <= self._requested:
            raise GraderError("the judge gave too few verdicts")
        return self.form.voted(votes, self._requested)

    def _marks(self, decision: CombinedVotes) -> Marks:
        signals = {**self.make_signals(decision.levels), **decision.signals}
        return Marks(signals, ", ".join(decision.levels) or None)

    def make_signals(self, levels: Levels) -> dict[str, SignalValue]:
        """Signals of an answer with this verdict, which is () for an empty answer."""
        return self.form.signals(levels)

    def levels_of(self, signals: Mapping[str, Any]) -> Levels:
        """The verdict of an answer with these signals; () if there is none."""
        levels = tuple(str(signals.get(field.name, "")) for field in self.form.label_ballot)
        return levels if all(levels) else ()
