"""Parses responses of model servers, whole or streamed.

A model's text may contain half of a surrogate pair, which Python servers escape as `\\ud800`, others send bytes that
are no UTF-8, and some write NaN among log-probabilities. None of it is valid JSON, and all of it comes again at every
attempt with the same seed: it is accepted as an answer with invalid characters.

A server that ignores `stream: true` sends the whole response at once, which is accepted. An error arrives as an event
of that name, as `error` in an event or in one of its choices, or as a field of that name (llama-server).
"""

import json
import re
from codecs import BOM_UTF8
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, NamedTuple, Self

import orjson

from adaptive_eval.endpoints.failures import (
    FINISHED,
    Failure,
    FailureKind,
    find_error,
    finish_word,
    may_contain_error,
    without_mark,
)

TEXT_FIELDS = frozenset(("content", "text", "reasoning_content", "reasoning", "refusal"))
"""Fields of an event that hold a piece of text."""


@dataclass(slots=True)
class _Choice:
    """The pieces of one choice so far."""

    pieces: dict[str, list[str]] = field(default_factory=dict)
    finish_reason: str | None = None
    logprobs: list[object] = field(default_factory=list)
    token_logprobs: list[object] = field(default_factory=list)
    tokens: list[object] = field(default_factory=list)
    """The texts of its tokens, if a text completion names them."""
    steps: int = 0
    usage: dict[str, Any] | None = None
    """The usage that followed its end."""
    resumed: bool = False
    """Whether text came after its end, so that it holds several answers."""

    def add(self, choice: dict[str, Any]) -> bool:
        """Add one event's part of this choice; True if it carried text."""
        delta = choice.get("delta")
        source = delta if isinstance(delta, dict) else choice
        spoke, ended = False, self.has_ended
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
        if spoke and ended:
            self.resumed = True
        self.steps += spoke
        return spoke

    def add_texts(self, name: str, texts: list[str]) -> None:
        """Add the texts of events that carry nothing else."""
        spoken = [text for text in texts if text]
        if spoken:
            self.pieces.setdefault(name, []).extend(spoken)
            self.steps += len(spoken)
            self.resumed |= self.has_ended

    @property
    def has_ended(self) -> bool:
        """Whether a finish reason has said that it is complete."""
        return self.finish_reason is not None and finish_word(self.finish_reason) in FINISHED

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
    """The response that the request would get without streaming, assembled from the events so far; `clock` dates the
    first token.

    There is one difference: llama-server sends the usage after each choice, and each choice keeps its own.
    """

    def __init__(self, chat: bool, clock: Callable[[], float]) -> None:
        self._chat = chat
        self._clock = clock
        self._choices: dict[int, _Choice] = {}
        self._usage: dict[str, Any] | None = None
        self._last_ended: _Choice | None = None
        """The choice that ended last."""
        self._named: dict[str, object] = {"model": None, "timings": None, "system_fingerprint": None, "id": None}
        """For each field, the value in the newest event that has it; of ids the first."""
        self.first_token_at: float | None = None

    def add(self, event: dict[str, Any]) -> None:
        """Add one event."""
        named = self._named
        if isinstance(model := event.get("model"), str):
            named["model"] = model
        if named["id"] is None:
            named["id"] = event.get("id")
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
        """The assembled response. A choice without a finish reason keeps none, for the reader to interpret.

        Raises `Failure` if several answers have the index of one.
        """
        if any(choice.resumed for choice in self._choices.values()):
            raise Failure(FailureKind.BAD_RESPONSE, "the stream goes on with a choice that has ended")
        # without usage, a server sends about one token per event
        steps = sum(choice.steps for choice in self._choices.values())
        apart = len(self._choices) > 1 and all(choice.usage for choice in self._choices.values())
        payload: dict[str, Any] = {
            "choices": [choice.payload(index, self._chat, apart) for index, choice in sorted(self._choices.items())],
            "usage": self._usage or {"completion_tokens": steps},
        }
        return payload | {name: value for name, value in self._named.items() if value is not None}


