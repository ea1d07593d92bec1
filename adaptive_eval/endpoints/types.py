"""The values and the one protocol of the endpoint layer.

`Sampling`, `Limits` and `EndpointConfig` are configuration: their field names are the keys of the YAML file. Everything
else passes between a supply and a model server. A model is one `Endpoint`, however many replicas it has.
"""

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal, NamedTuple, Protocol, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, ConfigDict, Field, SecretStr, model_validator

from adaptive_eval.base.imports import SPECIFICATION
from adaptive_eval.base.sections import Section

MAX_BYTES_PER_TOKEN = 16
"""Upper bound of the mean over a longer text, in any language and vocabulary."""
TEMPLATE_TOKENS = 512
"""Tokens that a chat template may add to a prompt: the marks of each turn, and often a default system message (who made
the model, today's date, how to reason)."""
MAX_TOKENS = 10**9
"""The largest `max_tokens`: sums of what longer answers would cost could overflow."""
ABSURD_TOKENS = 2**20
"""If a server reports more than so many for an answer or its prompt, they are not counted: no model has so much room. A
smaller excess may be true, as of a gateway that adds to prompts, or of reasoning that no limit bounds."""
DEFAULT_KEY = "OPENAI_API_KEY"
"""Variable with the key of one provider, used by default for its servers; its value is sent to no other server."""
PROVIDER = "api.openai.com"

KEEP_TOKENS = "tokens"
"""In `sampling.logprobs`: keep the log-probability of each token with its answer."""
RESPONSE_FORMAT = "response_format"
"""Body key of a judge's request; if a server refuses it, replies can be parsed without it."""
FIXED_BODY_KEYS = frozenset({"model", "messages", "prompt", "seed", "n", "stream"})
"""Body keys that carry the trial itself; `extra_body` may not override them."""
QUEUE_KEYS = frozenset({"service_tier", "priority"})
"""Body keys that say when a request is answered, not what."""

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_FRAMING = frozenset({"host", "content-type", "content-length", "transfer-encoding", "connection"})

Signal = Literal[
    "truncated", "empty", "reasoning_only", "refusal", "content_filter", "context_length", "timed_out", "unanswered"
]
"""`reasoning_only`: empty, although the model reasoned and ended by itself. `unanswered`: no answer, since the server
fails this request every time (`retry`); the finish reason says how."""


def _base_urls(value: str | tuple[str, ...]) -> tuple[str, ...]:
    urls = (value,) if isinstance(value, str) else value
    if not urls:
        raise ValueError("must be one URL or a list of them, but got an empty list")
    for url in urls:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("must be http(s)://host[:port]/path, such as http://localhost:8000/v1 for vLLM")
        try:
            has_port = parts.port != 0
        except ValueError:
            has_port = False
        if not has_port:
            raise ValueError("must have a port from 1 to 65535")
        if parts.username or parts.password or parts.query:
            raise ValueError("must hold no user name, password or query; keys come from api_key_env")
    roots = tuple(url.rstrip("/") for url in urls)
    if len(set(roots)) < len(roots):
        raise ValueError(f"must name each replica once, but got {', '.join(roots)}")
    return roots


def _header_names(headers: Mapping[str, SecretStr]) -> Mapping[str, SecretStr]:
    for name in headers:
        if not _TOKEN.fullmatch(name) or name.lower() in _FRAMING:
            raise ValueError(f"{name!r} cannot be set as a header: it is no header name, or each request sets its own")
    return headers


Headers = Annotated[Mapping[str, SecretStr], AfterValidator(_header_names)]
"""Header values may be credentials, so no representation shows them."""


class _Section(Section):
    # not strict, since programs pass lists; no input in errors, since it may be a credential
    model_config = ConfigDict(strict=False, hide_input_in_errors=True)


