"""The slot transport on real sockets."""

import asyncio
import shutil
import socket
import ssl
import subprocess
from pathlib import Path

import httpx2
import pytest
from raw_servers import Exchange as Asked
from raw_servers import raw_server

from adaptive_eval.endpoints.transport import SlotTransport, Stalled, origin_of


def get(url: str) -> bytes:
    return f"GET {httpx2.URL(url).path} HTTP/1.1\r\nHost: a\r\n\r\n".encode()


async def ok(asked: Asked) -> None:
    await asked.reply(200, b"hello")


async def test_one_connection_serves_one_request_after_the_other() -> None:
    async with raw_server(ok) as server:
        transport, origin = SlotTransport(), origin_of(httpx2.URL(server.base_url))
        for _ in range(5):
            done = await transport.exchange(origin, get(server.base_url))
            assert (done.status, done.body) == (200, b"hello")
        assert server.connections == 1
        await transport.aclose()


async def test_requests_at_once_have_a_connection_each() -> None:
    async def slowly(asked: Asked) -> None:
        await asyncio.sleep(0.02)
        await asked.reply(200, b"hello")

    async with raw_server(slowly) as server:
        transport, origin = SlotTransport(), origin_of(httpx2.URL(server.base_url))
        for _ in range(2):
            await asyncio.gather(*(transport.exchange(origin, get(server.base_url)) for _ in range(8)))
        assert server.connections == 8
        await transport.aclose()


async def test_an_idle_connection_that_the_server_closed_costs_no_failure() -> None:
    async def once_per_connection(asked: Asked) -> None:
        if asked.index % 2:
            asked.reset()
        else:
            await asked.reply(200, b"hello")

    async with raw_server(once_per_connection) as server:
        transport, origin = SlotTransport(), origin_of(httpx2.URL(server.base_url))
        for _ in range(3):
            assert (await transport.exchange(origin, get(server.base_url))).body == b"hello"
        await transport.aclose()


async def test_a_connection_that_breaks_later_has_lost_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def script(asked: Asked) -> None:
        if asked.index == 0:
            await asked.reply(200, b"hello")
        else:
            await asyncio.sleep(0.1)
            asked.reset()

    monkeypatch.setattr("adaptive_eval.endpoints.transport.STALE_SECONDS", 0.05)
    async with raw_server(script) as server:
        transport, origin = SlotTransport(), origin_of(httpx2.URL(server.base_url))
        await transport.exchange(origin, get(server.base_url))
        with pytest.raises(httpx2.ReadError):
            await transport.exchange(origin, get(server.base_url))
        assert len(server.seen) == 2


async def test_a_reset_of_a_fresh_connection_is_an_error() -> None:
    async def never(asked: Asked) -> None:
        asked.reset()

    async with raw_server(never) as server:
        with pytest.raises(httpx2.ReadError):
            await SlotTransport().exchange(origin_of(httpx2.URL(server.base_url)), get(server.base_url))
        assert len(server.seen) == 1


async def test_an_answer_cut_in_the_middle_is_an_error_even_on_a_used_connection() -> None:
    async def script(asked: Asked) -> None:
        if asked.index == 0:
            await asked.reply(200, b"hello")
        else:
            await asked.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
            asked.close()

    async with raw_server(script) as server:
        transport, origin = SlotTransport(), origin_of(httpx2.URL(server.base_url))
        await transport.exchange(origin, get(server.base_url))
        with pytest.raises(httpx2.ReadError):
            await transport.exchange(origin, get(server.base_url))
        assert len(server.seen) == 2


async def test_the_time_limit_counts_from_sending() -> None:
    async def drip(asked: Asked) -> None:
        await asked.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        for _ in range(100):
            await asked.send(b"x")
            await asyncio.sleep(0.01)

    async with raw_server(drip) as server:
        begun = asyncio.get_running_loop().time()
        with pytest.raises(httpx2.ReadTimeout, match=r"0\.1 s"):
            await SlotTransport().exchange(origin_of(httpx2.URL(server.base_url)), get(server.base_url), 0.1)
        assert 0.1 <= asyncio.get_running_loop().time() - begun < 0.5


async def test_a_stream_may_take_long_but_not_fall_silent() -> None:
    async def stop_in_the_middle(asked: Asked) -> None:
        await asked.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        for _ in range(10):
            await asked.send(b"x")
            await asyncio.sleep(0.02)
        await asyncio.sleep(5)

    got: list[bytes] = []
    async with raw_server(stop_in_the_middle) as server:
        with pytest.raises(Stalled):
            await SlotTransport().exchange(
                origin_of(httpx2.URL(server.base_url)), get(server.base_url), 10.0, 0.1, got.append
            )
    assert b"".join(got) == b"x" * 10


