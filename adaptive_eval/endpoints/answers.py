"""Reads answers from responses of the chat and text completion APIs.

Servers differ. The text may be a string, null or a list of parts; reasoning is `reasoning_content` or `reasoning`;
`usage` covers every choice (OpenAI, vLLM) or one of them (llama-server, recognised by its `timings`; its stream has the
usage of each, see `wire`); an echoed prompt precedes the text and its log-probabilities. Nothing in a response is
trusted: anything that is not an answer is a `Failure`.

Token counts are not trusted either. If `usage` is missing, tokens are estimated, one per `BYTES_PER_TOKEN` bytes;
likewise if it claims less than one per `MAX_BYTES_PER_TOKEN`. If it claims more than `ABSURD_TOKENS`, the
limit is counted. A smaller excess is accepted, and a text too long for the limit is estimated, since it was
generated. Each case raises a notice. Cached tokens count only as part of a prompt whose reported tokens are counted.
Some servers report reasoning beside `completion_tokens`: the most that `usage` tells of is reported.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from adaptive_eval.base.json_objects import as_object, objects_in
from adaptive_eval.endpoints.failures import (
    FAILED,
    FINISHED,
    MAY_BE_NULL,
    NO_REASON,
    Failure,
    FailureKind,
    UnknownFinish,
    error_signal,
    finish_reason_option,
    finish_word,
    safe_excerpt,
    signals_of_finish,
)
from adaptive_eval.endpoints.parsing import Reply, content_text, no_answer, refusal_text
from adaptive_eval.endpoints.redaction import Redactor
from adaptive_eval.endpoints.types import (
    ABSURD_TOKENS,
    KEEP_TOKENS,
    MAX_BYTES_PER_TOKEN,
    TEMPLATE_TOKENS,
    Answer,
    AnswerLogprobs,
    EndpointConfig,
    Notice,
    Prompt,
    Sampling,
    Signal,
)

_MAX_MAGNITUDE = 2**31
"""Upper bound of counts and log-probabilities; it also excludes infinities and NaN."""
_MAX_LOGPROB = 0.01
"""Largest log-probability: rounding on a server can lift that of a certain token a little above 0."""
_MAX_ALTERNATIVES = 128
"""Maximum number of alternative tokens read at one position."""
NO_USAGE = Notice("no_usage", "its server reports no token counts: they are estimated from the texts")
_LOW_USAGE_TEXT = "its server reports fewer tokens than such texts must have: they are estimated from the texts"
_ABSURD_ANSWER_TEXT = "its server reports {} tokens for an answer, more than any model can generate: {} are counted"
_ABSURD_PROMPT_TEXT = "its server reports {} tokens for a prompt, more than any model can read: {} are counted"
_REFUSAL: frozenset[Signal] = frozenset({"refusal"})
_EMPTY: frozenset[Signal] = frozenset({"empty"})
_REASONING_ONLY: frozenset[Signal] = frozenset({"empty", "reasoning_only"})


class ResponseOrigin(NamedTuple):
    """Origin of a response: fields that all its answers share."""

    replica: str
    latency: float
    ttft: float | None
    attempts: int
    concurrent_answers: int | None = None
    """Answers that the replica may generate at the same time."""


def _unfinished(problem: str) -> Failure:
    """The failure of a server that was at work on an answer."""
    return Failure(FailureKind.SERVER_ERROR, problem, may_have_cost=True)


def _sort_by_index(choices: list[dict[str, Any]], requested: int) -> list[dict[str, Any]]:
    """Sort choices by their indices 0, 1, ...; keep the order if none has an index. Raises `Failure` for other indices.

    With a duplicate or an extra index it is unknown which choices answer the request.
    """
    if len(choices) > requested:
        raise no_answer(
            f"it has {len(choices)} choices, and {requested} {'was' if requested == 1 else 'were'} asked for"
        )
    indices = [choice.get("index") for choice in choices]
    numbers, expected = [index for index in indices if type(index) is int], list(range(len(choices)))
    if numbers == expected or not any(index is not None for index in indices):
        return choices
    if sorted(numbers) != expected:
        raise no_answer(f"the indices of its choices are {str(indices)[:80]}, not 0 to {len(choices) - 1}")
    return sorted(choices, key=lambda choice: int(choice["index"]))


BYTES_PER_TOKEN = 3
"""English prose has four or five bytes per token, formulas and code three, Chinese three to five."""


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def estimated_tokens(length: int) -> int:
    """Estimate the tokens of a text of this many bytes."""
    return -(-length // BYTES_PER_TOKEN)


def _count(value: object) -> int:
    return value if type(value) is int and 0 < value < _MAX_MAGNITUDE else 0  # True is not a count


def mean_bits(logprobs: Sequence[object]) -> float | None:
    """Mean bits per token over the valid log-probabilities; None if there are none."""
    from scorio.categorical import bits_per_token  # few servers are asked for log-probabilities

    numbers = [value for value in map(_read_logprob, logprobs) if value is not None]
    return float(bits_per_token(sum(numbers), len(numbers))) if numbers else None


def _content(choice: dict[str, Any], message: dict[str, Any]) -> object:
    """The content of a chat's message; some servers have it where a text completion has its text."""
    fields = (message.get("content"), message.get("text"), choice.get("text"))
    return next((content for content in fields if content not in (None, "")), None)


