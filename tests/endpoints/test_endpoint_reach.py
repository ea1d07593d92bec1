"""How both clients reach servers: proxies, certificates, authentication, and what is never followed or kept."""

import asyncio
import gzip
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest
from endpoint_opener import CLIENTS, answer, ask, opened_caller
from patient_time import until
from raw_servers import CHAT, Exchange, RawServer, raw_server, replying
from small_proxy import SmallProxy, small_proxy

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.endpoints.client import Caller
from adaptive_eval.endpoints.endpoint import open_endpoint
from adaptive_eval.endpoints.failures import Failure, FailureKind
from adaptive_eval.endpoints.parsing import MAX_LINE_BYTES
from adaptive_eval.endpoints.server_access import ServerAccess, direct_transport
from adaptive_eval.endpoints.types import EndpointConfig, Limits, Sampling
from adaptive_eval.endpoints.wire import ANY_BODY, MAX_BODY, longest_response

BODY = {"model": "m", "messages": [{"role": "user", "content": "How much is 6 times 7?"}]}
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the environment of the tests names."""
    for name in (*PROXIES, "SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def caller(
    base_url: str, client: str, *, timeout: float = 5.0, key: str | None = "key-of-the-tests", folder: Path = Path(),
    **values: object,
) -> Caller:  # fmt: skip
    """Either client, without what repeats its requests."""
    return opened_caller(base_url, client, Sampling(timeout=timeout), key, folder, **values)


async def check(asking: Caller, url: str, times: int = 1) -> None:
    """It gets answers there, and is closed."""
    for _ in range(times):
        assert (await asking.ask(url, BODY)).status == 200
    await asking.close()


Proxied = AsyncIterator[tuple[RawServer, SmallProxy]]


@asynccontextmanager
async def proxied(password: str | None = None, tls: ssl.SSLContext | None = None) -> Proxied:
    """A server that answers, and the proxy that leads to it."""
    async with (
        raw_server(answer, tls=tls) as server,
        small_proxy(urlsplit(server.base_url).port or 0, password) as proxy,
    ):
        yield server, proxy


# -- proxies -----------------------------------------------------------------------------------------------------


@CLIENTS
@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
async def test_a_proxy_is_used_for_http(client: str, variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with proxied() as (server, proxy):
        monkeypatch.setenv(variable, proxy.url)
        asking = caller("http://model.test/v1", client)
        assert (await asking.ask("http://model.test/v1", BODY)).status == 200
        assert (await asking.models("http://model.test/v1")).payload == {"data": [{"id": "m"}]}
        await asking.close()
        assert proxy.seen[0] == "POST http://model.test/v1/chat/completions HTTP/1.1"
        assert server.seen[0].headers["host"] == "model.test"


@CLIENTS
@pytest.mark.parametrize("variable", ["HTTPS_PROXY", "ALL_PROXY"])
async def test_https_goes_through_a_tunnel_that_the_proxy_cannot_read(
    client: str, variable: str, certificate: Path, serving_tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with proxied(tls=serving_tls) as (server, proxy):
        monkeypatch.setenv(variable, proxy.url)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        await check(caller("https://model.test/v1", client), "https://model.test/v1", 3)
        assert proxy.seen == ["CONNECT model.test:443 HTTP/1.1"]
        assert server.connections == 1


@pytest.mark.parametrize(
    ("host", "spared", "direct"),
    [
        ("model.test", "model.test", True),
        ("model.test", ".test", True),
        ("model.test", "*.test", True),
        ("model.test", "other.test, *", True),
        ("model.test", "10.0.0.0/8,model.test:3", False),
        ("model.test", "model.test:2", True),
        ("model.test", "other.test, ,::1,[::2],fd00::/8,a b,1.2.3.4/99", False),
        ("10.0.0.7", "10.0.0.0/8", True),
        ("10.0.0.7", "10.1.0.0/16", False),
        ("10.0.0.7", "10.0.0.7", True),
    ],
)
async def test_what_no_proxy_names_is_asked_directly(
    host: str, spared: str, direct: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "proxy.test:3128")
    monkeypatch.setenv("NO_PROXY", spared)
    access = ServerAccess(EndpointConfig(base_url=f"http://{host}:2/v1", model="m"), Path())
    url = httpx2.URL(f"http://{host}:2/v1")
    assert (direct_transport(access.client({}), url) is not None) is direct


async def test_servers_see_the_same_requests_either_way(
    certificate: Path, serving_tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    async with raw_server(answer, tls=serving_tls) as server:
        url = server.base_url.replace("127.0.0.1", "localhost")
        for client in ("http", "httpx2"):
            await check(caller(url, client, headers={"X-Org": "a b", "accept": "text/plain"}), url)
        direct, through = server.seen
    assert direct.headers == through.headers and direct.headers["x-org"] == "a b"
    assert (direct.path, direct.raw) == (through.path, through.raw)


@CLIENTS
async def test_no_proxy_leads_to_this_machine(client: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with proxied() as (server, proxy):
        monkeypatch.setenv("ALL_PROXY", proxy.url)
        for url in (server.base_url, server.base_url.replace("127.0.0.1", "localhost")):
            await check(caller(url, client), url)
        assert not proxy.seen


async def test_a_proxy_may_ask_for_a_password(monkeypatch: pytest.MonkeyPatch) -> None:
    async with proxied("dxnlcjpwyxnz") as (server, proxy):
        monkeypatch.setenv("HTTPS_PROXY", proxy.url.replace("http://", "http://user:wrong@"))
        monkeypatch.setenv("HTTP_PROXY", proxy.url.replace("http://", "http://user:pass@"))
        asking = caller("http://model.test/v1", "http")
        assert (await asking.ask("http://model.test/v1", BODY)).status == 200
        assert "proxy-authorization" in server.seen[0].headers  # this small proxy passes everything on
        with pytest.raises(Failure, match="407") as caught:
            await asking.models("https://model.test/v1")
        assert caught.value.kind is FailureKind.UNREACHABLE and "wrong" not in str(caught.value)
        await asking.close()


@pytest.mark.parametrize("proxy", ["ftp://user:hidden-word@proxy.test", "http://user:hidden-word@proxy.test:x"])
async def test_a_proxy_that_cannot_be_used_is_told_at_once(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", proxy)
    with pytest.raises(ConfigError, match="proxy that the environment names") as caught:
        caller("http://model.test/v1", "http")
    assert "hidden-word" not in str(caught.value)


# -- certificates ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate, with its key in the same file."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl, which makes the certificate, is not installed")
    folder = tmp_path_factory.mktemp("certificate")
    path = folder / "localhost.pem"
    made = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    made += ["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,DNS:model.test"]
    made += ["-keyout", str(folder / "key.pem"), "-out", str(path)]
    subprocess.run(made, check=True, capture_output=True)
    path.write_text(path.read_text() + (folder / "key.pem").read_text())
    return path


@pytest.fixture
def serving_tls(certificate: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    return context


@CLIENTS
@pytest.mark.parametrize("how", ["SSL_CERT_FILE", "system"])
async def test_https_checks_the_certificate(
    client: str, how: str, certificate: Path, serving_tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with raw_server(answer, tls=serving_tls) as server:
        url = server.base_url.replace("127.0.0.1", "localhost")
        asking = caller(url, client)
        with pytest.raises(Failure, match=r"is not trusted: set SSL_CERT_FILE to .* issuer.*self") as caught:
            await asking.ask(url, BODY)
        assert caught.value.kind is FailureKind.UNREACHABLE
        assert "is not trusted" in (await asking.connect_trouble(url) or "")
        await asking.close()
        if how == "SSL_CERT_FILE":
            monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        else:  # where OpenSSL of this system looks
            paths = ssl.get_default_verify_paths()._replace(openssl_cafile=str(certificate))
            monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: paths)
        asking = caller(url, client)
        assert await asking.connect_trouble(url) is None
        await check(asking, url, 2)
        assert len(server.seen) == 2


async def test_a_file_without_certificates_is_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ca.pem").write_text("no certificate")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    with pytest.raises(ConfigError, match="SSL_CERT_FILE .*PEM"):
        caller("https://model.test/v1", "http")


# -- authentication ----------------------------------------------------------------------------------------------

PLUG_IN = """
import httpx2

