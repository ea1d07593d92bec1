"""Nodes of a Ray cluster that this process has joined, and their resources."""

import re
import signal
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from adaptive_eval.base.errors import ConfigError, first_line
from adaptive_eval.base.imports import load_extra
from adaptive_eval.sites.messages import SiteGone
from adaptive_eval.sites.opening import format_resources

NAMESPACE = "adaptive-eval"
CONNECT_SECONDS = 10.0
NO_CLUSTER = (
    "--ray {}: there is no Ray cluster to join ({}); start one with `ray start --head`, and run on one of its nodes; a "
    "cluster that was started with --node-ip-address=127.0.0.1 cannot be joined"
)


def missing_resources(ray: Any, resources: Mapping[str, float]) -> str:
    """Why no node of the cluster has these resources free now."""
    nodes = [node for node in ray.nodes() if node["Alive"]]
    totals = [node["Resources"] for node in nodes]
    suitable = [node for node, resources_of in zip(nodes, totals, strict=True) if _fits(resources, resources_of)]
    if not nodes:
        return "the cluster has no node"
    if not suitable:
        largest = {word: max(resources_of.get(word, 0.0) for resources_of in totals) for word in resources}
        largest_text = f"the most that one has is {format_resources(largest)}"
        return f"none of the {len(nodes)} nodes of the cluster has so much; {largest_text}"
    free = ray._private.state.available_resources_per_node()
    free_resources = [free.get(node["NodeID"], {}) for node in suitable]
    largest = {word: max(resources_of.get(word, 0.0) for resources_of in free_resources) for word in resources}
    reason = (
        "others have it now"
        if not any(_fits(resources, resources_of) for resources_of in free_resources)
        else "it is being placed"
    )
    count_text = f"{len(suitable)} of {len(nodes)} nodes could give it, but {reason}"
    return f"{count_text}; the most that is free on one is {format_resources(largest)}"


def _fits(requested: Mapping[str, float], available: Mapping[str, float]) -> bool:
    return all(available.get(word, 0.0) >= amount for word, amount in requested.items())


def short_error(error: Exception) -> str:
    """Shorten one of Ray's long errors to its first line and the line with the cause."""
    if isinstance(cause := getattr(error, "cause", None), SiteGone):
        return str(cause)
    text = str(error)
    if type(error).__name__ == "ActorUnavailableError":
        match = re.search(r"RPC error: (.+?)(?: rpc_code|$)", text)
        return "its process cannot be reached" + (f" ({match[1].strip()})" if match else "")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    cause_line = next(
        (line for line in lines[1:] if line.startswith(("The actor is dead because", "The actor died"))), ""
    )
    return " ".join(filter(None, [first_line(lines[0]), cause_line]))[:400]


@contextmanager
def silence_ray_output(ray: Any) -> Iterator[None]:
    """Silence Ray, which prints pages when a raylet dies; the run itself reports losses."""
    worker, name = ray._private.worker, "print_to_stdstream"
    original = getattr(worker, name, None)
    if original is None:  # a private function, which other versions of Ray may lack
        yield
        return
    setattr(worker, name, lambda *arguments, **options: None)
    try:
        yield
    finally:
        setattr(worker, name, original)


def _require_listener(ray: Any, address: str) -> None:
    """Raise `ConfigError` if nothing listens where Ray would join the cluster: Ray tries for minutes."""
    host, _, port = address.rpartition(":")
    if address != "auto" and (not host or "/" in host or not port.isdigit() or not 0 < int(port) < 2**16):
        raise ConfigError(f"--ray must be auto or the HOST:PORT of a cluster's head node, but got {address!r}")
    bootstrap_address = ray._private.services.canonicalize_bootstrap_address(address)
    if bootstrap_address is None:  # `ray.init` reports that there is none
        return
    host, _, port = bootstrap_address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS).close()
    except OSError as error:
        raise ConfigError(NO_CLUSTER.format(address, f"nothing answers at {bootstrap_address}: {error}")) from None


@contextmanager
def join_cluster(address: str) -> Iterator[Any]:
    """Join the cluster at an address, or with `auto` that of this machine, and yield Ray; call it in the main thread.

    Raises `ConfigError` if there is none, or if Ray is not installed.
    """
    ray = load_extra("ray", "ray", "Sites on a Ray cluster")
    _require_listener(ray, address)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ConfigError(NO_CLUSTER.format(address, short_error(error))) from None
    finally:
        for number, handler in handlers.items():  # the run's own handlers
            signal.signal(number, handler)
    try:
        with silence_ray_output(ray):
            yield ray
    finally:
        ray.shutdown()
