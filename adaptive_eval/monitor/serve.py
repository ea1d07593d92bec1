"""Serving the monitor's pages until somebody ends it."""

import asyncio
import signal
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path

from adaptive_eval.errors import ConfigError
from adaptive_eval.monitor.http1 import HttpServer
from adaptive_eval.monitor.site import HEADERS, Site

LOOPBACK = "127.0.0.1"


async def serve(path: Path, host: str, port: int, ready: Callable[[str], None]) -> None:
    """Serve the run or the folder at `path` until Ctrl-C or SIGTERM; `ready` gets the address.

    Port 0 is any that is free. Raises `ConfigError` where the port cannot be had.
    """
    site = Site(path, host)
    server = HttpServer(site.answer, HEADERS)
    try:
        bound = await server.listen(host, port)
    except OSError as error:
        site.close()
        place = f"port {port} on {host}"
        raise ConfigError(f"{place} cannot be used ({error.strerror or error}); give another --port") from error
    try:
        ready(f"http://{f'[{host}]' if ':' in host else host}:{bound}/")
        await asyncio.gather(site.warm_up(), _asked_to_stop())
    finally:
        await server.close()
        site.close()


async def _asked_to_stop() -> None:
    loop, asked = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, asked.set)
    try:
        await asked.wait()
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


def stays_here(host: str) -> bool:
    """Whether nobody on another machine can reach this address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
