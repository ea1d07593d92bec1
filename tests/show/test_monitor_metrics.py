"""Metrics of a run, as Prometheus reads them."""

import asyncio
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from urllib.request import ProxyHandler, build_opener

import httpx2
import pytest
from gated import GatedServer
from live_runs import MODELS, Site, small_world
from page_views import simulated, world
from patient_time import HANGS
from ports import held_port
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from adaptive_eval.base.errors import ConfigError, ExitCode
from adaptive_eval.cli import app
from adaptive_eval.report.results import OtherCostRow
from adaptive_eval.report.status import Cap, CurrentTraffic, ModelTraffic, Status
from adaptive_eval.show.serve import metrics as metrics_module
from adaptive_eval.show.serve.metrics import Address, Metrics, serve_metrics
from adaptive_eval.simulate.server import serving

Sample = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture
def port() -> Iterator[int]:
    with held_port() as port:
        yield port


def scrape(port: int) -> Sample:
    """Every sample by name and labels."""
    with build_opener(ProxyHandler({})).open(f"http://127.0.0.1:{port}/metrics", timeout=HANGS) as response:
        text = response.read().decode()
    families = text_string_to_metric_families(text)
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def of(sample: Sample, name: str, **labels: str) -> float:
    return sample[f"adaptive_eval_{name}", frozenset(labels.items())]


@pytest.mark.slow
def test_a_real_run_is_scraped_while_it_goes_on(site: Site, port: int) -> None:
    """One model waits after its first look, and in the middle of another round, until it was scraped."""
    gated = GatedServer(small_world(), 100)
    with serving(gated) as url:
        models = [{"name": name, "base_url": url if name == MODELS[0] else site.base_url} for name in MODELS]
        caps, trials = {"trials": 500, "wall_time": "600s"}, {"min": 10, "max": 200}
        config = site.write(models=models, budget=caps, concurrency=2, trials=trials)
        process = site.start(config, "--metrics-port", str(port))
        seen: list[Sample] = []
        while process.poll() is None:
            try:
                sample = scrape(port)
            except OSError:
                sample = {}
            waits = [key for key, value in sample.items() if key[0].endswith("requests_in_flight") and value > 0.0]
            if waits and sample.get(("adaptive_eval_looks_total", frozenset()), 0.0) > 0.0:
                seen.append(sample)
            if len(seen) == 2:
                gated.open()
            time.sleep(0.02)
    assert process.returncode in (ExitCode.REACHED, ExitCode.SPENT), process.communicate()
    last = seen[-1]
    for earlier, later in zip(seen, seen[1:], strict=False):
        for name in MODELS:
            assert of(earlier, "trials_total", model=name) <= of(later, "trials_total", model=name)
        assert of(earlier, "looks_total") <= of(later, "looks_total")
        assert of(earlier, "active_seconds_total") <= of(later, "active_seconds_total")
    trials = sum(of(last, "trials_total", model=name) for name in MODELS)
    assert trials > 0 and of(last, "budget_used_trials") == trials
    assert (of(last, "budget_cap_trials"), of(last, "budget_cap_wall_seconds")) == (500, 600)
    urls = {str(model["name"]): str(model["base_url"]) for model in models}
    assert all(of(last, "replica_healthy", model=name, replica=urls[name]) == 1.0 for name in MODELS)
    assert max(of(sample, "requests_in_flight", model=name) for sample in seen for name in MODELS) > 0
    with pytest.raises(OSError):
        scrape(port)


RESULTS = simulated(world(("a", "b", "c")), looks=1).results
assert RESULTS is not None
OPEN = replace(RESULTS.pairs[0], verdict="open")
STATUS = Status(
    looks=7,
    results=replace(RESULTS, pairs=(OPEN, OPEN, replace(OPEN, verdict="resolved")), trials_to_go=12.0),
    caps=(Cap("gpu_seconds", 12.5, 3600.0),),
    traffic=CurrentTraffic(3, 2, 5, 1, 2),
    models=(
        ModelTraffic(
            'a"\\\n<b>', 40, 900, 0.25, 12.5, 3, 2, {"server_error": 4, "reset": 1}, {"http://a/v1": False}, 60.0, 120.0
        ),
    ),
    trials=40,
    new_trials=40,
    new_tokens=900,
    elapsed=31.5,
    beside=(
        OtherCostRow("lost", "a", 0, 70, 0.01, 2.0, 2.0, answers=3),
        OtherCostRow("left", "c", 8, 90, 0.02, 1.0, 1.0),
    ),
)


