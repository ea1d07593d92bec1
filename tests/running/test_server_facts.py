"""What a run reports and stores of the servers that it asks."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from live_runs import MODELS, Site, small_world

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.config.load import load_config
from adaptive_eval.config.planning import trial_cost
from adaptive_eval.endpoints.types import Answer, EndpointStats, Notice
from adaptive_eval.machine.troubles import ModelTroubles
from adaptive_eval.notes import ServersNoticed
from adaptive_eval.simulate.faults import Faults
from adaptive_eval.simulate.server import SimulatedServer, serving
from adaptive_eval.simulate.worlds import Latency


@pytest.fixture(scope="module")
def llama_url() -> Iterator[str]:
    """A server that has the habits of llama-server, and four places."""
    world = replace(small_world(), latency=Latency(median=0.02))
    with serving(SimulatedServer(world, faults=Faults(count_one=True), max_num_seqs=4)) as url:
        yield url


@pytest.fixture
def llama(tmp_path: Path, llama_url: str) -> Site:
    return Site.make(tmp_path, llama_url)


def test_a_notice_is_reported_once_a_start() -> None:
    troubles, notice = ModelTroubles(), Notice("named", "its answers are named 'x'")
    (event,) = troubles.events(EndpointStats(notices=(notice,)), 0, 0.0)
    assert event == ServersNoticed("", "named", notice.text)
    assert list(troubles.events(EndpointStats(notices=(notice,)), 0, 1.0)) == []


def test_results_say_what_was_sent_and_what_was_left_to_the_server(llama: Site) -> None:
    config = llama.write(trials={"min": 4, "max": 4}, concurrency={"in_flight": 8, "samples_per_request": 4})
    assert "warn  ada, bob, cyd  its server is llama.cpp" in llama.run(config, "--dry-run").stdout
    first = llama.run(config)
    assert "ada: its server is llama.cpp, which drops improbable tokens" in first.stdout, "while the run begins"
    assert llama.run(config).exit_code in (ExitCode.REACHED, ExitCode.SPENT), "it finds everything done"
    results = llama.results()
    for model in results["models"]:
        sampling = model["sampling"]
        assert (sampling["temperature"], sampling["max_tokens"]) == (0.6, 2000)
        assert sampling["top_p"] == sampling["top_k"] == "server default"
    cautioned = [warning["model"] for warning in results["warnings"] if warning["kind"] == "server_defaults"]
    assert sorted(cautioned) == list(MODELS)


def test_gpu_time_is_divided_by_concurrent_answers(site: Site) -> None:
    urls = [site.base_url, "http://127.0.0.1:9/v1"]
    models = [{"name": "ada", "base_url": urls, "gpus": 4}, {"name": "bob", "base_url": site.base_url}]
    sampling = {"temperature": 0.6, "max_tokens": 10, "timeout": 100}
    model = load_config(site.write(models=models, sampling=sampling, concurrency=64)).models[0]
    cost = trial_cost(model)
    answer = Answer("42", "stop", 1, urls[0], latency=32.0)
    assert cost(answer).gpu_seconds == pytest.approx(32.0 * 2 / 64)
    assert cost(replace(answer, concurrent_answers=8)).gpu_seconds == pytest.approx(32.0 * 2 / 8)
    reserved = 100 * 5 * 4 / 128
    assert cost(replace(answer, concurrent_answers=1)).gpu_seconds == reserved
