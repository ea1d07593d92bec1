"""(a) One vLLM server with LoRA adapters as several models.

The base is ranked as the adapter that changes nothing. vLLM for CPUs answers for the base itself with the last adapter
wherever adapters are asked at the same time (it looks adapter -1 up in a list), so that its score would be another's.
Nor are log-probabilities of prompts asked for here: with adapters, they end such a server.
"""

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest
from engine_runs import SAMPLING, Finished, Workplace, require_exact_bits, require_exact_ranking, true_score
from engine_servers import Server, vllm
from family import adapters, base, checkpoints, weights

from adaptive_eval.base.seeds import hashed_base

pytestmark = pytest.mark.engine

MODELS = list(adapters())
FIXED = {"min": 8, "max": 8}


@pytest.fixture(scope="module")
def server(serve: Callable[..., None], logs: Path) -> Server:
    server = vllm(checkpoints()[base()], logs / "vllm.log", adapters())
    serve(server)
    return server


def models(server: Server) -> list[dict[str, object]]:
    return [{"name": name, "base_url": server.base_url} for name in MODELS]


@pytest.fixture(scope="module")
def ranked(server: Server, tmp_path_factory: pytest.TempPathFactory) -> tuple[Finished, dict[str, float]]:
    """A run with log-probabilities, and what the server's counters rose by."""
    workplace = Workplace.make(tmp_path_factory.mktemp("ranked"))
    config = workplace.configure("ranked", models(server), sampling=SAMPLING | {"logprobs": True})
    before = server.metrics()
    run = workplace.run(config)
    after = server.metrics()
    return run, {name: value - before.get(name, 0.0) for name, value in after.items()}


def test_the_ranking_is_that_of_the_true_scores(ranked: tuple[Finished, dict[str, float]]) -> None:
    run, _ = ranked
    require_exact_ranking(run, {name: true_score(weights(name)) for name in MODELS})
    assert len(run.records) < len(MODELS) * 30 * 80 / 4


def test_tokens_are_those_that_servers_count(ranked: tuple[Finished, dict[str, float]]) -> None:
    run, counted = ranked
    prompt, completion = run.tokens()
    assert counted["vllm:prompt_tokens_total"] == prompt
    assert counted["vllm:generation_tokens_total"] == completion
    assert sum(row["tokens"] for row in run.results["models"]) == prompt + completion


def test_completion_bpt_is_that_of_the_weights(ranked: tuple[Finished, dict[str, float]]) -> None:
    require_exact_bits(ranked[0])


@pytest.mark.parametrize("concurrency", [1, {"in_flight": 32, "samples_per_request": 4}])
def test_outcomes_depend_on_neither_concurrency_nor_answers_per_request(
    server: Server, ranked: tuple[Finished, dict[str, float]], workplace: Workplace, concurrency: object
) -> None:
    run, _ = ranked
    sampling = SAMPLING | {"logprobs": True}
    other = workplace.run(workplace.configure("ranked", models(server), sampling=sampling, concurrency=concurrency))
    both = other.outcomes.keys() & run.outcomes.keys()  # how much is asked ahead of a look depends on slots
    assert {key: other.outcomes[key] for key in both} == {key: run.outcomes[key] for key in both}
    assert other.looks == run.looks
    assert {key: bits(other)[key] for key in both} == {key: bits(run)[key] for key in both}


def bits(run: Finished) -> dict[tuple[str, str, int], float | None]:
    return {(record.model, record.question, record.trial): record.answer.completion_bpt for record in run.records}


def test_requests_for_several_answers_have_seeds_in_a_row(server: Server, workplace: Workplace) -> None:
    """And each answer is what a bare request with that seed alone gets. The first eight come in two requests."""
    limits = {"in_flight": 32, "samples_per_request": 8}
    before = chat_requests(server)
    run = workplace.run(
        workplace.configure("eights", models(server), trials=FIXED, concurrency=limits), accepted=(0, 3)
    )
    assert len(run.records) == len(MODELS) * 30 * 8 == 4 * (chat_requests(server) - before)
    seeds = defaultdict[tuple[str, str], dict[int, str]](dict)
    for record in run.records:
        seeds[record.model, record.question][record.answer.seed] = record.answer.text
    for (model, question), texts in seeds.items():
        first = hashed_base(2026, model, question)
        assert sorted(texts) == list(range(first, first + 8))
    for (model, question), texts in list(seeds.items())[::9]:
        assert texts == {seed: bare(server, model, question, seed) for seed in texts}


def chat_requests(server: Server) -> float:
    """Requests for answers that the server has had so far."""
    return server.metrics('handler="/v1/chat/completions"').get("http_requests_total", 0.0)


def bare(server: Server, model: str, question: str, seed: int) -> str:
    """The answer to a request that this project had no part in."""
    body = {"model": model, "messages": [{"role": "user", "content": question}], "seed": seed, **SAMPLING}
    reply = httpx2.post(f"{server.base_url}/chat/completions", json=body, timeout=60.0)
    return str(reply.json()["choices"][0]["message"]["content"])
