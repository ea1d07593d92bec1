"""Parses responses of model servers, whole or streamed.

A model's text may contain half of a surrogate pair, which Python servers escape as `\\ud800`, others send bytes that
are not UTF-8, and some write NaN among log-probabilities. None of this is valid JSON, and it recurs at every attempt
with the same seed, so it is accepted as an answer with invalid characters.

A server that ignores `stream: true` sends the whole response at once, which is accepted. An error arrives as an event
of that name, as `error` in an event or in one of its choices, or as a field of that name (llama-server).
"""

import json
from codecs import BOM_UTF8
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from adaptive_eval.base.json_objects import objects_in
from adaptive_eval.endpoints.failures import (
    CUT,
    ENDED,
    FINISHED,
    Failure,
    FailureKind,
    find_error,
    finish_word,
    strip_byte_order_mark,
)

_PARTS_WITHOUT_TEXT = frozenset(
    {"text", "thinking", "reasoning", "redacted_thinking", "tool_use", "tool_call", "refusal"}
)
"""Types of parts of a content that need not have a text."""
TEXT_FIELDS = frozenset(("content", "text", "reasoning_content", "reasoning", "refusal"))
"""Fields of an event that hold a piece of text."""
LOGPROB_FIELDS = ("content", "token_logprobs", "tokens")
"""Lists of log-probabilities that go on with each event: a chat's, and those of a text completion with its tokens."""


class Reply(NamedTuple):
    """A server's reply to one request."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    """The error with its headers, unless the status is 200."""
    payload: object
    """The decoded response if the status is 200, which stands for any success."""
    latency: float
    ttft: float | None
    has_begun: bool = False
    """Whether an error ended an answer that had begun, with text or with usage."""


def no_answer(problem: str) -> Failure:
    """The failure for a response that cannot be read as an answer."""
    return Failure(FailureKind.BAD_RESPONSE, f"the response holds no answer: {problem}")


def content_text(value: object) -> str:
    """A content field as text: a string, null, or a list of parts."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise no_answer(f"content is of type {type(value).__name__}")
    texts = [text for part in value if (text := _part_text(part)) is not None]
    if value and not texts:
        raise no_answer("no part of its content is of a known type")
    return "".join(texts)


def refusal_text(message: dict[str, Any]) -> str:
    """What a message says in refusing; "" if it does not refuse."""
    refusal = message.get("refusal")
    return refusal if isinstance(refusal, str) and refusal else _refusing_parts(message.get("content"))


def _refusing_parts(content: object) -> str:
    """The text of parts of a content that refuse."""
    texts = (part.get("refusal") for part in objects_in(content) if part.get("type") == "refusal")
    return "".join(text for text in texts if isinstance(text, str))


def _piece(name: str, value: object) -> str:
    """The text in a field of an event."""
    return content_text(value) if name in ("content", "text") else value if isinstance(value, str) else ""


def _part_text(part: object) -> str | None:
    """The text of a part of a content, if any; None for a part of an unknown type."""
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        return None
    if isinstance(text := part.get("text"), str):
        return text
    return "" if part.get("type") in _PARTS_WITHOUT_TEXT else None


