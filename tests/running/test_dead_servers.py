"""If a server cannot be reached when a run starts, the other models are not asked in vain."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from live_runs import MODELS, Site, small_world, trials_in
from ports import HOST, held_port

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.simulate.server import SimulatedServer, serving

pytestmark = pytest.mark.usefixtures("short_pauses")


@pytest.fixture
def dead_url() -> Iterator[str]:
    with held_port() as port:
        yield f"http://{HOST}:{port}/v1"


def models(*urls: str) -> list[dict[str, str]]:
    return [{"name": name, "base_url": url} for name, url in zip(MODELS, urls, strict=False)]


def test_a_dead_server_ends_a_new_run_before_any_model_is_asked(site: Site, dead_url: str) -> None:
    server = SimulatedServer(small_world())
    with serving(server) as url:
        ended = site.run(site.write(models=models(url, dead_url, url)))
    assert ended.exit_code == ExitCode.ENDPOINTS
    assert f"bob: cannot connect to its server: {dead_url}" in ended.stderr
    assert not server.counts and not trials_in(site.directory())


def test_a_model_with_answers_is_set_aside_and_the_other_is_asked_no_further_round(site: Site, dead_url: str) -> None:
    server = SimulatedServer(small_world())
    with serving(server) as url:
        budget = {"trials": 72}
        first = site.run(site.write(models=models(url, url), budget=budget))
        assert first.exit_code == ExitCode.SPENT
        asked = server.counts["answered"]
        again = site.run(site.write(models=models(url, dead_url)))
        assert again.exit_code == ExitCode.ENDPOINTS
        assert server.counts["answered"] <= asked + 8, "the batch of the round that was composed"
    assert "cannot connect to its server" in again.stdout


@pytest.mark.slow
def test_a_run_can_be_stopped_while_it_looks_for_servers(site: Site, dead_url: str) -> None:
    config: Path = site.write(models=models(dead_url, dead_url))
    process = site.start(config)
    assert process.stdout is not None
    while "promise" not in process.stdout.readline():  # then it looks for servers
        pass
    process.send_signal(signal.SIGTERM)
    process.communicate()
    assert process.returncode in (ExitCode.STOPPED, ExitCode.ENDPOINTS)
