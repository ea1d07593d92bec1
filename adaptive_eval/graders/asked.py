"""Common settings and costs of graders that are language models: judges and verifiers."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, NamedTuple, Self

from pydantic import AfterValidator, Discriminator, Field, Tag, field_validator

from adaptive_eval.base.errors import GraderError
from adaptive_eval.base.sections import Count, Price, config_error
from adaptive_eval.core.types import NO_COST, Cost
from adaptive_eval.endpoints import settings
from adaptive_eval.endpoints.types import (
    RESPONSE_FORMAT,
    TEMPLATE_TOKENS,
    Answer,
    EndpointConfig,
    ModelLimits,
    Sampling,
    gpu_share,
)
from adaptive_eval.graders.rubric import RubricConfig
from adaptive_eval.graders.transcript import PLACEHOLDER, TEMPLATE, GradingForm, Transcript, make_transcript
from adaptive_eval.graders.types import GraderOptions, Marks, SignalValue
from adaptive_eval.questions.types import Question

USAGE_SIGNALS = ("judge_prompt_tokens", "judge_completion_tokens", "judge_usd", "judge_gpu_seconds", "judge_seconds")


class GraderReply(NamedTuple):
    """A reply of a grading server, or the error if there is none."""

    sent: Transcript
    structured: bool = False
    """Whether the server enforces its format."""
    answer: Answer | None = None
    error: str = ""
    lost: bool = False
    """Whether the server may have generated a reply that did not arrive."""
    refused: bool = False
    """Whether the server refused the request, possibly because of one of its options."""

    def received(self) -> Answer:
        """The reply; raises `GraderError` if there is none."""
        if self.answer is None:
            raise GraderError(self.error)
        return self.answer


Vote = Sequence[GraderReply]
"""The replies that make a vote: one for each request of the form."""


class GraderSampling(Sampling):
    """Sampling parameters of a grader's replies; `extra_body` holds any others."""

    top_p: ClassVar[None] = None  # type: ignore[misc]
    top_k: ClassVar[None] = None  # type: ignore[misc]
    min_p: ClassVar[None] = None  # type: ignore[misc]
    stop: ClassVar[None] = None  # type: ignore[misc]
    logprobs: ClassVar[bool] = False  # type: ignore[misc]


class GraderServer(EndpointConfig):
    """A chat server that grades answers, and its price."""

    api: ClassVar[Literal["chat"]] = "chat"  # type: ignore[misc]
    prompt_logprobs: ClassVar[None] = None  # type: ignore[misc]
    stream: ClassVar[None] = None  # type: ignore[misc]
    client: ClassVar[Literal["http"]] = "http"  # type: ignore[misc]
    price: Price | None = None
    """Price of its tokens."""
    gpus: float | None = Field(None, ge=0, le=1e6)
    """Number of GPUs that serve it."""


class GraderLimits(ModelLimits):
    """Limits on requests to a grading server."""

    samples_per_request: ClassVar[int] = 1  # type: ignore[misc]


MAX_SERVERS = 9
"""Maximum number of judges in a panel."""

if TYPE_CHECKING:
    GraderServers = tuple[GraderServer, ...]
else:
    GraderServers = Annotated[
        Annotated[GraderServer, Tag("one")]
        | Annotated[tuple[GraderServer, ...], Field(min_length=1, max_length=MAX_SERVERS), Tag("several")],
        Discriminator(lambda value: "several" if isinstance(value, list | tuple) else "one"),
        AfterValidator(lambda servers: servers if isinstance(servers, tuple) else (servers,)),
    ]