@dataclass(slots=True)
class _Choice:
    """The pieces of one choice so far."""

    pieces: dict[str, list[str]] = field(default_factory=dict)
    finish_reason: str | None = None
    logprobs: dict[str, list[object]] = field(default_factory=dict)
    steps: int = 0
    usage: dict[str, Any] | None = None
    """The usage that followed its end."""
    resumed: bool = False
    """Whether text arrived after its end, so that it holds several answers."""
    is_whole: bool = False
    """Whether its text is that of a whole message."""
    newest_id: object = None
    events: int = 0
    """Events with an id."""
    new_ids: int = 0
    """Those with another id than the one before."""
    began_again: bool = False
    """Whether an event with another id has begun a message after the first texts."""

    def add(self, choice: dict[str, Any], event_id: object) -> bool:
        """Add one event's part of this choice; True if it carried text."""
        delta, message = choice.get("delta"), choice.get("message")
        source = delta if isinstance(delta, dict) else choice
        self.events += event_id is not None
        if event_id not in (None, self.newest_id):
            self.new_ids += 1
            self.began_again |= self.newest_id is not None and bool(self.pieces) and bool(source.get("role"))
            self.newest_id = event_id
        if isinstance(message, dict) and (source is choice or not any(map(source.get, TEXT_FIELDS))):
            source = message  # a whole message may come with an empty delta
        has_text, had_ended = False, self.has_ended or self.is_whole
        # at its end a stream may repeat the whole message
        repeated = self.pieces.keys() if source is message and not self.is_whole else ()
        for name in TEXT_FIELDS & source.keys() - repeated:
            if piece := _piece(name, source[name]):
                self.pieces.setdefault(name, []).append(piece)
                has_text = True
        if refusal := _refusing_parts(source.get("content")):
            self.pieces.setdefault("refusal", []).append(refusal)
            has_text = True
        self.is_whole |= has_text and source is message
        if isinstance(reason := choice.get("finish_reason"), str) and not (
            finish_word(reason) in ENDED and finish_word(self.finish_reason or "") in CUT
        ):
            self.finish_reason = reason
        if isinstance(logprobs := choice.get("logprobs"), dict):
            for name in LOGPROB_FIELDS:
                if (values := logprobs.get(name)) and isinstance(values, list):
                    self.logprobs.setdefault(name, []).extend(values)
        if has_text and had_ended:
            self.resumed = True
        self.steps += has_text
        return has_text

    @property
    def is_spliced(self) -> bool:
        """Whether it goes on with another response, as after a proxy has lost its server. Each event of some
        servers has a new id."""
        return self.began_again and self.new_ids == 2 < self.events

    @property
    def has_ended(self) -> bool:
        """Whether it has a finish reason of a complete answer."""
        return self.finish_reason is not None and finish_word(self.finish_reason) in FINISHED

    def payload(self, index: int, chat: bool, with_usage: bool) -> dict[str, Any]:
        texts = {name: "".join(pieces) for name, pieces in self.pieces.items()}
        choice: dict[str, Any] = {"index": index, "finish_reason": self.finish_reason}
        if with_usage:
            choice["usage"] = self.usage
        if self.logprobs:
            choice["logprobs"] = self.logprobs
        return choice | ({"message": {"content": None} | texts} if chat else {"text": ""} | texts)


def parse_server_json(body: bytes) -> object:
    """Parse JSON, with `?` or U+FFFD for invalid characters; raises `ValueError` if it is still invalid, or cannot be
    written again: it is nested too deeply, or has huge numbers."""
    body = strip_byte_order_mark(body)
    try:
        value: object = orjson.loads(body)
    except orjson.JSONDecodeError:
        value = _parse_flawed(body)
    try:
        orjson.dumps([value])  # as part of something else, such as a recorded error
    except orjson.JSONEncodeError as error:
        raise ValueError(str(error)) from None
    return value


def _parse_flawed(body: bytes) -> object:
    try:
        value = json.loads(body.decode("utf-8", "replace"))
        clean = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
        return json.loads(clean)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


MAX_LINE_BYTES = 16 * 1024 * 1024
"""Upper bound on what is parsed at once without a bound on its tokens: a line of a stream, or a whole text."""
_UNDECIDED_STARTS = frozenset(BOM_UTF8[:length] for length in range(len(BOM_UTF8)))
"""Starts of a response that do not show its kind: nothing, or part of a byte order mark."""


def is_comment(chunk: bytes) -> bool:
    """Whether a chunk of a stream has only comments and empty lines."""
    first_byte = chunk.lstrip()[:1]
    return not first_byte or (
        first_byte == b":" and all(line.strip()[:1] in (b"", b":") for line in chunk.split(b"\n"))
    )


