"""One request, one attempt at it, the totals of a model's requests, and its first trials."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf

from adaptive_eval.endpoints.failures import OPTION_REFUSAL_STATUSES, Refusal
from adaptive_eval.endpoints.replica import FailureRounds, Replica
from adaptive_eval.endpoints.time_limit import CancelScope
from adaptive_eval.endpoints.types import RESPONSE_FORMAT, Answer, EndpointStats, Prompt, RetryGate

GUESSED_TOKENS = 1000.0
"""Tokens expected of an answer before the first answer, which corrects it."""


@dataclass(slots=True)
class AttemptedRequest:
    """One request over all its attempts."""

    prompt: Prompt
    seeds: range
    body: dict[str, object]
    retry_gate: RetryGate | None
    """Called before a lost request is repeated."""
    lost: bool = False
    """Whether the last attempt may have generated an answer that did not arrive."""
    attempts: int = 0
    interruptions: int = 0
    """Number of attempts ended because their replica was silent."""
    replica: Replica | None = None
    """The replica of the last attempt."""
    refusal: Refusal | None = None
    """The last refusal of an attempt."""
    repeated_id: str = ""
    """The id of the last response that was the one to another request (`response_ids`)."""
    waited: float = 0.0
    """Seconds that the last attempt that was late had been waited for; 0 if none was."""
    patience: float = 0.0
    """Seconds before which the current attempt is not late (`late`); 0 if no earlier one was."""
    late_by_age: bool = False
    """Whether an earlier attempt was late because of its age alone."""

    def concerns_option(self, refusal: Refusal) -> bool:
        """Whether the refusal may concern an option of this request that its caller can omit."""
        return refusal.status in OPTION_REFUSAL_STATUSES and (len(self.seeds) > 1 or RESPONSE_FORMAT in self.body)

    def concerns_stream(self, refusal: Refusal) -> bool:
        """Whether the refusal seems to concern streaming."""
        return (
            refusal.status in OPTION_REFUSAL_STATUSES
            and bool(self.body.get("stream"))
            and "stream" in str(refusal).lower()
        )


class Attempt(CancelScope):
    """One attempt at a request, with the arrival times of its response. It can be ended from outside.

    `Caller.send` records the pieces.
    """

    def __init__(self, request: AttemptedRequest, replica: Replica, now: float) -> None:
        super().__init__()
        self.request = request
        self.replica = replica
        self.is_sent = False
        self.sent_at = self.last_piece_at = now
        self.first_piece_at: float | None = None
        self.longest_silence = 0.0
        """The longest silence after the first piece."""
        self.streamed = False
        self.overdue_at = inf
        """When it was found to be over its time limit."""

    def send(self, now: float, streamed: bool) -> None:
        """Record that the attempt is sent now."""
        self.is_sent, self.streamed = True, streamed
        self.sent_at = self.last_piece_at = now

    def longest_wait(self, now: float) -> float:
        """The longest time without a piece of its response, if that is whole now."""
        if self.first_piece_at is None:
            return now - self.sent_at
        return max(self.first_piece_at - self.sent_at, self.longest_silence)

    def record_piece(self, now: float) -> None:
        """Record the arrival of a piece."""
        if self.first_piece_at is None:
            self.first_piece_at = now
            self.replica.on_accepted(self.sent_at)
        else:
            self.longest_silence = max(self.longest_silence, now - self.last_piece_at)
        self.last_piece_at = now


@dataclass(slots=True)
class Traffic:
    """Counters behind `EndpointStats`."""

    in_flight: int = 0
    requests: int = 0
    retries: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    last_error: str = ""
    lost: int = 0
    in_vain: list[Answer] = field(default_factory=list)
    prompt_tokens: int = 0
    completion_tokens: int = 0
    answers: int = 0
    has_answered: bool = False
    """Whether the model has answered a request of the run, including earlier starts."""
    answered: int = 0
    """Number of answered requests."""
    failed_before: int = 0
    """Failed attempts of requests that were answered later."""
    failing: FailureRounds = field(default_factory=FailureRounds)
    """Failures since the last answer."""
    given_up: str = ""
    """Why a request was given up because all have failed; empty after an answer."""
    stuck_requests: int = 0
    """Requests that keep failing while others are answered: they are repeated without taking others' places."""

    @property
    def tokens_per_answer(self) -> float:
        """Mean tokens of an answer with its prompt, or a guess before the first answer."""
        return (self.prompt_tokens + self.completion_tokens) / self.answers if self.answers else GUESSED_TOKENS

    def count_answers(self, answers: list[Answer], attempts: int) -> int:
        """Count the answers to a request, and return their tokens."""
        tokens_before = self.prompt_tokens + self.completion_tokens
        for answer in answers:
            self.prompt_tokens += answer.prompt_tokens
            self.completion_tokens += answer.completion_tokens
        self.answers += len(answers)
        self.has_answered = True
        self.answered += 1
        self.failed_before += attempts - 1
        self.end_failures()
        return self.prompt_tokens + self.completion_tokens - tokens_before

    def on_failure(self, kind: str, failure: object) -> None:
        """Count a failed attempt."""
        self.errors[str(kind)] += 1
        self.last_error = str(failure)

    def has_failed(self, attempts: int, since: float) -> bool:
        """Whether everything has failed for so many rounds, from a time on or earlier; what is in flight may yet be
        answered."""
        return self.failing.rounds >= attempts and self.failing.since <= since and not self.in_flight

    def end_failures(self) -> None:
        """Its servers answer: count further failures from the start."""
        self.failing.end()
        self.given_up = ""

    def stats(self) -> EndpointStats:
        """The counts so far, without the endpoint's facts about its servers."""
        return EndpointStats(
            in_flight=self.in_flight,
            requests=self.requests,
            retries=self.retries,
            errors=dict(self.errors),
            last_error=self.last_error,
            lost=self.lost,
            in_vain=tuple(self.in_vain),
            stuck_requests=self.stuck_requests,
            prompt_tokens=self.prompt_tokens,
            completion_tokens=self.completion_tokens,
        )


MAX_FAILURES = 8
"""Trials that may fail for good before one is answered."""
FIRST_ATTEMPTS = 2
"""Attempts at a trial that fails, until any trial is answered."""


@dataclass
class FirstAnswers:
    """Whether a model answers at all, where only a trial can tell: its trials in this start of the run.

    With several benchmarks, those of one.
    """

    traffic: Traffic
    """That of the model, which may have answered before this start."""
    running: int = 0
    failed: int = 0
    """Trials that failed at every attempt."""
    refused: int = 0
    """Failed trials that the provider refused."""
    answered: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set whenever a trial ends."""

    @contextmanager
    def trial(self) -> Iterator[None]:
        """A context in which a trial is running."""
        self.running += 1
        self.traffic.in_flight += 1
        try:
            yield
        finally:
            self.running -= 1
            self.traffic.in_flight -= 1
            self.changed.set()

    @property
    def is_known_to_answer(self) -> bool:
        """Whether the model has answered a trial, or has before this start."""
        return self.answered or self.traffic.has_answered

    async def is_any_answered(self) -> bool:
        """Count a failed trial, wait until one is answered or all others have failed, and return whether one is.

        If the model answered before this start, that counts too, unless `MAX_FAILURES` trials have failed.
        """
        self.failed += 1
        self.changed.set()
        while not self.answered and self.running and self.failed < MAX_FAILURES:
            self.changed.clear()
            await self.changed.wait()
        return self.answered or (self.traffic.has_answered and self.failed < MAX_FAILURES)