class AskedGrader(GraderOptions):
    """Base class of graders that ask a language model about each answer."""

    reads_key = False
    kind: Literal["judge", "verifier"]
    server: GraderServers
    """The server, and the model's name there. For a judge also a list: these judges vote together."""
    sampling: GraderSampling
    """Sampling parameters of its replies."""
    criteria: str = ""
    """Instructions on what to grade, and how strictly."""
    template: str = TEMPLATE
    """The request, with {question}, {reference}, {answer} and {criteria}; each text is put between marks."""
    max_answer_bytes: Count = Field(32768, ge=1024)
    """Most bytes of an answer in a request; a longer one is cut in the middle."""
    concurrency: GraderLimits = GraderLimits(in_flight=16)
    """Limits on requests to each of its servers."""
    votes: Count = Field(1, ge=1, le=15)
    """Verdicts per judge and answer. Must be odd, since more than half must agree; of scores the median counts."""

    @field_validator("template")
    @classmethod
    def _check_template(cls, template: str) -> str:
        if [match[1] for match in PLACEHOLDER.finditer(template)].count("answer") != 1:
            raise config_error("must have {answer} once", "write {answer} where the answer should go")
        return template

    @property
    def host(self) -> GraderServer:
        """The server; the first if there are several."""
        return self.server[0]

    @property
    def price(self) -> Price | None:
        """The price of its tokens."""
        return self.host.price

    @property
    def gpus(self) -> float | None:
        """The number of GPUs that serve it."""
        return self.host.gpus

    @property
    def replies(self) -> int:
        """Replies needed from each server for one grade: one for each vote and request of the form."""
        return self.votes * len(self.form.answers)

    @property
    def seats(self) -> Sequence[Self]:
        """The grader once for each server."""
        return tuple(self.model_copy(update={"server": (server,)}) for server in self.server)

    @property
    def own_rubric(self) -> RubricConfig | None:
        """The rubric implied by its possible verdicts, for configurations that declare none."""
        return None

    def grade(self, text: str, question: Question) -> Marks:
        raise GraderError(f"is a {self.kind}, which can only be asked during a run")

    def right_answers(self, question: Question) -> Sequence[str]:
        return ()

    # -- requests and replies ------------------------------------------------------------------------------------------

    @property
    def form(self) -> GradingForm:
        """The kind of reply to request."""
        raise NotImplementedError

    @property
    def may_be_structured(self) -> bool:
        """Whether the server is asked to enforce the format of replies (a JSON schema) at first."""
        return RESPONSE_FORMAT not in self.sampling.extra_body

    def reply_sampling(self, *, structured: bool) -> Sampling:
        """The sampling settings of a reply."""
        return self.sampling

    def reply_instructions(self, number: str, *, structured: bool) -> str:
        """The instructions on the form of the reply, given the number of the marks."""
        raise NotImplementedError

    def transcript(self, question: Question, answer: str) -> Transcript:
        """The first request about an answer if the server does not enforce the format of the reply."""
        return self.transcripts(question, answer, structured=False)[0]

    def transcripts(self, question: Question, answer: str, *, structured: bool) -> Sequence[Transcript]:
        """The requests for one vote."""
        form = self.form

        def instructions(number: str) -> str:
            return form.instructions(self.criteria, number, self.reply_instructions(number, structured=structured))

        make = partial(make_transcript, instructions=instructions, criteria=self.criteria, template=self.template)
        return tuple(make(shown, longest=self.max_answer_bytes) for shown in form.shown(question, answer))

    def decided(self, question: Question, answer: str) -> Marks | None:
        """The marks if no request is needed; None if the model must be asked."""
        raise NotImplementedError

    def decide(self, votes_by_server: Sequence[Sequence[Vote]], baseline: Sequence[float] = ()) -> Marks:
        """The marks by the votes of each server; raises `GraderError` if they do not determine them.

        `baseline`: the scores of a verifier's request without content.
        """
        raise NotImplementedError

    # -- costs ---------------------------------------------------------------------------------------------------------

    def cost(self, prompt_tokens: int, completion_tokens: int, latency: float, cached_tokens: int = 0) -> Cost:
        """The cost of one reply."""
        usd = 0.0 if self.price is None else self.price.usd(prompt_tokens, completion_tokens, cached_tokens)
        share = gpu_share(self.gpus, self.host, self.concurrency.in_flight)
        return Cost(prompt_tokens + completion_tokens, usd, latency * share if share else 0.0)

    def worst_cost(self, questions: Sequence[Question], written: int | None = None) -> Cost:
        """Upper bound on the cost of grading one answer of at most `written` bytes; hard caps reserve it."""
        total = NO_COST
        for seat in self.seats:
            seen = seat.max_answer_bytes if written is None else min(seat.max_answer_bytes, written)
            sent = max((seat._bytes(question, seen) for question in questions), default=0)
            max_seconds = seat.sampling.timeout * settings.DEFAULT.attempts
            reply_cost = seat.cost(sent + TEMPLATE_TOKENS, seat.sampling.max_tokens or 0, max_seconds)
            total = total.plus(reply_cost.times(seat.replies))
        return total

    def _bytes(self, question: Question, seen: int) -> int:
        """Bytes of a request that shows `seen` bytes of an answer, which bound its tokens."""
        formats = (False, True) if self.may_be_structured else (False,)
        sent = [
            transcript for structured in formats for transcript in self.transcripts(question, "", structured=structured)
        ]
        return max(transcript.size for transcript in sent) + seen + self._more_bytes

    @property
    def _more_bytes(self) -> int:
        """Bytes of a request besides its transcript."""
        return 0


def usage_signals(cost: Cost, prompt_tokens: int = 0, seconds: float = 0.0) -> dict[str, SignalValue]:
    """The `USAGE_SIGNALS` of a grade, or of requests that gave none, by their cost, and the prompt tokens and total
    duration of the replies; tokens of lost replies count as completion tokens."""
    tokens = float(prompt_tokens), float(cost.tokens - prompt_tokens)
    return dict(zip(USAGE_SIGNALS, (*tokens, cost.usd, cost.gpu_seconds, seconds), strict=True))


def cost_in_signals(signals: Mapping[str, SignalValue], most: Cost) -> Cost:
    """The cost of a grade by its `USAGE_SIGNALS`, at `most` this; nothing without them."""
    prompt, completion, usd, gpu_seconds = (_amount(signals.get(name)) for name in USAGE_SIGNALS[:-1])
    return Cost(min(round(prompt + completion), most.tokens), min(usd, most.usd), min(gpu_seconds, most.gpu_seconds))


def _amount(value: SignalValue | None) -> float:
    """A value of a table as an amount, 0 if it is none."""
    return max(float(value), 0.0) if isinstance(value, int | float) and math.isfinite(value) else 0.0
