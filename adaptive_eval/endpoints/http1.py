"""Parser of HTTP/1.1 responses, without any I/O.

    HEAD -> LENGTH | CHUNK_SIZE <-> CHUNK_DATA | TRAILER | UNTIL_CLOSE -> DONE        (RFC 9112, sections 2 to 7)

A parser reads one response, from pieces cut anywhere. Body bytes go to `sink` as they arrive.
"""

from collections.abc import Callable
from enum import IntEnum, auto

import httpx2

from adaptive_eval.endpoints.wire import MAX_BODY

MAX_HEAD = 64 * 1024

Header = tuple[bytes, bytes]


class _State(IntEnum):  # integers hash fast
    HEAD = auto()
    LENGTH = auto()
    CHUNK_SIZE = auto()
    CHUNK_DATA = auto()
    TRAILER = auto()
    UNTIL_CLOSE = auto()
    DONE = auto()


def _broken(what: str) -> httpx2.RemoteProtocolError:
    return httpx2.RemoteProtocolError(f"not a valid HTTP/1.1 response: {what}")


def too_long() -> httpx2.RemoteProtocolError:
    """The error for a body over its size limit."""
    return _broken("the body is longer than anything an answer could need")


def _digits(value: bytes, base: int, what: str) -> int:
    """A number of decimal or hexadecimal digits only; int() would also accept signs and underscores."""
    if not value.isalnum() or len(value) > 18:
        raise _broken(f"{what} is {value[:32]!r}")
    try:
        return int(value, base)
    except ValueError:
        raise _broken(f"{what} is {value[:32]!r}") from None


class ResponseParser:
    """Parser of one response, `complete` after its last byte."""

    __slots__ = (
        "_buffer", "_left", "_room", "_sink", "_state", "begun", "complete", "headers", "packed", "reusable", "status",
    )  # fmt: skip

    def __init__(self, sink: Callable[[bytes], object], max_body: int = MAX_BODY) -> None:
        self._sink = sink
        self._state = _State.HEAD
        self._buffer = b""
        self._left = 0
        self._room = max_body
        self.begun = False
        """Whether the head is complete."""
        self.complete = False
        self.status = 0
        self.headers: list[Header] = []
        self.packed = False
        """Whether the body is compressed."""
        self.reusable = True
        """Whether the connection may carry another request."""

    def feed(self, data: bytes) -> bool:
        """Parse the next bytes; True once the response is complete."""
        if self._state is _State.LENGTH:
            data = self._take(data)
        elif self._state is _State.UNTIL_CLOSE:
            data = self._pass_on(data)
        else:
            data = self._parse(self._buffer + data if self._buffer else data)
        self.begun = self._state is not _State.HEAD
        self.complete = self._state is _State.DONE
        if self.complete and data:
            # unrequested bytes: nothing that follows on this connection can be trusted
            self.reusable = False
        return self.complete

    def feed_eof(self) -> bool:
        """Note that the server closed the connection; True if this completes the response."""
        if self._state is _State.UNTIL_CLOSE:
            self._state = _State.DONE
            self.complete = True
        self.reusable = False
        return self.complete

    def _parse(self, data: bytes) -> bytes:
        """Parse as far as the bytes reach; returns what follows the response."""
        self._buffer = b""
        while data and self._state is not _State.DONE:
            rest = _STEPS[self._state](self, data)
            if rest is None:
                self._buffer = data
                if len(data) > MAX_HEAD:
                    raise _broken(f"a head or a chunk line is longer than {MAX_HEAD} bytes")
                return b""
            data = rest
        return data

    def _head(self, data: bytes) -> bytes | None:
        end = data.find(b"\r\n\r\n")
        if end < 0:
            if not data.startswith(b"HTTP/1."[: len(data)]):
                raise _broken(f"it begins with {data[:32]!r}")
            return None
        lines = data[:end].split(b"\r\n")
        if not lines[0].startswith(b"HTTP/1."):
            raise _broken(f"it begins with {lines[0][:32]!r}")
        self.status = _digits(lines[0][9:12], 10, "the status")
        headers: list[Header] = []
        for line in lines[1:]:
            name, colon, value = line.partition(b":")
            if not colon or not name or name[-1:].isspace():
                raise _broken(f"a header line is {line[:32]!r}")
            headers.append((name.lower(), value.strip()))
        if self.status == 101:
            raise _broken("it switches to another protocol, which was not asked for")
        if 100 <= self.status < 200:
            return data[end + 4 :]
        self.headers = headers
        self._frame(lines[0].startswith(b"HTTP/1.0"))
        return data[end + 4 :]

    def _frame(self, old: bool) -> None:
        """Determine where the body ends."""
        length: bytes | None = None
        coding = connection = b""
        for name, value in self.headers:
            if name == b"content-length":
                if length is not None and value != length:
                    raise _broken("it has two lengths")
                length = value
            elif name == b"transfer-encoding":
                coding = value.lower()
            elif name == b"connection":
                connection = value.lower()
            elif name == b"content-encoding":
                self.packed = value.lower() != b"identity"
        self.reusable = b"close" not in connection and (not old or b"keep-alive" in connection)
        if self.status in (204, 304):
            self._state = _State.DONE
        elif coding:
            if coding != b"chunked":
                raise _broken(f"transfer-encoding is {coding[:32]!r}")
            self._state = _State.CHUNK_SIZE
        elif length is not None:
            self._left = _digits(length, 10, "content-length")
            self._make_room(self._left)
            self._state = _State.LENGTH if self._left else _State.DONE
        else:
            self._state = _State.UNTIL_CLOSE

    def _make_room(self, size: int) -> None:
        self._room -= size
        if self._room < 0:
            raise too_long()

    def _pass_on(self, data: bytes) -> bytes:
        self._make_room(len(data))
        self._sink(data)
        return b""

    def _take(self, data: bytes) -> bytes:
        if len(data) < self._left:
            self._left -= len(data)
            self._sink(data)
            return b""
        self._state = _State.DONE
        self._sink(data[: self._left])
        return data[self._left :]

    def _chunk_size(self, data: bytes) -> bytes | None:
        end = data.find(b"\r\n")
        if end < 0:
            return None
        size = _digits(data[:end].partition(b";")[0].strip(), 16, "a chunk size")
        self._make_room(size)
        # the line end after the data belongs to the chunk
        self._left = size + 2
        self._state = _State.CHUNK_DATA if size else _State.TRAILER
        return data[end + 2 :]

    def _chunk_data(self, data: bytes) -> bytes | None:
        if self._left > 2:
            part = data[: self._left - 2]
            self._sink(part)
            self._left -= len(part)
            return data[len(part) :]
        if len(data) < 2:
            return None
        if data[:2] != b"\r\n":
            raise _broken("a chunk is longer than its size says")
        self._state = _State.CHUNK_SIZE
        return data[2:]

    def _trailer(self, data: bytes) -> bytes | None:
        end = data.find(b"\r\n")
        if end < 0:
            return None
        if end == 0:
            self._state = _State.DONE
        return data[end + 2 :]


_STEPS: dict[_State, Callable[[ResponseParser, bytes], bytes | None]] = {
    _State.HEAD: ResponseParser._head,
    _State.LENGTH: ResponseParser._take,
    _State.UNTIL_CLOSE: ResponseParser._pass_on,
    _State.CHUNK_SIZE: ResponseParser._chunk_size,
    _State.CHUNK_DATA: ResponseParser._chunk_data,
    _State.TRAILER: ResponseParser._trailer,
}
