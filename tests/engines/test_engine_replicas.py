"""(b) Two vLLM servers as replicas of one checkpoint, at three temperatures; one of them dies, or the only one."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from arithmetic import prompt_tokens
from engine_runs import BITS, Finished, Workplace, require_exact_ranking, true_score
from engine_servers import Server, vllm
from family import checkpoints, weights
from llama import token_log_probabilities

from adaptive_eval.endpoints.answers import mean_bits
from adaptive_eval.notes import ReplicaBack, ReplicaLost

pytestmark = pytest.mark.engine

CHECKPOINT = "abacus-900"
TEMPERATURES = {"cold": 0.4, "plain": 1.0, "hot": 2.0}
TRIALS = {"min": 40, "max": 40}
"""Of each question by each model, where a server is killed: more than are answered before that is noticed."""


@pytest.fixture(scope="module")
def servers(serve: Callable[..., None], logs: Path) -> list[Server]:
    replicas = [vllm(checkpoints()[CHECKPOINT], logs / f"vllm-{number}.log") for number in (1, 2)]
    serve(*replicas)
    return replicas


def models(servers: Sequence[Server]) -> list[dict[str, object]]:
    """The same replicas at different temperatures, with log-probabilities of the prompt."""
    asked = {"base_url": [server.base_url for server in servers], "model": CHECKPOINT, "prompt_logprobs": "vllm"}
    return [{"name": name, "sampling": {"temperature": value}, **asked} for name, value in TEMPERATURES.items()]


@pytest.fixture(scope="module")
def undisturbed(servers: list[Server], tmp_path_factory: pytest.TempPathFactory) -> Finished:
    workplace = Workplace.make(tmp_path_factory.mktemp("undisturbed"))
    return workplace.run(workplace.configure("long", models(servers), trials=TRIALS))


def test_the_ranking_is_that_of_the_true_scores(servers: list[Server], workplace: Workplace) -> None:
    run = workplace.run(workplace.configure("ranked", models(servers)))
    require_exact_ranking(run, {name: true_score(weights(CHECKPOINT), value) for name, value in TEMPERATURES.items()})


def test_both_replicas_are_at_work_where_there_is_work_for_both(servers: list[Server], undisturbed: Finished) -> None:
    """In a run of few trials the one that is quicker to warm up, or has a core to itself, may give nearly all."""
    shares = [sum(record.answer.replica == server.base_url for record in undisturbed.records) for server in servers]
    assert min(shares) > 0.2 * sum(shares)


def test_prompt_bpt_is_that_of_the_weights(undisturbed: Finished) -> None:
    for record in undisturbed.records:
        assert record.answer.prompt_bpt is not None
        expected = mean_bits(list(token_log_probabilities(weights(CHECKPOINT), prompt_tokens(record.question))))
        assert record.answer.prompt_bpt == pytest.approx(expected, abs=BITS)


def test_killed_workers_lose_nothing(servers: list[Server], undisturbed: Finished, workplace: Workplace) -> None:
    """The other one answers meanwhile; this one is started again, and comes back into use."""
    victim = servers[0]
    config = workplace.configure("long", models(servers), trials=TRIALS)
    process = workplace.start(config)
    workplace.await_trials(config, 300, process)
    victim.kill_worker()
    victim.await_end()
    victim.start()
    victim.await_health()
    run = workplace.finish(config, process)
    require_same(run, undisturbed)
    assert any(record.answer.attempts > 1 for record in run.records)


def test_an_only_server_may_come_back(servers: list[Server], undisturbed: Finished, workplace: Workplace) -> None:
    victim = servers[1]
    config = workplace.configure("long", models([victim]), trials=TRIALS)
    process = workplace.start(config)
    workplace.await_trials(config, 300, process)
    victim.kill_worker()
    victim.await_end()
    victim.start()
    run = workplace.finish(config, process)
    require_same(run, undisturbed)
    assert {ReplicaLost.KIND, ReplicaBack.KIND} <= set(run.events)


def require_same(run: Finished, undisturbed: Finished) -> None:
    assert len(run.records) == len(undisturbed.records)
    assert run.outcomes == undisturbed.outcomes
    assert run.looks == undisturbed.looks
    assert run.order == undisturbed.order
