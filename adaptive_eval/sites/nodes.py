"""Nodes of a Ray cluster that this process has joined, and their resources."""

import re
import signal
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from adaptive_eval.base.errors import ConfigError, first_line
from adaptive_eval.base.imports import load_extra
from adaptive_eval.sites.keeper import NAMESPACE
from adaptive_eval.sites.messages import SiteGone
from adaptive_eval.sites.opening import resource_words

CONNECT_SECONDS = 10.0
NO_CLUSTER = (
    "--ray {}: there is no Ray cluster to be joined ({}); start one with `ray start --head`, and run on one of its "
    "nodes; one that was started with --node-ip-address=127.0.0.1 cannot be joined"
)


def missing_resources(ray: Any, resources: Mapping[str, float]) -> str:
    """Why no node of the cluster has these resources free now."""
    nodes = [node for node in ray.nodes() if node["Alive"]]
    totals = [node["Resources"] for node in nodes]
    able = [node for node, has in zip(nodes, totals, strict=True) if _fits(resources, has)]
    if not nodes:
        return "the cluster has no node"
    if not able:
        most = {word: max(has.get(word, 0.0) for has in totals) for word in resources}
        has_most = f"the most that one has is {resource_words(most)}"
        return f"none of the {len(nodes)} nodes of the cluster has so much; {has_most}"
    free = ray._private.state.available_resources_per_node()
    left = [free.get(node["NodeID"], {}) for node in able]
    most = {word: max(has.get(word, 0.0) for has in left) for word in resources}
    taken = "others have it now" if not any(_fits(resources, has) for has in left) else "it is being placed"
    able_to = f"{len(able)} of {len(nodes)} nodes could give it, but {taken}"
    return f"{able_to}; the most that is free on one is {resource_words(most)}"


def _fits(asked: Mapping[str, float], has: Mapping[str, float]) -> bool:
    return all(has.get(word, 0.0) >= amount for word, amount in asked.items())


def short_error(error: Exception) -> str:
    """Shorten one of Ray's long errors to its first line and the line with the cause."""
    if isinstance(cause := getattr(error, "cause", None), SiteGone):
        return str(cause)
    text = str(error)
    if type(error).__name__ == "ActorUnavailableError":
        told = re.search(r"RPC error: (.+?)(?: rpc_code|$)", text)
        return "its process cannot be reached" + (f" ({told[1].strip()})" if told else "")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    why = next((line for line in lines[1:] if line.startswith(("The actor is dead because", "The actor died"))), "")
    return " ".join(filter(None, [first_line(lines[0]), why]))[:400]


@contextmanager
def silence_ray_output(ray: Any) -> Iterator[None]:
    """Silence Ray, which prints pages when a raylet dies; the run itself reports what it has lost."""
    worker, name = ray._private.worker, "print_to_stdstream"
    before = getattr(worker, name, None)
    if before is None:  # a private function, which other versions of Ray may lack
        yield
        return
    setattr(worker, name, lambda *words, **more: None)
    try:
        yield
    finally:
        setattr(worker, name, before)


def _require_listener(ray: Any, address: str) -> None:
    """Raise `ConfigError` if nobody listens where Ray would join the cluster, which it tries for minutes."""
    host, _, port = address.rpartition(":")
    if address != "auto" and (not host or "/" in host or not port.isdigit() or not 0 < int(port) < 2**16):
        raise ConfigError(f"--ray must be auto or the HOST:PORT of a cluster's head node, but got {address!r}")
    joined = ray._private.services.canonicalize_bootstrap_address(address)
    if joined is None:  # `ray.init` says that there is none
        return
    host, _, port = joined.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS).close()
    except OSError as error:
        raise ConfigError(NO_CLUSTER.format(address, f"nobody answers at {joined}: {error}")) from None


@contextmanager
def join_cluster(address: str) -> Iterator[Any]:
    """Join the cluster at an address, or with `auto` that of this machine, and yield Ray; call it in the main thread.

    Raises `ConfigError` if there is none, or if Ray is not installed.
    """
    ray = load_extra("ray", "ray", "Sites on a Ray cluster")
    _require_listener(ray, address)
    heard = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ConfigError(NO_CLUSTER.format(address, short_error(error))) from None
    finally:
        for number, handler in heard.items():  # the run's own handlers
            signal.signal(number, handler)
    try:
        with silence_ray_output(ray):
            yield ray
    finally:
        ray.shutdown()
