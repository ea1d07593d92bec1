"""One request, one attempt at it, and the totals of a model's requests."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field

from adaptive_eval.endpoints.failures import OF_AN_OPTION, Failure, FailureKind, Refusal
from adaptive_eval.endpoints.replica import Replica
from adaptive_eval.endpoints.time_limit import EndableBlock
from adaptive_eval.endpoints.types import RESPONSE_FORMAT, Again, Answer, EndpointStats, Prompt

FIRST_GUESS = 1000.0
"""Tokens expected of an answer before any is known; corrected by the first."""


@dataclass(slots=True)
class AttemptedRequest:
    """One request over all its attempts."""

    prompt: Prompt
    seeds: range
    body: dict[str, object]
    again: Again | None
    """Called before a lost request is repeated."""
    lost: bool = False
    """Whether the last attempt may have generated an answer in vain."""
    attempts: int = 0
    ended: int = 0
    """Number of attempts ended because their replica was silent."""
    replica: Replica | None = None
    """The replica of the last attempt."""
    refusal: Refusal | None = None
    """The last refusal of an attempt."""
    is_second: bool = False
    """Whether another request for the same answers is in flight, or was when this one was sent."""
    second: asyncio.Task[None] | None = None
    """Sends this request a second time (`late`)."""
    resend_after: float = 0.0
    """Seconds of waiting after which the present attempt is sent a second time again."""
    first_failed: bool = False
    """Whether the present attempt has failed while the second request goes on."""
    taken: list[Answer] | None = None
    """The answers to the second request, if it was answered first."""

    def concerns_option(self, refusal: Refusal) -> bool:
        """Whether the refusal may concern an option of this request, which its caller can omit."""
        return refusal.status in OF_AN_OPTION and (len(self.seeds) > 1 or RESPONSE_FORMAT in self.body)

    def concerns_stream(self, refusal: Refusal) -> bool:
        """Whether the refusal seems to concern the stream that was asked for."""
        return refusal.status in OF_AN_OPTION and bool(self.body.get("stream")) and "stream" in str(refusal).lower()


class Attempt(EndableBlock):
    """One attempt at a request, with the times at which pieces of its response arrived. It can be ended from outside.

    `Caller.send` records the pieces.
    """

    __slots__ = ("first_at", "heard_at", "is_sent", "longest", "replica", "request", "sent_at", "streamed")

    def __init__(self, request: AttemptedRequest, replica: Replica, now: float) -> None:
        super().__init__()
        self.request = request
        self.replica = replica
        self.is_sent = False
        self.sent_at = self.heard_at = now
        self.first_at: float | None = None
        self.longest = 0.0
        """The longest silence after the first piece."""
        self.streamed = False

    def send(self, now: float, streamed: bool) -> None:
        """Start the time of the attempt now that it is sent."""
        self.is_sent, self.streamed = True, streamed
        self.sent_at = self.heard_at = now

    def beat(self, now: float) -> None:
        """Record the arrival of a piece."""
        if self.first_at is None:
            self.first_at = now
            self.replica.on_accepted(self.sent_at)
        else:
            self.longest = max(self.longest, now - self.heard_at)
        self.heard_at = now


@dataclass(slots=True)
class Traffic:
    """Counters behind `EndpointStats`."""

    in_flight: int = 0
    requests: int = 0
    retries: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    last_error: str = ""
    lost: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    answers: int = 0
    has_answered: bool = False
    """Whether the model has answered a request of the run, even at an earlier start."""
    answered: int = 0
    """Answered requests."""
    failed_before: int = 0
    """Failed attempts of requests that were answered in the end."""
    aside: int = 0
    """Requests that fail while others are answered: they are repeated without taking others' places."""

    @property
    def tokens_per_answer(self) -> float:
        """Mean tokens of an answer with its prompt, or a guess before any is known."""
        return (self.prompt_tokens + self.completion_tokens) / self.answers if self.answers else FIRST_GUESS

    def count_answers(self, answers: list[Answer], attempts: int) -> int:
        """Count the answers to a request, and return their tokens."""
        before = self.prompt_tokens + self.completion_tokens
        for answer in answers:
            self.prompt_tokens += answer.prompt_tokens
            self.completion_tokens += answer.completion_tokens
        self.answers += len(answers)
        self.has_answered = True
        self.answered += 1
        self.failed_before += attempts - 1
        return self.prompt_tokens + self.completion_tokens - before

    def on_failure(self, kind: FailureKind, failure: Failure | Refusal) -> None:
        """Count a failed attempt."""
        self.errors[kind.value] += 1
        self.last_error = str(failure)

    def stats(self) -> EndpointStats:
        """The counts so far, without an endpoint's own knowledge of its servers."""
        return EndpointStats(
            in_flight=self.in_flight,
            requests=self.requests,
            retries=self.retries,
            errors=dict(self.errors),
            last_error=self.last_error,
            lost=self.lost,
            aside=self.aside,
            prompt_tokens=self.prompt_tokens,
            completion_tokens=self.completion_tokens,
        )
