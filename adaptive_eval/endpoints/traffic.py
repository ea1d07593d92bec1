"""One request over all its attempts, and what the requests of a model come to."""

from collections import Counter
from dataclasses import dataclass, field

from adaptive_eval.endpoints.failures import Failure, FailureKind, Refusal
from adaptive_eval.endpoints.refusals import OF_AN_OPTION
from adaptive_eval.endpoints.replicas import Replica
from adaptive_eval.endpoints.types import RESPONSE_FORMAT, Again, Answer, EndpointStats, Prompt

FIRST_GUESS = 1000.0
"""Tokens that an answer is expected to use before any is known; corrected as soon as it is."""


@dataclass(slots=True)
class AttemptedRequest:
    """One request over all its attempts."""

    prompt: Prompt
    seeds: range
    body: dict[str, object]
    again: Again | None
    """Asked before what was lost is asked for once more."""
    lost: bool = False
    """The last attempt may have been generated for nothing."""
    attempts: int = 0
    cuts: int = 0
    """Attempts that were overdue."""
    ended: int = 0
    """Attempts that were ended because their replica was silent."""
    replica: Replica | None = None
    """Where the last attempt went."""
    refusal: Refusal | None = None
    """What refused an attempt last."""

    def may_be_mended(self, refusal: Refusal, streams_known: bool) -> bool:
        """Whether it may be an option of this request that is refused, which can be left out."""
        told = not streams_known and bool(self.body.get("stream")) and "stream" in str(refusal).lower()
        return refusal.status in OF_AN_OPTION and (told or len(self.seeds) > 1 or RESPONSE_FORMAT in self.body)


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
    """The model has answered a request of the run, if not at this start."""
    answered: int = 0
    """Requests that were answered, with the tiny ones that stand for others."""
    failed_before: int = 0
    """Failed attempts of requests that were answered in the end."""
    aside: int = 0
    """Requests that fail while others are answered: they are repeated, and take no place of others."""

    @property
    def tokens_per_answer(self) -> float:
        """Tokens that an answer uses with its prompt on average, or a guess before any is known."""
        return (self.prompt_tokens + self.completion_tokens) / self.answers if self.answers else FIRST_GUESS

    def count_answers(self, answers: list[Answer], attempts: int) -> int:
        """Count the answers to a request, and give the tokens that they have used."""
        prompt = sum([answer.prompt_tokens for answer in answers])
        completion = sum([answer.completion_tokens for answer in answers])
        self.prompt_tokens += prompt
        self.completion_tokens += completion
        self.answers += len(answers)
        self.has_answered = True
        self.answered += 1
        self.failed_before += attempts - 1
        return prompt + completion

    def failed(self, kind: FailureKind, failure: Failure | Refusal) -> None:
        """Count a failed attempt."""
        self.errors[kind.value] += 1
        self.last_error = str(failure)

    def stats(self) -> EndpointStats:
        """The counts so far, without what only an endpoint knows of its servers."""
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