class Sampling(_Section):
    """Sampling parameters of requests; those that are not given are not sent, and the server's defaults apply."""

    temperature: float | None = Field(None, ge=0)
    """Randomness of the next token; 0 takes the likeliest."""
    top_p: float | None = Field(None, gt=0, le=1)
    """Draw from the likeliest tokens that together have this probability."""
    top_k: int | None = Field(None, ge=-1)
    """Draw from this many of the likeliest tokens."""
    min_p: float | None = Field(None, ge=0, le=1)
    """Draw from tokens at least this likely, relative to the likeliest."""
    max_tokens: int | None = Field(None, ge=1, le=MAX_TOKENS)
    """Longest answer; limits on tokens and USD reserve this much for each trial."""
    stop: str | tuple[str, ...] | None = None
    """Texts at which an answer ends."""
    logprobs: bool | Literal["tokens"] = False
    """Request the log-probability of each token, for `completion_bpt`; `tokens` stores them all with the answer."""
    extra_body: Mapping[str, object] = Field(default_factory=dict)
    """Further keys for the body of each request, such as {reasoning_effort: high} or {service_tier: flex}."""
    timeout: float = Field(1800.0, gt=0)
    """Seconds that one request may take."""

    @property
    def answer_body(self) -> Mapping[str, object]:
        """The keys of `extra_body` on which answers depend."""
        return {key: value for key, value in self.extra_body.items() if key not in QUEUE_KEYS}

    @property
    def longest_answer(self) -> int | None:
        """Maximum tokens of an answer, if the settings limit them."""
        limit = self.extra_body.get("max_completion_tokens", self.max_tokens)
        return limit if isinstance(limit, int) else None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if reserved := sorted(FIXED_BODY_KEYS & self.extra_body.keys()):
            raise ValueError(f"extra_body may not set {', '.join(reserved)}: a request takes these from its trial")
        if (self.longest_answer or 0) > MAX_TOKENS:
            raise ValueError(f"extra_body.max_completion_tokens must be at most {MAX_TOKENS}")
        return self


class ModelLimits(_Section):
    """Limits on requests to one model."""

    in_flight: int = Field(64, ge=1, le=1024)
    """Most requests in flight per replica; fewer if a server that reports its load (`/metrics` of vLLM and
    llama-server) would only queue them while their timeout runs."""
    requests_per_minute: float | None = Field(None, gt=0)
    """Rate limit on requests, all replicas together."""
    tokens_per_minute: float | None = Field(None, gt=0)
    """Rate limit on tokens of prompts and answers together."""
    samples_per_request: int = Field(1, ge=1)
    """Most answers to one question per request (`n`), so that the server reads its prompt once; its first answers come
    in two requests or more, which show whether the server copies one answer."""


class Limits(ModelLimits):
    """Limits on requests to each model, and retries."""

    retry_for: float = Field(300.0, ge=0)
    """Seconds for which a failing request is repeated, five times at least: servers may restart. One that takes longer
    than its timeout is repeated five times. It holds for all models and for judges."""

    def with_limits(self, limits: ModelLimits) -> "Limits":
        """The limits of one model, with these retries."""
        return Limits(**limits.model_dump(), retry_for=self.retry_for)