def parse_server_json(body: bytes) -> object:
    """Parse JSON, with `?` or U+FFFD for invalid characters; raises `ValueError` if it is still invalid."""
    body = without_mark(body)
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        pass
    try:
        value = json.loads(body.decode("utf-8", "replace"))
        whole = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
        return json.loads(whole)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


MAX_LINE = 16 * 1024 * 1024
GATHERED = 64 * 1024
"""Bytes of a started stream to parse at once, which saves a third of the time."""
_DATA = b"data:"
_UNTOLD = frozenset(BOM_UTF8[:length] for length in range(len(BOM_UTF8)))
"""Beginnings of a response that do not show its kind: nothing yet, or a part of the mark of its byte order."""
_TEXT_FIELD = re.compile(rb'"(%b)":\s*("(?:[^"\\]|\\.)*")' % b"|".join(sorted(name.encode() for name in TEXT_FIELDS)))
_OTHER_TEXT = "\x00 another text"


class _EventForm(NamedTuple):
    """The form that most events of a stream share: all of their bytes except one text.

    Reading the texts alone takes a tenth of the time.
    """

    before: bytes
    after: bytes
    gap: bytes
    """Between two events."""
    choice: int
    field: str

    @classmethod
    def from_event(cls, line: bytes, event: dict[str, Any]) -> Self | None:
        """The form of an event that carries one text and nothing else that matters; None for any other.

        It changes the event.
        """
        choices = event.get("choices")
        if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], dict):
            return None
        choice, delta = choices[0], choices[0].get("delta")
        source = delta if isinstance(delta, dict) else choice
        fields = [name for name in TEXT_FIELDS if source.get(name)]
        ends = any(choice.get(name) is not None for name in ("finish_reason", "logprobs"))
        if len(fields) != 1 or ends or event.get("usage") is not None or not isinstance(choice.get("index", 0), int):
            return None
        source[fields[0]] = _OTHER_TEXT  # the event to compare with, once another text is put in its place
        for found in _TEXT_FIELD.finditer(line):
            before, after = line[: found.start(2)], line[found.end(2) :]
            try:
                same = orjson.loads(b"%b%b%b" % (before[len(_DATA) :], orjson.dumps(_OTHER_TEXT), after)) == event
            except orjson.JSONDecodeError:
                same = False
            if same:
                gap = b"\r\n\r\n" if after.endswith(b"\r") else b"\n\n"
                return cls(before, after.removesuffix(b"\r"), gap, choice.get("index", 0), fields[0])
        return None

    def texts(self, block: bytes) -> tuple[list[str], bytes]:
        """The texts of the events of this form at the start of a block, except the last one, and the rest."""
        alike = self._alike(block)
        try:
            texts = orjson.loads(b"[%b]" % b",".join(alike))
        except orjson.JSONDecodeError:
            return [], block
        if len(texts) != len(alike) or not all(isinstance(text, str) for text in texts):
            return [], block
        around = len(self.before) + len(self.after) + len(self.gap)
        return texts, block[sum(map(len, alike)) + len(alike) * around :]

    def _alike(self, block: bytes) -> list[bytes]:
        """The differing bytes of the events of this form at the start of a block, except the last one."""
        # splitting by one byte takes a third of the time
        *events, _ = block.split(b"\n")[::2] if self.gap == b"\n\n" else block.split(self.gap)
        before, after, start, end = self.before, self.after, len(self.before), -len(self.after)
        middles = [event[start:end] for event in events]
        whole = b"%b%b%b%b" % (before, (after + self.gap + before).join(middles), after, self.gap)
        if not block.startswith(whole):  # only if some event has another form are they compared one by one
            alike = takewhile(lambda event: event.startswith(before) and event.endswith(after), events)
            middles = [event[start:end] for event in alike]
        return middles[:-1]


def is_comment(part: bytes) -> bool:
    """Whether a piece of a stream has nothing but comments and empty lines."""
    first = part.lstrip()[:1]
    return not first or (first == b":" and all(line.strip()[:1] in (b"", b":") for line in part.split(b"\n")))


