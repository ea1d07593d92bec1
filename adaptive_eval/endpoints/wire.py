"""Request bodies of the OpenAI chat and text completion API.

n = len(seeds) answers with seed s = seeds[0] get the seeds s .. s+n-1, as vLLM and llama-server define it.

llama-server's usage covers only one of n choices, but its stream has the usage of each. So n answers are requested as a
stream, unless their log-probabilities give the counts (its stream omits that of the last token).
"""

from collections.abc import Mapping

from adaptive_eval.endpoints.parsing import MAX_LINE_BYTES
from adaptive_eval.endpoints.types import MAX_BYTES_PER_TOKEN, EndpointConfig, Message, Prompt, Sampling

MAX_BODY = 256 * 1024 * 1024
"""Upper bound on the size of any response (see `longest_response`)."""

PATHS = {"chat": "/chat/completions", "completions": "/completions"}

_PLAIN_KEYS = ("temperature", "top_p", "top_k", "min_p", "max_tokens", "stop")
TINY_TEXT = "Say OK."
TINY_MAX_TOKENS = 16
MIN_STREAM_TOKENS = 1024
"""`max_tokens` from which answers are streamed by default.

Each streamed token costs tens of microseconds of CPU (some 3% of a core at 1,000 tokens a second), an unstreamed
response 200 in all; shorter ones are streamed as soon as one takes far longer than the others (`late`).
"""
_STREAM = {"stream": True, "stream_options": {"include_usage": True}}
SERVER_DEFAULT = "server default"

ANY_BODY = 4 * 1024 * 1024
"""Bytes that any response may have, whatever was asked."""
_TOKEN_BYTES = 1280
"""Upper bound on the mean bytes of a token in its own event, or of a token or alternative with its log-probability: the
longest tokens of any vocabulary have 128 bytes, and JSON turns some into six."""


def _logprob_keys(config: EndpointConfig, sampling: Sampling) -> dict[str, object]:
    keys: dict[str, object] = {}
    if config.prompt_logprobs == "vllm":
        # 0 alternatives: only the log-probability of each prompt token itself
        keys["prompt_logprobs"] = 0
    if config.prompt_logprobs == "echo":
        keys["echo"] = True
    if config.api == "completions":
        if sampling.logprobs or config.prompt_logprobs == "echo":
            # a count here, not a flag; llama-server reads 0 as "none"
            keys["logprobs"] = 1
    elif sampling.logprobs:
        keys["logprobs"] = True
    return keys


def sent_sampling(config: EndpointConfig, sampling: Sampling) -> dict[str, object]:
    """Sampling settings sent with every request; the server chooses the others."""
    plain = {key: getattr(sampling, key) for key in _PLAIN_KEYS}
    values: dict[str, object] = {key: SERVER_DEFAULT if value is None else value for key, value in plain.items()}
    return {**values, **_logprob_keys(config, sampling), **sampling.extra_body}


def stream_if_several(body: Mapping[str, object]) -> Mapping[str, object]:
    """The request to a server that reports the tokens of each of several answers only in a stream."""
    return body if "n" not in body or body.get("logprobs") else {**body, **_STREAM}


def longest_response(body: Mapping[str, object], length: int) -> int:
    """Maximum bytes of the response to this request of `length` bytes. Texts alone are parsed at once: the objects may
    take twenty times as much."""
    max_tokens = body.get("max_tokens") or body.get("max_completion_tokens")
    is_text = not (body.get("stream") or body.get("logprobs") or body.get("echo") or "prompt_logprobs" in body)
    if not isinstance(max_tokens, int) or isinstance(max_tokens, bool):
        return MAX_LINE_BYTES if is_text else MAX_BODY
    answers_asked = body.get("n")
    logprobs, alternatives = body.get("logprobs"), body.get("top_logprobs") or 0
    if isinstance(logprobs, int) and not isinstance(logprobs, bool):
        alternatives = logprobs
    logprobs_per_token = 1 + alternatives if logprobs and isinstance(alternatives, int) else 0
    token = 6 * MAX_BYTES_PER_TOKEN if is_text else _TOKEN_BYTES * (1 + logprobs_per_token)  # JSON may take six
    prompt_bytes = length * (token if "prompt_logprobs" in body or body.get("echo") else 1)
    answers = answers_asked if isinstance(answers_asked, int) else 1
    return min(ANY_BODY + prompt_bytes * answers + max_tokens * answers * token, MAX_BODY)


def streams(config: EndpointConfig, sampling: Sampling) -> bool:
    """Whether answers are streamed: as configured, else if they may be long and need no log-probabilities.

    llama-server omits some from a stream, and those of a prompt do not arrive in one.
    """
    if config.stream is not None:
        return config.stream
    longest_answer = sampling.longest_answer
    return (longest_answer is None or longest_answer >= MIN_STREAM_TOKENS) and _may_be_streamed(config, sampling)


def _may_be_streamed(config: EndpointConfig, sampling: Sampling) -> bool:
    """Whether the configuration allows both, and nothing is requested that a stream lacks."""
    return config.stream is None and not (sampling.logprobs or config.prompt_logprobs)


def unstreamed(body: Mapping[str, object]) -> dict[str, object]:
    """The same request without streaming."""
    return {name: value for name, value in body.items() if name not in _STREAM}


class BodyBuilder:
    """Builds the bodies of one model's requests; the constant part is prepared once."""

    def __init__(self, config: EndpointConfig, sampling: Sampling) -> None:
        self._api = config.api
        self._may_omit_stream = config.stream is None
        self._fixed: dict[str, object] = {"model": config.model}
        plain = {key: getattr(sampling, key) for key in _PLAIN_KEYS}
        self._fixed |= {key: value for key, value in plain.items() if value is not None}
        self._fixed |= _logprob_keys(config, sampling)
        self._can_switch_to_stream = _may_be_streamed(config, sampling) and not streams(config, sampling)
        if streams(config, sampling):
            self._fixed |= _STREAM
        self._fixed |= sampling.extra_body
        self._unstreamed = unstreamed(self._fixed)
        is_chat = config.api == "chat"
        self.tiny_prompt = Prompt(messages=(Message("user", TINY_TEXT),)) if is_chat else Prompt(text=TINY_TEXT)
        """A prompt that needs only a tiny answer."""

    def stream(self) -> bool:
        """Stream from now on, if streaming was off only because it costs more; returns whether this changed
        anything."""
        changed, self._can_switch_to_stream = self._can_switch_to_stream, False
        if changed:
            self._fixed = {**_STREAM, **self._fixed}
        return changed

    def body(self, prompt: Prompt, seeds: range, may_stream: bool = True) -> dict[str, object]:
        """The request for one answer per seed."""
        body = (self._fixed if may_stream else self._unstreamed).copy()
        if self._api == "chat":
            messages = prompt.messages
            if messages is None:
                raise ValueError("api: chat needs a prompt of messages, but got a text; set api: completions")
            body["messages"] = [{"role": message.role, "content": message.content} for message in messages]
        else:
            if prompt.text is None:
                raise ValueError("api: completions needs a prompt of text, but got messages; set api: chat")
            body["prompt"] = prompt.text
        body["seed"] = seeds[0]
        if len(seeds) > 1:
            body["n"] = len(seeds)
        return body

    def tiny(self) -> Mapping[str, object]:
        """A request that costs almost nothing, to check whether the model answers."""
        body = self.body(self.tiny_prompt, range(1), not self._may_omit_stream)
        limit = "max_completion_tokens" if "max_completion_tokens" in body else "max_tokens"
        body[limit] = TINY_MAX_TOKENS
        return body