class EndpointConfig(_Section):
    """The servers of one model, and how to call them."""

    base_url: Annotated[str | tuple[str, ...], AfterValidator(_base_urls)]
    """The API root, such as http://host:8000/v1; several are replicas of the same model."""
    model: str = Field(min_length=1)
    """The model's name on the server."""
    api_key_env: str | None = None
    """The environment variable with the API key. Default: no key, but OPENAI_API_KEY for https://api.openai.com."""
    client: Literal["http", "openai"] = "http"
    """`openai` uses OpenAI's SDK, if you need its features; it takes several times the CPU."""
    api: Literal["chat", "completions"] = "chat"
    """`completions` sends the prompt as one text, without a chat template."""
    stream: bool | None = None
    """Stream answers: this measures the time to first token, and detects a stalled answer early. Default: if answers
    may be long and the server supports it."""
    prompt_logprobs: Literal["vllm", "echo"] | None = None
    """Request log-probabilities of the prompt, by vLLM's `prompt_logprobs` or by `echo` (completions only)."""
    headers: Headers = Field(default_factory=dict)
    """Headers of every request; values may be credentials and are never stored."""
    finish_reasons: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """This server's finish reasons for complete answers, besides the usual ones; `none` if it gives no reason."""
    auth: str | None = Field(None, pattern=SPECIFICATION)
    """Your `httpx2.Auth`, as `package.module:attribute`, which signs each request instead of a key."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.prompt_logprobs == "echo" and self.api != "completions":
            raise ValueError("prompt_logprobs: echo needs api: completions, but got api: chat; for vLLM use vllm")
        if self.prompt_logprobs and self.stream:
            raise ValueError("log-probabilities of the prompt do not come with a stream; set stream: false")
        return self

    def missing_key(self, keys: Mapping[str, str]) -> str | None:
        """The problem if the environment `keys` lacks the named key; else None."""
        if self.api_key_env is None or keys.get(self.api_key_env, "").strip():
            return None
        variable = f"api_key_env names the environment variable {self.api_key_env}, which is not set"
        return f"{self.title}: {variable}; set it, or remove api_key_env for a server without a key"

    @property
    def title(self) -> str:
        """The name of this model in messages."""
        return f"model {self.model!r}"

    @property
    def key_variable(self) -> str | None:
        """The variable with the key to send: the configured one, or OPENAI_API_KEY for OpenAI's own servers."""
        if self.api_key_env is None and all(map(_is_provider, self.replicas)):
            return DEFAULT_KEY
        return self.api_key_env

    @property
    def replicas(self) -> tuple[str, ...]:
        """Every base URL."""
        return (self.base_url,) if isinstance(self.base_url, str) else self.base_url


def gpu_share(gpus: float | None, config: "EndpointConfig", concurrent_answers: int) -> float:
    """The GPUs of a model's servers per answer, with `concurrent_answers` in flight at each replica, of all models
    there."""
    return (gpus or 0.0) / len(config.replicas) / concurrent_answers


def _is_provider(url: str) -> bool:
    """Whether a URL is the provider's, or one of its regions', over a secure connection."""
    parts = urlsplit(url)
    return parts.scheme == "https" and f".{parts.hostname}".endswith(f".{PROVIDER}")


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a chat."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt: the messages of a chat, or the text of a completion."""

    messages: tuple[Message, ...] | None = None
    text: str | None = None
    question: str | None = None
    """The id of its question, by which Inspect finds the sample."""

    def __post_init__(self) -> None:
        if (self.messages is None) == (self.text is None):
            raise ValueError("a prompt has either messages (chat) or text (completions), but got both or neither")


class AnswerLogprobs(NamedTuple):
    """The tokens of an answer with the natural log-probability of each."""

    tokens: tuple[str, ...]
    """As named by the server: together mostly the text after the reasoning. A token may be part of a character."""
    values: tuple[float | None, ...]
    """None if the server gives none."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One sampled answer.

    bpt = -(1/T) sum_t log2 p(token t): mean bits per token of the completion and of the prompt, where known.
    """

    text: str
    finish_reason: str
    seed: int
    replica: str
    latency: float
    """Seconds from sending the request to the last byte."""
    reasoning: str | None = None
    prompt_tokens: int = 0
    """This answer's share: the sum over n answers counts their shared prompt once."""
    completion_tokens: int = 0
    ttft: float | None = None
    attempts: int = 1
    completion_bpt: float | None = None
    prompt_bpt: float | None = None
    cached_tokens: int = 0
    """Those of the prompt tokens that the server has read from its cache."""
    signals: frozenset[Signal] = frozenset()
    concurrent_answers: int | None = None
    """Answers that its replica may generate at the same time, sharing its GPUs."""
    slot: tuple[tuple[str, float], ...] = ()
    """Likeliest first tokens with log-probabilities, if a chat asked for them."""
    token_logprobs: AnswerLogprobs | None = None
    """The answer's tokens, if kept: `sampling: {logprobs: tokens}`."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A notice about a model's servers for readers of the results."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class ReplicaHealth:
    """Result of checking a replica."""

    url: str
    healthy: bool
    detail: str
    latency: float | None = None
    notices: tuple[Notice, ...] = ()
    refuses: bool = False
    """Whether it refuses requests, for example because it lacks the model."""


@dataclass(frozen=True, slots=True)
class Health:
    """Whether a model can be asked, replica by replica."""

    replicas: tuple[ReplicaHealth, ...]

    @property
    def ok(self) -> bool:
        """Whether every replica is healthy."""
        return all(replica.healthy for replica in self.replicas)


@dataclass(frozen=True, slots=True)
class ReplicaStats:
    """The current state of a replica."""

    url: str
    healthy: bool
    in_flight: int
    limit: int
    """Requests allowed in flight: the configured concurrency, or less after refusals or if more would only queue."""
    trouble: str = ""
    """What is wrong with it, if it is not healthy."""


class EarlierTimes(NamedTuple):
    """How long a model's answers took at earlier starts of the run."""

    answers: int = 0
    longest: float = 0.0
    """Seconds of the longest answer."""
    streams: int = 0
    """Answers of which the time of the first piece is known."""
    latest_first: float = 0.0
    """Seconds until the first piece of the answer that began latest."""


