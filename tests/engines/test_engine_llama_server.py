"""(c) llama-server, one for each checkpoint, with its ways.

Its usage counts one of n answers, its defaults truncate what is sampled, and it answers for whatever model is named.
"""

from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest
from engine_runs import SAMPLING, Finished, Workplace, require_exact_bits, require_exact_ranking, true_score
from engine_servers import Server, llama
from family import checkpoints, weights
from to_gguf import convert

from adaptive_eval.base.errors import ExitCode

pytestmark = pytest.mark.engine

MODELS = list(checkpoints())


@pytest.fixture(scope="module")
def servers(serve: Callable[..., None], logs: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Server]:
    folder = tmp_path_factory.mktemp("ggufs")
    files = {name: convert(path, folder / f"{name}.gguf") for name, path in checkpoints().items()}
    started = {name: llama(path, logs / f"{name}.log") for name, path in files.items()}
    serve(*started.values())
    return started


def models(servers: dict[str, Server]) -> list[dict[str, object]]:
    return [{"name": name, "base_url": server.base_url} for name, server in servers.items()]


def counters(servers: dict[str, Server]) -> tuple[float, float]:
    """Tokens of prompts, whether read or remembered, and of answers."""
    metrics = [server.metrics() for server in servers.values()]
    read = sum(
        values["llamacpp:prompt_tokens_total"] + values["llamacpp:prompt_tokens_cached_total"] for values in metrics
    )
    return read, sum(values["llamacpp:tokens_predicted_total"] for values in metrics)


@pytest.fixture(scope="module")
def ranked(servers: dict[str, Server], tmp_path_factory: pytest.TempPathFactory) -> Finished:
    workplace = Workplace.make(tmp_path_factory.mktemp("ranked"))
    return workplace.run(workplace.configure("ranked", models(servers), sampling=SAMPLING | {"logprobs": True}))


def test_the_ranking_is_that_of_the_true_scores(ranked: Finished) -> None:
    require_exact_ranking(ranked, {name: true_score(weights(name)) for name in MODELS})


def test_completion_bpt_is_that_of_the_weights(ranked: Finished) -> None:
    require_exact_bits(ranked)


@pytest.mark.parametrize("together", [1, 8])
def test_tokens_are_those_that_servers_count(servers: dict[str, Server], workplace: Workplace, together: int) -> None:
    """Also where a usage counts one of eight answers."""
    limits = {"in_flight": 4, "samples_per_request": together}
    before = counters(servers)
    run = workplace.run(
        workplace.configure("eights", models(servers), trials={"min": 8, "max": 8}, concurrency=limits),
        accepted=(0, 3),
    )
    read, predicted = (after - earlier for after, earlier in zip(counters(servers), before, strict=True))
    assert len(run.records) == len(MODELS) * 30 * 8
    assert run.tokens() == (read, predicted)


def test_the_sampling_that_is_sent_is_recorded(ranked: Finished) -> None:
    for name in MODELS:
        assert ranked.meaning[name]["sampling"] == SAMPLING | {"logprobs": True}


def test_a_model_that_is_not_served_is_refused(servers: dict[str, Server], workplace: Workplace) -> None:
    """llama-server answers whatever the request names; the run does not."""
    server = servers[MODELS[0]]
    body = {"model": "another", "messages": [{"role": "user", "content": "1+1="}], **SAMPLING}
    assert httpx2.post(f"{server.base_url}/chat/completions", json=body, timeout=60.0).status_code == 200
    asked = [{"name": name, "base_url": server.base_url} for name in (MODELS[0], "another")]
    process = workplace.start(workplace.configure("unknown", asked))
    output, _ = process.communicate(timeout=120.0)
    assert process.returncode == ExitCode.ENDPOINTS, output
    assert "another" in output