def _completion_logprobs(choice: dict[str, Any]) -> list[object]:
    """Log-probabilities by token: chat's `content`, or text completions' `token_logprobs`."""
    logprobs = as_object(choice.get("logprobs"))
    if isinstance(tokens := logprobs.get("content"), list):
        return [token.get("logprob") for token in objects_in(tokens)]
    values = logprobs.get("token_logprobs")
    return values if isinstance(values, list) else []


def _slot(choice: dict[str, Any]) -> tuple[tuple[str, float], ...]:
    """The first token of a chat's reply and its likeliest alternatives, with their log-probabilities."""
    content = as_object(choice.get("logprobs")).get("content")
    first = content[0] if isinstance(content, list) and content else None
    if not isinstance(first, dict):
        return ()
    alternatives = first.get("top_logprobs")
    candidates = [first, *(alternatives[:_MAX_ALTERNATIVES] if isinstance(alternatives, list) else ())]
    if len(candidates) == 1:  # no alternatives were asked for
        return ()
    return tuple((candidate["token"], float(candidate["logprob"])) for candidate in candidates if _is_token(candidate))


def _token_logprobs(choice: dict[str, Any], skipped: int) -> AnswerLogprobs | None:
    """The tokens of a choice after `skipped` tokens of an echoed prompt; None if there are none."""
    values = _completion_logprobs(choice)
    if not values:
        return None
    logprobs = choice["logprobs"]
    if isinstance(content := logprobs.get("content"), list):
        texts = [token.get("token") for token in objects_in(content)]
    else:
        texts = listed if isinstance(listed := logprobs.get("tokens"), list) else []
    texts = [*texts, *[""] * (len(values) - len(texts))]
    names = tuple(text if isinstance(text, str) else "" for text in islice(texts, skipped, len(values)))
    return AnswerLogprobs(names, tuple(map(_read_logprob, values[skipped:]))) if names else None


def _read_logprob(value: object) -> float | None:
    """A value as a log-probability; None if it is not one."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not -_MAX_MAGNITUDE < value <= _MAX_LOGPROB:
        return None
    return float(value)


def _is_token(entry: object) -> bool:
    return (
        isinstance(entry, dict)
        and isinstance(entry.get("token"), str)
        and _read_logprob(entry.get("logprob")) is not None
    )


def _vllm_prompt_logprobs(payload: dict[str, Any], choice: dict[str, Any]) -> list[object]:
    """vLLM's list of {token id: {"logprob": ...}}, of which the first entry is the prompt's own token."""
    entries = objects_in(payload.get("prompt_logprobs") or choice.get("prompt_logprobs"))
    return [token.get("logprob") for token in objects_in([next(iter(entry.values()), None) for entry in entries])]


def _split_in_proportion(total: int, weights: Sequence[int]) -> list[int]:
    """Split an integer in proportion to the weights, into shares that sum to the total."""
    if len(weights) == 1:
        return [total]
    total_weight = sum(weights)
    if not total_weight:
        weights, total_weight = [1] * len(weights), len(weights)
    bounds, running = [0], 0
    for weight in weights:
        running += weight
        bounds.append(total * running // total_weight)
    return [end - start for start, end in zip(bounds, bounds[1:], strict=False)]


class _Draft(NamedTuple):
    """A choice before its share of tokens is known."""

    answer: Answer
    """All but its tokens."""
    logprobs: int
    """Number of its log-probabilities."""
    tokens: int
    """From the choice's own usage; 0 without one."""
    is_blank: bool
    """Whether it ended by itself, without text, reasoning or a tool call."""
    is_null: bool
    """Whether the server returned null as its text."""

    @property
    def size(self) -> int:
        return len(self.answer.text) + len(self.answer.reasoning or "")

    @property
    def length(self) -> int:
        """Length in bytes."""
        return _bytes(self.answer.text) + _bytes(self.answer.reasoning or "")