@dataclass(frozen=True, slots=True)
class EndpointStats:
    """One model's traffic so far."""

    in_flight: int = 0
    """Requests at its servers now."""
    requests: int = 0
    retries: int = 0
    errors: Mapping[str, int] = field(default_factory=dict)
    """Failed attempts by kind."""
    last_error: str = ""
    """The message of the last failed attempt."""
    lost: int = 0
    """Answers that may have been generated but did not arrive or were not used."""
    in_vain: tuple[Answer, ...] = ()
    """Lost answers whose usage is known, without their texts."""
    stuck_requests: int = 0
    """Requests that keep failing while others are answered; others take their places."""
    oldest: float = 0.0
    """Age in seconds of the oldest attempt in flight."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    replicas: tuple[ReplicaStats, ...] = ()
    notices: tuple[Notice, ...] = ()


def summed_stats(all_stats: Sequence[EndpointStats]) -> EndpointStats:
    """Sum the traffic of several endpoints of one model, simultaneous or successive."""
    return EndpointStats(
        in_flight=sum(stats.in_flight for stats in all_stats),
        requests=sum(stats.requests for stats in all_stats),
        retries=sum(stats.retries for stats in all_stats),
        errors=dict(sum((Counter(stats.errors) for stats in all_stats), Counter())),
        last_error=next((stats.last_error for stats in reversed(all_stats) if stats.last_error), ""),
        lost=sum(stats.lost for stats in all_stats),
        in_vain=tuple(answer for stats in all_stats for answer in stats.in_vain),
        stuck_requests=sum(stats.stuck_requests for stats in all_stats),
        oldest=max((stats.oldest for stats in all_stats), default=0.0),
        prompt_tokens=sum(stats.prompt_tokens for stats in all_stats),
        completion_tokens=sum(stats.completion_tokens for stats in all_stats),
        replicas=tuple(replica for stats in all_stats for replica in stats.replicas),
        notices=tuple(dict.fromkeys(notice for stats in all_stats for notice in stats.notices)),
    )


RetryGate = Callable[[], Awaitable[bool]]
"""Returns whether a lost request, which may have cost something, may be repeated; may take a while."""


class Endpoint(Protocol):
    """One model that answers prompts, with all its replicas."""

    async def sample(self, prompt: Prompt, seeds: range, retry_gate: RetryGate | None = None) -> list[Answer]:
        """Sample one answer per seed, in their order; a failed request is repeated inside with the same seeds.

        Raises `Unavailable` if no replica or no attempt is left, `Rejected` for failures that no retry can fix, and
        `RetryNotAllowed` if `retry_gate` forbids repeating a lost request (counted by `stats.lost`).
        """

    async def check(self) -> Health:
        """Ask every replica for its models and for one tiny answer."""

    async def unreachable(self) -> str | None:
        """Why no connection can be made to any of its servers; None if one can, or if it is unknown."""

    async def close(self) -> None:
        """Close every connection."""

    @property
    def stats(self) -> EndpointStats:
        """The traffic so far."""