class Signed(httpx2.Auth):
    requires_request_body = True

    def auth_flow(self, request):
        request.headers["X-Signature"] = f"{len(request.content)} bytes"
        yield request

digest = httpx2.DigestAuth("user", "pass")
nothing = 42
"""


@pytest.fixture
def plug_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "signing", raising=False)
    (tmp_path / "signing.py").write_text(PLUG_IN)
    return tmp_path


@CLIENTS
async def test_a_plug_in_signs_each_request(client: str, plug_in: Path) -> None:
    async with raw_server(answer) as server:
        await check(caller(server.base_url, client, auth="signing:Signed", folder=plug_in), server.base_url)
        asked = server.seen[0]
        assert asked.headers["x-signature"] == f"{len(asked.raw)} bytes"
        assert "key-of-the-tests" not in asked.headers.get("authorization", "")


@CLIENTS
async def test_a_plug_in_may_answer_what_the_server_asks(client: str, plug_in: Path) -> None:
    async def challenge(asked: Exchange) -> None:
        if asked.headers.get("authorization", "").startswith("Digest "):
            await asked.answer("42")
        else:
            await asked.reply(401, b"", 'WWW-Authenticate: Digest realm="r", nonce="n", qop="auth"')

    async with raw_server(challenge) as server:
        await check(caller(server.base_url, client, auth="signing:digest", folder=plug_in), server.base_url)
        assert len(server.seen) == 2


async def test_what_is_no_plug_in_is_told_at_once(plug_in: Path) -> None:
    config = EndpointConfig(base_url="http://model.test/v1", model="m", auth="signing:nothing")
    with pytest.raises(ConfigError, match=r"signing:nothing must be an httpx2\.Auth"):
        open_endpoint(config, Sampling(), Limits(), keys={}, folder=plug_in)


# -- what is never followed, kept or read ------------------------------------------------------------------------


@CLIENTS
@pytest.mark.parametrize("location", ["http://[", "http://a:99999999/", "//", "\x01", "http://" + "a" * 70_000, "é"])
async def test_no_redirect_breaks_anything(client: str, location: str) -> None:
    async with raw_server(replying(b"", f"Location: {location}", status=307)) as server:
        asking = caller(server.base_url, client)
        try:
            assert (await asking.ask(server.base_url, BODY)).status == 307
        except Failure as failure:
            assert failure.kind is FailureKind.BAD_RESPONSE
        await asking.close()


@CLIENTS
async def test_no_cookie_is_sent_back(client: str) -> None:
    async def with_cookie(asked: Exchange) -> None:
        assert "cookie" not in asked.headers
        await asked.reply(200, {"choices": []}, "Set-Cookie: place=1; Path=/", "Set-Cookie: b=2; Domain=localhost")

    async with raw_server(with_cookie) as server:
        await check(caller(server.base_url, client), server.base_url, 2)


@CLIENTS
@pytest.mark.parametrize("packed", [False, True])
async def test_nothing_is_read_or_unpacked_beyond_what_it_could_need(client: str, packed: bool) -> None:
    endless = b'{"choices": [' + b" " * (2 * ANY_BODY)
    explode = replying(gzip.compress(endless), "Content-Encoding: gzip") if packed else replying(endless)
    async with raw_server(explode, pages={"/v1/models": explode, "/health": explode}) as server:
        asking = caller(server.base_url, client)
        for page in (asking.ask(server.base_url, {**BODY, "max_tokens": 16}), asking.models(server.base_url)):
            with pytest.raises(Failure, match="longer than anything"):
                await page
        assert "longer than anything" in str(await asking.probe(server.base_url))
        await asking.close()


def test_what_a_response_may_hold_follows_from_the_request() -> None:
    def bound(**options: object) -> int:
        return longest_response({**BODY, "max_tokens": 1000, **options}, 500)

    plain = bound()
    assert plain < bound(logprobs=True) < bound(logprobs=True, n=8)
    assert bound(logprobs=True) < bound(logprobs=True, top_logprobs=5)
    assert plain < bound(prompt_logprobs=0)
    assert plain < bound(stream=True), "each token has its own event"
    unlimited = {**BODY, "max_tokens": None}
    assert longest_response(unlimited, 500) == MAX_LINE_BYTES, "it is parsed at once"
    assert longest_response({**unlimited, "stream": True}, 500) == bound(n=10**9) == MAX_BODY


@CLIENTS
@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_that_never_ends_is_over_its_time_limit(client: str, stream: bool) -> None:
    async def drip(asked: Exchange) -> None:
        await asked.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        while True:
            await asked.send(b"\n")
            await asyncio.sleep(0.01)

    async with raw_server(drip) as server:
        asking = caller(server.base_url, client, timeout=0.3)
        with pytest.raises(Failure, match=r"no answer within 0\.3 s") as caught:
            await asking.ask(server.base_url, {**BODY, "stream": stream})
        assert caught.value.kind is FailureKind.TIMED_OUT
        await asking.close()


@pytest.mark.slow
@pytest.mark.parametrize("client", ["http", pytest.param("openai", marks=pytest.mark.slow)])
async def test_a_thousand_requests_at_once(client: str) -> None:
    """The default pool of the SDK breaks there."""
    many = 1024
    all_there = asyncio.Event()

    async def together(asked: Exchange) -> None:
        if asked.index + 1 == many:
            all_there.set()
        await all_there.wait()
        await asked.answer("42")

    async with raw_server(together) as server:
        config = EndpointConfig.model_validate({"base_url": server.base_url, "model": "m", "client": client})
        model = open_endpoint(config, Sampling(timeout=60.0), Limits(in_flight=many), keys={})
        assert {answer.text for answer in await ask(model, many)} == {"42"}
        assert model.stats.retries == 0
        await model.close()


async def test_closing_that_is_cancelled_closes_every_connection() -> None:
    """As where a run ends while a server that it started is tried."""

    async def is_cancelled_after(turns: int) -> bool:
        """Cancel it after so many turns of the loop; whether it had not ended."""
        async with raw_server(answer) as server:
            config = EndpointConfig.model_validate({"base_url": server.base_url, "model": "m"})
            model = open_endpoint(config, Sampling(), Limits(), keys={})
            await model.sample(CHAT, range(1))
            assert server.open_connections == 2, "one for requests, one for what is asked besides"
            closing = asyncio.create_task(model.close())
            for _ in range(turns):
                await asyncio.sleep(0)
            is_cancelled = closing.cancel()
            await asyncio.gather(closing, return_exceptions=True)
            await until(lambda: not server.open_connections)
        return is_cancelled

    turns = 1
    while await is_cancelled_after(turns):
        turns += 1
    assert turns > 2
