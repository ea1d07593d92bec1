"""Forecasts include the cost of grading by a judge, as in a pilot or else guessed."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import typed
from live_runs import ENDED, MODELS, Site, small_world

from adaptive_eval.config.load import load_config
from adaptive_eval.config.prepare import prepare
from adaptive_eval.report.results_file import read_results
from adaptive_eval.simulate.judging import SimulatedJudge
from adaptive_eval.simulate.server import SimulatedServer, serving
from adaptive_eval.study.grading import share_of_answers

PRICE = {"input": 1.0, "output": 2.0}
DEAR = {"input": 30.0, "output": 40.0}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(SimulatedServer(small_world(), judge=SimulatedJudge())) as url:
        yield url


def settings(url: str, **changes: object) -> dict[str, object]:
    models = [{"name": name, "base_url": url, "price": PRICE} for name in MODELS]
    grader = {"kind": "judge", "server": {"base_url": url, "model": "judge", "price": DEAR}} | changes
    return {"models": models, "grader": grader, "trials": {"min": 6, "max": 6}}


def planned(site: Site, config: Path, *options: str) -> tuple[dict[str, Any], str]:
    """The costs of the configured run, and the output."""
    result = typed("plan", config, "--simulations", "10", "--json", site.folder / "plan.json", *options, code=0)
    return json.loads((site.folder / "plan.json").read_text())["need"]["costs"], result.output


@pytest.mark.slow
def test_a_pilot_says_what_the_run_will_cost(site: Site, url: str) -> None:
    """A fixed design asks for all trials: the plan must state what they cost in a run."""
    assert site.run(site.write("pilot", **settings(url)), "--run-dir", str(site.directory("pilot"))).exit_code in ENDED
    config = site.write(**settings(url), seed=1)
    costs, output = planned(site, config, "--pilot", str(site.directory("pilot")))
    assert "tokens of the judge, as in the pilot" in output and "times do not include grading" in output
    assert site.run(config).exit_code in ENDED
    results = read_results(site.directory())
    assert results is not None and results.cost.grading is not None
    assert results.cost.grading.usd > 0.5 * results.cost.usd
    assert costs["usd"]["median"] == pytest.approx(results.cost.usd, rel=0.05)
    assert costs["tokens"]["median"] == pytest.approx(results.cost.tokens, rel=0.05)


@pytest.mark.slow
def test_without_a_pilot_every_judge_and_every_vote_is_guessed(site: Site, url: str) -> None:
    none, _ = planned(site, site.write("none", **{**settings(url), "grader": "math"}))
    single, output = planned(site, site.write("one", **settings(url)))
    assert "a grade is guessed to take" in output
    both = [{"base_url": url, "model": name, "price": price} for name, price in (("judge", DEAR), ("other", PRICE))]
    triple, _ = planned(site, site.write("three", **settings(url, votes=3)))
    double, _ = planned(site, site.write("two", **settings(url, server=both)))

    def more(costs: dict[str, Any], of: str) -> float:
        return float(costs[of]["median"] - none[of]["median"])

    assert more(single, "tokens") > 0 and more(single, "usd") > 0
    assert more(triple, "usd") == pytest.approx(3.0 * more(single, "usd"), rel=0.01)
    assert more(double, "tokens") == pytest.approx(2.0 * more(single, "tokens"), rel=0.01)
    assert more(single, "usd") < more(double, "usd") < 1.2 * more(single, "usd")


@pytest.mark.parametrize(
    ("settings", "share"), [([], 0.5), (["trials.policy=uniform"], 5 / 8), (["trials.min=9", "trials.max=9"], 5 / 8)]
)
def test_a_benchmark_is_graded_as_often_as_it_is_asked(site: Site, settings: list[str], share: float) -> None:
    """Five easy questions and three hard ones, in two benchmarks of equal weight."""
    prepared = prepare(load_config(site.gated_benchmarks(), settings))
    assert share_of_answers(prepared, "easy") == pytest.approx(share)
    assert share_of_answers(prepared, "") == pytest.approx(1.0)
