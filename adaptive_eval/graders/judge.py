"""A judge: a language model on any server that gives each answer one of the verdicts that are declared."""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field, field_validator

from adaptive_eval.core.types import Cost
from adaptive_eval.endpoints.types import EndpointConfig, Limits, Sampling
from adaptive_eval.errors import GraderError
from adaptive_eval.graders.transcript import PLACEHOLDER, TEMPLATE, Transcript, transcript_of
from adaptive_eval.graders.types import GraderOptions, Marks, SignalValue
from adaptive_eval.questions.types import Question
from adaptive_eval.sections import Count, Price, Section, refuse

MILLION = 1e6
TEMPLATE_TOKENS = 512
"""Tokens that a chat template may add to a request, for reserving the worst case."""
USED = ("judge_prompt_tokens", "judge_completion_tokens", "judge_usd", "judge_gpu_seconds")
NAME = r"^[A-Za-z0-9][A-Za-z0-9 _-]*$"


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


class Judge(GraderOptions):
    """A language model says which of the verdicts an answer gets.

    Signals: `verdict`, `is_correct` where the verdicts say what is correct, `has_answer`, `agreement` (the share of the
    votes), and what was used: `judge_prompt_tokens`, `judge_completion_tokens`, `judge_usd`, `judge_gpu_seconds`. An
    empty answer is sent to nobody, and its verdict is "". A verdict that cannot be had or read is a grader error.
    """

    kind: Literal["judge"] = "judge"
    server: EndpointConfig
    """Where the judge is served, and under which name; `api` is chat."""
    sampling: Sampling = Sampling(temperature=0.0, max_tokens=1024)
    """How a verdict is drawn; each vote has a seed of its own, which follows from that of the answer."""
    verdicts: tuple[JudgeLevel, ...] = Field(RIGHT_OR_WRONG, min_length=2)
    """Those that it may give; default: correct and wrong."""
    criteria: str = ""
    """What is to be graded, and how strictly."""
    template: str = TEMPLATE
    """The request, with {question}, {reference}, {answer} and {criteria}; each comes between marks of its own."""
    votes: Count = Field(1, ge=1, le=15)
    """Verdicts on each answer; more than half of them must agree."""
    longest: Count = Field(32768, ge=1024)
    """Bytes of an answer that the judge sees: of a longer one the beginning and the end."""
    concurrency: Limits = Limits(concurrency=16)
    """What the judge's servers are asked to bear."""
    price: Price | None = None
    """Of the judge's tokens."""
    gpus: float | None = Field(None, gt=0)
    """GPUs that serve the judge."""

    @field_validator("verdicts")
    @classmethod
    def _different(cls, verdicts: tuple[JudgeLevel, ...]) -> tuple[JudgeLevel, ...]:
        if len({one.name.casefold() for one in verdicts}) < len(verdicts):
            raise refuse("must have different names", "rename one of those that are equal")
        if len({one.correct is None for one in verdicts}) > 1:
            raise refuse("must say of all or of none whether they are correct", "add `correct:` to the others")
        return verdicts

    @field_validator("template")
    @classmethod
    def _shows_the_answer(cls, template: str) -> str:
        if [one[1] for one in PLACEHOLDER.finditer(template)].count("answer") != 1:
            raise refuse("must have {answer} once", "write {answer} where the answer is to stand")
        return template

    @field_validator("server")
    @classmethod
    def _chats(cls, server: EndpointConfig) -> EndpointConfig:
        if server.api != "chat":
            raise refuse("must have `api: chat`", "a judge is told apart from what it judges by the turns of a chat")
        return server

    @property
    def says_correct(self) -> bool:
        """Whether the verdicts say what is correct."""
        return self.verdicts[0].correct is not None

    @property
    def gives(self) -> frozenset[str]:
        said = {"verdict", "has_answer", "agreement", *USED}
        return frozenset({*said, "is_correct"} if self.says_correct else said)

    def quick(self, text: str, question: Question) -> Marks | None:
        return None

    def grade(self, text: str, question: Question) -> Marks:
        raise GraderError("is a judge, which only a run can ask")

    def key_problem(self, question: Question) -> str | None:
        return None

    @property
    def knows_right_answers(self) -> bool:
        return False

    def right_answers(self, question: Question) -> Sequence[str]:
        return ()

    def transcript(self, question: Question, answer: str) -> Transcript:
        """What the judge is sent about one answer."""
        levels = [(one.name, one.says) for one in self.verdicts]
        return transcript_of(
            question, answer, levels=levels, criteria=self.criteria, template=self.template, longest=self.longest
        )

    def marks(self, verdict: str, agreement: float, used: Cost, prompt_tokens: int, completion_tokens: int) -> Marks:
        """The signals of a verdict; "" for an empty answer."""
        correct = {one.name: bool(one.correct) for one in self.verdicts}.get(verdict, False)
        spent = {
            "judge_prompt_tokens": float(prompt_tokens),
            "judge_completion_tokens": float(completion_tokens),
            "judge_usd": used.usd,
            "judge_gpu_seconds": used.gpu_seconds,
        }
        said: dict[str, SignalValue] = {"verdict": verdict, "has_answer": verdict != "", "agreement": agreement}
        if self.says_correct:
            said["is_correct"] = correct
        return Marks({**said, **spent}, verdict or None)

    def cost(self, prompt_tokens: int, completion_tokens: int, latency: float) -> Cost:
        """What one verdict has cost."""
        usd = (
            0.0
            if self.price is None
            else ((prompt_tokens * self.price.input + completion_tokens * self.price.output) / MILLION)
        )
        share = (self.gpus or 0.0) / (len(self.server.replicas) * self.concurrency.concurrency)
        return Cost(prompt_tokens + completion_tokens, usd, latency * share)

    def worst_cost(self, questions: Sequence[Question]) -> Cost:
        """The most that all votes on one answer may cost: hard caps reserve it with the answer."""
        sent = max((self._bytes(question) for question in questions), default=0)
        completion = self.sampling.max_tokens or 0
        one = self.cost(sent + TEMPLATE_TOKENS, completion, self.sampling.timeout * self.concurrency.attempts)
        return Cost(self.votes * one.tokens, self.votes * one.usd, self.votes * one.gpu_seconds)

    def _bytes(self, question: Question) -> int:
        """Of a request with the longest answer that there may be; no tokenizer makes more tokens than bytes."""
        sent = self.transcript(question, "")
        return len(sent.system.encode()) + len(sent.user.encode()) + self.longest
