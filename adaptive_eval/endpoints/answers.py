"""Reads answers from responses of the chat and text completion APIs.

Servers differ. The text may be a string, null or a list of parts; reasoning is `reasoning_content` or `reasoning`;
`usage` covers every choice (OpenAI, vLLM) or one of them (llama-server, recognised by its `timings`; its stream has the
usage of each, see `wire`); an echoed prompt precedes the text and its log-probabilities. Nothing in a response is
trusted: anything that is not an answer is a `Failure`.

Token counts are not trusted either. If `usage` is missing, tokens are estimated, one for every `BYTES_A_TOKEN` bytes;
likewise if it claims less than one for every `MOST_BYTES_A_TOKEN`. If it claims more than `ABSURD` times the limit, the
limit is counted. A smaller excess is believed, and a text too long for the limit is estimated, since it was generated.
Each case gives a notice.
"""

import math
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, NamedTuple

from adaptive_eval.endpoints.failures import (
    FAILED,
    FINISHED,
    MAY_BE_NULL,
    NO_REASON,
    Failure,
    FailureKind,
    UnknownFinish,
    finish_reason_option,
    finish_word,
    safe_excerpt,
    signals_of_finish,
)
from adaptive_eval.endpoints.redaction import NOTHING_SECRET, Redactor
from adaptive_eval.endpoints.types import (
    MOST_BYTES_A_TOKEN,
    TEMPLATE_TOKENS,
    Answer,
    AnswerLogprobs,
    EndpointConfig,
    Notice,
    Prompt,
    Signal,
)

_MOST = 2**31
"""Upper bound for counts and log-probabilities; it also excludes infinities and NaN."""
_ROUNDED = 0.01
"""Largest log-probability: rounding on a server lifts some of certain tokens a little above 0."""
_LONGEST_REASON = 60
_MOST_AT_A_SLOT = 128
"""Most alternative tokens read at one position."""
NO_USAGE = Notice("no_usage", "its server does not say how many tokens answers use: they are estimated from the texts")
_LOW_WORDS = "its server reports fewer tokens than such texts must have: they are estimated from the texts"
_ABSURD_SAID = "its server reports {} tokens for an answer, far more than max_tokens allows"
_ABSURD_PROMPT = "its server reports {} tokens for a prompt, far more than its text can have"
_REFUSAL: frozenset[Signal] = frozenset({"refusal"})
_EMPTY: frozenset[Signal] = frozenset({"empty"})
_REASONING_ONLY: frozenset[Signal] = frozenset({"empty", "reasoning_only"})


class ResponseOrigin(NamedTuple):
    """Origin of a response: replica, seconds, and number of attempts."""

    replica: str
    latency: float
    ttft: float | None
    attempts: int
    abreast: int | None = None
    """Answers that the replica may work on at the same time."""


def _bad(what: str) -> Failure:
    return Failure(FailureKind.BAD_RESPONSE, f"the response holds no answer: {what}")


