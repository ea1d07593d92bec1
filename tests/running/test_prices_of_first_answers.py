"""The cheapest is chosen by what first answers have cost, so that these are never at another price than the run."""

from pathlib import Path

import pytest
from live_runs import MODELS, Site
from stored_runs import stored_trials

from adaptive_eval.base.errors import ExitCode

CHEAPEST = {"kind": "cheapest", "delta": "20%"}
REFUSAL = "the price or the gpus of bob are not those of its first answers"


def write(site: Site, bob: float, **changes: object) -> Path:
    prices = {name: bob if name == "bob" else 1.0 for name in MODELS}
    models = [
        {"name": name, "base_url": site.base_url, "price": {"input": price, "output": price}}
        for name, price in prices.items()
    ]
    return site.write(**{"models": models, "objective": CHEAPEST, "trials": {"min": 1, "max": 2}, **changes})


def costs_of_bob(site: Site) -> set[float]:
    """What a token of its answers has cost."""
    trials = [trial for trial in stored_trials(site.directory()) if trial.model == "bob"]
    return {round(trial.cost.usd / trial.cost.tokens * 1e6, 6) for trial in trials}


@pytest.mark.slow
@pytest.mark.parametrize(
    "first",
    [
        {"budget": {"usd": 0.3}},  # ends before its first look
        {"objective": "ranking"},
    ],
)
def test_a_price_stays_that_of_the_first_answers(site: Site, first: dict[str, object]) -> None:
    site.run(write(site, 100.0, **first))
    assert costs_of_bob(site) == {100.0}
    refused = site.run(write(site, 0.5))
    assert refused.exit_code == ExitCode.CONFIGURATION and REFUSAL in refused.stderr
    assert site.run(write(site, 0.5, objective="ranking")).exit_code != ExitCode.CONFIGURATION
    assert REFUSAL in site.run(write(site, 0.5)).stderr, "at the price of the last start, but not of the first answers"
    assert REFUSAL not in site.run(write(site, 100.0)).stderr


@pytest.mark.slow
def test_answers_of_a_dry_run_at_another_price_are_not_used(site: Site) -> None:
    site.run(write(site, 100.0), "--dry-run")
    ended = site.run(write(site, 0.5))
    assert "the answers of the dry run are not used" in ended.stderr
    assert costs_of_bob(site) == {0.5}
