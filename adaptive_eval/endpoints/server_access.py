"""Access to a model's servers: proxies, certificates and authentication.

Requests go through an `httpx2.AsyncClient` opened here, except those of the default client without an authentication
plug-in: these use the client's transport directly, that of the proxy if the environment names one for the URL.
"""

import ssl
from collections.abc import Callable, Mapping
from functools import cache, partial
from http.cookiejar import CookieJar, DefaultCookiePolicy
from ipaddress import ip_interface
from pathlib import Path
from urllib.request import getproxies

import httpx2
from yarl import URL

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.base.imports import load_attribute
from adaptive_eval.endpoints.transport import Post, Transport, httpx_timeouts, post_through, sent_headers
from adaptive_eval.endpoints.types import EndpointConfig

_LOOPBACK = ("all://localhost", "all://127.0.0.0/8", "all://[::1]")
"""Addresses of this machine; they bypass proxies, as in Go and in browsers."""


class ServerAccess:
    """Access to one model's servers; `folder` is where paths and plug-ins are looked up."""

    def __init__(self, config: EndpointConfig, folder: Path) -> None:
        self._auth = None if config.auth is None else _auth(config.auth, folder)
        self._certificates = cache(_certificates)
        if any(url.startswith("https:") for url in config.replicas):
            self._certificates()  # raises at once if they are invalid

    def client(self, headers: Mapping[str, str]) -> httpx2.AsyncClient:
        """A client without redirects and cookies."""
        return httpx2.AsyncClient(
            transport=Transport(self._certificates),
            mounts=_proxies(lambda proxy: Transport(self._certificates, proxy)),
            auth=self._auth,
            headers=headers,
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
            timeout=None,
            follow_redirects=False,
            trust_env=False,  # True would also read ~/.netrc
        )

    def poster(self, client: httpx2.AsyncClient, url: str, headers: httpx2.Headers, limit: float) -> Post:
        """The fastest way to send bodies to one URL of this client; a request may take `limit` seconds."""
        request = httpx2.Request("POST", url, headers=headers)
        # httpx2 has no public way to find a URL's transport
        transport = client._transport_for_url(request.url)
        if self._auth is None and isinstance(transport, Transport):
            target, connect = URL(str(request.url), encoded=True), httpx_timeouts(limit)["connect"]
            return partial(transport.exchange, "POST", target, sent_headers(request), connect=connect)
        return partial(post_through, client, url, headers, limit)


def direct_transport(client: httpx2.AsyncClient, url: httpx2.URL) -> Transport | None:
    """The transport by which this client connects to the server of a URL itself; None through a proxy."""
    transport = client._transport_for_url(url)
    return transport if isinstance(transport, Transport) and transport.proxy is None else None


def _certificates() -> ssl.SSLContext:
    """Certificates of the system, or of SSL_CERT_FILE and SSL_CERT_DIR."""
    try:
        return httpx2.create_ssl_context()
    except OSError as error:  # an ssl.SSLError is one
        raise ConfigError(f"SSL_CERT_FILE must name a file of certificates in PEM format: {error}") from None


def _auth(specification: str, folder: Path) -> httpx2.Auth:
    """Load the plug-in: an `httpx2.Auth`, or a function that makes one."""
    auth = load_attribute(specification, folder)
    if not isinstance(auth, httpx2.Auth) and callable(auth):
        auth = auth()
    if not isinstance(auth, httpx2.Auth):
        raise ConfigError(f"auth: {specification} must be an httpx2.Auth or a function that makes one, but is {auth!r}")
    return auth


# -- proxies -----------------------------------------------------------------------------------------------------


def _proxies(transport: Callable[[URL], httpx2.AsyncBaseTransport]) -> dict[str, httpx2.AsyncBaseTransport | None]:
    """Proxies by URL pattern, from the environment (HTTP_PROXY, NO_PROXY ...) or the system's settings."""
    proxies = getproxies()
    exempt_hosts = [host for host in map(str.strip, proxies.get("no", "").split(",")) if host]
    schemes = [scheme for scheme in ("http", "https", "all") if proxies.get(scheme)]
    if not schemes or "*" in exempt_hosts:
        return {}
    direct: dict[str, httpx2.AsyncBaseTransport | None] = dict.fromkeys([*_LOOPBACK, *map(_pattern, exempt_hosts)])
    return direct | {f"{scheme}://": transport(_proxy_url(proxies[scheme])) for scheme in schemes}


def _proxy_url(proxy: str) -> URL:
    """The address of a proxy, which may contain a password."""
    try:
        url = URL(proxy if "://" in proxy else f"http://{proxy}")
        if url.scheme in ("http", "https") and url.host:
            return url
    except ValueError:
        pass  # its message may contain the address
    raise ConfigError("the proxy that the environment names cannot be used: give it as http://HOST:PORT")


def _pattern(host: str) -> str:
    """Convert an entry of NO_PROXY to httpx2's form: an address, a network, or a domain with its subdomains."""
    bare = host.strip("[]")
    try:
        version = ip_interface(bare).version
    except ValueError:
        return f"all://*{host.removeprefix('*').removeprefix('.')}"
    address, slash, prefix = bare.partition("/")
    return f"all://{address if version == 4 else f'[{address}]'}{slash}{prefix}"
