"""A streamed answer, put together into the response that the same request would have had without a stream.

One thing more than there: llama-server says the usage of each choice after it, and each choice keeps its own.
"""

from collections.abc import Callable
from typing import Any

from adaptive_eval.endpoints.failures import Failure, Kind
from adaptive_eval.endpoints.parsing import parsed

MAX_LINE = 16 * 1024 * 1024


class _Choice:
    """The pieces of one choice so far."""

    __slots__ = ("finish_reason", "logprobs", "pieces", "steps", "token_logprobs", "usage")

    def __init__(self) -> None:
        self.pieces: dict[str, list[str]] = {}
        self.finish_reason: str | None = None
        self.logprobs: list[object] = []
        self.token_logprobs: list[object] = []
        self.steps = 0
        self.usage: dict[str, Any] | None = None
        """What came right after its end."""

    def add(self, choice: dict[str, Any]) -> bool:
        """Take one event's part of this choice; True where it carried text."""
        delta = choice.get("delta")
        source = delta if isinstance(delta, dict) else choice
        spoke = False
        for name in ("content", "text", "reasoning_content", "reasoning", "refusal"):
            piece = source.get(name)
            if isinstance(piece, str) and piece:
                self.pieces.setdefault(name, []).append(piece)
                spoke = True
        if isinstance(reason := choice.get("finish_reason"), str):
            self.finish_reason = reason
        if isinstance(logprobs := choice.get("logprobs"), dict):
            for name, into in (("content", self.logprobs), ("token_logprobs", self.token_logprobs)):
                if isinstance(values := logprobs.get(name), list):
                    into += values
        self.steps += spoke
        return spoke

    def payload(self, index: int, chat: bool, apart: bool) -> dict[str, Any]:
        texts = {name: "".join(pieces) for name, pieces in self.pieces.items()}
        choice: dict[str, Any] = {"index": index, "finish_reason": self.finish_reason}
        if apart:
            choice["usage"] = self.usage
        if self.logprobs:
            choice["logprobs"] = {"content": self.logprobs}
        elif self.token_logprobs:
            choice["logprobs"] = {"token_logprobs": self.token_logprobs}
        return choice | ({"message": {"content": None} | texts} if chat else {"text": ""} | texts)


class StreamReader:
    """Takes the bytes of an event stream and gives the whole response; `clock` dates the first token."""

    def __init__(self, chat: bool, clock: Callable[[], float]) -> None:
        self._chat = chat
        self._clock = clock
        self._rest = b""
        self._choices: dict[int, _Choice] = {}
        self._usage: dict[str, Any] | None = None
        self._ended: _Choice | None = None
        """The choice that has ended last."""
        self._timings: object = None
        self._done = False
        self.error: bytes | None = None
        """An error that came in the stream, as its JSON."""
        self.first_token_at: float | None = None

    def feed(self, data: bytes) -> None:
        """Take the next bytes, cut anywhere."""
        lines = (self._rest + data if self._rest else data).split(b"\n")
        self._rest = lines.pop()
        if len(self._rest) > MAX_LINE:
            raise Failure(Kind.BAD_RESPONSE, f"a line of the stream is longer than {MAX_LINE} bytes")
        for line in lines:
            if line.startswith(b"data:"):
                self._event(line[5:].strip())

    def _event(self, data: bytes) -> None:
        if data == b"[DONE]":
            self._done = True
            return
        try:
            event = parsed(data)
        except ValueError as error:
            raise Failure(Kind.BAD_RESPONSE, "an event of the stream is not JSON") from error
        if not isinstance(event, dict):
            raise Failure(Kind.BAD_RESPONSE, f"an event of the stream is of type {type(event).__name__}")
        if event.get("error"):
            self.error = data
        self._timings = event.get("timings", self._timings)
        choices = event.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict) and isinstance(index := choice.get("index", 0), int):
                self._part(self._choices.setdefault(index, _Choice()), choice)
        if isinstance(usage := event.get("usage"), dict):
            self._usage = usage
            if self._ended is not None:
                self._ended.usage = usage

    def _part(self, choice: _Choice, part: dict[str, Any]) -> None:
        """Take one event's part of a choice."""
        if choice.add(part) and self.first_token_at is None:
            self.first_token_at = self._clock()
        if isinstance(part.get("finish_reason"), str):
            self._ended = choice

    def payload(self) -> dict[str, Any]:
        """The response; raises `Failure` for a stream that stopped before its end."""
        ended = self._choices and all(choice.finish_reason for choice in self._choices.values())
        if not (self._done or ended):
            raise Failure(Kind.RESET, "the stream ended before the answer was complete")
        # a server that sends no usage sends about one token per event
        steps = sum(choice.steps for choice in self._choices.values())
        apart = len(self._choices) > 1 and all(choice.usage for choice in self._choices.values())
        payload: dict[str, Any] = {
            "choices": [choice.payload(index, self._chat, apart) for index, choice in sorted(self._choices.items())],
            "usage": self._usage or {"completion_tokens": steps},
        }
        return payload | ({"timings": self._timings} if self._timings is not None else {})