def _by_index(choices: list[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """The choices by their indices 0, 1, ..., or as they come if none has one; raises `Failure` for other indices.

    With an index twice, or one too many, it is unknown which of them answer the request.
    """
    if len(choices) > most:
        raise _bad(f"it has {len(choices)} choices, and {most} {'was' if most == 1 else 'were'} asked for")
    indices = [choice.get("index") for choice in choices]
    if all(index is None for index in indices):
        return choices
    numbers = [index for index in indices if isinstance(index, int) and not isinstance(index, bool)]
    if sorted(numbers) != list(range(len(choices))):
        raise _bad(f"the indices of its choices are {str(indices)[:80]}, not 0 to {len(choices) - 1}")
    return sorted(choices, key=lambda choice: int(choice["index"]))


def _text(value: object) -> str:
    """A content field as text: a string, null, or a list of parts."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        parts = [part.get("text", "") for part in value if isinstance(part, dict)]
        return "".join(part for part in parts if isinstance(part, str))
    raise _bad(f"content is of type {type(value).__name__}")


BYTES_A_TOKEN = 3
"""English prose has four or five bytes a token, formulas and code three, Chinese three to five."""
ABSURD = 16


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def estimated_tokens(length: int) -> int:
    """Tokens of a text of so many bytes."""
    return -(-length // BYTES_A_TOKEN)


def _count(value: object) -> int:
    return value if type(value) is int and 0 < value < _MOST else 0  # True is no count


def mean_bits(logprobs: Sequence[object]) -> float | None:
    """Mean bits per token over the log-probabilities that are known; None if none is."""
    from scorio.categorical import bits_per_token  # few servers are asked for log-probabilities

    known = [value for value in logprobs if type(value) is float]
    if not 0 < len(known) == len(logprobs) or not math.hypot(*known) < _MOST or max(known) > _ROUNDED:
        known = [value for value in map(_read_logprob, logprobs) if value is not None]
    return float(bits_per_token(sum(known), len(known))) if known else None


def _completion_logprobs(choice: dict[str, Any]) -> list[object]:
    """Log-probabilities by token: chat's `content`, or text completions' `token_logprobs`."""
    logprobs = choice.get("logprobs")
    if not isinstance(logprobs, dict):
        return []
    if isinstance(tokens := logprobs.get("content"), list):
        return [token.get("logprob") for token in tokens if isinstance(token, dict)]
    values = logprobs.get("token_logprobs")
    return values if isinstance(values, list) else []


def _slot(choice: dict[str, Any]) -> tuple[tuple[str, float], ...]:
    """The first token of a chat's reply and its likeliest alternatives, with their log-probabilities."""
    logprobs = choice.get("logprobs")
    content = logprobs.get("content") if isinstance(logprobs, dict) else None
    first = content[0] if isinstance(content, list) and content else None
    if not isinstance(first, dict):
        return ()
    tops = first.get("top_logprobs")
    told = [first, *(tops[:_MOST_AT_A_SLOT] if isinstance(tops, list) and tops else ())]
    if len(told) == 1:  # no alternatives were asked for
        return ()
    return tuple((one["token"], float(one["logprob"])) for one in told if _is_token(one))


def _named_logprobs(choice: dict[str, Any], before: int) -> AnswerLogprobs | None:
    """The tokens of a choice after `before` tokens of an echoed prompt; None if there are none."""
    told = choice.get("logprobs")
    if not isinstance(told, dict):
        return None
    if isinstance(content := told.get("content"), list):
        tokens = [one for one in content if isinstance(one, dict)]
        texts, values = [one.get("token") for one in tokens], [one.get("logprob") for one in tokens]
    else:
        listed, named = told.get("token_logprobs"), told.get("tokens")
        values = listed if isinstance(listed, list) else []
        texts = named if isinstance(named, list) else []
    texts = [*texts, *[""] * (len(values) - len(texts))]
    shown = tuple(text if isinstance(text, str) else "" for text in islice(texts, before, len(values)))
    return AnswerLogprobs(shown, tuple(map(_read_logprob, values[before:]))) if shown else None


def _read_logprob(value: object) -> float | None:
    """A value as a log-probability; None if it is not one."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not -_MOST < value <= _ROUNDED:
        return None
    return float(value)


def _is_token(one: object) -> bool:
    return isinstance(one, dict) and isinstance(one.get("token"), str) and _read_logprob(one.get("logprob")) is not None


def _vllm_prompt_logprobs(payload: dict[str, Any], choice: dict[str, Any]) -> list[object]:
    """vLLM's list of {token id: {"logprob": ...}}, of which the first entry is the prompt's own token."""
    entries = payload.get("prompt_logprobs") or choice.get("prompt_logprobs")
    if not isinstance(entries, list):
        return []
    firsts = [next(iter(entry.values()), None) for entry in entries if isinstance(entry, dict)]
    return [first.get("logprob") for first in firsts if isinstance(first, dict)]


def _shares(total: int, weights: Sequence[int]) -> list[int]:
    """An integer split in proportion to the weights, in parts that sum to the total."""
    if len(weights) == 1:
        return [total]
    weight = sum(weights)
    if not weight:
        weights, weight = [1] * len(weights), len(weights)
    bounds, running = [0], 0
    for part in weights:
        running += part
        bounds.append(total * running // weight)
    return [after - before for before, after in zip(bounds, bounds[1:], strict=False)]


class _Draft(NamedTuple):
    """One choice, before its share of tokens is known."""

    text: str
    reasoning: str | None
    finish_reason: str
    refused: bool
    logprobs: list[object]
    prompt_logprobs: list[object]
    tokens: int
    """From the choice's own usage; 0 without one."""
    slot: tuple[tuple[str, float], ...] = ()
    named: AnswerLogprobs | None = None
    is_blank: bool = False
    """It ended by itself, without a text, reasoning or a tool call."""
    is_null: bool = False
    """The server gave null as its text."""

    @property
    def size(self) -> int:
        return len(self.text) + len(self.reasoning or "")

    @property
    def length(self) -> int:
        """Length in bytes."""
        return _bytes(self.text) + _bytes(self.reasoning or "")


class AnswerReader:
    """Reads the responses to one model's requests."""

    def __init__(
        self,
        config: EndpointConfig,
        redactor: Redactor = NOTHING_SECRET,
        longest: int | None = None,
        note: Callable[[Notice], None] = lambda notice: None,
        *,
        keeps_tokens: bool = False,
    ) -> None:
        """`redactor` is for messages; `longest` is the most tokens an answer may have; `note` receives notices of
        implausible counts."""
        self._keeps_tokens = keeps_tokens
        self._longest = longest
        self._note = note
        self._redactor = redactor
        self._chat = config.api == "chat"
        self._prompt_logprobs = config.prompt_logprobs
        self._counts_nothing = False
        """The server has reported no tokens for an answer with a text."""
        self._finished = FINISHED | {finish_word(reason) for reason in config.finish_reasons}

    def answers(self, payload: object, prompt: Prompt, seeds: range, arrival: ResponseOrigin) -> list[Answer]:
        """The answers for the first seeds, one for each choice; the caller checks whether there are enough.

        Raises `Failure` if the response holds no finished answer, and `UnknownFinish` if it is unclear whether it is
        finished.
        """
        if not isinstance(payload, dict):
            raise _bad(f"it is of type {type(payload).__name__}")
        choices = payload.get("choices")
        if not isinstance(choices, list) or not choices or not all(isinstance(choice, dict) for choice in choices):
            raise _bad("it has no choices" if not choices else "its choices are not objects")
        choices = _by_index(choices, len(seeds))
        usage = payload.get("usage")
        usage = usage if isinstance(usage, dict) else {}
        prompt_tokens = _count(usage.get("prompt_tokens"))
        drafts = [self._draft(payload, choice, prompt, prompt_tokens) for choice in choices]
        completion = _completion_tokens(drafts, _count(usage.get("completion_tokens")), "timings" in payload)
        says_none = usage.get("completion_tokens") == 0 < prompt_tokens
        self._counts_nothing |= says_none and any(draft.size for draft in drafts)
        for draft, tokens in zip(drafts, completion, strict=True):
            if draft.is_blank and not tokens and (draft.is_null or (says_none and not self._counts_nothing)):
                raise Failure(FailureKind.SERVER_ERROR, "the server generated nothing (no text, no tokens)")
        completion = self._plausible_counts(completion, drafts)
        prompts = _shares(self._prompt_tokens(prompt_tokens, prompt), [1] * len(drafts))
        return [
            _answer(draft, seed, tokens, share, arrival)
            for draft, seed, tokens, share in zip(drafts, seeds, completion, prompts, strict=False)
        ]

    def _plausible_counts(self, said: list[int], drafts: list[_Draft]) -> list[int]:
        """The tokens of each choice, with implausible counts replaced."""
        counted = []
        for tokens, draft in zip(said, drafts, strict=True):
            longest, length = self._longest, draft.length
            if longest is not None and tokens > ABSURD * longest:
                counted_instead = self._estimate(draft) if self._exceeds_limit(draft) else longest
                self._note(Notice("absurd_usage", f"{_ABSURD_SAID.format(tokens)}: {counted_instead} are counted"))
                tokens = counted_instead
            if not tokens and length:
                self._note(NO_USAGE)
                tokens = self._estimate(draft)
            if tokens * MOST_BYTES_A_TOKEN < length:
                self._note(Notice("low_usage", _LOW_WORDS))
                tokens = self._estimate(draft)
            counted.append(tokens)
        return counted

    def _exceeds_limit(self, draft: _Draft) -> bool:
        """Whether the text alone is too long for the tokens that an answer may have."""
        return self._longest is not None and draft.length > MOST_BYTES_A_TOKEN * self._longest

    def _estimate(self, draft: _Draft) -> int:
        """Estimated tokens of an answer; a truncated one has used the limit."""
        tokens = estimated_tokens(draft.length)
        if self._longest is None or self._exceeds_limit(draft):
            return tokens
        return self._longest if signals_of_finish(draft.finish_reason) & {"truncated"} else min(tokens, self._longest)

    def _prompt_tokens(self, said: int, prompt: Prompt) -> int:
        """The tokens of the prompt: a template may add some to its text, but not many times its length."""
        if 0 < said <= ABSURD * TEMPLATE_TOKENS:
            return said
        contents = [prompt.text or "", *(message.content for message in prompt.messages or ())]
        length = sum(map(_bytes, contents))
        if said > ABSURD * (length + TEMPLATE_TOKENS):
            self._note(Notice("absurd_usage", f"{_ABSURD_PROMPT.format(said)}: {length + TEMPLATE_TOKENS} are counted"))
            return length + TEMPLATE_TOKENS
        if not said and length:
            self._note(NO_USAGE)
            return estimated_tokens(length)
        return said

    def _draft(self, payload: dict[str, Any], choice: dict[str, Any], prompt: Prompt, prompt_tokens: int) -> _Draft:
        logprobs = _completion_logprobs(choice)
        before: list[object] = []
        echoed = prompt_tokens if self._prompt_logprobs == "echo" else 0
        named = _named_logprobs(choice, echoed) if self._keeps_tokens else None
        if self._prompt_logprobs == "vllm":
            before = _vllm_prompt_logprobs(payload, choice)
        if self._chat:
            message = choice.get("message")
            if not isinstance(message, dict):
                raise _bad("a choice has no message")
            reasoning = message.get("reasoning_content") or message.get("reasoning")
            text, refused = _text(message.get("content")), isinstance(message.get("refusal"), str)
            if refused and not text:
                text = message["refusal"]
        else:
            message, reasoning, text, refused = choice, choice.get("reasoning"), _text(choice.get("text")), False
            if self._prompt_logprobs == "echo":
                text = text.removeprefix(prompt.text or "")
                before, logprobs = logprobs[:prompt_tokens], logprobs[prompt_tokens:]
        finish, called = self._finish(choice), message.get("tool_calls") or message.get("function_call")
        return _Draft(
            text,
            reasoning if isinstance(reasoning, str) else None,
            finish,
            refused,
            logprobs,
            before,
            _count(choice["usage"].get("completion_tokens")) if isinstance(choice.get("usage"), dict) else 0,
            _slot(choice) if self._chat else (),
            named,
            not (text or reasoning or called) and finish_word(finish) not in MAY_BE_NULL,
            self._chat and message.get("content") is None,
        )

    def _finish(self, choice: dict[str, Any]) -> str:
        """Why a choice finished; raises if it did not, or does not say."""
        reason = choice.get("finish_reason", "")
        if not isinstance(reason, str | None):
            raise _bad(f"finish_reason is of type {type(reason).__name__}")
        told = reason or NO_REASON
        if told in self._finished or (word := finish_word(told)) in self._finished:
            return told
        if word in FAILED:
            raise Failure(FailureKind.SERVER_ERROR, f"the server gave up in the middle (finish_reason {told!r})")
        if reason is None:
            mend = f"a server that never gives a reason needs {finish_reason_option(NO_REASON)}"
            raise Failure(
                FailureKind.SERVER_ERROR, f"the server did not finish the answer (finish_reason null; {mend})"
            )
        shown = finish_word(safe_excerpt(told, self._redactor, _LONGEST_REASON)) if reason else ""
        said = f"with the finish reason {shown!r}" if shown else "without a finish reason"
        raise UnknownFinish(
            f"its server ends answers {said}, and it is unknown whether such an answer is complete: if it is, "
            f"set {finish_reason_option(shown or NO_REASON)}; if not, use another server"
        )


def _completion_tokens(drafts: list[_Draft], used: int, counts_one: bool) -> list[int]:
    """Each choice's tokens: from its own usage or log-probabilities, else its share of the usage by length."""
    if used and len(drafts) == 1 and (counts_one or not drafts[0].logprobs):
        return [used]
    if counts_one and all(draft.tokens for draft in drafts):
        return [draft.tokens for draft in drafts]
    if all(draft.logprobs for draft in drafts):
        return [len(draft.logprobs) for draft in drafts]
    sizes = [draft.size for draft in drafts]
    if counts_one and len(drafts) > 1 and sizes[0]:
        used = round(used * sum(sizes) / sizes[0])
    return _shares(used, sizes)


def text_signals(
    text: str, finish_reason: str, reasoning: str | None = None, *, used_tools: bool = False
) -> frozenset[Signal]:
    """The signals that follow from an answer's text and finish reason alone. What an agent did with tools is an answer
    without a text, too."""
    ended = signals_of_finish(finish_reason)
    if text.strip() or used_tools:
        return ended
    return ended | (_REASONING_ONLY if not ended and reasoning and reasoning.strip() else _EMPTY)


def _answer(draft: _Draft, seed: int, tokens: int, prompt_tokens: int, arrival: ResponseOrigin) -> Answer:
    return Answer(
        text=draft.text,
        finish_reason=draft.finish_reason,
        seed=seed,
        replica=arrival.replica,
        latency=arrival.latency,
        reasoning=draft.reasoning,
        prompt_tokens=prompt_tokens,
        completion_tokens=tokens,
        ttft=arrival.ttft,
        attempts=arrival.attempts,
        completion_bpt=mean_bits(draft.logprobs) if draft.logprobs else None,
        prompt_bpt=mean_bits(draft.prompt_logprobs) if draft.prompt_logprobs else None,
        signals=text_signals(draft.text, draft.finish_reason, draft.reasoning)
        | (_REFUSAL if draft.refused else frozenset()),
        abreast=arrival.abreast,
        slot=draft.slot,
        token_logprobs=draft.named,
    )


def answers_without_text(
    signal: Signal, seeds: range, arrival: ResponseOrigin, reason: str | None = None
) -> list[Answer]:
    """Answers that stand for an error: only the signal, which is also the finish reason unless `reason` is given."""
    return [
        Answer(
            text="",
            finish_reason=reason or signal,
            seed=seed,
            replica=arrival.replica,
            latency=arrival.latency,
            attempts=arrival.attempts,
            signals=frozenset({signal}),
            abreast=arrival.abreast,
        )
        for seed in seeds
    ]