class StreamReader:
    """Turns the bytes of an event stream into the response that the request would get without streaming.

    There is one difference: llama-server sends the usage after each choice, and each choice keeps its own.
    """

    def __init__(self, chat: bool, clock: Callable[[], float]) -> None:
        """`clock` dates the first token."""
        self._chat, self._clock = chat, clock
        self.first_token_at: float | None = None
        self._choices: dict[int, _Choice] = {}
        self._usage: dict[str, Any] | None = None
        self._last_ended: _Choice | None = None
        """The choice that ended last."""
        self._fields: dict[str, object] = {"model": None, "timings": None, "id": None}
        """Value of each field in the newest event that has it; the first value for `id`."""
        self._partial_line = b""
        self._is_done = False
        self._name = b""
        """Name of the event being read."""
        self._error: bytes | None = None
        self._plain_body: list[bytes] | None = None
        """Chunks of a response that is not a stream, but JSON or a web page."""
        self._start = b""
        """Part of a byte order mark, while nothing shows the kind of response."""
        self._size = 0

    def feed(self, data: bytes) -> None:
        """Add the next bytes, split anywhere."""
        if self._plain_body is None and not self._size:
            start = strip_byte_order_mark((self._start + data).lstrip()).lstrip()
            if start in _UNDECIDED_STARTS:
                self._start = start
                return
            data, self._start = start, b""
            self._plain_body = [] if start[:1] in (b"{", b"<") else None
        self._size += len(data.strip())
        if self._plain_body is None:
            self._read(data)
        elif self._size > MAX_LINE_BYTES:
            raise Failure(FailureKind.BAD_RESPONSE, f"the response is longer than {MAX_LINE_BYTES} bytes")
        else:
            self._plain_body.append(data)

    def _read(self, data: bytes) -> None:
        """Parse the complete lines."""
        block = self._partial_line + data if self._partial_line else data
        lines = block.split(b"\n")
        self._partial_line = lines.pop()
        if len(self._partial_line) > MAX_LINE_BYTES:
            raise Failure(FailureKind.BAD_RESPONSE, f"a line of the stream is longer than {MAX_LINE_BYTES} bytes")
        for line in lines:
            self._line(line.strip())

    def _line(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if not line:
            self._name = b""
        elif name == b"event":
            self._name = value.strip()
        elif name == b"error" or (name == b"data" and self._name == b"error"):
            self._record_error(value.strip())
        elif name == b"data":
            self._event(value.strip())

    def _record_error(self, data: bytes) -> None:
        """Record an error as the body of a failed response."""
        if self._error is not None:
            return
        try:
            error = parse_server_json(data)
        except ValueError:
            error = data.decode("utf-8", "replace")
        self._error = data if find_error(error) is not None else orjson.dumps({"error": error or "no message"})

    def _event(self, data: bytes) -> None:
        if data == b"[DONE]":
            self._is_done = True
            return
        try:
            event = parse_server_json(data)
        except ValueError as error:
            raise Failure(FailureKind.BAD_RESPONSE, "an event of the stream is not JSON") from error
        if not isinstance(event, dict):
            raise Failure(FailureKind.BAD_RESPONSE, f"an event of the stream is of type {type(event).__name__}")
        if find_error(event) is not None:
            self._record_error(data)
        self._add(event)

    def _add(self, event: dict[str, Any]) -> None:
        """Add one event."""
        fields = self._fields
        if isinstance(model := event.get("model"), str) and model:
            fields["model"] = model
        event_id = event.get("id") or fields["id"]
        if fields["id"] is None:
            fields["id"] = event_id
        if "timings" in event:
            fields["timings"] = event["timings"]
        for choice in objects_in(event.get("choices")):
            if isinstance(index := 0 if choice.get("index") is None else choice["index"], int):
                self._add_part(self._choices.get(index) or self._choices.setdefault(index, _Choice()), choice, event_id)
        if isinstance(usage := event.get("usage"), dict):
            self._usage = usage
            if self._last_ended is not None:
                self._last_ended.usage = usage

    def _add_part(self, choice: _Choice, part: dict[str, Any], event_id: object) -> None:
        """Add one event's part of a choice."""
        if choice.add(part, event_id) and self.first_token_at is None:
            self.first_token_at = self._clock()
        if isinstance(part.get("finish_reason"), str):
            self._last_ended = choice

    def replacement(self) -> bytes | None:
        """The error as JSON, or the whole response, that arrived instead of a stream; None for a stream."""
        if self._plain_body is not None:
            return b"".join(self._plain_body)
        line, self._partial_line = self._partial_line, b""
        if self._error is None and (line.startswith(b"error:") or self._name == b"error"):
            self._line(line.strip())
        return self._error

    def payload(self) -> dict[str, Any]:
        """The assembled response. A choice without a finish reason has none here, for the reader to interpret.

        Raises `Failure` if the stream stopped early, or if several answers share an index.
        """
        choices = self._choices
        if not (self._is_done or (choices and all(choice.finish_reason for choice in choices.values()))):
            raise Failure(FailureKind.RESET, "the stream ended before the answer was complete")
        if any(choice.resumed for choice in choices.values()):
            raise Failure(FailureKind.BAD_RESPONSE, "the stream continues a choice that has ended")
        if any(choice.is_spliced for choice in choices.values()):
            raise Failure(FailureKind.BAD_RESPONSE, "the stream goes on with another response, by its ids")
        # without usage, a server sends about one token per event
        steps = sum(choice.steps for choice in choices.values())
        has_usage_each = len(choices) > 1 and all(choice.usage for choice in choices.values())
        payload: dict[str, Any] = {
            "choices": [choice.payload(index, self._chat, has_usage_each) for index, choice in sorted(choices.items())],
            "usage": self._usage or {"completion_tokens": steps},
        }
        return payload | {name: value for name, value in self._fields.items() if value is not None}
