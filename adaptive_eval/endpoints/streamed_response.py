"""Assembling a streamed response into the response that the request would get without streaming.

There is one difference: llama-server sends the usage after each choice, and each choice keeps its own.
"""

from collections.abc import Callable
from typing import Any

TEXT_FIELDS = frozenset(("content", "text", "reasoning_content", "reasoning", "refusal"))
"""Fields of an event that hold a piece of text."""


class _Choice:
    """The pieces of one choice so far."""

    __slots__ = ("finish_reason", "logprobs", "pieces", "steps", "token_logprobs", "tokens", "usage")

    def __init__(self) -> None:
        self.pieces: dict[str, list[str]] = {}
        self.finish_reason: str | None = None
        self.logprobs: list[object] = []
        self.token_logprobs: list[object] = []
        self.tokens: list[object] = []
        """The texts of its tokens, if a text completion names them."""
        self.steps = 0
        self.usage: dict[str, Any] | None = None
        """What followed right after its end."""

    def add(self, choice: dict[str, Any]) -> bool:
        """Add one event's part of this choice; True if it carried text."""
        delta = choice.get("delta")
        source = delta if isinstance(delta, dict) else choice
        spoke = False
        for name, piece in source.items():
            if piece and name in TEXT_FIELDS and isinstance(piece, str):
                self.pieces.setdefault(name, []).append(piece)
                spoke = True
        if isinstance(reason := choice.get("finish_reason"), str):
            self.finish_reason = reason
        if isinstance(logprobs := choice.get("logprobs"), dict):
            each = (("content", self.logprobs), ("token_logprobs", self.token_logprobs), ("tokens", self.tokens))
            for name, into in each:
                if isinstance(values := logprobs.get(name), list):
                    into += values
        self.steps += spoke
        return spoke

    def add_texts(self, name: str, texts: list[str]) -> None:
        """Add the texts of events that carry nothing else."""
        spoken = [text for text in texts if text]
        if spoken:
            self.pieces.setdefault(name, []).extend(spoken)
            self.steps += len(spoken)

    def payload(self, index: int, chat: bool, apart: bool) -> dict[str, Any]:
        texts = {name: "".join(pieces) for name, pieces in self.pieces.items()}
        choice: dict[str, Any] = {"index": index, "finish_reason": self.finish_reason}
        if apart:
            choice["usage"] = self.usage
        if self.logprobs:
            choice["logprobs"] = {"content": self.logprobs}
        elif self.token_logprobs:
            choice["logprobs"] = {"token_logprobs": self.token_logprobs}
            if self.tokens:
                choice["logprobs"]["tokens"] = self.tokens
        return choice | ({"message": {"content": None} | texts} if chat else {"text": ""} | texts)


class StreamedResponse:
    """The response assembled from the events so far; `clock` dates the first token."""

    def __init__(self, chat: bool, clock: Callable[[], float]) -> None:
        self._chat = chat
        self._clock = clock
        self._choices: dict[int, _Choice] = {}
        self._usage: dict[str, Any] | None = None
        self._last_ended: _Choice | None = None
        """The choice that ended last."""
        self._named: dict[str, object] = {"model": None, "timings": None, "system_fingerprint": None}
        """For each field, the value in the newest event that has it."""
        self.first_token_at: float | None = None

    def add(self, event: dict[str, Any]) -> None:
        """Add one event."""
        named = self._named
        if isinstance(model := event.get("model"), str):
            named["model"] = model
        if "timings" in event:
            named["timings"] = event["timings"]
        if fingerprint := event.get("system_fingerprint"):
            named["system_fingerprint"] = fingerprint
        choices = event.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict) and isinstance(index := choice.get("index", 0), int):
                self._add_part(self._choices.get(index) or self._choices.setdefault(index, _Choice()), choice)
        if isinstance(usage := event.get("usage"), dict):
            self._usage = usage
            if self._last_ended is not None:
                self._last_ended.usage = usage

    def add_texts(self, choice: int, field: str, texts: list[str]) -> None:
        """Add the texts of events that carry nothing else."""
        self._choices[choice].add_texts(field, texts)

    def _add_part(self, choice: _Choice, part: dict[str, Any]) -> None:
        """Add one event's part of a choice."""
        if choice.add(part) and self.first_token_at is None:
            self.first_token_at = self._clock()
        if isinstance(part.get("finish_reason"), str):
            self._last_ended = choice

    @property
    def ended(self) -> bool:
        """Whether there are choices, and all have ended."""
        return bool(self._choices) and all(choice.finish_reason for choice in self._choices.values())

    def payload(self) -> dict[str, Any]:
        """The assembled response. A choice without a finish reason keeps none: the reader of responses interprets
        that."""
        # without usage, a server sends about one token per event
        steps = sum(choice.steps for choice in self._choices.values())
        apart = len(self._choices) > 1 and all(choice.usage for choice in self._choices.values())
        payload: dict[str, Any] = {
            "choices": [choice.payload(index, self._chat, apart) for index, choice in sorted(self._choices.items())],
            "usage": self._usage or {"completion_tokens": steps},
        }
        return payload | {name: value for name, value in self._named.items() if value is not None}