class AnswerReader:
    """Reads the responses to one model's requests."""

    def __init__(
        self,
        config: EndpointConfig,
        sampling: Sampling,
        redactor: Redactor,
        note: Callable[[Notice], None],
        unauthorized: str = "",
    ) -> None:
        """`redactor` is for messages; `note` receives notices of implausible counts; `unauthorized` says what to do
        after a 401."""
        self._keep_tokens = sampling.logprobs == KEEP_TOKENS
        self._max_answer_tokens = sampling.longest_answer
        self._note = note
        self._redactor = redactor
        limit = sampling.max_tokens
        self._error_signal = partial(error_signal, max_tokens=limit, redactor=redactor, unauthorized=unauthorized)
        self._chat = config.api == "chat"
        self._prompt_logprobs = config.prompt_logprobs
        self._reports_no_tokens = False
        """Whether the server has reported no tokens for an answer with a text."""
        self._finished = FINISHED | {finish_word(reason) for reason in config.finish_reasons}

    def read(self, reply: Reply, prompt: Prompt, seeds: range, origin: ResponseOrigin) -> list[Answer]:
        """The answers for the first seeds; raises `Failure` or `Rejected` if the reply has none."""
        if reply.status == 200:
            return self.answers(reply.payload, prompt, seeds, origin)
        try:
            signal = self._error_signal(reply.status, reply.body, reply.headers)
        except Failure as failure:
            failure.may_have_cost |= reply.has_begun
            raise
        return answers_without_text(signal, seeds, origin)

    def answers(self, payload: object, prompt: Prompt, seeds: range, origin: ResponseOrigin) -> list[Answer]:
        """The answers for the first seeds, one for each choice; the caller checks whether there are enough.

        Raises `Failure` if the response holds no finished answer, and `UnknownFinish` if it is unclear whether it is
        finished.
        """
        if not isinstance(payload, dict):
            raise no_answer(f"it is of type {type(payload).__name__}")
        choices = payload.get("choices")
        if not isinstance(choices, list) or not choices or not all(isinstance(choice, dict) for choice in choices):
            raise no_answer("it has no choices" if not choices else "its choices are not objects")
        choices = _sort_by_index(choices, len(seeds))
        usage = as_object(payload.get("usage"))
        prompt_tokens = _count(usage.get("prompt_tokens"))
        asked = (prompt, prompt_tokens, origin)
        drafts = [self._draft(payload, choice, seed, *asked) for choice, seed in zip(choices, seeds, strict=False)]
        completion = _completion_tokens(drafts, _reported_tokens(usage), "timings" in payload)
        reports_none = usage.get("completion_tokens") == 0 < prompt_tokens
        self._reports_no_tokens |= reports_none and any(draft.size for draft in drafts)
        for draft, tokens in zip(drafts, completion, strict=True):
            if draft.is_blank and not tokens and (draft.is_null or (reports_none and not self._reports_no_tokens)):
                raise _unfinished("the server generated nothing (no text, no tokens)")
        completion = self._plausible_counts(completion, drafts)
        counted = self._prompt_tokens(prompt_tokens, prompt)
        cached = _cached_tokens(usage) if counted == prompt_tokens else 0
        prompts = _split_in_proportion(counted, [1] * len(drafts))
        from_cache = _split_in_proportion(cached if cached <= counted else 0, [1] * len(drafts))
        return [
            replace(draft.answer, completion_tokens=tokens, prompt_tokens=share, cached_tokens=cached_share)
            for draft, tokens, share, cached_share in zip(drafts, completion, prompts, from_cache, strict=True)
        ]

    def _plausible_counts(self, reported: list[int], drafts: list[_Draft]) -> list[int]:
        """The tokens of each choice, with implausible counts replaced."""
        counts = []
        for tokens, draft in zip(reported, drafts, strict=True):
            limit, length = self._max_answer_tokens, draft.length
            if tokens > max(ABSURD_TOKENS, limit or 0):
                replacement = self._estimate(draft) if limit is None or self._exceeds_limit(draft) else limit
                self._note(Notice("absurd_usage", _ABSURD_ANSWER_TEXT.format(tokens, replacement)))
                tokens = replacement
            if not tokens and length:
                self._note(NO_USAGE)
                tokens = self._estimate(draft)
            if tokens * MAX_BYTES_PER_TOKEN < length:
                self._note(Notice("low_usage", _LOW_USAGE_TEXT))
                tokens = self._estimate(draft)
            counts.append(tokens)
        return counts

    def _exceeds_limit(self, draft: _Draft) -> bool:
        """Whether the text alone is too long for the tokens that an answer may have."""
        return self._max_answer_tokens is not None and draft.length > MAX_BYTES_PER_TOKEN * self._max_answer_tokens

    def _estimate(self, draft: _Draft) -> int:
        """Estimated tokens of an answer; a truncated one has used the limit."""
        tokens = estimated_tokens(draft.length)
        if self._max_answer_tokens is None or self._exceeds_limit(draft):
            return tokens
        return (
            self._max_answer_tokens
            if signals_of_finish(draft.answer.finish_reason) & {"truncated"}
            else min(tokens, self._max_answer_tokens)
        )

    def _prompt_tokens(self, reported: int, prompt: Prompt) -> int:
        """Tokens of the prompt; a template or a gateway may add some to its text."""
        if 0 < reported <= ABSURD_TOKENS:
            return reported
        contents = [prompt.text or "", *(message.content for message in prompt.messages or ())]
        length = sum(map(_bytes, contents))
        if reported > max(ABSURD_TOKENS, longest := length + TEMPLATE_TOKENS):
            self._note(Notice("absurd_usage", _ABSURD_PROMPT_TEXT.format(reported, longest)))
            return longest
        if not reported and length:
            self._note(NO_USAGE)
            return estimated_tokens(length)
        return reported

    def _draft(
        self,
        payload: dict[str, Any],
        choice: dict[str, Any],
        seed: int,
        prompt: Prompt,
        prompt_tokens: int,
        origin: ResponseOrigin,
    ) -> _Draft:
        logprobs = _completion_logprobs(choice)
        prompt_logprobs: list[object] = []
        echoed_tokens = prompt_tokens if self._prompt_logprobs == "echo" else 0
        token_logprobs = _token_logprobs(choice, echoed_tokens) if self._keep_tokens else None
        if self._prompt_logprobs == "vllm":
            prompt_logprobs = _vllm_prompt_logprobs(payload, choice)
        if self._chat:
            message = choice.get("message")
            if not isinstance(message, dict):
                raise no_answer("a choice has no message")
            reasoning = message.get("reasoning_content") or message.get("reasoning")
            refusal = refusal_text(message)
            text, refused = content_text(_content(choice, message)) or refusal, refusal != ""
        else:
            message, reasoning, text, refused = choice, choice.get("reasoning"), content_text(choice.get("text")), False
            if self._prompt_logprobs == "echo":
                text = text.removeprefix(prompt.text or "")
                prompt_logprobs, logprobs = logprobs[:prompt_tokens], logprobs[prompt_tokens:]
        finish, tool_calls = self._finish(choice), message.get("tool_calls") or message.get("function_call")
        is_blank = not (text or reasoning or tool_calls) and finish_word(finish) not in MAY_BE_NULL
        is_null = self._chat and message.get("content") is None
        reasoning = reasoning if isinstance(reasoning, str) else None
        answer = Answer(
            text=text,
            finish_reason=finish,
            seed=seed,
            reasoning=reasoning,
            completion_bpt=mean_bits(logprobs) if logprobs else None,
            prompt_bpt=mean_bits(prompt_logprobs) if prompt_logprobs else None,
            signals=text_signals(text, finish, reasoning) | (_REFUSAL if refused else frozenset()),
            slot=_slot(choice) if self._chat else (),
            token_logprobs=token_logprobs,
            **origin._asdict(),
        )
        return _Draft(answer, len(logprobs), _reported_tokens(as_object(choice.get("usage"))), is_blank, is_null)

    def _finish(self, choice: dict[str, Any]) -> str:
        """Why a choice finished; raises if it did not, or does not say."""
        reason = choice.get("finish_reason", "")
        if not isinstance(reason, str | None):
            raise no_answer(f"finish_reason is of type {type(reason).__name__}")
        finish_reason = reason or NO_REASON
        if finish_reason in self._finished or (word := finish_word(finish_reason)) in self._finished:
            return finish_reason
        if word in FAILED:
            raise _unfinished(f"the server gave up in the middle (finish_reason {finish_reason!r})")
        if reason is None:
            hint = f"a server that never gives a reason needs {finish_reason_option(NO_REASON)}"
            raise _unfinished(f"the server did not finish the answer (finish_reason null; {hint})")
        safe_reason = finish_word(safe_excerpt(finish_reason, self._redactor)) if reason else ""
        raise UnknownFinish(safe_reason)