async def test_every_number_has_its_name_and_unit(port: int) -> None:
    with serve_metrics(Address("127.0.0.1", port)) as metrics:
        assert await asyncio.to_thread(scrape, port) == {}, "the run has not begun"
        metrics.opened("bench", ("a",), lambda: STATUS)
        sample = await asyncio.to_thread(scrape, port)
        metrics.closed()
    name = STATUS.models[0].model
    assert of(sample, "run_info", run="bench", version=metrics_module.__version__) == 1.0
    assert of(sample, "trials_total", model=name) == 40 and of(sample, "tokens_total", model=name) == 900
    assert of(sample, "usd_total", model=name) == 0.25 and of(sample, "gpu_seconds_total", model=name) == 12.5
    assert of(sample, "server_seconds_total", model=name) == 60.0
    assert of(sample, "server_gpu_seconds_total", model=name) == 120.0
    assert of(sample, "requests_in_flight", model=name) == 3 and of(sample, "retries_total", model=name) == 2
    assert of(sample, "errors_total", model=name, kind="server_error") == 4
    assert of(sample, "replica_healthy", model=name, replica="http://a/v1") == 0.0
    assert of(sample, "comparisons", verdict="open") == 2 and of(sample, "comparisons", verdict="blocked") == 0
    assert of(sample, "budget_used_gpu_seconds") == 12.5 and of(sample, "budget_cap_gpu_seconds") == 3600.0
    assert of(sample, "looks_total") == 7 and of(sample, "active_seconds_total") == 31.5
    assert of(sample, "trials_to_go") == 12
    metrics._status = replace(STATUS, results=None)  # before the first look
    assert "adaptive_eval_trials_to_go" not in {metric.name for metric in metrics.collect()}
    lost, leftover = {"model": "a", "what": "lost"}, {"model": "c", "what": "left"}
    assert of(sample, "other_answers_total", **lost) == 3 and of(sample, "other_tokens_total", **lost) == 70
    assert of(sample, "other_trials_total", **leftover) == 8 and of(sample, "other_usd_total", **leftover) == 0.02


async def test_scraping_takes_nothing_from_the_run(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_module, "STATUS_SECONDS", HANGS)
    statuses: list[Status] = []

    def take() -> Status:
        statuses.append(STATUS)
        return STATUS

    with serve_metrics(Address("127.0.0.1", port)) as metrics, socket.create_connection(("127.0.0.1", port)) as silent:
        silent.send(b"GET /metrics")  # and no more: it holds up nobody
        metrics.opened("bench", ("a",), take)
        async with httpx2.AsyncClient(trust_env=False, verify=False, timeout=HANGS) as client:
            for _ in range(30):
                assert (await client.get(f"http://127.0.0.1:{port}/metrics")).status_code == 200
        assert len(statuses) == 1, "a scrape shows what was taken before"
        metrics.closed()
    assert len(statuses) == 2


async def test_the_status_is_refreshed_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_module, "STATUS_SECONDS", 0.0)
    enough = asyncio.Event()
    statuses: list[Status] = []

    def take() -> Status:
        statuses.append(STATUS)
        if len(statuses) == 3:
            enough.set()
        return STATUS

    metrics = Metrics()
    metrics.opened("bench", ("a",), take)
    async with asyncio.timeout(HANGS):
        await enough.wait()
    metrics.closed()


def test_a_port_in_use_is_reported_before_anything_is_asked(site: Site) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        number = listener.getsockname()[1]
        result = site.run(site.write(), "--metrics-port", str(number))
    assert result.exit_code == ExitCode.CONFIGURATION
    assert f"port {number} on 127.0.0.1 cannot be used" in result.stderr and "another --metrics-port" in result.stderr
    assert not site.directory().exists()


@pytest.mark.parametrize("text", ["", "0", "65536", "80a", "-1", "host:", ":", "1.5", "٣"])
def test_an_invalid_port_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="must be PORT or HOST:PORT"):
        Address.of(text)


def test_an_address_may_name_a_host() -> None:
    assert Address.of("9100") == ("127.0.0.1", 9100)
    assert Address.of("0.0.0.0:9100") == ("0.0.0.0", 9100)
    assert Address.of("[::1]:9100") == ("::1", 9100)


def test_without_the_extra_it_says_what_to_install(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(site.folder)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    monkeypatch.delitem(sys.modules, "adaptive_eval.show.serve.metrics")
    result = CliRunner().invoke(app, ["run", str(site.write()), "--metrics-port", "9100"])
    assert result.exit_code == ExitCode.CONFIGURATION and "pip install 'adaptive-eval[metrics]'" in result.stderr
    assert not site.directory().exists()


def test_nothing_is_left_of_a_run_that_could_not_begin(port: int) -> None:
    with pytest.raises(RuntimeError), serve_metrics(Address("127.0.0.1", port)) as metrics:
        metrics.closed()
        raise RuntimeError
    with serve_metrics(Address("127.0.0.1", port)) as again:
        assert isinstance(again, Metrics)
