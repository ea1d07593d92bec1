"""(e) A pool: six models on two places, with llama-server; settled ones are released, and a swap is killed half-way."""

from pathlib import Path

import pytest
from engine_pool import SIX, killed_in_a_swap, pooled, released_before_the_end
from engine_runs import Finished, Workplace, require_exact_ranking, true_score
from family import weights

from adaptive_eval.notes import ServerLaunched, ServerLaunching

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    workplace = Workplace.make(tmp_path_factory.mktemp("undisturbed"))
    return workplace.run(pooled(workplace, "undisturbed"))


def test_the_ranking_is_that_of_the_true_scores(undisturbed: Finished) -> None:
    require_exact_ranking(undisturbed, {name: true_score(weights(name)) for name in SIX})


def test_settled_models_give_up_their_places_while_others_go_on(undisturbed: Finished) -> None:
    assert released_before_the_end(undisturbed)
    servers = undisturbed.results["servers"]
    assert len(servers) == len(SIX) and sum(row["starts"] for row in servers) >= len(SIX)
    held = [row["server_seconds"] for row in undisturbed.results["models"]]
    assert all(seconds > 0.0 for seconds in held)


def test_a_run_that_is_killed_in_a_swap_ends_as_one_that_was_not(undisturbed: Finished, tmp_path: Path) -> None:
    workplace = Workplace.make(tmp_path)
    config = pooled(workplace, "killed")
    stored = killed_in_a_swap(workplace, config)
    finished = workplace.run(config)
    assert finished.order == undisturbed.order and finished.tiers == undisturbed.tiers
    assert [pair["verdict"] for pair in finished.results["pairs"]] == [
        pair["verdict"] for pair in undisturbed.results["pairs"]
    ]
    assert finished.events.count(ServerLaunching.KIND) > finished.events.count(ServerLaunched.KIND), (
        "one was on its way"
    )
    assert finished.events.count(ServerLaunched.KIND) >= len(SIX), "and was started again"
    answers = {(record.model, record.question, record.trial): record.answer for record in finished.records}
    assert all(answers[key] == answer for key, answer in stored.items()), "nothing that was there is asked again"
    assert {key: outcome[0] for key, outcome in finished.outcomes.items() if key in undisturbed.outcomes} == {
        key: outcome[0] for key, outcome in undisturbed.outcomes.items() if key in finished.outcomes
    }, "the same trial has the same seed"