def _cached_tokens(usage: dict[str, Any]) -> int:
    """The prompt tokens that were read from a cache, as OpenAI, Anthropic or DeepSeek report them."""
    reported = as_object(usage.get("prompt_tokens_details")).get("cached_tokens")
    fields = (reported, usage.get("cache_read_input_tokens"), usage.get("prompt_cache_hit_tokens"))
    return next((tokens for tokens in map(_count, fields) if tokens), 0)


def _reported_tokens(usage: dict[str, Any]) -> int:
    """The generated tokens by a usage, with reasoning that it may count beside `completion_tokens`."""
    prompt, total = _count(usage.get("prompt_tokens")), _count(usage.get("total_tokens"))
    reasoning = _count(as_object(usage.get("completion_tokens_details")).get("reasoning_tokens"))
    cached = _cached_tokens(usage)
    whole_prompt = prompt + cached if cached > prompt else prompt  # some servers leave cached tokens out
    return max(_count(usage.get("completion_tokens")), reasoning, total - whole_prompt if prompt else 0)


def _completion_tokens(drafts: list[_Draft], reported: int, usage_covers_one: bool) -> list[int]:
    """Each choice's tokens: from its own usage or log-probabilities, else its share of the usage by length."""
    if reported and len(drafts) == 1:  # log-probabilities may leave out its reasoning
        return [reported if usage_covers_one else max(reported, drafts[0].logprobs)]
    if usage_covers_one and all(draft.tokens for draft in drafts):
        return [draft.tokens for draft in drafts]
    if all(draft.logprobs for draft in drafts):
        return [draft.logprobs for draft in drafts]
    with_text = [draft.size for draft in drafts if draft.size]
    # a tool call or a filtered answer has tokens without a text: as many as the others, for all that is known
    usual = -(-sum(with_text) // max(len(with_text), 1))
    sizes = [draft.size or (0 if draft.is_blank else usual) for draft in drafts]
    if usage_covers_one and len(drafts) > 1 and sizes[0]:
        reported = round(reported * sum(sizes) / sizes[0])
    return _split_in_proportion(reported, sizes)


def text_signals(
    text: str, finish_reason: str, reasoning: str | None = None, *, used_tools: bool = False
) -> frozenset[Signal]:
    """Signals that follow from an answer's text and finish reason alone. Tool calls of an agent count as an answer
    without text, too."""
    signals = signals_of_finish(finish_reason)
    if text.strip() or used_tools:
        return signals
    return signals | (_REASONING_ONLY if not signals and reasoning and reasoning.strip() else _EMPTY)


def answers_without_text(
    signal: Signal, seeds: range, origin: ResponseOrigin, reason: str | None = None
) -> list[Answer]:
    """Answers that represent an error: they have only the signal, which is also the finish reason unless `reason` is
    given."""
    signals, shared = frozenset({signal}), origin._asdict()
    return [Answer("", reason or signal, seed, signals=signals, **shared) for seed in seeds]
