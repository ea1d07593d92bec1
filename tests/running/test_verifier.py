"""Runs whose answers are graded by a verifier: over HTTP, with kills, caps, and servers that cannot verify."""

import re
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace

import pytest
from click.testing import Result
from live_runs import ENDED, MODELS, RunOutcome, Site, small_world, stored
from stored_runs import events_in
from typer.testing import CliRunner

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.cli import app
from adaptive_eval.machine.charges import Charge, ChargeKind
from adaptive_eval.notes import BaselineAsked
from adaptive_eval.report.records import AWAITS_VERDICT, TrialRecord
from adaptive_eval.simulate.faults import Faults
from adaptive_eval.simulate.judging import OTHERS_SCORE, SimulatedVerifier
from adaptive_eval.simulate.server import SimulatedServer, serving
from adaptive_eval.simulate.worlds import Latency
from adaptive_eval.store.read import LogReader

LEANING = (0.7, 0.1, -0.9)
SURE = 4.0


@pytest.fixture(scope="module")
def fair_url() -> Iterator[str]:
    """A server of the small world, and of a verifier that is right, and leans to A without content."""
    with serving(SimulatedServer(small_world(), verifier=SimulatedVerifier(SURE, LEANING))) as url:
        yield url


def verified_by(url: str, cost: Mapping[str, object] | None = None, **changes: object) -> dict[str, object]:
    return {"kind": "verifier", "server": {"base_url": url, "model": "verifier", **(cost or {})}, **changes}


def settings(url: str, **changes: object) -> dict[str, object]:
    models = [{"name": name, "base_url": url} for name in MODELS]
    return {"models": models, "grader": verified_by(url), "trials": {"min": 2, "max": 4}} | changes


def baselines(site: Site) -> list[BaselineAsked]:
    return events_in(site.directory(), BaselineAsked)


def labels(trial: TrialRecord) -> list[float]:
    return [float(trial.signals[f"verifier_{letter}"]) for letter in "abc"]


@pytest.mark.slow
def test_without_a_key_grader_the_verifier_says_what_is_correct(site: Site, fair_url: str) -> None:
    assert site.run(site.write(**settings(fair_url))).exit_code in ENDED
    keyed = site.write("keyed", **settings(fair_url, grader="math"))
    assert site.run(keyed, "--run-dir", str(site.directory("keyed"))).exit_code in ENDED
    assert RunOutcome.of(site.directory()) == RunOutcome.of(site.directory("keyed"))
    # what was graded by a key is verified afterwards, and goes on
    config = site.write("keyed", **settings(fair_url, rubric="verifier_only"))
    done = CliRunner().invoke(app, ["regrade", str(site.directory("keyed")), "--config", str(config)])
    assert done.exit_code == ExitCode.REACHED, done.output
    for trial in stored(site, "keyed"):
        assert trial.category == (3 if trial.signals["verdict"] == "correct" else 2)
    assert site.run(config, "--run-dir", str(site.directory("keyed"))).exit_code in ENDED


@pytest.mark.slow
def test_a_regrade_needs_room_for_the_request_without_content_too(site: Site, fair_url: str) -> None:
    assert site.run(site.write(**settings(fair_url, grader="math"))).exit_code in ENDED

    def regrade(tokens: int) -> Result:
        config = site.write("verified", **settings(fair_url, budget={"tokens": tokens}))
        return CliRunner().invoke(app, ["regrade", str(site.directory()), "--config", str(config)])

    def needed(refused: Result) -> int:
        words = " ".join(refused.stderr.replace(",", "").split())
        assert refused.exit_code == ExitCode.CONFIGURATION and "raise budget.tokens or add --beyond-limits" in words
        return sum(map(int, re.findall(r"up to (\d+) tokens with (\d+) spent", words)[0]))

    limit = needed(regrade(2000))
    assert needed(regrade(limit - 1)) == limit
    done = regrade(limit)
    assert done.exit_code == ExitCode.REACHED, done.output


@pytest.mark.parametrize(
    ("verifier", "grader", "message"),
    [
        (SimulatedVerifier(scored=False), {}, "returns no log-probabilities"),
        (
            SimulatedVerifier(leaning=(9.0, 9.0, -9.0)),
            {"sampling": {"extra_body": {"top_logprobs": 3}}},
            "do not include C",
        ),
        (
            SimulatedVerifier(leaning=(-20.0,) * 3),
            {"sampling": {"extra_body": {"top_logprobs": 5}}},
            "must reply with one of A, B, C",
        ),
    ],
)
def test_a_server_that_cannot_verify_is_reported_before_anything_is_spent(
    site: Site, verifier: SimulatedVerifier, grader: dict[str, object], message: str
) -> None:
    server = SimulatedServer(small_world(), verifier=verifier)
    with serving(server) as url:
        ended = site.run(site.write(**settings(url, grader=verified_by(url, **grader))))
    assert ended.exit_code == ExitCode.CONFIGURATION
    assert message in re.sub(r"\s+", " ", ended.output)
    assert server.counts["answered"] == 1 and not stored(site)


@pytest.mark.slow
def test_a_missing_label_has_a_bound_and_too_wide_a_bound_is_no_grade(site: Site) -> None:
    # of three tokens one is often a word instead of the least likely label
    for name, sure, graded in (("narrow", 9.0, True), ("wide", 0.5, False)):
        verifier = SimulatedVerifier(sure, noise=1.0, talks=-OTHERS_SCORE - 0.3)
        with serving(SimulatedServer(small_world(), verifier=verifier)) as url:
            grader = verified_by(url, sampling={"extra_body": {"top_logprobs": 3}})
            config = site.write(name, **settings(url, grader=grader, trials={"min": 2, "max": 2}))
            site.run(config, "--run-dir", str(site.directory(name)))
        for trial in stored(site, name):
            if trial.category is None:
                assert trial.grader_error == AWAITS_VERDICT or "so the probabilities are uncertain" in str(
                    trial.grader_error
                )
            elif trial.signals["verifier_open"]:
                assert 0.0 < min(labels(trial)) <= float(trial.signals["verifier_open"]) + 1e-9 < 0.06
        assert any(trial.category is not None for trial in stored(site, name)) or not graded
        assert all(trial.category is not None for trial in stored(site, name)) == graded


@pytest.mark.slow
def test_a_lost_baseline_request_counts_each_time(site: Site, fair_url: str) -> None:
    world = replace(small_world(), latency=Latency(median=1.2))
    faulty = SimulatedServer(world, faults=Faults(reset=0.5), verifier=SimulatedVerifier(SURE, LEANING), seed=3)
    with serving(faulty) as url:
        grader = verified_by(url, concurrency={"in_flight": 64})
        capped = {"budget": {"tokens": 100_000_000}, "concurrency": 64, "trials": {"min": 2, "max": 2}}
        config = site.write(**settings(fair_url, grader=grader, **capped))
        assert site.run(config).exit_code in ENDED
    assert len(baselines(site)) == 1 and faulty.counts["reset"] > 0
    with closing(LogReader.open(site.directory())) as reader:
        records = [record for rows in reader.log(in_whole_commits=False) for _, record in rows]
        charges = [record for record in records if isinstance(record, Charge) and record.kind is ChargeKind.BASELINE]
    lost = len(charges) - 2  # one request came through, and its charge was corrected
    assert sum(charge.cost.tokens for charge in charges) >= lost * 32768
    assert all(trial.category is not None for trial in stored(site))
