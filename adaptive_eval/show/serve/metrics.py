"""Metrics of a run for Prometheus, served by a thread that never touches the run.

The status is taken in the event loop once a second, and a scrape returns the latest, so no scraper can slow the run.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from adaptive_eval import __version__
from adaptive_eval.base.errors import ConfigError
from adaptive_eval.core.types import Verdict
from adaptive_eval.report.results import BatchRow
from adaptive_eval.report.sites import SiteRow, SiteState
from adaptive_eval.report.status import ModelTraffic, Status
from adaptive_eval.running.watching import Watcher

try:
    from prometheus_client import CollectorRegistry, start_http_server
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
    from prometheus_client.registry import Collector
except ImportError as error:  # this module is imported only for --metrics-port
    raise ConfigError("--metrics-port needs prometheus-client: pip install 'adaptive-eval[metrics]'") from error

STATUS_SECONDS = 1.0
UNITS = {
    "trials": "Trials",
    "tokens": "Prompt and completion tokens",
    "usd": "US dollars",
    "gpu_seconds": "Seconds of GPUs",
    "wall_seconds": "Seconds of active time",
}


class Address(NamedTuple):
    """The address that metrics are served at."""

    host: str
    port: int

    @classmethod
    def of(cls, text: str) -> "Address":
        """Parse PORT, on the loopback address, or HOST:PORT."""
        host, _, port = text.rpartition(":")
        if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
            raise ConfigError(f"--metrics-port must be PORT or HOST:PORT with a port from 1 to 65535, but got {text!r}")
        return cls(host.strip("[]") or "127.0.0.1", int(port))


@contextmanager
def serve_metrics(address: Address) -> Iterator["Metrics"]:
    """Serve metrics at an address; raises `ConfigError` if the port is not available."""
    metrics = Metrics()
    registry = CollectorRegistry()
    registry.register(metrics)
    try:
        server, thread = start_http_server(address.port, address.host, registry)
    except OSError as error:
        place = f"port {address.port} on {address.host}"
        raise ConfigError(f"{place} cannot be used ({error.strerror or error}); give another --metrics-port") from error
    try:
        yield metrics
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Metrics(Watcher, Collector):
    """Watches a run and reports its status."""

    def __init__(self) -> None:
        self._name = ""
        self._status: Status | None = None
        self._timer: asyncio.TimerHandle | None = None

    # -- the watcher -------------------------------------------------------------------------------------------------

    def opened(self, name: str, models: Sequence[str], take: Callable[[], Status]) -> None:
        self._name, self._take = name, take
        self._tick()

    def closed(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._status = self._take()

    def _tick(self) -> None:
        self._status = self._take()
        self._timer = asyncio.get_running_loop().call_later(STATUS_SECONDS, self._tick)

    # -- the collector, in the server's threads ----------------------------------------------------------------------

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        if (status := self._status) is None:
            return
        labels = {"run": self._name, "version": __version__}
        yield InfoMetricFamily("adaptive_eval_run", "The current run.", labels)
        yield from _run_metrics(status)
        yield from _model_metrics(status.models)
        others = [([row.model or "", row.what], row) for row in status.beside]
        yield from _counters(OTHER_COUNTERS, others, "what", prefix="other_")
        yield from _batch_metrics(status.batches)
        if status.sites:
            yield from _site_metrics(status.sites)
        for cap in status.caps:
            unit = UNITS[cap.name]
            yield GaugeMetricFamily(f"adaptive_eval_budget_used_{cap.name}", f"{unit} used of the budget.", cap.used)
            yield GaugeMetricFamily(f"adaptive_eval_budget_cap_{cap.name}", f"{unit} that the budget allows.", cap.cap)


def _run_metrics(status: Status) -> Iterator[Metric]:
    yield CounterMetricFamily("adaptive_eval_looks", "Looks taken, over all starts.", status.looks)
    yield CounterMetricFamily("adaptive_eval_active_seconds", "Time at work, over all starts.", status.elapsed)
    comparisons = GaugeMetricFamily(
        "adaptive_eval_comparisons", "The objective's comparisons by verdict.", labels=["verdict"]
    )
    for verdict in Verdict:
        comparisons.add_metric([str(verdict)], status.verdicts[verdict])
    yield comparisons
    if status.trials_to_go is not None:
        help_ = "Trials that the open comparisons would need if nothing changed."
        yield GaugeMetricFamily("adaptive_eval_trials_to_go", help_, status.trials_to_go)


MODEL_COUNTERS = {
    "trials": "Committed trials, over all starts.",
    "tokens": "Prompt and completion tokens of committed trials, over all starts.",
    "usd": "US dollars that committed trials have cost, over all starts.",
    "gpu_seconds": "GPU seconds of the requests of committed trials, over all starts.",
    "server_seconds": "Seconds for which servers were held, busy or not, over all starts.",
    "server_gpu_seconds": "GPU seconds for which servers were held, busy or not, over all starts.",
    "retries": "Attempts repeated since this start.",
}
"""Counters by field of `ModelTraffic`."""


def _model_metrics(models: Sequence[ModelTraffic]) -> Iterator[Metric]:
    yield from _counters(MODEL_COUNTERS, [([model.model], model) for model in models])
    errors = _counter("errors", "Failed attempts since this start, by kind.", "kind")
    in_flight = _gauge("requests_in_flight", "Requests in flight at the model's servers.")
    healthy = _gauge("replica_healthy", "Whether the replica is healthy: 1 or 0.", "replica")
    for model in models:
        in_flight.add_metric([model.model], model.in_flight)
        for kind, number in model.errors.items():
            errors.add_metric([model.model, kind], number)
        for url, is_healthy in model.replicas.items():
            healthy.add_metric([model.model, url], is_healthy)
    yield from (errors, in_flight, healthy)


OTHER_COUNTERS = {
    "trials": "Stored answers of removed models.",
    "answers": "Answers that were requested and lost, over all starts.",
    "tokens": "Tokens other than those of committed trials, such as of lost answers.",
    "usd": "US dollars other than those of committed trials.",
    "gpu_seconds": "GPU seconds of requests other than those of committed trials.",
}
"""Counters by field of `OtherCostRow`."""


def _batch_metrics(rows: Sequence[BatchRow]) -> Iterator[Metric]:
    batches = _gauge("batches_pending", "Unfinished batches.")
    requests = _gauge("batch_requests_pending", "Requests in unfinished batches.")
    since = _gauge("batch_pending_since_seconds", "When the oldest of these was submitted, in seconds since 1970.")
    for model in dict.fromkeys(row.model for row in rows):
        model_rows = [row for row in rows if row.model == model]
        batches.add_metric([model], len(model_rows))
        requests.add_metric([model], sum(row.requests for row in model_rows))
        since.add_metric([model], min(row.since for row in model_rows))
    yield from (batches, requests, since)


def _site_metrics(rows: Sequence[SiteRow]) -> Iterator[Metric]:
    where = _gauge("site_info", "Where a site is: always 1.", "site", "host", "node", "devices", "state")
    serving = _gauge("site_serving", "Whether the site serves its model: 1 or 0.", "site")
    since = _gauge("site_state_since_seconds", "When its current state began, in seconds since 1970.", "site")
    gpus = _gauge("site_gpus", "GPUs that the site has.", "site")
    placed = _counter("site_placements", "Placements of the site, over all starts.", "site")
    moves = _counter("site_moves", "Placements on another node than before, over all starts.", "site")
    losses = _counter("site_losses", "How often the site was lost, over all starts.", "site")
    for row in rows:
        labels = [row.model, row.site]
        where.add_metric([*labels, row.host or "", row.node or "", row.devices or "", row.state], 1)
        serving.add_metric(labels, row.state == SiteState.SERVING)
        since.add_metric(labels, row.since)
        gpus.add_metric(labels, row.gpus if row.state in (SiteState.LOADING, SiteState.SERVING) else 0)
        placed.add_metric(labels, row.placed)
        moves.add_metric(labels, row.moves)
        losses.add_metric(labels, row.losses)
    yield from (where, serving, since, gpus, placed, moves, losses)


def _counters(
    fields: Mapping[str, str], rows: Sequence[tuple[list[str], object]], *labels: str, prefix: str = ""
) -> Iterator[Metric]:
    """Counters with these fields of the rows, each with its help; `rows` have values of the labels."""
    for name, help_ in fields.items():
        counter = _counter(f"{prefix}{name}", help_, *labels)
        for label_values, row in rows:
            if (value := getattr(row, name)) is not None:
                counter.add_metric(label_values, value)
        yield counter


def _counter(name: str, help_: str, *labels: str) -> CounterMetricFamily:
    return CounterMetricFamily(f"adaptive_eval_{name}", help_, labels=["model", *labels])


def _gauge(name: str, help_: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"adaptive_eval_{name}", help_, labels=["model", *labels])
