"""Common settings and costs of graders that are language models: judges and verifiers."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import AfterValidator, Discriminator, Field, Tag, ValidationError, field_validator

from adaptive_eval.base.errors import GraderError
from adaptive_eval.base.sections import Count, Price, config_error
from adaptive_eval.core.types import NO_COST, Cost
from adaptive_eval.endpoints.types import TEMPLATE_TOKENS, EndpointConfig, Limits, Sampling, gpu_share
from adaptive_eval.graders.rubric import RubricConfig
from adaptive_eval.graders.transcript import PLACEHOLDER, TEMPLATE, Transcript
from adaptive_eval.graders.types import GraderOptions, Marks, SignalValue
from adaptive_eval.questions.types import Question

USAGE_SIGNALS = ("judge_prompt_tokens", "judge_completion_tokens", "judge_usd", "judge_gpu_seconds", "judge_seconds")


class ReplyUse(NamedTuple):
    """Tokens and total duration of replies."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0

    def plus(self, more: "ReplyUse") -> "ReplyUse":
        """Add two usages."""
        prompt, completion = self.prompt_tokens + more.prompt_tokens, self.completion_tokens + more.completion_tokens
        return ReplyUse(prompt, completion, self.seconds + more.seconds)


NO_REPLY = ReplyUse()


class GraderSampling(Sampling):
    """Sampling parameters of a grader's replies; `extra_body` holds any others."""

    top_p: ClassVar[None] = None  # type: ignore[misc]
    top_k: ClassVar[None] = None  # type: ignore[misc]
    min_p: ClassVar[None] = None  # type: ignore[misc]
    stop: ClassVar[None] = None  # type: ignore[misc]
    logprobs: ClassVar[bool] = False  # type: ignore[misc]

    @property
    def given(self) -> dict[str, Any]:
        """The settings by name."""
        return {name: getattr(self, name) for name in type(self).model_fields}


class GraderServer(EndpointConfig):
    """A chat server that grades answers, and its price."""

    api: ClassVar[Literal["chat"]] = "chat"  # type: ignore[misc]
    prompt_logprobs: ClassVar[None] = None  # type: ignore[misc]
    stream: ClassVar[None] = None  # type: ignore[misc]
    client: ClassVar[Literal["http"]] = "http"  # type: ignore[misc]
    finish_reasons: ClassVar[tuple[str, ...]] = ()  # type: ignore[misc]
    sampling: Mapping[str, Any] = Field(default_factory=dict)
    """Keys of the grader's `sampling` to override for this server, such as {temperature: 1}."""
    price: Price | None = None
    """Price of its tokens."""
    gpus: float | None = Field(None, ge=0)
    """Number of GPUs that serve it."""


class GraderLimits(Limits):
    """Limits on requests to a grading server, and on retries."""

    samples_per_request: ClassVar[int] = 1  # type: ignore[misc]


def _server_tag(value: object) -> str:
    return "several" if isinstance(value, list | tuple) else "one"


def _as_list(servers: "GraderServer | tuple[GraderServer, ...]") -> "tuple[GraderServer, ...]":
    return servers if isinstance(servers, tuple) else (servers,)


MAX_SERVERS = 9
"""Maximum number of judges in a panel."""

if TYPE_CHECKING:
    GraderServers = tuple[GraderServer, ...]
else:
    GraderServers = Annotated[
        Annotated[GraderServer, Tag("one")]
        | Annotated[tuple[GraderServer, ...], Field(min_length=1, max_length=MAX_SERVERS), Tag("several")],
        Discriminator(_server_tag),
        AfterValidator(_as_list),
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
    """Limits on requests to each of its servers, and retries."""

    @field_validator("template")
    @classmethod
    def _check_template(cls, template: str) -> str:
        if [match[1] for match in PLACEHOLDER.finditer(template)].count("answer") != 1:
            raise config_error("must have {answer} once", "write {answer} where the answer should go")
        return template

    @field_validator("server")
    @classmethod
    def _check_sampling(cls, servers: tuple[GraderServer, ...]) -> tuple[GraderServer, ...]:
        for server in servers:
            try:
                GraderSampling.model_validate(dict(server.sampling))
            except ValidationError as error:
                first = error.errors(include_url=False, include_input=False)[0]
                key = ".".join(map(str, first["loc"]))
                keys = ", ".join(GraderSampling.model_fields)
                raise config_error(f"has an invalid sampling.{key}: {first['msg']}", f"its keys are {keys}") from None
        return servers

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
        """Replies needed from each server for one grade."""
        return 1

    @property
    def seats(self) -> Sequence[Self]:
        """The grader once for each server, with that server's settings."""
        return tuple(
            self.model_copy(
                update={"server": (server,), "sampling": GraderSampling(**{**self.sampling.given, **server.sampling})}
            )
            for server in self.server
        )

    @property
    def own_rubric(self) -> RubricConfig | None:
        """The rubric implied by its possible verdicts, for configurations that declare none."""
        return None

    def quick(self, text: str, question: Question) -> Marks | None:
        return None

    def grade(self, text: str, question: Question) -> Marks:
        raise GraderError(f"is a {self.kind}, which can only be asked during a run")

    @property
    def knows_right_answers(self) -> bool:
        return False

    def right_answers(self, question: Question) -> Sequence[str]:
        return ()

    def transcript(self, question: Question, answer: str) -> Transcript:
        """The request to the grader about one answer."""
        raise NotImplementedError

    def cost(self, prompt_tokens: int, completion_tokens: int, latency: float) -> Cost:
        """The cost of one reply."""
        usd = 0.0 if self.price is None else self.price.usd(prompt_tokens, completion_tokens)
        share = gpu_share(self.gpus, self.host, self.concurrency.in_flight)
        return Cost(prompt_tokens + completion_tokens, usd, latency * share if share else 0.0)

    def worst_cost(self, questions: Sequence[Question], written: int | None = None) -> Cost:
        """Upper bound on the cost of grading one answer of at most `written` bytes; hard caps reserve it."""
        total = NO_COST
        for seat in self.seats:
            seen = seat.max_answer_bytes if written is None else min(seat.max_answer_bytes, written)
            sent = max((seat._bytes(question, seen) for question in questions), default=0)
            max_seconds = seat.sampling.timeout * seat.concurrency.attempts
            reply_cost = seat.cost(sent + TEMPLATE_TOKENS, seat.sampling.max_tokens or 0, max_seconds)
            total = total.plus(reply_cost.times(seat.replies))
        return total

    def _bytes(self, question: Question, seen: int) -> int:
        """Bytes of a request that shows `seen` bytes of an answer, which bound its tokens."""
        sent = self.transcript(question, "")
        return len(sent.system.encode()) + len(sent.user.encode()) + seen


def cost_from_signals(signals: Mapping[str, SignalValue]) -> Cost | None:
    """The cost of a grade, from its `USAGE_SIGNALS`; None if no server was asked."""
    if USAGE_SIGNALS[0] not in signals:
        return None
    prompt, completion, usd, gpu_seconds = (float(signals.get(name, 0.0)) for name in USAGE_SIGNALS[:4])
    return Cost(round(prompt + completion), usd, gpu_seconds)


def usage_signals(used: Cost, replies: ReplyUse) -> dict[str, SignalValue]:
    """The `USAGE_SIGNALS` of a grade."""
    tokens = float(replies.prompt_tokens), float(replies.completion_tokens)
    return dict(zip(USAGE_SIGNALS, (*tokens, used.usd, used.gpu_seconds, replies.seconds), strict=True))
