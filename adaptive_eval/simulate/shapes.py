"""The shapes of the OpenAI API's responses: payloads, streamed events, log-probabilities, usage."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from adaptive_eval.simulate.answering import Drawn, numbers, unit
from adaptive_eval.simulate.http1 import LAST_CHUNK, STREAM_HEAD, Reply, chunk

FIRST_TOKEN = 0.1
"""Part of an answer's time until its first token."""
STREAM_PIECES = 8

_WORD = re.compile(r"\S+\s*")


@dataclass(frozen=True, slots=True)
class Choice:
    """One answer as it is sent; a word is a token."""

    text: str
    finish_reason: str
    seconds: float
    noise: int

    @property
    def tokens(self) -> int:
        return self.text.count(" ") + 1 if self.text else 0


def cut(answer: Drawn, limit: int | None, stop: object) -> Choice:
    """An answer under a limit on its tokens and under stop sequences."""
    text, reason = answer.text, "stop"
    sequences = stop if isinstance(stop, list) else [stop]
    for sequence in sequences:
        if isinstance(sequence, str) and sequence:
            text = text.partition(sequence)[0]
    if limit is not None and text.count(" ") + 1 > limit:
        text, reason = " ".join(text.split(" ")[:limit]), "length"
    return Choice(text, reason, answer.seconds, answer.noise)


def _words(text: str) -> list[str]:
    return _WORD.findall(text)


def _logprobs(noise: int, length: int) -> list[float]:
    """Log-probabilities -u/2 with u uniform, which depend on the answer only; eight to a hash."""
    values: list[float] = []
    for block in range((length + 7) // 8):
        values += [-0.5 * unit(number) for number in numbers(8, "logprob", noise, block)]
    return values[:length]


def _prompt_logprobs(prompt: str) -> list[float | None]:
    """The first token of a prompt has nothing before it, hence no probability."""
    values: list[float | None] = [*_logprobs(numbers(1, "prompt", prompt)[0], len(_words(prompt)))]
    return [None, *values[1:]] if values else []


class Shape:
    """How the answers to one request are written down."""

    def __init__(self, body: dict[str, Any], prompt: str, chat: bool, count_one: bool) -> None:
        self._body = body
        self._prompt = prompt
        self._chat = chat
        self._count_one = count_one

    def payload(self, serial: int, choices: Sequence[Choice]) -> dict[str, Any]:
        """The response without a stream."""
        payload = self._envelope(serial, "chat.completion" if self._chat else "text_completion")
        write = self._chat_choice if self._chat else self._text_choice
        payload["choices"] = [write(index, choice) for index, choice in enumerate(choices)]
        payload["usage"] = self._usage(choices)
        if "prompt_logprobs" in self._body:
            (payload if self._chat else payload["choices"][0])["prompt_logprobs"] = [
                value if value is None else {str(index): {"logprob": value, "rank": 1, "decoded_token": ""}}
                for index, value in enumerate(_prompt_logprobs(self._prompt))
            ]
        if self._count_one:
            payload["timings"] = {"predicted_n": choices[0].tokens}
        return payload

    def stream(self, serial: int, choices: Sequence[Choice], seconds: float, hang: bool) -> Reply:
        """Server-sent events: the first piece at the first token, the others evenly until the end."""
        envelope = self._envelope(serial, "chat.completion.chunk" if self._chat else "text_completion")
        pieces = max(2, min(STREAM_PIECES, *(choice.tokens for choice in choices)))
        parts = []
        for piece in range(pieces):
            at = seconds * (FIRST_TOKEN + (1.0 - FIRST_TOKEN) * piece / (pieces - 1))
            deltas = [self._delta(index, choice, piece, pieces) for index, choice in enumerate(choices)]
            events = [_event(envelope | {"choices": [delta]}) for delta in deltas]
            if piece == pieces - 1:
                events = self._with_usage(envelope, events, choices)
            parts.append((at, b"".join(events)))
        parts[0] = (parts[0][0], STREAM_HEAD + parts[0][1])
        if hang:
            return Reply((parts[0],), ends=False)
        parts[-1] = (parts[-1][0], parts[-1][1] + chunk(b"data: [DONE]\n\n") + LAST_CHUNK)
        return Reply(tuple(parts))

    def _with_usage(self, envelope: dict[str, Any], ends: list[bytes], choices: Sequence[Choice]) -> list[bytes]:
        """The last events with the usage where it is asked for: after them all, or after each (llama-server)."""
        options = self._body.get("stream_options")
        if not (isinstance(options, dict) and options.get("include_usage")):
            return ends
        if not self._count_one:
            return [*ends, _event(envelope | {"choices": [], "usage": self._usage(choices)})]
        apart = ({"usage": self._usage([one]), "timings": {"predicted_n": one.tokens}} for one in choices)
        return [end + _event(envelope | {"choices": []} | usage) for end, usage in zip(ends, apart, strict=True)]

    def _envelope(self, serial: int, kind: str) -> dict[str, Any]:
        prefix = "chatcmpl" if self._chat else "cmpl"
        return {"id": f"{prefix}-{serial}", "object": kind, "created": 0, "model": self._body["model"]}

    def _usage(self, choices: Sequence[Choice]) -> dict[str, int]:
        counted = choices[:1] if self._count_one else choices
        before, after = len(_words(self._prompt)), sum(choice.tokens for choice in counted)
        return {"prompt_tokens": before, "completion_tokens": after, "total_tokens": before + after}

    def _chat_tokens(self, choice: Choice) -> list[dict[str, Any]]:
        words = _words(choice.text)
        tops = min(1, self._body.get("top_logprobs") or 0)
        return [
            {"token": word, "logprob": value, "top_logprobs": [{"token": word, "logprob": value}] * tops}
            for word, value in zip(words, _logprobs(choice.noise, len(words)), strict=True)
        ]

    def _chat_choice(self, index: int, choice: Choice) -> dict[str, Any]:
        logprobs = {"content": self._chat_tokens(choice)} if self._body.get("logprobs") is True else None
        message = {"role": "assistant", "content": choice.text}
        return {"index": index, "message": message, "finish_reason": choice.finish_reason, "logprobs": logprobs}

    def _text_choice(self, index: int, choice: Choice) -> dict[str, Any]:
        text, logprobs = choice.text, None
        if self._body.get("echo") is True:
            text = self._prompt + text
        if isinstance(self._body.get("logprobs"), int):
            before = _prompt_logprobs(self._prompt) if self._body.get("echo") is True else []
            logprobs = {"token_logprobs": [*before, *_logprobs(choice.noise, choice.tokens)]}
        return {"index": index, "text": text, "finish_reason": choice.finish_reason, "logprobs": logprobs}

    def _delta(self, index: int, choice: Choice, piece: int, pieces: int) -> dict[str, Any]:
        """The part of a choice that one event carries."""
        words = _words(choice.text)
        start, end = len(words) * piece // pieces, len(words) * (piece + 1) // pieces
        text = "".join(words[start:end])
        part: dict[str, Any] = {"index": index, "finish_reason": choice.finish_reason if piece == pieces - 1 else None}
        if not self._chat:
            return part | {"text": text}
        if self._body.get("logprobs") is True:
            part["logprobs"] = {"content": self._chat_tokens(choice)[start:end]}
        return part | {"delta": {"content": text} | ({"role": "assistant"} if piece == 0 else {})}


def _event(data: dict[str, Any]) -> bytes:
    return chunk(b"data: " + orjson.dumps(data) + b"\n\n")