async def test_a_sink_gets_a_good_body_and_never_an_error() -> None:
    async def script(asked: Asked) -> None:
        await asked.reply(500 if asked.index else 200, b"hello")

    got: list[bytes] = []
    async with raw_server(script) as server:
        transport, origin = SlotTransport(), origin_of(httpx2.URL(server.base_url))
        first = await transport.exchange(origin, get(server.base_url), 1.0, 1.0, got.append)
        second = await transport.exchange(origin, get(server.base_url), 1.0, 1.0, got.append)
        await transport.aclose()
    assert (first.body, second.body, b"".join(got)) == (b"", b"hello", b"hello")


async def test_what_breaks_in_a_sink_reaches_its_request() -> None:
    def broken(_: bytes) -> None:
        raise ZeroDivisionError

    async with raw_server(ok) as server:
        with pytest.raises(ZeroDivisionError):
            await SlotTransport().exchange(
                origin_of(httpx2.URL(server.base_url)), get(server.base_url), 1.0, 1.0, broken
            )


async def test_a_cancelled_request_leaves_no_connection_for_the_next() -> None:
    async def late(asked: Asked) -> None:
        await asyncio.sleep(0.05 if asked.index == 0 else 0.0)
        await asked.reply(200, b"late" if asked.index == 0 else b"hello")

    async with raw_server(late) as server:
        transport, origin = SlotTransport(), origin_of(httpx2.URL(server.base_url))
        task = asyncio.create_task(transport.exchange(origin, get(server.base_url)))
        await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await transport.exchange(origin, get(server.base_url))).body == b"hello"
        assert server.connections == 2
        await transport.aclose()


async def test_a_server_that_speaks_out_of_turn_is_left() -> None:
    async def twice(asked: Asked) -> None:
        await asked.reply(200, b"hello")
        if asked.index == 0:
            await asyncio.sleep(0.01)
            await asked.reply(408, b"idle")

    async with raw_server(twice) as server:
        transport, origin = SlotTransport(), origin_of(httpx2.URL(server.base_url))
        await transport.exchange(origin, get(server.base_url))
        await asyncio.sleep(0.05)
        assert (await transport.exchange(origin, get(server.base_url))).body == b"hello"
        assert server.connections == 2
        await transport.aclose()


async def test_no_connection_is_told_apart_from_no_answer(unused_tcp_port: int) -> None:
    with pytest.raises(httpx2.ConnectError, match=f"127.0.0.1:{unused_tcp_port}"):
        await SlotTransport().exchange(("http", "127.0.0.1", unused_tcp_port), b"")


async def test_a_silent_connection_is_kept_alive() -> None:
    async with raw_server(ok) as server:
        transport, origin = SlotTransport(), origin_of(httpx2.URL(server.base_url))
        await transport.exchange(origin, get(server.base_url))
        (connection,) = transport._idle[origin]
        assert connection._transport is not None
        assert connection._transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        await transport.aclose()


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A self-signed certificate for localhost, with its key in the same file."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl, which makes the certificate, is not installed")
    path = tmp_path / "localhost.pem"
    made = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    made += ["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    made += ["-keyout", str(tmp_path / "key.pem"), "-out", str(path)]
    subprocess.run(made, check=True, capture_output=True)
    path.write_text(path.read_text() + (tmp_path / "key.pem").read_text())
    return path


async def test_https_checks_the_certificate(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    async with raw_server(ok, tls=context) as server:
        url = server.base_url.replace("127.0.0.1", "localhost")
        with pytest.raises(httpx2.ConnectError, match="certificate"):
            await SlotTransport().exchange(origin_of(httpx2.URL(url)), get(url))
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        transport = SlotTransport()
        for _ in range(2):
            assert (await transport.exchange(origin_of(httpx2.URL(url)), get(url))).body == b"hello"
        assert len(server.seen) == 2
        await transport.aclose()


async def test_it_is_a_transport_of_httpx() -> None:
    async def echo(asked: Asked) -> None:
        await asked.reply(201, asked.raw, "X-Path: " + asked.path)

    async with raw_server(echo) as server, httpx2.AsyncClient(transport=SlotTransport(), timeout=1.0) as client:
        response = await client.post(server.base_url + "/x?y=1", content=b"hello")
        assert (response.status_code, response.content) == (201, b"hello")
        assert response.headers["x-path"] == "/v1/x?y=1"
        assert server.seen[0].headers["host"] == httpx2.URL(server.base_url).netloc.decode()