class StreamReader:
    """Turns the bytes of an event stream into the whole response; `clock` dates the first token."""

    def __init__(self, chat: bool, clock: Callable[[], float]) -> None:
        self._response = StreamedResponse(chat, clock)
        self._rest = b""
        self._gathered: list[bytes] = []
        """Unparsed bytes after the first token."""
        self._waiting = 0
        """Their number."""
        self._form: _EventForm | None = None
        """The form of the newest event that had one."""
        self._newest: dict[str, Any] = {}
        self._done = False
        self._name = b""
        """The name of the event being read."""
        self._error: bytes | None = None
        self._whole: list[bytes] | None = None
        """A response that is not a stream, but JSON or a web page."""
        self._start = b""
        """Bytes so far that do not show what follows."""
        self._size = 0

    @property
    def first_token_at(self) -> float | None:
        """When the first token came."""
        return self._response.first_token_at

    def feed(self, data: bytes) -> None:
        """Take the next bytes, cut anywhere."""
        if self._response.first_token_at is not None:
            self._gathered.append(data)
            self._waiting += len(data)
            if self._waiting >= GATHERED:
                self._read_gathered()
            return
        if self._whole is None and not self._size:
            self._start += data
            if (begun := without_mark(self._start).lstrip()) in _UNTOLD:
                return
            data, self._start = begun, b""
            self._whole = [] if begun[:1] in (b"{", b"<") else None
        self._size += len(data.strip())
        if self._whole is None:
            self._read(data)
        elif self._size > MAX_LINE:
            raise Failure(FailureKind.BAD_RESPONSE, f"the response is longer than {MAX_LINE} bytes")
        else:
            self._whole.append(data)

    def _read_gathered(self) -> None:
        gathered, self._gathered, self._waiting = self._gathered, [], 0
        self._read(b"".join(gathered))

    def _read(self, data: bytes) -> None:
        """Take the lines that are now complete."""
        block = self._rest + data if self._rest else data
        if self._form is not None and not self._name:
            texts, block = self._form.texts(block.lstrip(b"\r\n"))
            self._response.add_texts(self._form.choice, self._form.field, texts)
        lines = block.split(b"\n")
        self._rest = lines.pop()
        if len(self._rest) > MAX_LINE:
            raise Failure(FailureKind.BAD_RESPONSE, f"a line of the stream is longer than {MAX_LINE} bytes")
        for line in lines:
            self._line(line.strip())
        events = [line for line in lines if line.startswith(_DATA)]
        if events and self.first_token_at is not None and not self._done:
            self._form = _EventForm.from_event(events[-1], self._newest) or self._form

    def _line(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if not line:
            self._name = b""
        elif name == b"event":
            self._name = value.strip()
        elif name == b"error" or (name == b"data" and self._name == b"error"):
            self._fail(value.strip())
        elif name == b"data":
            self._event(value.strip())

    def _fail(self, data: bytes) -> None:
        """Keep an error as the body of a failed response."""
        if self._error is not None:
            return
        try:
            error = parse_server_json(data)
        except ValueError:
            error = data.decode("utf-8", "replace")
        self._error = data if find_error(error) is not None else orjson.dumps({"error": error or "no message"})

    def _event(self, data: bytes) -> None:
        if data == b"[DONE]":
            self._done = True
            return
        try:
            event = parse_server_json(data)
        except ValueError as error:
            raise Failure(FailureKind.BAD_RESPONSE, "an event of the stream is not JSON") from error
        if not isinstance(event, dict):
            raise Failure(FailureKind.BAD_RESPONSE, f"an event of the stream is of type {type(event).__name__}")
        if may_contain_error(data) and find_error(event) is not None:
            self._fail(data)
        self._newest = event
        self._response.add(event)

    def replacement(self) -> bytes | None:
        """The error as JSON, or the whole response, that arrived instead of a stream; None for a stream."""
        if self._whole is not None:
            return b"".join(self._whole)
        self._read_gathered()
        rest, self._rest = self._rest, b""
        if self._error is None and (rest.startswith(b"error:") or self._name == b"error"):
            self._line(rest.strip())
        return self._error

    def payload(self) -> dict[str, Any]:
        """The response; raises `Failure` if the stream stopped early."""
        self._read_gathered()
        if not (self._done or self._response.ended):
            raise Failure(FailureKind.RESET, "the stream ended before the answer was complete")
        return self._response.payload()
