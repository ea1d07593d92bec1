"""Several judges: each gives its votes on every answer, and more than half of all decide."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from live_runs import ENDED, MODELS, RunOutcome, Site, small_world, stored

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.config.load import load_config
from adaptive_eval.report.records import AWAITS_VERDICT
from adaptive_eval.report.results_file import read_results
from adaptive_eval.simulate.judging import SimulatedJudge
from adaptive_eval.simulate.server import SimulatedServer, serving

ALWAYS_WRONG = (0.0, 1.0)
AWAY = "http://127.0.0.1:9/v1"
QUICK = {"in_flight": 4, "retry_for": 0}


@pytest.fixture(scope="module")
def judges() -> Iterator[tuple[str, str, str]]:
    """Servers of the small world: two with a judge that makes no mistakes, one whose judge is always wrong."""
    with ExitStack() as stack:
        kinds = (SimulatedJudge(), SimulatedJudge(), SimulatedJudge(says_right=ALWAYS_WRONG, structured=False))
        first, second, third = (
            stack.enter_context(serving(SimulatedServer(small_world(), judge=judge))) for judge in kinds
        )
        yield first, second, third


def server(url: str, **fields: object) -> dict[str, object]:
    return {"base_url": url, "model": "judge", **fields}


def settings(first: str, *further: str, **changes: object) -> dict[str, object]:
    models = [{"name": name, "base_url": first} for name in MODELS]
    grader = {"kind": "judge", "concurrency": {"in_flight": 4}, "server": [server(url) for url in (first, *further)]}
    return {"models": models, "grader": grader | changes, "trials": {"min": 3, "max": 6}, "concurrency": QUICK}


@pytest.mark.slow
def test_the_majority_of_all_votes_decides(site: Site, judges: tuple[str, str, str]) -> None:
    right, too, wrong = judges
    prices = [{"input": 1.0, "output": 2.0}, {"input": 10.0, "output": 20.0}]
    panel = [server(right, price=prices[0]), server(too, price=prices[1]), server(wrong)]
    ended = site.run(site.write(**settings(right, server=panel)))
    assert ended.exit_code in ENDED, ended.stderr
    keyed = site.write("keyed", **{**settings(right), "grader": "math"})
    assert site.run(keyed, "--run-dir", str(site.directory("keyed"))).exit_code in ENDED
    assert RunOutcome.of(site.directory()) == RunOutcome.of(site.directory("keyed"))
    trials = stored(site)
    assert {trial.signals["agreement"] for trial in trials} == {2 / 3}
    alone = site.write("alone", **settings(right, server=server(right, price=prices[0])))
    assert site.run(alone, "--run-dir", str(site.directory("alone"))).exit_code in ENDED
    singles = {(single.model, single.question, single.trial): single for single in stored(site, "alone")}
    for trial in trials:
        of_one = singles[trial.model, trial.question, trial.trial]
        # the two that are sent the same text cost 1 and 10 times as much; the third has no price
        assert float(trial.signals["judge_usd"]) == pytest.approx(11.0 * float(of_one.signals["judge_usd"]), rel=0.05)
        assert float(trial.signals["judge_prompt_tokens"]) > 2.5 * float(of_one.signals["judge_prompt_tokens"])
    assert {tuple(float(trial.signals[f"agreement_{at}"]) for at in (1, 2, 3)) for trial in trials} == {(1.0, 1.0, 0.0)}
    results = read_results(site.directory())
    assert results is not None and "judge_unstructured" in {warning.kind for warning in results.warnings}


@pytest.mark.slow
def test_answers_without_a_majority_have_no_grade_until_there_is_one(site: Site, judges: tuple[str, str, str]) -> None:
    right, _, wrong = judges
    undecided = site.run(site.write(**settings(right, wrong)))
    assert undecided.exit_code == ExitCode.ENDPOINTS and "judge's votes differ" in undecided.output
    assert {str(trial.grader_error).partition(":")[0] for trial in stored(site)} - {AWAITS_VERDICT} == {
        "the judge's votes differ"
    }
    before = [trial.answer for trial in stored(site)]
    # the address of a judge changes no meaning: the next start asks the one that is there now
    assert site.run(site.write(**settings(right, right))).exit_code in ENDED
    after = stored(site)
    assert [trial.answer for trial in after][: len(before)] == before
    assert all(trial.category is not None for trial in after)


@pytest.mark.slow
def test_one_of_three_judges_may_be_unreachable(site: Site, judges: tuple[str, str, str]) -> None:
    right, too, _ = judges
    assert site.run(site.write(**settings(right, too, AWAY))).exit_code in ENDED
    assert {trial.signals["agreement"] for trial in stored(site)} == {2 / 3}


@pytest.mark.slow
def test_caps_reserve_what_every_judge_may_cost(site: Site, judges: tuple[str, str, str]) -> None:
    right, too, wrong = judges
    price = {"input": 1.0, "output": 2.0}
    models = [{"name": name, "base_url": right, "price": price} for name in MODELS]
    first = server(right, price=price)
    paid = [server(url, api_key_env="KEY") for url in (too, wrong)]
    capped = {**settings(right, server=[first, *paid]), "models": models, "budget": {"usd": 20.0}}
    refused = site.run(site.write(**capped))
    assert refused.exit_code == ExitCode.CONFIGURATION
    assert "add grader.server.1.price" in refused.stderr and "add grader.server.2.price" in refused.stderr
    panel = [first, *(server(url, price={"input": 2.0, "output": 4.0}) for url in (too, wrong))]
    config = load_config(site.write(**{**capped, **settings(right, server=panel), "models": models}))
    alone = load_config(site.write("alone", **{**settings(right, server=first), "models": models}))
    assert config.grader.worst_cost([]).usd == pytest.approx(5.0 * alone.grader.worst_cost([]).usd)  # type: ignore[union-attr]
    ended = site.run(site.write(**{**settings(right, server=panel), "models": models, "budget": {"usd": 20.0}}))
    assert ended.exit_code in ENDED
    results = read_results(site.directory())
    assert results is not None and results.cost.in_all("usd") <= 20.0
