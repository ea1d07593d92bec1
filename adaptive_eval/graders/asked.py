"""Common settings and costs of graders that are language models: judges and verifiers."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, NamedTuple

from pydantic import AfterValidator, Field, field_validator

from adaptive_eval.base.errors import GraderError
from adaptive_eval.base.sections import Count, Price, refuse
from adaptive_eval.core.types import NO_COST, Cost
from adaptive_eval.endpoints.types import TEMPLATE_TOKENS, EndpointConfig, Limits, Sampling, gpu_share
from adaptive_eval.graders.rubric import RubricConfig
from adaptive_eval.graders.transcript import PLACEHOLDER, TEMPLATE, Transcript
from adaptive_eval.graders.types import GraderOptions, Marks, SignalValue
from adaptive_eval.questions.types import Question

USED = ("judge_prompt_tokens", "judge_completion_tokens", "judge_usd", "judge_gpu_seconds", "judge_seconds")


class ReplyUse(NamedTuple):
    """Usage of replies: their tokens and their total duration."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0

    def plus(self, more: "ReplyUse") -> "ReplyUse":
        """The sum of both."""
        prompt, completion = self.prompt_tokens + more.prompt_tokens, self.completion_tokens + more.completion_tokens
        return ReplyUse(prompt, completion, self.seconds + more.seconds)


NO_REPLY = ReplyUse()


def chats(server: EndpointConfig) -> EndpointConfig:
    """Return the server; raises an error unless its API is chat."""
    if server.api != "chat":
        raise refuse("must have `api: chat`", "its instructions and the answer are separate messages of a chat")
    return server


ChatServer = Annotated[EndpointConfig, AfterValidator(chats)]


class AskedGrader(GraderOptions):
    """Base class of graders that ask a language model about each answer."""

    reads_key = False
    kind: Literal["judge", "verifier"]
    server: ChatServer
    """Its servers, and its name there; `api` is chat."""
    sampling: Sampling
    """Sampling parameters of its replies."""
    criteria: str = ""
    """Instructions on what to grade, and how strictly."""
    template: str = TEMPLATE
    """The request, with {question}, {reference}, {answer} and {criteria}, each of which is put between marks."""
    longest: Count = Field(32768, ge=1024)
    """Most bytes of an answer in a request; a longer one is cut in the middle."""
    concurrency: Limits = Limits(in_flight=16)
    """Limits on requests to its servers, and retries."""
    price: Price | None = None
    """Price of its tokens."""
    gpus: float | None = Field(None, ge=0)
    """GPUs that serve it."""

    @field_validator("template")
    @classmethod
    def _check_template(cls, template: str) -> str:
        if [one[1] for one in PLACEHOLDER.finditer(template)].count("answer") != 1:
            raise refuse("must have {answer} once", "write {answer} where the answer is to stand")
        return template

    @property
    def replies(self) -> int:
        """Replies that one grade takes from each server."""
        return 1

    @property
    def seats(self) -> Sequence["AskedGrader"]:
        """All graders that are asked about an answer."""
        return (self,)

    @property
    def own_rubric(self) -> RubricConfig | None:
        """The categories that follow from its possible verdicts, used if the configuration declares none."""
        return None

    def quick(self, text: str, question: Question) -> Marks | None:
        return None

    def grade(self, text: str, question: Question) -> Marks:
        raise GraderError(f"is a {self.kind}, which only a run can ask")

    @property
    def knows_right_answers(self) -> bool:
        return False

    def right_answers(self, question: Question) -> Sequence[str]:
        return ()

    def transcript(self, question: Question, answer: str) -> Transcript:
        """The text that the grader is sent about one answer."""
        raise NotImplementedError

    def cost(self, prompt_tokens: int, completion_tokens: int, latency: float) -> Cost:
        """The cost of one reply."""
        usd = 0.0 if self.price is None else self.price.usd(prompt_tokens, completion_tokens)
        share = gpu_share(self.gpus, self.server, self.concurrency.in_flight)
        return Cost(prompt_tokens + completion_tokens, usd, latency * share if share else 0.0)

    def worst_cost(self, questions: Sequence[Question], written: int | None = None) -> Cost:
        """The most that all replies about one answer of at most `written` bytes may cost; hard caps reserve it."""
        total = NO_COST
        for seat in self.seats:
            seen = seat.longest if written is None else min(seat.longest, written)
            sent = max((seat._bytes(question, seen) for question in questions), default=0)
            longest = seat.sampling.timeout * seat.concurrency.attempts
            one = seat.cost(sent + TEMPLATE_TOKENS, seat.sampling.max_tokens or 0, longest)
            total = total.plus(one.times(seat.replies))
        return total

    def _bytes(self, question: Question, seen: int) -> int:
        """Bytes of a request that shows `seen` bytes of an answer; no tokenizer makes more tokens than bytes."""
        sent = self.transcript(question, "")
        return len(sent.system.encode()) + len(sent.user.encode()) + seen


def cost_from_signals(signals: Mapping[str, SignalValue]) -> Cost | None:
    """The cost of a grade, from its `USED` signals; None if no server was asked."""
    if USED[0] not in signals:
        return None
    prompt, completion, usd, gpu_seconds = (float(signals.get(name, 0.0)) for name in USED[:4])
    return Cost(round(prompt + completion), usd, gpu_seconds)


def usage_signals(used: Cost, replies: ReplyUse) -> dict[str, SignalValue]:
    """The `USED` signals of a grade."""
    tokens = float(replies.prompt_tokens), float(replies.completion_tokens)
    return dict(zip(USED, (*tokens, used.usd, used.gpu_seconds, replies.seconds), strict=True))
