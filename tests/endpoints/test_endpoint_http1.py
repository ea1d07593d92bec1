"""The response parser: every framing, cut anywhere, and refusals of what is no HTTP."""

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_eval.endpoints.http1 import ResponseParser

LENGTH = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A:  b \r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;ext=1\r\nlo\r\n0\r\nTrailer: x\r\n\r\n"
INTERIM = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n" + LENGTH
EMPTY = b"HTTP/1.1 204 No Content\r\n\r\n"
ZERO = b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n"
OLD = b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello"
CLOSING = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello"
TO_THE_END = b"HTTP/1.1 200 OK\r\n\r\nhello"

WHOLE = [
    (LENGTH, 200, b"hello", True),
    (CHUNKED, 200, b"hello", True),
    (INTERIM, 200, b"hello", True),
    (EMPTY, 204, b"", True),
    (ZERO, 500, b"", True),
    (OLD, 200, b"hello", False),
    (CLOSING, 200, b"hello", False),
]


def parse(data: bytes, cuts: list[int] | None = None, **limits: int) -> tuple[ResponseParser, bytes]:
    body: list[bytes] = []
    parser = ResponseParser(body.append, **limits)
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts or []), len(data)]
    for start, end in zip(edges, edges[1:], strict=False):
        parser.feed(data[start:end])
    return parser, b"".join(body)


@given(case=st.sampled_from(WHOLE), cuts=st.lists(st.integers(0, 130), max_size=10))
def test_a_response_is_the_same_however_it_is_cut(case: tuple[bytes, int, bytes, bool], cuts: list[int]) -> None:
    data, status, body, reusable = case
    parser, got = parse(data, cuts)
    assert (parser.complete, parser.status, got, parser.reusable) == (True, status, body, reusable)


@pytest.mark.parametrize("data", [case[0] for case in WHOLE])
def test_no_prefix_is_complete(data: bytes) -> None:
    for end in range(len(data)):
        parser, _ = parse(data[:end])
        assert not parser.complete
        assert not parser.feed_eof()


def test_headers_are_lower_case_without_blanks_around_values() -> None:
    assert parse(LENGTH)[0].headers == [(b"content-length", b"5"), (b"x-a", b"b")]


def test_without_a_length_the_body_ends_with_the_connection() -> None:
    parser, body = parse(TO_THE_END, [20, 21])
    assert not parser.complete
    assert parser.feed_eof()
    assert (body, parser.reusable) == (b"hello", False)


@pytest.mark.parametrize("data", [LENGTH, CHUNKED, EMPTY])
def test_bytes_after_the_response_end_the_connections_use(data: bytes) -> None:
    parser, _ = parse(data + b"HTTP/1.1 200 OK\r\n")
    assert parser.complete
    assert not parser.reusable


@pytest.mark.parametrize(
    "data",
    [
        b"220 mail.example ESMTP\r\n",
        b"\x16\x03\x01\x02\x00",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/1.1 \r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nname : x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1_0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;" + b"x" * 70_000,
        b"HTTP/1.1 200 OK\r\nContent-Length: 999999999999999999\r\n\r\n",
    ],
)
def test_what_is_no_response_is_refused(data: bytes) -> None:
    with pytest.raises(httpx2.RemoteProtocolError):
        parse(data)


@pytest.mark.parametrize(
    "data", [LENGTH, CHUNKED, TO_THE_END + b"x" * 10], ids=["length", "chunked", "until the connection closes"]
)
def test_no_body_may_be_longer_than_the_limit(data: bytes) -> None:
    with pytest.raises(httpx2.RemoteProtocolError, match="longer than anything"):
        parse(data, max_body=4)


@given(st.binary(max_size=200))
def test_noise_is_refused_or_awaited_but_never_believed(data: bytes) -> None:
    try:
        parser, _ = parse(data)
    except httpx2.RemoteProtocolError:
        return
    assert not parser.complete or data.startswith(b"HTTP/1.")
